// SPDX-License-Identifier: MIT
#include "tests/support/fake_memory.hpp"

#include <gtest/gtest.h>

namespace weir::test {
namespace {

constexpr Bytes kFrame{kFrameBytes};
using Call = FakeMemory::Call;

TEST(FakeMemory, PassesCallsOnAndKeepsABook) {
  FakeMemory memory;
  Result<std::byte*> base = memory.reserve(1_MiB, 4_MiB);
  ASSERT_TRUE(base);
  ASSERT_FALSE(memory.commit(base.value(), 1_MiB).failed());
  base.value()[0] = std::byte{1};
  EXPECT_EQ(memory.outstanding_mappings(), 1U);
  EXPECT_EQ(memory.outstanding_bytes(), 1_MiB);
  EXPECT_FALSE(memory.clean());
  EXPECT_EQ(memory.calls(Call::reserve), 1U);
  EXPECT_EQ(memory.calls(Call::commit), 1U);
  EXPECT_EQ(memory.fallible_calls(), 2U);
  memory.release(base.value(), 1_MiB);
  EXPECT_TRUE(memory.clean());
  const auto records = memory.records();
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[0].call, Call::reserve);
  EXPECT_EQ(records[0].base, base.value());
  EXPECT_EQ(records[2].call, Call::release);
  EXPECT_EQ(records[2].size, 1_MiB);
}

TEST(FakeMemory, TheKthCallOfAKindFailsAndNoOther) {
  FakeMemory memory;
  memory.fail(Call::reserve, 2, 1, {Errc::system, "as told", 5});
  Result<std::byte*> first = memory.reserve(kFrame, kFrame);
  Result<std::byte*> second = memory.reserve(kFrame, kFrame);
  Result<std::byte*> third = memory.reserve(kFrame, kFrame);
  ASSERT_TRUE(first && third);
  ASSERT_FALSE(second);
  EXPECT_STREQ(second.error().what, "as told");
  EXPECT_EQ(memory.outstanding_mappings(), 2U);
  memory.fail(Call::commit, 1, 2);
  EXPECT_TRUE(memory.commit(first.value(), kFrame).failed());
  EXPECT_TRUE(memory.commit(first.value(), kFrame).failed());
  EXPECT_FALSE(memory.commit(first.value(), kFrame).failed());
  memory.release(first.value(), kFrame);
  memory.release(third.value(), kFrame);
  EXPECT_TRUE(memory.clean());
}

TEST(FakeMemory, TheKthCallOfAnyKindFails) {
  FakeMemory memory;
  memory.fail_any(2);
  Result<std::byte*> base = memory.reserve(kFrame, kFrame);
  ASSERT_TRUE(base);
  EXPECT_TRUE(memory.commit(base.value(), kFrame).failed());
  EXPECT_FALSE(memory.commit(base.value(), kFrame).failed());
  memory.fail_any(1);
  memory.fail_nothing();
  EXPECT_FALSE(memory.decommit(base.value(), kFrame).failed());
  memory.release(base.value(), kFrame);
}

TEST(FakeMemory, CountsWrongReleasesAndDoesNotPassThemOn) {
  FakeMemory memory;
  Result<std::byte*> base = memory.reserve(kFrame * 2, kFrame);
  ASSERT_TRUE(base);
  memory.release(base.value(), kFrame);
  memory.release(base.value() + kFrameBytes, kFrame);
  EXPECT_EQ(memory.misuses(), 2U);
  EXPECT_FALSE(memory.commit(base.value(), kFrame * 2).failed());
  memory.release(base.value(), kFrame * 2);
  EXPECT_EQ(memory.outstanding_mappings(), 0U);
  memory.release(base.value(), kFrame * 2);
  memory.close_file(12345);
  EXPECT_EQ(memory.misuses(), 4U);
  EXPECT_FALSE(memory.clean());
}

TEST(FakeMemory, BooksFiles) {
  FakeMemory memory;
  Result<int> fd = memory.create_file("weir-test", kFrame, Bytes{0});
  ASSERT_TRUE(fd);
  EXPECT_EQ(memory.open_files(), 1U);
  Result<std::byte*> base = memory.map_file(fd.value(), kFrame, kFrame);
  ASSERT_TRUE(base);
  memory.release(base.value(), kFrame);
  EXPECT_FALSE(memory.clean());
  memory.close_file(fd.value());
  EXPECT_TRUE(memory.clean());
}

TEST(FakeMemory, PlaysHugePagesUntilTheBudgetIsUsedUp) {
  FakeMemory memory;
  memory.play_huge_pages(4_MiB);
  Result<std::byte*> a = memory.map_huge(2_MiB, 2_MiB);
  ASSERT_TRUE(a);
  a.value()[0] = std::byte{1};
  EXPECT_EQ(memory.huge_backed(a.value(), 2_MiB), 2_MiB);
  EXPECT_EQ(memory.map_huge(4_MiB, 2_MiB).error().code, Errc::denied);
  Result<int> fd = memory.create_file("weir-test", 2_MiB, 2_MiB);
  ASSERT_TRUE(fd);
  EXPECT_EQ(memory.map_huge(2_MiB, 2_MiB).error().code, Errc::denied);
  memory.close_file(fd.value());
  Result<std::byte*> b = memory.map_huge(2_MiB, 2_MiB);
  ASSERT_TRUE(b);
  memory.release(a.value(), 2_MiB);
  memory.release(b.value(), 2_MiB);
  EXPECT_TRUE(memory.clean());
}

TEST(FakeMemory, PlaysNodesAndRemembersWhatWasBound) {
  FakeMemory memory;
  Result<std::byte*> base = memory.reserve(kFrame, kFrame);
  ASSERT_TRUE(base);
  memory.play_nodes(2);
  EXPECT_EQ(memory.bound_to(base.value()), kAnyNode);
  EXPECT_FALSE(memory.bind(base.value(), kFrame, NodeId{1}, true).failed());
  EXPECT_EQ(memory.bind(base.value(), kFrame, NodeId{2}, true).code, Errc::unsupported);
  EXPECT_EQ(memory.bind(base.value(), kFrame, kAnyNode, true).code, Errc::unsupported);
  EXPECT_EQ(memory.bound_to(base.value()), NodeId{1});
  memory.fail(Call::bind, 1);
  EXPECT_EQ(memory.bind(base.value(), kFrame, NodeId{0}, true).code, Errc::denied);
  EXPECT_EQ(memory.calls(Call::bind), 4U);
  memory.release(base.value(), kFrame);
  EXPECT_EQ(memory.bound_to(base.value()), kAnyNode);
}

TEST(FakeMemory, AnswersAdviceAsTold) {
  FakeMemory memory;
  Result<std::byte*> base = memory.reserve(4_MiB, 4_MiB);
  ASSERT_TRUE(base);
  memory.answer_advice({Errc::unsupported, "none here"});
  EXPECT_STREQ(memory.advise_huge(base.value(), 4_MiB, true).what, "none here");
  memory.answer_advice(kOk);
  EXPECT_FALSE(memory.advise_huge(base.value(), 4_MiB, true).failed());
  memory.release(base.value(), 4_MiB);
}

}  // namespace
}  // namespace weir::test
