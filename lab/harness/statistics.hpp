// SPDX-License-Identifier: MIT
// lab/harness/statistics.hpp — what a series of rounds says: median, spread, paired ratios with
// an interval. Calls the C++ library only. Assumes no distribution: a shared machine has none that
// is worth assuming.
//
//   median   the middle round (mean of the two middle ones if their number is even)
//   low/high the least and the greatest round
//   interval of a median, 95 %: the k-th least and k-th greatest value, k being the largest rank
//            for which both binomial tails together stay within 5 %.
//            example: 7 rounds -> k = 1, [least, greatest] covers 98.4 %; 11 rounds -> k = 2
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace weir::lab {

struct Summary {
  double median = 0;
  double low = 0;
  double high = 0;
  std::size_t rounds = 0;
};

struct Interval {
  double low = 0;
  double high = 0;
};

// Ratio of two contenders, taken round by round: what disturbed one round disturbed both.
struct PairedRatio {
  double median = 0;
  std::optional<Interval> interval;  // empty with fewer than 6 rounds: none of 95 % exists
  Interval extremes;                 // least and greatest ratio
  std::size_t rounds = 0;
};

// Not empty.
[[nodiscard]] double median_of(std::span<const double> values);
[[nodiscard]] Summary summarize(std::span<const double> values);
[[nodiscard]] std::optional<Interval> median_interval_95(std::span<const double> values);

// a[i] / b[i], equal ones 1 even if zero; both of the same length, not empty. Not finite where only b is zero.
[[nodiscard]] PairedRatio paired_ratio(std::span<const double> a, std::span<const double> b);

// (90th - 10th percentile) / median; 0 for fewer than two values.
[[nodiscard]] double relative_spread(std::span<const double> values);

}  // namespace weir::lab
