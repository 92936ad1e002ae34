// SPDX-License-Identifier: MIT
// Medians, extremes and intervals against values worked out by hand or by a table of the binomial
// distribution.
#include "lab/harness/statistics.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace weir::lab {
namespace {

std::vector<double> one_to(int n) {
  std::vector<double> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

TEST(Statistics, MedianOfAnOddNumberIsTheMiddleOne) {
  const std::vector<double> values{9, 1, 5};
  EXPECT_EQ(median_of(values), 5);
}

TEST(Statistics, MedianOfAnEvenNumberIsTheMeanOfTheTwoMiddleOnes) {
  const std::vector<double> values{9, 1, 5, 6};
  EXPECT_EQ(median_of(values), 5.5);
}

TEST(Statistics, SummaryHasMedianExtremesAndRounds) {
  const std::vector<double> values{3, 1, 2, 10, 4};
  const Summary summary = summarize(values);
  EXPECT_EQ(summary.median, 3);
  EXPECT_EQ(summary.low, 1);
  EXPECT_EQ(summary.high, 10);
  EXPECT_EQ(summary.rounds, 5U);
}

TEST(Statistics, OneRoundIsItsOwnSummary) {
  const std::vector<double> values{7};
  const Summary summary = summarize(values);
  EXPECT_EQ(summary.median, 7);
  EXPECT_EQ(summary.low, 7);
  EXPECT_EQ(summary.high, 7);
}

TEST(Statistics, FewerThanSixRoundsHaveNoIntervalOf95Percent) {
  for (int n = 1; n <= 5; ++n) {
    EXPECT_FALSE(median_interval_95(one_to(n)).has_value()) << n;
  }
  EXPECT_TRUE(median_interval_95(one_to(6)).has_value());
}

// Ranks of the sign test at 5 %: 6..8 rounds leave none out, 9..11 one on each side, 12..14 two.
TEST(Statistics, IntervalHasTheRanksOfTheSignTest) {
  struct Expected {
    int rounds;
    double low;
  };
  for (const Expected e : {Expected{6, 1},
                           {7, 1},
                           {8, 1},
                           {9, 2},
                           {11, 2},
                           {12, 3},
                           {14, 3},
                           {15, 4},
                           {20, 6},
                           {25, 8},
                           {100, 40}}) {
    const auto interval = median_interval_95(one_to(e.rounds));
    ASSERT_TRUE(interval.has_value()) << e.rounds;
    EXPECT_EQ(interval->low, e.low) << e.rounds;
    EXPECT_EQ(interval->high, e.rounds + 1 - e.low) << e.rounds;
  }
}

TEST(Statistics, IntervalDoesNotDependOnTheOrderOfRounds) {
  std::vector<double> values = one_to(15);
  std::mt19937 random(7);
  std::shuffle(values.begin(), values.end(), random);
  const auto interval = median_interval_95(values);
  ASSERT_TRUE(interval.has_value());
  EXPECT_EQ(interval->low, 4);
  EXPECT_EQ(interval->high, 12);
}

// The true median lies inside in at least 95 of 100 cases, whatever the distribution.
TEST(Statistics, IntervalCoversTheMedianOfASkewedDistribution) {
  std::mt19937 random(1);
  std::exponential_distribution<double> skewed(1);
  const double truth = 0.6931471805599453;
  int covered = 0;
  constexpr int kTrials = 4000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values(11);
    std::generate(values.begin(), values.end(), [&] { return skewed(random); });
    const auto interval = median_interval_95(values);
    ASSERT_TRUE(interval.has_value());
    covered += interval->low <= truth && truth <= interval->high ? 1 : 0;
  }
  EXPECT_GE(covered, kTrials * 95 / 100);
  EXPECT_LT(covered, kTrials);  // it is no interval of everything either
}

TEST(Statistics, RatiosArePairedRoundByRound) {
  // The second contender always needs twice as much, however the machine drifts.
  const std::vector<double> a{1, 10, 3, 100, 5, 7, 2};
  std::vector<double> b(a.size());
  std::transform(a.begin(), a.end(), b.begin(), [](double x) { return 2 * x; });
  const PairedRatio ratio = paired_ratio(a, b);
  EXPECT_EQ(ratio.median, 0.5);
  EXPECT_EQ(ratio.rounds, 7U);
  ASSERT_TRUE(ratio.interval.has_value());
  EXPECT_EQ(ratio.interval->low, 0.5);
  EXPECT_EQ(ratio.interval->high, 0.5);
}

TEST(Statistics, TwoZerosAreEqual) {
  const std::vector<double> a{0, 0, 3, 4, 0, 6, 7};
  const std::vector<double> b{0, 0, 3, 4, 0, 6, 7};
  EXPECT_EQ(paired_ratio(a, b).median, 1);
  EXPECT_EQ(paired_ratio(a, b).extremes.high, 1);
}

TEST(Statistics, RatioOfFewRoundsHasExtremesOnly) {
  const std::vector<double> a{1, 2, 6};
  const std::vector<double> b{1, 1, 2};
  const PairedRatio ratio = paired_ratio(a, b);
  EXPECT_EQ(ratio.median, 2);
  EXPECT_FALSE(ratio.interval.has_value());
  EXPECT_EQ(ratio.extremes.low, 1);
  EXPECT_EQ(ratio.extremes.high, 3);
}

TEST(Statistics, SpreadIgnoresASingleOutlier) {
  std::vector<double> values(100, 10.0);
  EXPECT_EQ(relative_spread(values), 0);
  values.front() = 1000;
  EXPECT_EQ(relative_spread(values), 0);
  std::fill(values.begin(), values.begin() + 30, 13.0);
  EXPECT_NEAR(relative_spread(values), 0.3, 1e-12);
}

TEST(StatisticsDeathTest, AnEmptySeriesIsRefused) {
  EXPECT_DEATH(static_cast<void>(median_of({})), "a median needs a value");
}

}  // namespace
}  // namespace weir::lab
