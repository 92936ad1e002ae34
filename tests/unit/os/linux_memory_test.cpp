// SPDX-License-Identifier: MIT
#include "weir/os/linux_memory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/huge_pages.hpp"
#include "tests/support/process.hpp"
#include "tests/support/seccomp.hpp"
#include "weir/base/failpoint.hpp"
#include "weir/os/system_info.hpp"
#include "weir/os/topology.hpp"

namespace weir {
namespace {

constexpr Bytes kFrame{kFrameBytes};
constexpr Bytes kUnaligned{kFrameBytes + 1};
constexpr Bytes kMost{UINT64_MAX};

bool aligned(const std::byte* base, Bytes align) {
  return reinterpret_cast<std::uintptr_t>(base) % align.value == 0;
}

std::uint64_t free_huge_pages(Bytes page_size) {
  for (const HugePagePool& pool : system_info().huge_pools) {
    if (pool.page_size == page_size) return pool.free;
  }
  return 0;
}

// Counts mappings and files before and after: whatever a test does must leave none behind.
class LinuxMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    failpoints::reset();
    mappings_ = test::mapping_count();
    files_ = test::file_count();
  }
  void TearDown() override {
    failpoints::reset();
    EXPECT_EQ(test::file_count(), files_);
    if (!test::kSanitized) {
      EXPECT_EQ(test::mapping_count(), mappings_);
    }
  }

  // A committed range; released at the end of the test.
  std::byte* committed(Bytes size, Bytes align = kFrame) {
    Result<std::byte*> base = memory_.reserve(size, align);
    EXPECT_TRUE(base) << base.error().what;
    EXPECT_FALSE(memory_.commit(base.value(), size).failed());
    return base.value();
  }

  Memory& memory_ = system_memory();

 private:
  std::size_t mappings_ = 0;
  std::size_t files_ = 0;
};

TEST_F(LinuxMemoryTest, IsOneForTheWholeProcess) {
  EXPECT_EQ(&system_memory(), &system_memory());
  EXPECT_NE(dynamic_cast<LinuxMemory*>(&system_memory()), nullptr);
}

// What the kernel says of an address: a policy and the first 64 nodes of its set.
struct KernelPolicy {
  int mode = -1;
  unsigned long nodes = 0;
};
KernelPolicy policy_at(const std::byte* address) {
  KernelPolicy policy;
  unsigned long mask[64] = {};
  if (::syscall(SYS_get_mempolicy, &policy.mode, mask, sizeof mask * 8, address, MPOL_F_ADDR) ==
      0) {
    policy.nodes = mask[0];
  }
  return policy;
}

TEST_F(LinuxMemoryTest, BindsMemoryToANodeAsTheKernelTells) {
  const auto node = static_cast<std::int32_t>(topology().memory_nodes.next(0));
  std::byte* base = committed(4_MiB);
  base[0] = std::byte{7};
  const Error error = memory_.bind(base, 2_MiB, NodeId{node}, true);
  if (error.code == Errc::denied || error.code == Errc::unsupported) {
    memory_.release(base, 4_MiB);
    GTEST_SKIP() << "no memory policies here: errno " << error.os_errno;
  }
  ASSERT_FALSE(error.failed()) << error.os_errno;
  EXPECT_EQ(policy_at(base).mode, MPOL_BIND);
  EXPECT_EQ(policy_at(base + (2 << 20) - 1).mode, MPOL_BIND);
  EXPECT_EQ(policy_at(base).nodes, 1UL << node);
  EXPECT_EQ(policy_at(base + (2 << 20)).mode, MPOL_DEFAULT);
  ASSERT_FALSE(memory_.bind(base, 4_MiB, NodeId{node}, false).failed());
  EXPECT_EQ(policy_at(base + (3 << 20)).mode, MPOL_PREFERRED);
  EXPECT_EQ(policy_at(base + (3 << 20)).nodes, 1UL << node);
  EXPECT_EQ(base[0], std::byte{7});
  memory_.release(base, 4_MiB);
}

