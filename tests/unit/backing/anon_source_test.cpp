// SPDX-License-Identifier: MIT
#include "weir/backing/anon_source.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/support/process.hpp"
#include "tests/unit/backing/source_walk.hpp"
#include "weir/os/system_info.hpp"

namespace weir {
namespace {

using test::FakeMemory;
using Call = FakeMemory::Call;

test::MakeSource with(ThpChoice thp) {
  return [thp](FakeMemory& memory) { return std::make_unique<AnonSource>(memory, thp); };
}

TEST(AnonSource, GivesZeroedAlignedMemoryAndTakesItBack) {
  FakeMemory memory;
  AnonSource source(memory, ThpChoice::system);
  EXPECT_EQ(source.kind(), SourceKind::anonymous);
  const Result<Extent> got = source.obtain(10_MiB);
  ASSERT_TRUE(got);
  const Extent& extent = got.value();
  EXPECT_EQ(extent.size, 10_MiB);
  EXPECT_TRUE(test::aligned_to(extent, 4_MiB));
  EXPECT_EQ(extent.source, SourceKind::anonymous);
  EXPECT_EQ(extent.page_size, 4_KiB);
  EXPECT_FALSE(extent.transparent_huge);
  EXPECT_TRUE(extent.zeroed);
  EXPECT_EQ(extent.fd, -1);
  EXPECT_STREQ(extent.note, "");
  EXPECT_TRUE(test::is_zero(extent));
  test::write_everywhere(extent);
  source.give_back(extent);
  EXPECT_EQ(test::permissions(extent.base), "");
  EXPECT_TRUE(memory.clean());
}

TEST(AnonSource, RoundsUpToWholeFrames) {
  FakeMemory memory;
  AnonSource source(memory, ThpChoice::system);
  for (const std::uint64_t size : {1U, 4095U, 4096U, 4097U}) {
    const Result<Extent> extent = source.obtain(Bytes{size});
    ASSERT_TRUE(extent);
    EXPECT_EQ(extent.value().size.value, (size + 4095) / 4096 * 4096);
    source.give_back(extent.value());
  }
  EXPECT_TRUE(memory.clean());
}

TEST(AnonSource, SaysNothingToTheKernelWhenTheSystemDecides) {
  FakeMemory memory;
  AnonSource source(memory, ThpChoice::system);
  const Result<Extent> extent = source.obtain(4_MiB);
  ASSERT_TRUE(extent);
  EXPECT_EQ(memory.calls(Call::advise_huge), 0U);
  const std::string flags = test::vm_flags(extent.value().base);
  EXPECT_EQ(flags.find(" hg "), std::string::npos);
  EXPECT_EQ(flags.find(" nh "), std::string::npos);
  source.give_back(extent.value());
}

TEST(AnonSource, ThpOnIsSeenByTheKernelAndTold) {
  const std::string mode = system_info().thp_mode;
  if (mode.empty() || test::emulated()) GTEST_SKIP() << "no transparent huge pages";
  FakeMemory memory;
  AnonSource source(memory, ThpChoice::on);
  const Result<Extent> extent = source.obtain(8_MiB);
  ASSERT_TRUE(extent);
  EXPECT_NE(test::vm_flags(extent.value().base).find(" hg "), std::string::npos);
  EXPECT_EQ(extent.value().transparent_huge, mode != "never");
  EXPECT_EQ(std::string(extent.value().note).empty(), mode != "never");
  source.give_back(extent.value());
  EXPECT_TRUE(memory.clean());
}

TEST(AnonSource, ThpOffIsSeenByTheKernelAndNoHugePageComes) {
  if (system_info().thp_mode.empty() || test::emulated())
    GTEST_SKIP() << "no transparent huge pages";
  FakeMemory memory;
  AnonSource source(memory, ThpChoice::off);
  const Result<Extent> extent = source.obtain(8_MiB);
  ASSERT_TRUE(extent);
  EXPECT_NE(test::vm_flags(extent.value().base).find(" nh "), std::string::npos);
  EXPECT_FALSE(extent.value().transparent_huge);
  EXPECT_STREQ(extent.value().note, "");
  test::write_everywhere(extent.value());
  EXPECT_EQ(memory.huge_backed(extent.value().base, extent.value().size), Bytes{0});
  source.give_back(extent.value());
}

TEST(AnonSource, RefusedAdviceIsNoFailureButANote) {
  FakeMemory memory;
  memory.answer_advice({Errc::unsupported, "none"});
  AnonSource source(memory, ThpChoice::on);
  const Result<Extent> first = source.obtain(4_MiB);
  const Result<Extent> second = source.obtain(4_MiB);
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(first.value().transparent_huge);
  EXPECT_STREQ(first.value().note, "no transparent huge pages to be had: pages are 4 KiB");
  EXPECT_STREQ(second.value().note, first.value().note);
  source.give_back(first.value());
  source.give_back(second.value());
  EXPECT_TRUE(memory.clean());
}

TEST(AnonSourceDeathTest, RefusedAdviceIsToldOnceForEachWish) {
  if (test::emulated()) GTEST_SKIP() << "a program cannot start itself again here";
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // a process that has told nothing yet
  EXPECT_EXIT(
      {
        FakeMemory memory;
        memory.answer_advice({Errc::unsupported, "none"});
        for (const ThpChoice thp : {ThpChoice::on, ThpChoice::on, ThpChoice::off}) {
          AnonSource source(memory, thp);
          source.give_back(source.obtain(4_MiB).value());
        }
        std::_Exit(memory.clean() ? 0 : 1);
      },
      testing::ExitedWithCode(0),
      "^weir: notice: no transparent huge pages to be had: pages are 4 KiB\n"
      "weir: notice: transparent huge pages could not be forbidden\n$");
}

TEST(AnonSource, RefusesBadSizes) { test::refuse_bad_sizes(with(ThpChoice::on)); }

TEST(AnonSource, LeavesNothingWhateverCallFails) {
  test::walk_every_failure(with(ThpChoice::system), 5_MiB, 0);
  test::walk_every_failure(with(ThpChoice::on), 5_MiB, 1);
  test::walk_every_failure(with(ThpChoice::off), 5_MiB, 1);
}

TEST(AnonSource, FailsAtItsFailpoint) {
  if (!kTestHooks) GTEST_SKIP() << "built without test hooks";
  test::fail_by_failpoint(with(ThpChoice::system));
}

TEST(AnonSource, APartThatIsTrimmedReadsAsZeroAndTheRestStays) {
  FakeMemory memory;
  AnonSource source(memory, ThpChoice::off);
  const Result<Extent> got = source.obtain(64_KiB);
  ASSERT_TRUE(got);
  const Extent& extent = got.value();
  test::write_everywhere(extent);
  EXPECT_FALSE(source.trim(extent, 8_KiB, 12_KiB).failed());
  for (std::size_t at = 0; at < (64_KiB).value; at += kFrameBytes) {
    EXPECT_EQ(extent.base[at] == std::byte{0}, at >= (8_KiB).value && at < (20_KiB).value) << at;
  }
  memory.fail(FakeMemory::Call::discard, 1);
  EXPECT_EQ(source.trim(extent, Bytes{0}, 4_KiB).code, Errc::denied);
  EXPECT_NE(extent.base[0], std::byte{0});
  EXPECT_EQ(source.trim(extent, 1_KiB, 4_KiB).code, Errc::misaligned);
  EXPECT_EQ(source.trim(extent, 60_KiB, 8_KiB).code, Errc::too_large);
  source.give_back(extent);
  EXPECT_TRUE(memory.clean());
}

}  // namespace
}  // namespace weir
