// SPDX-License-Identifier: MIT
// lab/harness/bounds.hpp — bounds on ratios, and whether a run kept them. Calls lab/harness/result,
// nlohmann-json. Knows no contender; reads no file.
//
//   {"schema": "weir-bounds/1",
//    "bounds": [{"experiment": "pairs", "case": "4k", "contender": "weir.page",
//                "references": ["dpdk.mempool"], "at_most": 0.42}, ...]}
//
// A bound is on the contender's main metric over that of the best of its references, for metrics of
// which less is better. The 95 % interval of the paired ratios decides: met if all of it is at most
// the bound, not met if all of it is above, undecided if the bound lies inside.
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
  std::vector<std::string> references;  // not empty
  double at_most = 0;                   // more than 0
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
  std::optional<PairedRatio> ratio;  // empty if there was none to take
  std::string why;                   // also what speaks against a verdict
};

// "met", "not met", "not decided by this run", "not run".
[[nodiscard]] const char* verdict_text(Verdict verdict);

[[nodiscard]] Verdict decide(const PairedRatio& ratio, double at_most);
[[nodiscard]] std::vector<BoundCheck> check_bounds(std::span<const Bound> bounds,
                                                   std::span<const CaseResult> results);

// A line a bound.
[[nodiscard]] std::string bounds_table(std::span<const BoundCheck> checks);
[[nodiscard]] nlohmann::ordered_json bounds_to_json(std::span<const BoundCheck> checks);

}  // namespace weir::lab
