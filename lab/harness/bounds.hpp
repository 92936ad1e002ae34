// SPDX-License-Identifier: MIT
// lab/harness/bounds.hpp — bounds on ratios and figures, and whether a run kept them. Calls
// lab/harness/result, control, nlohmann-json. Knows no contender; reads no file.
//
//   {"schema": "weir-bounds/1",
//    "bounds": [{"experiment": "pairs", "case": "4k", "contender": "weir.page",
//                "references": ["dpdk.mempool"], "at_most": 0.42}, ...]}
//
// A bound is on the contender's main metric, or the one that "metric" names, over that of the best of its
// references; without "references" on the figure itself. "at_least" takes the place of "at_most" where
// more is better. With "or_spread": true as much is allowed beyond it as the reference varies by itself
// (10th to 90th percentile, of the median), and no more than kNoisySpread. The 95 % interval of the paired
// ratios (of the figures) decides: met if all of it keeps the bound, not met if none of it does,
// undecided otherwise.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lab/harness/result.hpp"
#include "lab/harness/statistics.hpp"

namespace weir::lab {

struct Bound {
  std::string experiment;
  std::string case_name;
  std::string contender;
  std::vector<std::string> references;  // empty: the figure itself
  double at_most = 0;                   // more than 0, or 0 when at_least is
  double at_least = 0;
  std::string metric{};  // empty: the main one
  bool or_spread = false;

  [[nodiscard]] double limit() const { return at_least > 0 ? at_least : at_most; }
};

// The bounds of a document, or what is wrong with it in one line.
struct BoundsOrProblem {
  std::vector<Bound> bounds;
  std::string problem;
};
[[nodiscard]] BoundsOrProblem parse_bounds(const std::string& text);

enum class Verdict : unsigned char {
  met,
  not_met,
  undecided,  // `why` says what was missing, or the interval contains the bound
  not_run,    // the case was not among those that ran
};

struct BoundCheck {
  Bound bound;
  Verdict verdict = Verdict::not_run;
  std::string reference;             // the one it was set against; empty without a ratio
  std::optional<PairedRatio> ratio;  // or the figure itself; empty if there was none to take
  double spread = 0;                 // with or_spread: what was allowed beyond the bound
  std::string why;                   // also what speaks against a verdict
};

// "met", "not met", "not decided by this run", "not run".
[[nodiscard]] const char* verdict_text(Verdict verdict);

[[nodiscard]] Verdict decide(const PairedRatio& ratio, double at_most);
[[nodiscard]] Verdict decide_least(const PairedRatio& ratio, double at_least);
[[nodiscard]] std::vector<BoundCheck> check_bounds(std::span<const Bound> bounds,
                                                   std::span<const CaseResult> results);

// A line a bound.
[[nodiscard]] std::string bounds_table(std::span<const BoundCheck> checks);
[[nodiscard]] nlohmann::ordered_json bounds_to_json(std::span<const BoundCheck> checks);

}  // namespace weir::lab
