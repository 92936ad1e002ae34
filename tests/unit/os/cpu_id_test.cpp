// SPDX-License-Identifier: MIT
#include "weir/os/cpu_id.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <cerrno>
#include <thread>

#include "weir/os/topology.hpp"

namespace weir {
namespace {

TEST(CpuIdOfThread, IsOneOfTheAllowedCpus) {
  const IdSet& allowed = topology().allowed_cpus;
  for (int i = 0; i < 1000; ++i) {
    const CpuId cpu = current_cpu();
    ASSERT_TRUE(allowed.contains(cpu.value)) << cpu.value;
    ASSERT_LT(cpu.value, topology().cpu_limit);
  }
}

TEST(CpuIdOfThread, FollowsTheThreadToEveryCpuItIsPinnedTo) {
  const IdSet& allowed = topology().allowed_cpus;
  std::thread([&] {
    for (std::uint32_t id = allowed.next(0); id != IdSet::kNone; id = allowed.next(id + 1)) {
      cpu_set_t* set = CPU_ALLOC(IdSet::kLimit);
      CPU_ZERO_S(CPU_ALLOC_SIZE(IdSet::kLimit), set);
      CPU_SET_S(id, CPU_ALLOC_SIZE(IdSet::kLimit), set);
      const int pinned = sched_setaffinity(0, CPU_ALLOC_SIZE(IdSet::kLimit), set);
      CPU_FREE(set);
      ASSERT_EQ(pinned, 0);
      EXPECT_EQ(current_cpu().value, id);
      EXPECT_EQ(current_cpu_slow().value, id);
    }
  }).join();
}

TEST(CpuIdOfThread, LeavesErrnoAlone) {
  errno = 4711;
  EXPECT_NE(current_cpu_slow(), kNoCpu);
  EXPECT_EQ(errno, 4711);
}

TEST(CpuIdOfThread, CanBeFakedPerThreadInHookBuilds) {
  if (!kTestHooks) GTEST_SKIP() << "built without test hooks";
  t_fake_cpu = 4095;
  EXPECT_EQ(current_cpu().value, 4095U);
  std::thread([] { EXPECT_TRUE(topology().allowed_cpus.contains(current_cpu().value)); }).join();
  t_fake_cpu = 0;
  EXPECT_EQ(current_cpu().value, 0U);
  t_fake_cpu = -1;
  EXPECT_TRUE(topology().allowed_cpus.contains(current_cpu().value));
}

TEST(CpuIdOfThread, IgnoresAFakeInReleaseBuilds) {
  if (kTestHooks) GTEST_SKIP() << "built with test hooks";
  t_fake_cpu = 4095;
  EXPECT_TRUE(topology().allowed_cpus.contains(current_cpu().value));
  t_fake_cpu = -1;
}

}  // namespace
}  // namespace weir
