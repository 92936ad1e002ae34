// SPDX-License-Identifier: MIT
#include "weir/arch/cpu.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace weir {
namespace {

// Runs the body on a thread that stays on one CPU.
template <class Body>
void on_one_cpu(Body body) {
  std::thread([&] {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &allowed)) {
        CPU_ZERO(&allowed);
        CPU_SET(cpu, &allowed);
        break;
      }
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof allowed, &allowed), 0);
    body();
  }).join();
}

TEST(Cpu, CycleCounterNeverGoesBackOnOneCpu) {
  on_one_cpu([] {
    std::uint64_t last = cycle_counter();
    for (int i = 0; i < 100'000; ++i) {
      const std::uint64_t now = cycle_counter();
      ASSERT_GE(now, last);
      last = now;
    }
  });
}

TEST(Cpu, CycleCounterAdvances) {
  const std::uint64_t start = cycle_counter();
  if (start == 0) GTEST_SKIP() << "no counter on this processor";
  std::uint64_t now = start;
  for (int i = 0; i < 1'000'000 && now == start; ++i) {
    cpu_pause();
    now = cycle_counter();
  }
  EXPECT_NE(now, start);
}

TEST(Cpu, PrefetchOfAnyAddressIsHarmless) {
  int here = 0;
  for (const void* address : {static_cast<const void*>(&here), static_cast<const void*>(nullptr),
                              reinterpret_cast<const void*>(~std::uintptr_t{0} >> 1)}) {
    prefetch_for_read(address);
    prefetch_for_write(address);
  }
  EXPECT_EQ(here, 0);
}

}  // namespace
}  // namespace weir