TEST_F(LinuxMemoryTest, BindsToNoNodeThatIsNotThere) {
  std::byte* base = committed(1_MiB);
  std::int32_t absent = kMaxNode;
  while (topology().nodes.contains(static_cast<std::uint32_t>(absent))) {
    --absent;
  }
  for (const std::int32_t node : {absent, -1, kMaxNode + 1, INT32_MAX, INT32_MIN}) {
    for (const bool strict : {false, true}) {
      const Error error = memory_.bind(base, 1_MiB, NodeId{node}, strict);
      EXPECT_TRUE(error.code == Errc::unsupported || error.os_errno == EPERM) << node;
    }
  }
  EXPECT_EQ(memory_.bind(base + 1, 1_MiB, NodeId{0}, false).code, Errc::misaligned);
  EXPECT_EQ(memory_.bind(base, Bytes{0}, NodeId{0}, false).code, Errc::zero_size);
  EXPECT_EQ(policy_at(base).mode, MPOL_DEFAULT);
  memory_.release(base, 1_MiB);
}

TEST_F(LinuxMemoryTest, ASystemThatForbidsBindingSaysDeniedOneWithoutItUnsupported) {
  if (test::emulated()) GTEST_SKIP() << "no seccomp here";
  for (const int refusal : {EPERM, ENOSYS}) {
    const int status = test::run_in_child([&] {
      std::byte* base = memory_.reserve(1_MiB, kFrame).value();
      if (!test::refuse_syscall(SYS_mbind, refusal)) return 77;
      const Error error = memory_.bind(base, 1_MiB, NodeId{0}, false);
      const Errc expected = refusal == EPERM ? Errc::denied : Errc::unsupported;
      return error.code == expected && error.os_errno == refusal ? 0 : 1;
    });
    if (status == 77) GTEST_SKIP() << "no seccomp here";
    EXPECT_EQ(status, 0) << refusal;
  }
}

TEST_F(LinuxMemoryTest, ReservesInaccessibleSpaceOfEveryAlignment) {
  for (std::uint64_t shift = kFrameShift; shift <= 30; ++shift) {
    const Bytes align{std::uint64_t{1} << shift};
    Result<std::byte*> base = memory_.reserve(3_MiB, align);
    ASSERT_TRUE(base) << shift;
    EXPECT_TRUE(aligned(base.value(), align)) << shift;
    EXPECT_EQ(test::permissions(base.value()), "---p");
    EXPECT_EQ(test::permissions(base.value() + (3_MiB).value - 1), "---p");
    memory_.release(base.value(), 3_MiB);
    EXPECT_EQ(test::permissions(base.value()), "");
  }
}

TEST_F(LinuxMemoryTest, CommitsAPartThatReadsAsZeroAndLeavesTheRestInaccessible) {
  Result<std::byte*> base = memory_.reserve(1_MiB, kFrame);
  ASSERT_TRUE(base);
  std::byte* part = base.value() + 4 * kFrameBytes;
  ASSERT_FALSE(memory_.commit(part, kFrame * 2).failed());
  EXPECT_TRUE(
      std::all_of(part, part + 2 * kFrameBytes, [](std::byte b) { return b == std::byte{0}; }));
  std::memset(part, 0x5a, 2 * kFrameBytes);
  EXPECT_EQ(test::permissions(part), "rw-p");
  EXPECT_EQ(test::permissions(part - 1), "---p");
  EXPECT_EQ(test::permissions(part + 2 * kFrameBytes), "---p");
  memory_.release(base.value(), 1_MiB);
}

TEST_F(LinuxMemoryTest, DecommitGivesTheContentsBackAndKeepsTheReservation) {
  std::byte* base = committed(64_KiB);
  std::memset(base, 0x5a, (64_KiB).value);
  ASSERT_FALSE(memory_.decommit(base, 64_KiB).failed());
  EXPECT_EQ(test::permissions(base), "---p");
  ASSERT_FALSE(memory_.commit(base, 64_KiB).failed());
  EXPECT_EQ(base[0], std::byte{0});
  EXPECT_EQ(base[(64_KiB).value - 1], std::byte{0});
  memory_.release(base, 64_KiB);
}

