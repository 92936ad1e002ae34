// SPDX-License-Identifier: MIT
// lab/harness/statistics.cpp — order statistics of short series.
#include "lab/harness/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "weir/base/check.hpp"

namespace weir::lab {

namespace {

std::vector<double> sorted(std::span<const double> values) {
  std::vector<double> copy(values.begin(), values.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

double middle(std::span<const double> ordered) {
  const std::size_t n = ordered.size();
  return n % 2 == 1 ? ordered[n / 2] : (ordered[n / 2 - 1] + ordered[n / 2]) / 2;
}

// Linear between the two nearest ranks.
double percentile(std::span<const double> ordered, double share) {
  const double position = share * static_cast<double>(ordered.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(position));
  const std::size_t above = std::min(below + 1, ordered.size() - 1);
  return ordered[below] + (position - std::floor(position)) * (ordered[above] - ordered[below]);
}

// Largest k with P(Binomial(n, 1/2) < k) <= 2.5 %; 0 if there is none.
std::size_t interval_rank(std::size_t n) {
  constexpr double kTail = 0.025;
  double term = std::pow(0.5, static_cast<double>(n));  // P(X == 0)
  double below = 0;                                     // P(X < k)
  std::size_t k = 0;
  while (k < n && below + term <= kTail) {
    below += term;
    ++k;
    term *= static_cast<double>(n - k + 1) / static_cast<double>(k);
  }
  return k;
}

}  // namespace

double median_of(std::span<const double> values) {
  WEIR_CHECK(!values.empty(), "a median needs a value");
  return middle(sorted(values));
}

Summary summarize(std::span<const double> values) {
  WEIR_CHECK(!values.empty(), "a summary needs a value");
  const std::vector<double> ordered = sorted(values);
  return {middle(ordered), ordered.front(), ordered.back(), ordered.size()};
}

std::optional<Interval> median_interval_95(std::span<const double> values) {
  const std::size_t k = interval_rank(values.size());
  if (k == 0) {
    return std::nullopt;
  }
  const std::vector<double> ordered = sorted(values);
  return Interval{ordered[k - 1], ordered[ordered.size() - k]};
}

PairedRatio paired_ratio(std::span<const double> a, std::span<const double> b) {
  WEIR_CHECK(a.size() == b.size() && !a.empty(), "ratios are paired round by round");
  std::vector<double> ratios(a.size());
  std::transform(a.begin(), a.end(), b.begin(), ratios.begin(),
                 [](double x, double y) { return x == y ? 1.0 : x / y; });  // two zeros are equal
  const Summary summary = summarize(ratios);
  return {summary.median, median_interval_95(ratios), {summary.low, summary.high}, ratios.size()};
}

double relative_spread(std::span<const double> values) {
  if (values.size() < 2) {
    return 0;
  }
  const std::vector<double> ordered = sorted(values);
  return (percentile(ordered, 0.9) - percentile(ordered, 0.1)) / middle(ordered);
}

}  // namespace weir::lab
