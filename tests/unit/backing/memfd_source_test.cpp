// SPDX-License-Identifier: MIT
#include "weir/backing/memfd_source.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <string>

#include "tests/support/huge_pages.hpp"
#include "tests/support/process.hpp"
#include "tests/unit/backing/source_walk.hpp"
#include "weir/os/system_info.hpp"

namespace weir {
namespace {

using test::FakeMemory;
using Call = FakeMemory::Call;

test::MakeSource with(ThpChoice thp, Bytes huge_page = Bytes{0}) {
  return [=](FakeMemory& memory) { return std::make_unique<MemfdSource>(memory, thp, huge_page); };
}

TEST(MemfdSource, GivesAMappedFileAndClosesIt) {
  FakeMemory memory;
  MemfdSource source(memory, ThpChoice::system);
  EXPECT_EQ(source.kind(), SourceKind::memfd);
  const Result<Extent> got = source.obtain(Bytes{(5_MiB).value + 1});
  ASSERT_TRUE(got);
  const Extent& extent = got.value();
  EXPECT_EQ(extent.size, 5_MiB + 4_KiB);
  EXPECT_TRUE(test::aligned_to(extent, 4_MiB));
  EXPECT_EQ(extent.source, SourceKind::memfd);
  EXPECT_EQ(extent.page_size, 4_KiB);
  EXPECT_TRUE(extent.zeroed);
  EXPECT_GE(extent.fd, 0);
  EXPECT_STREQ(extent.note, "");
  EXPECT_EQ(test::permissions(extent.base), "rw-s");
  EXPECT_TRUE(test::is_zero(extent));
  test::write_everywhere(extent);
  source.give_back(extent);
  EXPECT_EQ(test::permissions(extent.base), "");
  EXPECT_EQ(fcntl(extent.fd, F_GETFD), -1);
  EXPECT_TRUE(memory.clean());
}

TEST(MemfdSource, AnotherMappingOfItsFileSeesTheSameBytes) {
  FakeMemory memory;
  MemfdSource source(memory, ThpChoice::system);
  const Result<Extent> extent = source.obtain(64_KiB);
  ASSERT_TRUE(extent);
  void* other =
      mmap(nullptr, (64_KiB).value, PROT_READ | PROT_WRITE, MAP_SHARED, extent.value().fd, 0);
  ASSERT_NE(other, MAP_FAILED);
  extent.value().base[4096] = std::byte{42};
  EXPECT_EQ(static_cast<std::byte*>(other)[4096], std::byte{42});
  source.give_back(extent.value());
  EXPECT_EQ(static_cast<std::byte*>(other)[4096], std::byte{42});  // the other keeps the memory
  munmap(other, (64_KiB).value);
}

TEST(MemfdSource, ThpOnTellsWhetherTheKernelAgreed) {
  const SystemInfo info = system_info();
  if (info.thp_mode.empty() || test::emulated()) GTEST_SKIP() << "no transparent huge pages";
  FakeMemory memory;
  MemfdSource source(memory, ThpChoice::on);
  const Result<Extent> extent = source.obtain(8_MiB);
  ASSERT_TRUE(extent);
  EXPECT_NE(test::vm_flags(extent.value().base).find(" hg "), std::string::npos);
  if (info.thp_shmem_mode == "never" || info.thp_shmem_mode == "deny") {
    EXPECT_FALSE(extent.value().transparent_huge);
  } else {
    EXPECT_TRUE(extent.value().transparent_huge);
  }
  EXPECT_EQ(extent.value().transparent_huge, std::string(extent.value().note).empty());
  source.give_back(extent.value());
  EXPECT_TRUE(memory.clean());
}

TEST(MemfdSource, ThpOffIsSeenByTheKernel) {
  if (system_info().thp_mode.empty() || test::emulated())
    GTEST_SKIP() << "no transparent huge pages";
  FakeMemory memory;
  MemfdSource source(memory, ThpChoice::off);
  const Result<Extent> extent = source.obtain(8_MiB);
  ASSERT_TRUE(extent);
  EXPECT_NE(test::vm_flags(extent.value().base).find(" nh "), std::string::npos);
  EXPECT_STREQ(extent.value().note, "");
  source.give_back(extent.value());
}

TEST(MemfdSource, OfHugePagesIsPopulatedAndAsksForNoTransparentOnes) {
  FakeMemory memory;
  memory.play_huge_pages(4_MiB);
  MemfdSource source(memory, ThpChoice::on, 2_MiB);
  const Result<Extent> extent = source.obtain(3_MiB);
  ASSERT_TRUE(extent);
  EXPECT_EQ(extent.value().size, 4_MiB);
  EXPECT_EQ(extent.value().page_size, 2_MiB);
  EXPECT_EQ(memory.calls(Call::populate), 1U);
  EXPECT_EQ(memory.calls(Call::advise_huge), 0U);
  source.give_back(extent.value());
  EXPECT_TRUE(memory.clean());
}

TEST(MemfdSource, OfRealHugePagesWhereThereAreAny) {
  const test::HugePages reserved(1);
  if (!reserved.available() || test::emulated()) GTEST_SKIP() << "no huge pages to be had";
  FakeMemory memory;
  MemfdSource source(memory, ThpChoice::system, 2_MiB);
  const Result<Extent> extent = source.obtain(2_MiB);
  ASSERT_TRUE(extent) << extent.error().what;
  EXPECT_EQ(memory.huge_backed(extent.value().base, 2_MiB), 2_MiB);
  source.give_back(extent.value());
  EXPECT_TRUE(memory.clean());
}

TEST(MemfdSource, WithoutHugePagesItFailsCleanly) {
  FakeMemory memory;
  MemfdSource source(memory, ThpChoice::system, 2_MiB);
  const Result<Extent> extent = source.obtain(1_GiB * 512);
  ASSERT_FALSE(extent);
  EXPECT_TRUE(extent.error().code == Errc::denied || extent.error().code == Errc::unsupported);
  EXPECT_TRUE(memory.clean());
}

TEST(MemfdSource, RefusesBadSizes) {
  test::refuse_bad_sizes(with(ThpChoice::on));
  test::refuse_bad_sizes(with(ThpChoice::system, 2_MiB));
}

TEST(MemfdSource, LeavesNothingWhateverCallFails) {
  test::walk_every_failure(with(ThpChoice::system), 5_MiB, 0);
  test::walk_every_failure(with(ThpChoice::off), 5_MiB, 1);
  test::walk_every_failure(with(ThpChoice::system, 2_MiB), 5_MiB, 0);
}

TEST(MemfdSource, FailsAtItsFailpoint) {
  if (!kTestHooks) GTEST_SKIP() << "built without test hooks";
  test::fail_by_failpoint(with(ThpChoice::system));
}

TEST(MemfdSource, APartThatIsTrimmedIsZeroInEveryMappingAndNoLongerInMemory) {
  FakeMemory memory;
  MemfdSource source(memory, ThpChoice::off);
  const Result<Extent> got = source.obtain(64_KiB);
  ASSERT_TRUE(got);
  const Extent& extent = got.value();
  void* other = mmap(nullptr, (64_KiB).value, PROT_READ | PROT_WRITE, MAP_SHARED, extent.fd, 0);
  ASSERT_NE(other, MAP_FAILED);
  test::write_everywhere(extent);
  EXPECT_FALSE(source.trim(extent, 8_KiB, 12_KiB).failed());
  for (std::size_t at = 0; at < (64_KiB).value; at += kFrameBytes) {
    const bool trimmed = at >= (8_KiB).value && at < (20_KiB).value;
    EXPECT_EQ(static_cast<std::byte*>(other)[at] == std::byte{0}, trimmed) << at;
  }
  EXPECT_EQ(memory.calls(Call::punch_hole), 1U);
  EXPECT_EQ(memory.calls(Call::discard), 0U) << "that would keep the file's memory";
  memory.fail(Call::punch_hole, 1);
  EXPECT_EQ(source.trim(extent, Bytes{0}, 4_KiB).code, Errc::denied);
  EXPECT_NE(extent.base[0], std::byte{0});
  EXPECT_EQ(source.trim(extent, 1_KiB, 4_KiB).code, Errc::misaligned);
  EXPECT_EQ(source.trim(extent, 60_KiB, 8_KiB).code, Errc::too_large);
  EXPECT_EQ(source.trim(extent, 68_KiB, 4_KiB).code, Errc::too_large);
  EXPECT_EQ(source.trim(extent, 4_KiB, Bytes{0}).code, Errc::zero_size);
  munmap(other, (64_KiB).value);
  source.give_back(extent);
  EXPECT_TRUE(memory.clean());
}

}  // namespace
}  // namespace weir
