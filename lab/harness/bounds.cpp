// SPDX-License-Identifier: MIT
// lab/harness/bounds.cpp — reading bounds, and holding results against them.
#include "lab/harness/bounds.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "lab/harness/table.hpp"

namespace weir::lab {

namespace {

constexpr const char* kSchema = "weir-bounds/1";

Bound bound_of(const nlohmann::json& entry) {
  return {entry.at("experiment").get<std::string>(), entry.at("case").get<std::string>(),
          entry.at("contender").get<std::string>(),
          entry.at("references").get<std::vector<std::string>>(),
          entry.at("at_most").get<double>()};
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
  const ContenderResult* const self = find_contender(*result, bound.contender);
  const ContenderResult* const reference = best_of(*result, bound.references);
  if (self == nullptr || !has_figures(*result, *self)) {
    check.why = fmt::format("{} has no figures", bound.contender);
  } else if (reference == nullptr) {
    check.why = fmt::format("{} has no figures", fmt::join(bound.references, ", "));
  } else {
    check.reference = reference->name;
    check.ratio = ratio(*result, *self, *reference);
    check.verdict = decide(*check.ratio, bound.at_most);
    if (check.verdict == Verdict::undecided) {
      check.why = check.ratio->interval ? "the interval contains the bound" : "too few rounds";
    } else if (result->noisy()) {
      check.why = "in a noisy run";
    }
  }
  return check;
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
      if (parsed.bounds.back().references.empty() || !(parsed.bounds.back().at_most > 0)) {
        return {{},
                fmt::format("bound {}: it needs a reference, and at_most above 0",
                            parsed.bounds.size())};
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
  Table table({"bound", "at most", "ratio (median, 95 %)", "set against", "verdict"});
  for (const BoundCheck& check : checks) {
    const Bound& bound = check.bound;
    table.add({fmt::format("{} {}: {}", bound.experiment, bound.case_name, bound.contender),
               fmt::format("{:g}", bound.at_most), check.ratio ? ratio_text(*check.ratio) : "",
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
    nlohmann::ordered_json entry = {
        {"experiment", check.bound.experiment}, {"case", check.bound.case_name},
        {"contender", check.bound.contender},   {"references", check.bound.references},
        {"at_most", check.bound.at_most},       {"verdict", verdict_text(check.verdict)}};
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
