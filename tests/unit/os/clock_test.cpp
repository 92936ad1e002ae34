// SPDX-License-Identifier: MIT
#include "weir/os/clock.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/fake_clock.hpp"
#include "weir/arch/cpu.hpp"

namespace weir {
namespace {

TEST(Clock, OfTheSystemNeverGoesBackAndMoves) {
  Clock& clock = system_clock();
  const std::uint64_t start = clock.now_ns();
  std::uint64_t last = start;
  while (last < start + 1'000'000) {
    const std::uint64_t now = clock.now_ns();
    ASSERT_GE(now, last);
    last = now;
  }
  EXPECT_EQ(&clock, &system_clock());
}

TEST(Clock, OfTheSystemIsTheMonotonicClock) {
  const auto steady = [] {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  };
  const std::uint64_t before = steady();
  const std::uint64_t between = system_clock().now_ns();
  EXPECT_LE(before, between);
  EXPECT_LE(between, steady());
}

TEST(Clock, FakeStandsStillUntilMoved) {
  test::FakeClock clock(100);
  EXPECT_EQ(clock.now_ns(), 100U);
  EXPECT_EQ(clock.now_ns(), 100U);
  clock.advance(50);
  EXPECT_EQ(clock.now_ns(), 150U);
}

TEST(Cycles, RateIsThatOfARealProcessorAndDoesNotChange) {
  if (cycle_counter() == 0) GTEST_SKIP() << "no counter on this processor";
  const std::uint64_t rate = cycles_per_second();
  EXPECT_GT(rate, 1'000'000U);  // generic timers of aarch64 begin at 1 MHz
  EXPECT_LT(rate, 10'000'000'000U);
  EXPECT_EQ(cycles_per_second(), rate);
}

TEST(Cycles, ConvertToNanosecondsLinearlyAndWithoutOverflow) {
  const std::uint64_t rate = cycles_per_second();
  if (rate == 0) GTEST_SKIP() << "no counter on this processor";
  EXPECT_EQ(cycles_to_ns(0), 0U);
  EXPECT_EQ(cycles_to_ns(rate), 1'000'000'000U);
  EXPECT_EQ(cycles_to_ns(rate * 100'000),
            std::uint64_t{100'000} * 1'000'000'000);  // more than a day
  EXPECT_EQ(cycles_to_ns(rate / 2 + rate), 1'000'000'000U + cycles_to_ns(rate / 2));
}

TEST(Cycles, AgreeWithTheClockOverAMeasuredStretch) {
  if (cycles_per_second() == 0) GTEST_SKIP() << "no counter on this processor";
  // The clock is read inside the cycle readings: the cycles can only come out longer, by however
  // long the thread was stopped between two readings; of some tries one is undisturbed.
  double best = 1e9;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const std::uint64_t cycles_before = cycle_counter();
    const std::uint64_t start = system_clock().now_ns();
    std::uint64_t now = start;
    while (now - start < 3'000'000) now = system_clock().now_ns();
    const std::uint64_t cycles = cycle_counter() - cycles_before;
    best = std::min(best,
                    static_cast<double>(cycles_to_ns(cycles)) / static_cast<double>(now - start));
  }
  EXPECT_GT(best, 0.95);
  EXPECT_LT(best, 1.05);
}

}  // namespace
}  // namespace weir
