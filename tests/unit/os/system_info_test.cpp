// SPDX-License-Identifier: MIT
#include "weir/os/system_info.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/rseq.h>
#include <sys/utsname.h>

#include "tests/support/fake_root.hpp"
#include "tests/support/process.hpp"
#include "weir/os/topology.hpp"

namespace weir {
namespace {

using test::FakeRoot;

TEST(SystemInfo, OfThisMachineIsComplete) {
  const SystemInfo info = system_info();
  utsname names{};
  ASSERT_EQ(uname(&names), 0);
  EXPECT_EQ(info.kernel_release, names.release);
  EXPECT_EQ(info.architecture, names.machine);
  EXPECT_FALSE(info.cpu_model.empty());
  EXPECT_EQ(info.cpus_allowed, topology().allowed_cpus.count());
  EXPECT_EQ(info.cpu_limit, topology().cpu_limit);
  EXPECT_EQ(info.numa_nodes, topology().nodes.count());
  EXPECT_EQ(info.rseq.available, __rseq_size != 0);
  EXPECT_EQ(info.rseq_size, __rseq_size);
  for (const Capability* one : {&info.transparent_huge, &info.explicit_huge, &info.rseq,
                                &info.membarrier_rseq, &info.memfd, &info.af_xdp, &info.io_uring}) {
    EXPECT_FALSE(one->why.empty());
    EXPECT_EQ(one->why.find('\n'), std::string::npos);
  }
}

TEST(SystemInfo, LeavesNothingOpenAndNothingMapped) {
  static_cast<void>(system_info());  // first use of the allocator and the locale
  const std::size_t files = test::file_count();
  const std::size_t mappings = test::mapping_count();
  static_cast<void>(system_info());
  EXPECT_EQ(test::file_count(), files);
  if (!test::kSanitized) {
    EXPECT_EQ(test::mapping_count(), mappings);
  }
}

TEST(SystemInfo, ReadsHugePagesCpuAndNodesFromFiles) {
  const FakeRoot root;
  root.write("/proc/cpuinfo",
             "processor\t: 0\nmodel name\t: Weir 9000 @ 1 GHz\n\nprocessor\t: 1\n");
  root.write("/proc/self/status", "Cpus_allowed_list:\t0-2\n");
  root.write("/sys/devices/system/cpu/possible", "0-7\n");
  root.write("/sys/devices/system/node/online", "0-1\n");
  root.write("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  root.write("/sys/kernel/mm/transparent_hugepage/shmem_enabled",
             "always within_size [advise] never deny force\n");
  root.write("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "1\n");
  root.write("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "0\n");
  root.write("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "64\n");
  root.write("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "12\n");
  const SystemInfo info = system_info(root.path());
  EXPECT_EQ(info.cpu_model, "Weir 9000 @ 1 GHz");
  EXPECT_EQ(info.cpus_allowed, 3U);
  EXPECT_EQ(info.cpu_limit, 8U);
  EXPECT_EQ(info.numa_nodes, 2U);
  EXPECT_EQ(info.thp_mode, "never");
  EXPECT_EQ(info.thp_shmem_mode, "advise");
  EXPECT_FALSE(info.transparent_huge.available);
  ASSERT_EQ(info.huge_pools.size(), 2U);
  EXPECT_EQ(info.huge_pools[0].page_size, 2_MiB);
  EXPECT_EQ(info.huge_pools[0].total, 64U);
  EXPECT_EQ(info.huge_pools[0].free, 12U);
  EXPECT_EQ(info.huge_pools[1].page_size, 1_GiB);
  EXPECT_TRUE(info.explicit_huge.available);
  EXPECT_EQ(info.explicit_huge.why, "12 pages of 2 MiB are free");
}

TEST(SystemInfo, SaysWhatIsMissingWhereThereIsNothingToRead) {
  const FakeRoot root;
  const SystemInfo info = system_info(root.path());
  EXPECT_EQ(info.thp_mode, "");
  EXPECT_EQ(info.transparent_huge.why, "not in this kernel");
  EXPECT_TRUE(info.huge_pools.empty());
  EXPECT_FALSE(info.explicit_huge.available);
  EXPECT_EQ(info.cpu_model, "unknown");
  root.write("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n");
  EXPECT_EQ(system_info(root.path()).explicit_huge.why,
            "none set aside or none free; write a number to /proc/sys/vm/nr_hugepages");
  root.write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  EXPECT_TRUE(system_info(root.path()).transparent_huge.available);
}

TEST(SystemInfo, TellsTheLimitsOfTheProcess) {
  if (test::kSanitized || test::emulated()) GTEST_SKIP() << "limits cannot be set here";
  EXPECT_EQ(test::run_in_child([] {
              rlimit space{};
              getrlimit(RLIMIT_AS, &space);
              space.rlim_cur = rlim_t{8} << 30;
              if (setrlimit(RLIMIT_AS, &space) != 0) return 1;
              if (system_info().address_space_limit != 8_GiB) return 2;
              space.rlim_cur = space.rlim_max;
              if (setrlimit(RLIMIT_AS, &space) != 0) return 3;
              const bool unlimited = space.rlim_max == RLIM_INFINITY;
              return system_info().address_space_limit.has_value() == !unlimited ? 0 : 4;
            }),
            0);
}

}  // namespace
}  // namespace weir
