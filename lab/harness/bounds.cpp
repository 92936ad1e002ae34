// SPDX-License-Identifier: MIT
// lab/harness/bounds.cpp — reading bounds, and holding results against them.
#include "lab/harness/bounds.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "lab/harness/control.hpp"
#include "lab/harness/table.hpp"

namespace weir::lab {

namespace {

constexpr const char* kSchema = "weir-bounds/1";

Bound bound_of(const nlohmann::json& entry) {
  Bound bound;
  bound.experiment = entry.at("experiment").get<std::string>();
  bound.case_name = entry.at("case").get<std::string>();
  bound.contender = entry.at("contender").get<std::string>();
  if (entry.contains("references")) {
    bound.references = entry.at("references").get<std::vector<std::string>>();
  }
  bound.metric = entry.value("metric", "");
  bound.or_spread = entry.value("or_spread", false);
  if (entry.contains("at_least")) {
    bound.at_least = entry.at("at_least").get<double>();
  }
  if (entry.contains("at_most") || !entry.contains("at_least")) {
    bound.at_most = entry.at("at_most").get<double>();
  }
  return bound;
}

// What is wrong with an entry that could be read; empty if nothing is.
const char* problem_of(const nlohmann::json& entry, const Bound& bound) {
  if (entry.contains("references") && bound.references.empty()) {
    return "it needs a reference, or no word of references";
  }
  if (bound.references.empty() && (bound.metric.empty() || bound.or_spread)) {
    return "without references it needs a metric, and knows no spread";
  }
  if (entry.contains("at_most") == entry.contains("at_least") || !(bound.limit() > 0)) {
    return "it needs one of at_most and at_least, above 0";
  }
  return "";
}

// The figures of the contender by themselves, as if over 1.
PairedRatio figure(const Series& series) {
  const Summary summary = summarize(series.values);
  return {summary.median,
          median_interval_95(series.values),
          {summary.low, summary.high},
          series.values.size()};
}

// Why two series have no ratio; empty if they have.
const char* no_ratio(const Series& series, const Series& reference) {
  if (series.values.size() != reference.values.size()) {
    return "not taken in the same rounds";
  }
  const bool zeros = std::any_of(reference.values.begin(), reference.values.end(),
                                 [](double value) { return value == 0; });
  return zeros ? "the reference has rounds of 0" : "";
}

// Puts the ratio or figure into `check`, or why there is none.
void measure(BoundCheck& check, const CaseResult& result) {
  const Bound& bound = check.bound;
  const Metric& main = result.experiment->metric;
  const std::string metric = bound.metric.empty() ? main.name : bound.metric;
  const ContenderResult* const self = find_contender(result, bound.contender);
  const Series* const series = self == nullptr ? nullptr : self->find(metric);
  if (series == nullptr) {
    check.why = fmt::format("{} has no figures", bound.contender);
    return;
  }
  if (bound.references.empty()) {
    check.ratio = figure(*series);
    return;
  }
  const ContenderResult* const reference =
      best_of(result, bound.references, metric, bound.at_least > 0);
  if (reference == nullptr) {
    check.why = fmt::format("{} has no figures", fmt::join(bound.references, ", "));
    return;
  }
  check.reference = reference->name;
  const Series& other = *reference->find(metric);
  check.why = no_ratio(*series, other);
  if (check.why.empty()) {
    check.ratio = paired_ratio(series->values, other.values);
    check.spread = bound.or_spread ? std::min(relative_spread(other.values), kNoisySpread) : 0;
  }
}

// Without a reference or a ratio: why.
BoundCheck check_one(const Bound& bound, std::span<const CaseResult> results) {
  BoundCheck check;
  check.bound = bound;
  const auto result = std::find_if(results.begin(), results.end(), [&](const CaseResult& r) {
    return r.experiment->name == bound.experiment && r.case_name == bound.case_name;
  });
  if (result == results.end()) {
    return check;
  }
  check.verdict = Verdict::undecided;
  measure(check, *result);
  if (!check.ratio) {
    return check;
  }
  check.verdict = bound.at_least > 0
                      ? decide_least(*check.ratio, bound.at_least * (1 - check.spread))
                      : decide(*check.ratio, bound.at_most * (1 + check.spread));
  if (check.verdict == Verdict::undecided) {
    check.why = check.ratio->interval ? "the interval contains the bound" : "too few rounds";
  } else if (result->noisy()) {
    check.why = "in a noisy run";
  }
  return check;
}

std::string subject_of(const Bound& bound) {
  return fmt::format("{} {}: {}{}{}", bound.experiment, bound.case_name, bound.contender,
                     bound.metric.empty() ? "" : ", ", bound.metric);
}

std::string limit_text(const BoundCheck& check) {
  const Bound& bound = check.bound;
  const bool least = bound.at_least > 0;
  std::string text = fmt::format("{}{:g}", least ? "at least " : "", bound.limit());
  if (bound.or_spread && check.ratio) {
    text += fmt::format(" {} {:.2f}", least ? "-" : "+", bound.limit() * check.spread);
  }
  return text;
}

}  // namespace

BoundsOrProblem parse_bounds(const std::string& text) {
  BoundsOrProblem parsed;
  try {
    const nlohmann::json document = nlohmann::json::parse(text);
    if (document.at("schema") != kSchema) {
      return {{}, fmt::format("its schema is not {}", kSchema)};
    }
    for (const nlohmann::json& entry : document.at("bounds")) {
      parsed.bounds.push_back(bound_of(entry));
      if (const std::string problem = problem_of(entry, parsed.bounds.back()); !problem.empty()) {
        return {{}, fmt::format("bound {}: {}", parsed.bounds.size(), problem)};
      }
    }
  } catch (const nlohmann::json::exception& error) {
    return {{}, error.what()};
  }
  return parsed;
}

const char* verdict_text(Verdict verdict) {
  switch (verdict) {
    case Verdict::met:
      return "met";
    case Verdict::not_met:
      return "not met";
    case Verdict::undecided:
      return "not decided by this run";
    case Verdict::not_run:
      break;
  }
  return "not run";
}

Verdict decide(const PairedRatio& ratio, double at_most) {
  if (!ratio.interval) {
    return Verdict::undecided;
  }
  if (ratio.interval->high <= at_most) {
    return Verdict::met;
  }
  return ratio.interval->low > at_most ? Verdict::not_met : Verdict::undecided;
}

Verdict decide_least(const PairedRatio& ratio, double at_least) {
  if (!ratio.interval) {
    return Verdict::undecided;
  }
  if (ratio.interval->low >= at_least) {
    return Verdict::met;
  }
  return ratio.interval->high < at_least ? Verdict::not_met : Verdict::undecided;
}

std::vector<BoundCheck> check_bounds(std::span<const Bound> bounds,
                                     std::span<const CaseResult> results) {
  std::vector<BoundCheck> checks;
  checks.reserve(bounds.size());
  for (const Bound& bound : bounds) {
    checks.push_back(check_one(bound, results));
  }
  return checks;
}

std::string bounds_table(std::span<const BoundCheck> checks) {
  Table table({"bound", "at most", "ratio or figure (median, 95 %)", "set against", "verdict"});
  for (const BoundCheck& check : checks) {
    const Bound& bound = check.bound;
    table.add({subject_of(bound), limit_text(check), check.ratio ? ratio_text(*check.ratio) : "",
               check.reference.empty() ? fmt::format("{}", fmt::join(bound.references, ", "))
                                       : check.reference,
               check.why.empty() ? verdict_text(check.verdict)
                                 : fmt::format("{}: {}", verdict_text(check.verdict), check.why)});
  }
  return table.text();
}

nlohmann::ordered_json bounds_to_json(std::span<const BoundCheck> checks) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const BoundCheck& check : checks) {
    const Bound& bound = check.bound;
    nlohmann::ordered_json entry = {{"experiment", bound.experiment},
                                    {"case", bound.case_name},
                                    {"contender", bound.contender},
                                    {"references", bound.references},
                                    {bound.at_least > 0 ? "at_least" : "at_most", bound.limit()},
                                    {"verdict", verdict_text(check.verdict)}};
    if (!bound.metric.empty()) {
      entry["metric"] = bound.metric;
    }
    if (bound.or_spread) {
      entry["spread"] = check.spread;
    }
    if (check.ratio) {
      const Interval interval = check.ratio->interval.value_or(check.ratio->extremes);
      entry["reference"] = check.reference;
      entry["median"] = check.ratio->median;
      entry["low"] = interval.low;
      entry["high"] = interval.high;
      entry["rounds"] = check.ratio->rounds;
    }
    if (!check.why.empty()) {
      entry["why"] = check.why;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace weir::lab