TEST_F(LinuxMemoryTest, PopulateMakesEveryPageResidentAndKeepsWhatIsWritten) {
  if (test::emulated()) GTEST_SKIP() << "madvise does nothing here";
  constexpr std::size_t kPages = 64;
  std::byte* base = committed(kFrame * kPages);
  base[5 * kFrameBytes] = std::byte{7};
  ASSERT_FALSE(memory_.populate(base, kFrame * kPages).failed());
  std::vector<unsigned char> resident(kPages);
  ASSERT_EQ(mincore(base, kPages * kFrameBytes, resident.data()), 0);
  EXPECT_TRUE(std::all_of(resident.begin(), resident.end(), [](unsigned char r) { return r & 1; }));
  EXPECT_EQ(base[5 * kFrameBytes], std::byte{7});
  memory_.release(base, kFrame * kPages);
}

TEST_F(LinuxMemoryTest, PopulateOfWhatIsNotUsableIsAnErrorAndNoCrash) {
  if (test::emulated()) GTEST_SKIP() << "madvise does nothing here";
  Result<std::byte*> base = memory_.reserve(kFrame * 4, kFrame);
  ASSERT_TRUE(base);
  EXPECT_TRUE(memory_.populate(base.value(), kFrame * 4).failed());
  memory_.release(base.value(), kFrame * 4);
}

TEST_F(LinuxMemoryTest, AdviceOnHugePagesIsSeenByTheKernel) {
  constexpr Bytes kSize = 8_MiB;
  const std::string mode = system_info().thp_mode;
  if (mode.empty() || test::emulated()) GTEST_SKIP() << "no transparent huge pages";
  std::byte* base = committed(kSize, 4_MiB);
  const Error on = memory_.advise_huge(base, kSize, true);
  EXPECT_NE(test::vm_flags(base).find(" hg "), std::string::npos);
  if (mode == "never") {
    EXPECT_EQ(on.code, Errc::unsupported);
  } else {
    EXPECT_FALSE(on.failed()) << on.what;
  }
  EXPECT_FALSE(memory_.advise_huge(base, kSize, false).failed());
  EXPECT_NE(test::vm_flags(base).find(" nh "), std::string::npos);
  EXPECT_EQ(test::vm_flags(base).find(" hg "), std::string::npos);
  ASSERT_FALSE(memory_.populate(base, kSize).failed());
  EXPECT_EQ(memory_.huge_backed(base, kSize), Bytes{0});
  memory_.release(base, kSize);
}

TEST_F(LinuxMemoryTest, AdviceForHugePagesFailsWhereNoneFit) {
  if (system_info().thp_mode.empty() || test::emulated())
    GTEST_SKIP() << "no transparent huge pages";
  std::byte* base = committed(kFrame);
  EXPECT_EQ(memory_.advise_huge(base, kFrame, true).code, Errc::unsupported);
  memory_.release(base, kFrame);
}

// AnonHugePages of the mapping that begins at base, as the kernel prints it.
Bytes anon_huge_pages(const std::byte* base) {
  std::ifstream smaps("/proc/self/smaps");
  char start[32];
  std::snprintf(start, sizeof start, "%lx-", reinterpret_cast<unsigned long>(base));
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    if (line.find('-') < line.find(' ')) inside = line.rfind(start, 0) == 0;
    unsigned long kib = 0;
    if (inside && std::sscanf(line.c_str(), "AnonHugePages: %lu kB", &kib) == 1) {
      return kKiB * kib;
    }
  }
  return Bytes{0};
}

TEST_F(LinuxMemoryTest, HugeBackedCountsTransparentHugePages) {
  if (!system_info().transparent_huge.available || test::emulated()) GTEST_SKIP() << "none here";
  constexpr Bytes kSize = 16_MiB;
  // Inaccessible space around it, so that the kernel does not join the mapping with another.
  Result<std::byte*> space = memory_.reserve(kSize + 8_MiB, 4_MiB);
  ASSERT_TRUE(space);
  std::byte* base = space.value() + (4_MiB).value;
  ASSERT_FALSE(memory_.commit(base, kSize).failed());
  ASSERT_FALSE(memory_.advise_huge(base, kSize, true).failed());
  EXPECT_EQ(memory_.huge_backed(base, kSize), Bytes{0});
  ASSERT_FALSE(memory_.populate(base, kSize).failed());
  const Bytes huge = anon_huge_pages(base);
  EXPECT_EQ(memory_.huge_backed(base, kSize), huge);
  EXPECT_EQ(memory_.huge_backed(space.value(), kSize + 8_MiB), huge);
  EXPECT_EQ(memory_.huge_backed(space.value(), 4_MiB), Bytes{0});
  // Of a part, at most the part.
  EXPECT_EQ(memory_.huge_backed(base, 2_MiB), std::min(huge, 2_MiB));
  memory_.release(space.value(), kSize + 8_MiB);
}

