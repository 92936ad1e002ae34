// SPDX-License-Identifier: MIT
// lab/harness/runner.cpp — the loop over rounds and contenders.
#include "lab/harness/runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "lab/harness/control.hpp"
#include "lab/harness/interrupt.hpp"

namespace weir::lab {

namespace {

struct Entrant {
  std::unique_ptr<Trial> trial;
  std::size_t place = 0;  // in CaseResult::contenders
};

void record(ContenderResult& contender, const Outcome& outcome) {
  for (const Reading& reading : outcome.readings) {
    auto series = std::find_if(contender.series.begin(), contender.series.end(),
                               [&](const Series& s) { return s.metric == reading.metric; });
    if (series == contender.series.end()) {
      contender.series.push_back({reading.metric, reading.unit, {}});
      series = contender.series.end() - 1;
    }
    series->values.push_back(reading.value);
  }
}

// Sets every contender up; those that cannot run are named in the result.
std::vector<Entrant> set_up(std::span<const Contender* const> contenders, const TrialSetup& setup,
                            CaseResult& result) {
  std::vector<Entrant> entrants;
  for (const Contender* contender : contenders) {
    ContenderResult& place =
        result.contenders.emplace_back(ContenderResult{contender->name, contender->side, "", {}});
    place.absent = contender->missing;
    if (!place.absent.empty()) {
      continue;
    }
    TrialOrProblem made = contender->make(setup);
    if (made.trial != nullptr) {
      entrants.push_back({std::move(made.trial), result.contenders.size() - 1});
      continue;
    }
    place.absent = "could not be set up: " + made.problem;
    if (contender->side == Side::weir && result.fault.empty()) {
      result.fault = fmt::format("{} {}", contender->name, place.absent);
    }
  }
  return entrants;
}

Outcome run_slot(Trial& trial, const RoundSetup& round, Crew& crew) {
  trial.prepare(round);
  const std::function<void()> lead = [&] { trial.lead(); };
  std::function<void()> follow;
  if (trial.two_sided()) {
    follow = [&] { trial.follow(); };
  }
  crew.run(lead, follow);
  return trial.collect();
}

// The slower of both CPUs is the one that would have spoilt the slot.
double run_control(Crew& crew) {
  double lead = 0;
  double follow = 0;
  if (crew.cpus().shared()) {
    crew.run([&] { lead = control_step_ns(); }, {});
  } else {
    crew.run([&] { lead = control_step_ns(); }, [&] { follow = control_step_ns(); });
  }
  return std::max(lead, follow);
}

}  // namespace

CaseResult run_case(const Experiment& experiment, const std::string& case_name,
                    const TrialSetup& setup, std::span<const Contender* const> contenders,
                    const Plan& plan, Crew& crew, Progress& progress) {
  CaseResult result;
  result.experiment = &experiment;
  result.case_name = case_name;
  result.planned = plan.rounds;
  TrialSetup case_setup = setup;
  if (const Case* one_case = find_case(experiment, case_name); one_case != nullptr) {
    case_setup.batch = one_case->batch;
    case_setup.case_name = one_case->name;
  }
  std::vector<Entrant> entrants = set_up(contenders, case_setup, result);
  if (!result.fault.empty() || entrants.empty()) {
    return result;
  }
  const RoundSetup round_setup{plan.slot, crew.cpus().shared()};
  for (std::size_t round = 0; round <= plan.rounds && !interrupted(); ++round) {
    const std::string where =
        round == 0
            ? fmt::format("{} {}, warming up", experiment.name, case_name)
            : fmt::format("{} {}, round {} of {}", experiment.name, case_name, round, plan.rounds);
    std::vector<Outcome> outcomes(entrants.size());
    for (const std::size_t i : round_order(round, entrants.size())) {
      ContenderResult& contender = result.contenders[entrants[i].place];
      progress.begin(where, contender.name);
      const double control = run_control(crew);
      outcomes[i] = run_slot(*entrants[i].trial, round_setup, crew);
      progress.end();
      if (!outcomes[i].fault.empty()) {
        result.fault = fmt::format("{}, {}: {}", where, contender.name, outcomes[i].fault);
        return result;
      }
      if (round != 0) {
        result.control_ns.push_back(control);
      }
    }
    // Only whole rounds count: ratios are paired.
    if (round != 0) {
      for (std::size_t i = 0; i < entrants.size(); ++i) {
        record(result.contenders[entrants[i].place], outcomes[i]);
      }
      ++result.rounds;
    }
    progress.round(where);
  }
  return result;
}

}  // namespace weir::lab
