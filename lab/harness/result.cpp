// SPDX-License-Identifier: MIT
// lab/harness/result.cpp — rows, ratios and tables out of series.
#include "lab/harness/result.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lab/harness/control.hpp"
#include "lab/harness/table.hpp"

namespace weir::lab {

namespace {

const Series* main_series(const CaseResult& result, const ContenderResult& contender) {
  return contender.find(result.experiment->metric.name);
}

void add_row(std::vector<Row>& rows, const CaseResult& result, const std::string& contender,
             const std::string& metric, const std::string& unit, const Summary& summary) {
  rows.push_back({result.experiment->name, result.case_name, contender, metric, unit,
                  summary.median, summary.low, summary.high, summary.rounds});
}

void add_ratio(std::vector<Row>& rows, const CaseResult& result, const ContenderResult& self,
               const std::string& metric, const ContenderResult& other) {
  const PairedRatio r = ratio(result, self, other);
  const Interval interval = r.interval.value_or(r.extremes);
  if (!std::isfinite(r.median) || !std::isfinite(interval.low) || !std::isfinite(interval.high)) {
    return;  // the other one's figure was zero in some round: there is no such ratio
  }
  add_row(rows, result, self.name, metric, "ratio",
          {r.median, interval.low, interval.high, r.rounds});
}

}  // namespace

const Series* ContenderResult::find(std::string_view metric) const {
  const auto found = std::find_if(series.begin(), series.end(), [&](const Series& s) {
    return s.metric == metric && !s.values.empty();
  });
  return found == series.end() ? nullptr : &*found;
}

double ContenderResult::sum(std::string_view metric) const {
  const Series* found = find(metric);
  return found == nullptr ? 0 : std::accumulate(found->values.begin(), found->values.end(), 0.0);
}

bool CaseResult::noisy() const { return relative_spread(control_ns) > kNoisySpread; }

const ContenderResult* best_other(const CaseResult& result, const ContenderResult& self) {
  const ContenderResult* best = nullptr;
  double best_median = 0;
  for (const ContenderResult& other : result.contenders) {
    const Series* series = main_series(result, other);
    if (&other == &self || other.side == Side::floor || series == nullptr ||
        (self.side == Side::weir && other.side == Side::weir)) {
      continue;
    }
    const double median = median_of(series->values);
    const bool better =
        result.experiment->metric.higher_is_better ? median > best_median : median < best_median;
    if (best == nullptr || better) {
      best = &other;
      best_median = median;
    }
  }
  return best;
}

const ContenderResult* find_contender(const CaseResult& result, std::string_view name) {
  const auto found = std::find_if(result.contenders.begin(), result.contenders.end(),
                                  [&](const ContenderResult& c) { return c.name == name; });
  return found == result.contenders.end() ? nullptr : &*found;
}

bool has_figures(const CaseResult& result, const ContenderResult& contender) {
  return main_series(result, contender) != nullptr;
}

const ContenderResult* best_of(const CaseResult& result, std::span<const std::string> names) {
  const Metric& metric = result.experiment->metric;
  return best_of(result, names, metric.name, metric.higher_is_better);
}

const ContenderResult* best_of(const CaseResult& result, std::span<const std::string> names,
                               std::string_view metric, bool higher) {
  const ContenderResult* best = nullptr;
  double best_median = 0;
  for (const std::string& name : names) {
    const ContenderResult* one = find_contender(result, name);
    const Series* series = one == nullptr ? nullptr : one->find(metric);
    if (series == nullptr) {
      continue;
    }
    const double median = median_of(series->values);
    if (best == nullptr || (higher ? median > best_median : median < best_median)) {
      best = one;
      best_median = median;
    }
  }
  return best;
}

PairedRatio ratio(const CaseResult& result, const ContenderResult& a, const ContenderResult& b) {
  return paired_ratio(main_series(result, a)->values, main_series(result, b)->values);
}

std::vector<Row> rows_of(const CaseResult& result) {
  std::vector<Row> rows;
  for (const ContenderResult& contender : result.contenders) {
    for (const Series& series : contender.series) {
      if (!series.values.empty()) {
        add_row(rows, result, contender.name, series.metric, series.unit, summarize(series.values));
      }
    }
    if (main_series(result, contender) == nullptr) {
      continue;
    }
    if (const ContenderResult* best = best_other(result, contender);
        best != nullptr && contender.side != Side::floor) {
      add_ratio(rows, result, contender, "ratio_to_best_other", *best);
    }
    for (const ContenderResult& other : result.contenders) {
      if (contender.side == Side::weir && &other != &contender &&
          main_series(result, other) != nullptr) {
        add_ratio(rows, result, contender, "ratio_to_" + other.name, other);
      }
    }
  }
  if (!result.control_ns.empty()) {
    add_row(rows, result, "floor.arithmetic", "time", "ns", summarize(result.control_ns));
  }
  return rows;
}

std::string ratio_text(const PairedRatio& ratio) {
  return ratio.interval ? fmt::format("{:.2f} ({:.2f} to {:.2f})", ratio.median,
                                      ratio.interval->low, ratio.interval->high)
                        : fmt::format("{:.2f} (too few rounds)", ratio.median);
}

namespace {

// A line for each contender of weir, a column for each reference that has figures.
std::string references_table(const CaseResult& result) {
  std::vector<std::string> head{"ratio to (median, 95 %)"};
  std::vector<const ContenderResult*> references;
  for (const std::string& name : result.experiment->references) {
    const ContenderResult* reference = find_contender(result, name);
    if (reference != nullptr && has_figures(result, *reference)) {
      references.push_back(reference);
      head.push_back(name);
    }
  }
  Table table(std::move(head));
  bool empty = true;
  for (const ContenderResult& contender : result.contenders) {
    if (contender.side != Side::weir || !has_figures(result, contender)) {
      continue;
    }
    std::vector<std::string> cells{contender.name};
    for (const ContenderResult* reference : references) {
      cells.push_back(ratio_text(ratio(result, contender, *reference)));
      empty = false;
    }
    table.add(std::move(cells));
  }
  return empty ? "" : table.text();
}

std::string details_table(const CaseResult& result, const Details& details) {
  std::vector<std::string> head{details.title};
  for (const Details::Column& column : details.columns) {
    head.emplace_back(column.head);
  }
  Table table(std::move(head));
  for (const ContenderResult& contender : result.contenders) {
    if (!has_figures(result, contender)) {
      continue;
    }
    std::vector<std::string> cells{contender.name};
    for (const Details::Column& column : details.columns) {
      const Series* series = contender.find(column.metric);
      cells.push_back(series == nullptr ? "-" : number_text(median_of(series->values)));
    }
    table.add(std::move(cells));
  }
  return table.text();
}

}  // namespace

std::string table_of(const CaseResult& result) {
  const Metric& metric = result.experiment->metric;
  Table table({"contender", metric.shown_unit, "low", "high", "to best other (95 %)", "which is"});
  for (const ContenderResult& contender : result.contenders) {
    const Series* series = main_series(result, contender);
    if (series == nullptr) {
      table.add_remark(contender.name, contender.absent.empty() ? "no figures" : contender.absent);
      continue;
    }
    const Summary summary = summarize(series->values);
    std::vector<std::string> cells{contender.name};
    for (const double value : {summary.median, summary.low, summary.high}) {
      cells.push_back(number_text(value * metric.shown_per_unit));
    }
    const ContenderResult* best = best_other(result, contender);
    if (best != nullptr && contender.side != Side::floor) {
      cells.push_back(ratio_text(ratio(result, contender, *best)));
      cells.push_back(best->name);
    }
    table.add(std::move(cells));
  }
  std::string text = table.text();
  text += fmt::format(
      "{} rounds; low and high are the least and the greatest; a ratio {} 1 is better.\n",
      result.rounds, metric.higher_is_better ? "above" : "below");
  text += references_table(result);
  for (const Details& details : result.experiment->details) {
    text += details_table(result, details);
  }
  if (result.noisy()) {
    text += fmt::format(
        "This run was noisy: a loop of pure arithmetic varied by {:.0f} %. Take the ratios, not "
        "the "
        "absolute figures; run again when the machine is quiet.\n",
        100 * relative_spread(result.control_ns));
  }
  // The control loop does not notice that a partner lost its CPU; the contenders do.
  constexpr double kWide = 2;
  std::size_t wide = 0;
  for (const ContenderResult& contender : result.contenders) {
    if (const Series* series = contender.find(metric.name); series != nullptr) {
      const Summary summary = summarize(series->values);
      wide += summary.low > 0 && summary.high / summary.low > kWide ? 1 : 0;
    }
  }
  if (wide != 0) {
    text += fmt::format(
        "Busy machine: the rounds of {} of the contenders differ by more than a factor of two. Do "
        "not quote these figures.\n",
        wide);
  }
  return text;
}

}  // namespace weir::lab
