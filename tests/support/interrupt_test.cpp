// SPDX-License-Identifier: MIT
#include "tests/support/interrupt.hpp"

#include <gtest/gtest.h>

#include <set>

namespace weir::test {
namespace {

TEST(Interrupt, ReachesEveryPlaceOfABodyOnce) {
  if (!kCanInterrupt) {
    GTEST_SKIP() << "no single steps here";
  }
  volatile int a = 0;
  volatile int b = 0;
  std::set<std::pair<int, int>> seen;
  std::uint64_t k = 1;
  int calls = 0;
  const auto body = [&] {
    a = 0;
    b = 0;
    a = 1;
    b = 1;
  };
  while (interrupt_at(k, body, [&] {
    seen.insert({a, b});
    ++calls;
  })) {
    ++k;
    ASSERT_LT(k, 10'000U);
  }
  EXPECT_EQ(calls, static_cast<int>(k - 1));
  EXPECT_TRUE(seen.contains({1, 0}));  // between the two stores
  EXPECT_TRUE(seen.contains({0, 0}));
  EXPECT_TRUE(seen.contains({1, 1}));
}

TEST(Interrupt, VisitsEachInstructionInOneRun) {
  if (!kCanInterrupt) {
    GTEST_SKIP() << "no single steps here";
  }
  std::uint64_t calls = 0;
  volatile int a = 0;
  int with_one = 0;
  const std::uint64_t steps = interrupt_each(
      [&] {
        a = 1;
        a = 0;
      },
      [&] {
        ++calls;
        with_one += a;
      });
  EXPECT_EQ(calls, steps);
  EXPECT_GE(with_one, 1);
  EXPECT_LT(static_cast<std::uint64_t>(with_one), steps);
}

TEST(Interrupt, LeavesNoTrapBehind) {
  if (!kCanInterrupt) {
    GTEST_SKIP() << "no single steps here";
  }
  int calls = 0;
  EXPECT_TRUE(interrupt_at(
      3, [] {}, [&] { ++calls; }));
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(interrupt_at(
      1'000'000, [] {}, [&] { ++calls; }));
  volatile int sum = 0;
  for (int i = 0; i < 1000; ++i) {
    sum = sum + i;  // a trap here would end the process
  }
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace weir::test
