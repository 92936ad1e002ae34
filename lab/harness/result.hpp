// SPDX-License-Identifier: MIT
// lab/harness/result.hpp — what a run of one case gave: a value per contender, metric and round;
// and what follows from it: rows, ratios, tables. Calls lab/harness/statistics, table.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/harness/experiment.hpp"
#include "lab/harness/rows.hpp"
#include "lab/harness/statistics.hpp"

namespace weir::lab {

struct Series {
  std::string metric;
  std::string unit;
  std::vector<double> values;  // one per counted round in which the reading was taken
};

struct ContenderResult {
  std::string name;
  Side side = Side::other;
  std::string absent;  // why there are no figures; empty if there are
  std::vector<Series> series;

  // nullptr if there is none with values.
  [[nodiscard]] const Series* find(std::string_view metric) const;
  [[nodiscard]] double sum(std::string_view metric) const;  // 0 without the series
};

struct CaseResult {
  const Experiment* experiment = nullptr;
  std::string case_name;
  std::vector<ContenderResult> contenders;
  std::vector<double> control_ns;  // control loop, beside every counted slot
  std::size_t rounds = 0;          // counted and complete
  std::size_t planned = 0;
  std::string fault;  // a contender did not do its work; empty otherwise

  [[nodiscard]] bool noisy() const;
};

// The best other contender: for weir's rows among all that are not weir, for the others among all;
// floors take no part. nullptr if there is none.
[[nodiscard]] const ContenderResult* best_other(const CaseResult& result,
                                                const ContenderResult& self);
// The best of those that are named and have figures; nullptr if none has.
[[nodiscard]] const ContenderResult* best_of(const CaseResult& result,
                                             std::span<const std::string> names);
// The same by any metric.
[[nodiscard]] const ContenderResult* best_of(const CaseResult& result,
                                             std::span<const std::string> names,
                                             std::string_view metric, bool higher_is_better);
// nullptr if there is none of that name.
[[nodiscard]] const ContenderResult* find_contender(const CaseResult& result,
                                                    std::string_view name);
// True if it has values of the main metric.
[[nodiscard]] bool has_figures(const CaseResult& result, const ContenderResult& contender);
// Main metric of `a` over that of `b`, round by round; both have figures.
[[nodiscard]] PairedRatio ratio(const CaseResult& result, const ContenderResult& a,
                                const ContenderResult& b);

// All rows of a case: every series; `ratio_to_best_other` of each contender and
// `ratio_to_<contender>` of each of weir's, low and high being the 95 % interval (the extremes with
// fewer than 6 rounds); the control loop as contender `floor.arithmetic`.
[[nodiscard]] std::vector<Row> rows_of(const CaseResult& result);

// The table of the main metric, missing contenders named; the table of weir's ratios to the
// references of the experiment; the tables of its details; and a warning if the run was noisy.
[[nodiscard]] std::string table_of(const CaseResult& result);

// "0.93 (0.88 to 0.97)"
[[nodiscard]] std::string ratio_text(const PairedRatio& ratio);

}  // namespace weir::lab
