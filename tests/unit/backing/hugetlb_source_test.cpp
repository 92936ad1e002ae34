// SPDX-License-Identifier: MIT
#include "weir/backing/hugetlb_source.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/support/huge_pages.hpp"
#include "tests/support/process.hpp"
#include "tests/unit/backing/source_walk.hpp"

namespace weir {
namespace {

using test::FakeMemory;
using Call = FakeMemory::Call;

test::MakeSource with(bool fall_back) {
  return [fall_back](FakeMemory& memory) {
    return std::make_unique<HugetlbSource>(memory, 2_MiB, fall_back);
  };
}

TEST(HugetlbSource, GivesWholeHugePages) {
  FakeMemory memory;
  memory.play_huge_pages(8_MiB);
  HugetlbSource source(memory, 2_MiB, false);
  EXPECT_EQ(source.kind(), SourceKind::hugetlb);
  const Result<Extent> got = source.obtain(3_MiB);
  ASSERT_TRUE(got);
  const Extent& extent = got.value();
  EXPECT_EQ(extent.size, 4_MiB);
  EXPECT_TRUE(test::aligned_to(extent, 4_MiB));
  EXPECT_EQ(extent.source, SourceKind::hugetlb);
  EXPECT_EQ(extent.page_size, 2_MiB);
  EXPECT_FALSE(extent.transparent_huge);
  EXPECT_TRUE(extent.zeroed);
  EXPECT_EQ(extent.fd, -1);
  EXPECT_STREQ(extent.note, "");
  EXPECT_TRUE(test::is_zero(extent));
  test::write_everywhere(extent);
  source.give_back(extent);
  EXPECT_TRUE(memory.clean());
}

TEST(HugetlbSource, GivesRealHugePagesWhereThereAreAny) {
  const test::HugePages reserved(1);
  if (!reserved.available() || test::emulated()) GTEST_SKIP() << "no huge pages to be had";
  FakeMemory memory;
  HugetlbSource source(memory, 2_MiB, false);
  const Result<Extent> extent = source.obtain(2_MiB);
  ASSERT_TRUE(extent) << extent.error().what;
  EXPECT_TRUE(test::aligned_to(extent.value(), 4_MiB));
  test::write_everywhere(extent.value());
  EXPECT_EQ(memory.huge_backed(extent.value().base, 2_MiB), 2_MiB);
  source.give_back(extent.value());
  EXPECT_TRUE(memory.clean());
}

TEST(HugetlbSource, FailsWithoutHugePagesWhenItMayNotFallBack) {
  FakeMemory memory;
  memory.play_huge_pages(2_MiB);
  HugetlbSource source(memory, 2_MiB, false);
  const Result<Extent> extent = source.obtain(4_MiB);
  ASSERT_FALSE(extent);
  EXPECT_EQ(extent.error().code, Errc::denied);
  EXPECT_EQ(memory.calls(Call::reserve), 0U);
  EXPECT_TRUE(memory.clean());
}

TEST(HugetlbSource, FallsBackToOrdinaryPagesAndTellsTheTruth) {
  FakeMemory memory;
  memory.play_huge_pages(Bytes{0});
  HugetlbSource source(memory, 2_MiB, true);
  const Result<Extent> first = source.obtain(3_MiB);
  const Result<Extent> second = source.obtain(3_MiB);
  ASSERT_TRUE(first && second);
  const Extent& extent = first.value();
  EXPECT_EQ(extent.source, SourceKind::anonymous);
  EXPECT_EQ(extent.page_size, 4_KiB);
  EXPECT_EQ(extent.size, 3_MiB);
  EXPECT_TRUE(test::aligned_to(extent, 4_MiB));
  EXPECT_STREQ(extent.note, "not enough free huge pages of this size: ordinary pages instead");
  test::write_everywhere(extent);
  source.give_back(first.value());
  source.give_back(second.value());
  EXPECT_TRUE(memory.clean());
}

TEST(HugetlbSourceDeathTest, FallingBackTwiceIsToldOnce) {
  if (test::emulated()) GTEST_SKIP() << "a program cannot start itself again here";
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // a process that has told nothing yet
  EXPECT_EXIT(
      {
        FakeMemory memory;
        memory.play_huge_pages(Bytes{0});
        HugetlbSource source(memory, 2_MiB, true);
        source.give_back(source.obtain(3_MiB).value());
        source.give_back(source.obtain(3_MiB).value());
        std::_Exit(memory.clean() ? 0 : 1);
      },
      testing::ExitedWithCode(0),
      "^weir: notice: not enough free huge pages of this size: ordinary pages instead\n$");
}

TEST(HugetlbSource, TheNoteTellsWhyItFellBack) {
  const auto note_for = [](Error error) {
    FakeMemory memory;
    memory.fail(Call::map_huge, 1, 1, error);
    HugetlbSource source(memory, 1_GiB, true);
    const Result<Extent> extent = source.obtain(1_MiB);
    EXPECT_TRUE(extent);
    std::string note = extent.value().note;
    source.give_back(extent.value());
    return note;
  };
  EXPECT_EQ(note_for({Errc::denied, "x"}),
            "not enough free huge pages of this size: ordinary pages instead");
  EXPECT_EQ(note_for({Errc::unsupported, "x"}),
            "no huge pages of this size in this kernel: ordinary pages instead");
  EXPECT_EQ(note_for({Errc::system, "x"}),
            "huge pages could not be mapped: ordinary pages instead");
}

TEST(HugetlbSource, APageSizeThatDoesNotExistIsUnsupported) {
  FakeMemory memory;
  for (const std::uint64_t size : {0U, 4096U, 3U << 20, 16U << 20}) {
    HugetlbSource source(memory, Bytes{size}, false);
    EXPECT_EQ(source.obtain(1_MiB).error().code, Errc::unsupported) << size;
  }
  EXPECT_TRUE(memory.clean());
}

TEST(HugetlbSource, RefusesBadSizesEvenIfItMayFallBack) {
  test::refuse_bad_sizes(with(false));
  test::refuse_bad_sizes(with(true));
}

TEST(HugetlbSource, LeavesNothingWhateverCallFails) {
  test::walk_every_failure(with(false), 3_MiB, 0);
  test::walk_every_failure(with(true), 3_MiB, 1);
}

TEST(HugetlbSource, FailsWhenTheFallBackFailsToo) {
  for (const Call call : {Call::reserve, Call::commit}) {
    FakeMemory memory;
    memory.play_huge_pages(Bytes{0});
    memory.fail(call, 1);
    HugetlbSource source(memory, 2_MiB, true);
    EXPECT_EQ(source.obtain(3_MiB).error().code, Errc::denied);
    EXPECT_TRUE(memory.clean());
  }
}

TEST(HugetlbSource, FailsAtItsFailpoint) {
  if (!kTestHooks) GTEST_SKIP() << "built without test hooks";
  test::fail_by_failpoint(with(true));
}

}  // namespace
}  // namespace weir