TEST_F(LinuxMemoryTest, AFileMappedTwiceShowsTheSameBytesAtBothPlaces) {
  constexpr Bytes kSize = 1_MiB;
  Result<int> fd = memory_.create_file("weir-test", kSize, Bytes{0});
  ASSERT_TRUE(fd);
  EXPECT_EQ(fcntl(fd.value(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  struct stat status {};
  ASSERT_EQ(fstat(fd.value(), &status), 0);
  EXPECT_EQ(static_cast<std::uint64_t>(status.st_size), kSize.value);
  Result<std::byte*> a = memory_.map_file(fd.value(), kSize, 4_MiB);
  Result<std::byte*> b = memory_.map_file(fd.value(), kSize, 1_GiB);
  ASSERT_TRUE(a && b);
  EXPECT_TRUE(aligned(a.value(), 4_MiB));
  EXPECT_TRUE(aligned(b.value(), 1_GiB));
  EXPECT_NE(a.value(), b.value());
  EXPECT_EQ(test::permissions(a.value()), "rw-s");
  EXPECT_EQ(a.value()[kSize.value - 1], std::byte{0});
  a.value()[kSize.value - 1] = std::byte{42};
  EXPECT_EQ(b.value()[kSize.value - 1], std::byte{42});
  memory_.close_file(fd.value());
  b.value()[0] = std::byte{43};  // the mappings outlive the descriptor
  EXPECT_EQ(a.value()[0], std::byte{43});
  memory_.release(a.value(), kSize);
  memory_.release(b.value(), kSize);
}

TEST_F(LinuxMemoryTest, ExplicitHugePagesAreMappedAlignedBackedAndCounted) {
  constexpr Bytes kSize = 4_MiB;
  const test::HugePages reserved(2);
  if (!reserved.available() || test::emulated()) GTEST_SKIP() << "no huge pages to be had";
  Result<std::byte*> base = memory_.map_huge(kSize, 2_MiB);
  ASSERT_TRUE(base) << base.error().what;
  EXPECT_TRUE(aligned(base.value(), 4_MiB));
  EXPECT_EQ(memory_.huge_backed(base.value(), kSize), kSize);
  EXPECT_EQ(base.value()[kSize.value - 1], std::byte{0});
  base.value()[kSize.value - 1] = std::byte{1};
  memory_.release(base.value(), kSize);
}

TEST_F(LinuxMemoryTest, ExplicitHugePagesCanBeAFile) {
  const test::HugePages reserved(1);
  if (!reserved.available() || test::emulated()) GTEST_SKIP() << "no huge pages to be had";
  Result<int> fd = memory_.create_file("weir-test", 2_MiB, 2_MiB);
  ASSERT_TRUE(fd) << fd.error().what;
  Result<std::byte*> base = memory_.map_file(fd.value(), 2_MiB, 4_MiB);
  ASSERT_TRUE(base) << base.error().what;
  EXPECT_TRUE(aligned(base.value(), 4_MiB));
  ASSERT_FALSE(memory_.populate(base.value(), 2_MiB).failed());
  EXPECT_EQ(memory_.huge_backed(base.value(), 2_MiB), 2_MiB);
  memory_.release(base.value(), 2_MiB);
  memory_.close_file(fd.value());
}

TEST_F(LinuxMemoryTest, MoreHugePagesThanThereAreIsAnErrorAndNoCrash) {
  // More than any machine has set aside.
  Result<std::byte*> base = memory_.map_huge(1_GiB * 65536, 2_MiB);
  ASSERT_FALSE(base);
  EXPECT_TRUE(base.error().code == Errc::denied || base.error().code == Errc::unsupported);
  const std::uint64_t free = free_huge_pages(2_MiB);
  base = memory_.map_huge(2_MiB * (free + 1), 2_MiB);
  if (base) {
    // The administrator allows the pool to grow (nr_overcommit_hugepages), or it grew meanwhile.
    memory_.release(base.value(), 2_MiB * (free + 1));
  } else {
    EXPECT_NE(base.error().what[0], '\0');
  }
}

TEST_F(LinuxMemoryTest, AFileOfMoreHugePagesThanThereAreFailsWhenItIsMapped) {
  Result<int> fd = memory_.create_file("weir-test", 1_GiB * 1024, 2_MiB);
  if (!fd) {
    EXPECT_TRUE(fd.error().code == Errc::unsupported || fd.error().code == Errc::denied);
    return;
  }
  const Result<std::byte*> base = memory_.map_file(fd.value(), 1_GiB * 1024, 4_MiB);
  EXPECT_FALSE(base);
  EXPECT_EQ(base.error().code, Errc::denied);
  memory_.close_file(fd.value());
}

TEST_F(LinuxMemoryTest, BadSizesAndAlignmentsAreRefusedByName) {
  std::byte* base = committed(kFrame * 2);
  std::byte* crooked = base + 1;

  EXPECT_EQ(memory_.reserve(Bytes{0}, kFrame).error().code, Errc::zero_size);
  EXPECT_EQ(memory_.reserve(kUnaligned, kFrame).error().code, Errc::misaligned);
  EXPECT_EQ(memory_.reserve(kMost, kFrame).error().code, Errc::too_large);
  EXPECT_EQ(memory_.reserve(Bytes{UINT64_MAX - kFrameBytes + 1}, kFrame).error().code,
            Errc::too_large);
  EXPECT_EQ(memory_.reserve(kFrame, Bytes{0}).error().code, Errc::misaligned);
  EXPECT_EQ(memory_.reserve(kFrame, Bytes{2048}).error().code, Errc::misaligned);
  EXPECT_EQ(memory_.reserve(kFrame, Bytes{3 * kFrameBytes}).error().code, Errc::misaligned);
  EXPECT_EQ(memory_.reserve(kFrame, Bytes{std::uint64_t{1} << 63}).error().code, Errc::too_large);

  const std::vector<std::function<Error(std::byte*, Bytes)>> range_calls = {
      [&](std::byte* at, Bytes size) { return memory_.commit(at, size); },
      [&](std::byte* at, Bytes size) { return memory_.decommit(at, size); },
      [&](std::byte* at, Bytes size) { return memory_.advise_huge(at, size, true); },
      [&](std::byte* at, Bytes size) { return memory_.advise_huge(at, size, false); },
      [&](std::byte* at, Bytes size) { return memory_.populate(at, size); }};
  for (const auto& call : range_calls) {
    EXPECT_EQ(call(base, Bytes{0}).code, Errc::zero_size);
    EXPECT_EQ(call(base, kUnaligned).code, Errc::misaligned);
    EXPECT_EQ(call(crooked, kFrame).code, Errc::misaligned);
    EXPECT_EQ(call(base, kMost).code, Errc::too_large);
  }

  EXPECT_EQ(memory_.map_huge(Bytes{0}, 2_MiB).error().code, Errc::zero_size);
  EXPECT_EQ(memory_.map_huge(kFrame, 2_MiB).error().code, Errc::misaligned);
  EXPECT_EQ(memory_.map_huge(kMost, 2_MiB).error().code, Errc::too_large);
  EXPECT_EQ(memory_.map_huge(2_MiB, kFrame).error().code, Errc::unsupported);
  EXPECT_EQ(memory_.map_huge(2_MiB, Bytes{0}).error().code, Errc::unsupported);

  EXPECT_EQ(memory_.create_file("x", Bytes{0}, Bytes{0}).error().code, Errc::zero_size);
  EXPECT_EQ(memory_.create_file("x", kUnaligned, Bytes{0}).error().code, Errc::misaligned);
  EXPECT_EQ(memory_.create_file("x", kMost, Bytes{0}).error().code, Errc::too_large);
  EXPECT_EQ(memory_.create_file("x", kFrame, 2_MiB).error().code, Errc::misaligned);
  EXPECT_EQ(memory_.create_file("x", 4_MiB, 4_MiB).error().code, Errc::unsupported);
  const std::string long_name(300, 'n');
  EXPECT_EQ(memory_.create_file(long_name.c_str(), kFrame, Bytes{0}).error().code, Errc::system);

  EXPECT_EQ(memory_.map_file(-1, Bytes{0}, kFrame).error().code, Errc::zero_size);
  EXPECT_EQ(memory_.map_file(-1, kFrame, Bytes{0}).error().code, Errc::misaligned);
  EXPECT_EQ(memory_.map_file(-1, kFrame, kFrame).error().code, Errc::system);
  EXPECT_EQ(memory_.map_file(-1, kFrame, kFrame).error().os_errno, EBADF);

  // The range itself has come through all of this unharmed.
  base[2 * kFrameBytes - 1] = std::byte{1};
  memory_.release(base, kFrame * 2);
}

TEST_F(LinuxMemoryTest, CommitOfWhatIsNotReservedIsAnError) {
  Result<std::byte*> base = memory_.reserve(kFrame, kFrame);
  ASSERT_TRUE(base);
  memory_.release(base.value(), kFrame);
  EXPECT_TRUE(memory_.commit(base.value(), kFrame).failed());
}

TEST_F(LinuxMemoryTest, ALimitOnAddressSpaceIsACleanError) {
  if (test::kSanitized || test::emulated()) GTEST_SKIP() << "limits cannot be set here";
  EXPECT_EQ(test::run_in_child([] {
              const rlimit limit{rlim_t{256} << 20, rlim_t{256} << 20};
              if (setrlimit(RLIMIT_AS, &limit) != 0) return 1;
              Memory& memory = system_memory();
              const Result<std::byte*> large = memory.reserve(1_GiB, 4_MiB);
              if (large || large.error().code != Errc::denied) return 2;
              const Result<int> fd = memory.create_file("weir-test", 1_GiB, Bytes{0});
              if (!fd) return 3;
              const Result<std::byte*> file = memory.map_file(fd.value(), 1_GiB, 4_MiB);
              if (file || file.error().code != Errc::denied) return 4;
              // What fits still works.
              const Result<std::byte*> small = memory.reserve(1_MiB, 4_MiB);
              return small && !memory.commit(small.value(), 1_MiB).failed() ? 0 : 5;
            }),
            0);
}

TEST_F(LinuxMemoryTest, LockedMemoryThatCannotBeGivenBackKeepsItsContents) {
  if (test::kSanitized || test::emulated()) GTEST_SKIP() << "locking is not the real one here";
  std::byte* base = committed(kFrame);
  *base = std::byte{9};
  if (mlock(base, kFrame.value) != 0) GTEST_SKIP() << "memory cannot be locked here";
  EXPECT_EQ(memory_.try_discard(base, kFrame).code, Errc::unsupported);
  EXPECT_EQ(*base, std::byte{9});
  munlock(base, kFrame.value);
  EXPECT_FALSE(memory_.try_discard(base, kFrame).failed());
  EXPECT_EQ(*base, std::byte{0});
  EXPECT_EQ(memory_.try_discard(base + 1, kFrame).code, Errc::misaligned);
  EXPECT_EQ(memory_.try_discard(base, Bytes{0}).code, Errc::zero_size);
  EXPECT_EQ(memory_.punch_hole(-1, Bytes{0}, kFrame).code, Errc::system);
  EXPECT_EQ(memory_.punch_hole(-1, Bytes{0}, Bytes{1}).code, Errc::misaligned);
  memory_.release(base, kFrame);
}

TEST_F(LinuxMemoryTest, FailpointsMakeEachCallFail) {
  if (!kTestHooks) GTEST_SKIP() << "built without test hooks";
  std::byte* base = committed(kFrame);
  failpoints::arm(Failpoint::memory_map, 1, 2);
  EXPECT_EQ(memory_.reserve(kFrame, kFrame).error().code, Errc::denied);
  EXPECT_EQ(memory_.map_file(-1, kFrame, kFrame).error().code, Errc::denied);
  failpoints::arm(Failpoint::memory_commit, 1, 2);
  EXPECT_EQ(memory_.commit(base, kFrame).code, Errc::denied);
  EXPECT_EQ(memory_.populate(base, kFrame).code, Errc::denied);
  failpoints::arm(Failpoint::memory_huge, 1);
  EXPECT_EQ(memory_.map_huge(2_MiB, 2_MiB).error().code, Errc::denied);
  failpoints::arm(Failpoint::memory_memfd, 1);
  EXPECT_EQ(memory_.create_file("x", kFrame, Bytes{0}).error().code, Errc::denied);
  memory_.release(base, kFrame);
}

}  // namespace
}  // namespace weir
