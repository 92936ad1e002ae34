// SPDX-License-Identifier: MIT
// apps/weir/lab.cpp — `weir lab`: the experiments, by name, filtered, held against bounds; `weir lab
// list` names them. Calls lab, apps/weir/measure.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/weir/command.hpp"
#include "apps/weir/measure.hpp"
#include "apps/weir/output.hpp"
#include "lab/contenders/contenders.hpp"
#include "lab/experiments/experiments.hpp"
#include "lab/harness/bounds.hpp"
#include "lab/harness/html.hpp"
#include "lab/harness/json.hpp"
#include "lab/harness/machine.hpp"
#include "lab/harness/table.hpp"
#include "weir/os/system_info.hpp"

namespace weir::app {

namespace {

constexpr std::size_t kRounds = 11;
constexpr std::chrono::milliseconds kSlot{100};
// All experiments together stay below 90 s, also where caches are slow to fill.
constexpr std::chrono::milliseconds kQuickSlot{20};

struct LabCommand {
  Output output;
  std::vector<std::string> names;
  std::vector<std::string> cases;
  std::vector<std::string> filters;
  std::string bounds_path;
  std::size_t rounds = 0;  // 0: not given
  bool quick = false;
  bool strict = false;

  int run();

 private:
  [[nodiscard]] std::vector<const lab::Experiment*> chosen_experiments() const;
  [[nodiscard]] std::vector<Selected> chosen_cases(
      const std::vector<const lab::Experiment*>& experiments,
      const std::vector<lab::Contender>& contenders) const;
};

std::vector<lab::Bound> load_bounds(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) {
    throw CommandError(kBadUsage, fmt::format("--check {}: cannot be read", path));
  }
  lab::BoundsOrProblem parsed = lab::parse_bounds(text);
  if (!parsed.problem.empty()) {
    throw CommandError(kBadUsage, fmt::format("--check {}: {}", path, parsed.problem));
  }
  return std::move(parsed.bounds);
}

// For --strict: the first bound that this run measured and did not find kept.
void require_met(const std::vector<lab::BoundCheck>& checks) {
  for (const lab::BoundCheck& check : checks) {
    if (check.verdict == lab::Verdict::not_met || check.verdict == lab::Verdict::undecided) {
      throw CommandError(
          kFailed, fmt::format("{} {}: the bound of {:g} on {} is {}", check.bound.experiment,
                               check.bound.case_name, check.bound.at_most, check.bound.contender,
                               lab::verdict_text(check.verdict)));
    }
  }
}

std::vector<const lab::Experiment*> LabCommand::chosen_experiments() const {
  std::vector<const lab::Experiment*> chosen;
  for (const lab::Experiment& experiment : lab::experiments()) {
    if (names.empty() || std::find(names.begin(), names.end(), experiment.name) != names.end()) {
      chosen.push_back(&experiment);
    }
  }
  for (const std::string& name : names) {
    if (lab::find_experiment(name) == nullptr) {
      throw CommandError(
          kBadUsage, fmt::format("no experiment is called '{}'; 'weir lab list' names them", name));
    }
  }
  // The file of --json is optional: a name right behind it may have been meant as an experiment.
  if (lab::find_experiment(output.json_path()) != nullptr) {
    throw CommandError(kBadUsage, fmt::format("--json {0}: '{0}' is an experiment; write it before "
                                              "--json, or name the file ./{0}",
                                              output.json_path()));
  }
  return chosen;
}

// What the filters leave, less the cases that are not wanted and those who take no part in one.
std::vector<Selected> LabCommand::chosen_cases(
    const std::vector<const lab::Experiment*>& experiments,
    const std::vector<lab::Contender>& contenders) const {
  std::vector<Selected> chosen;
  for (Selected& one : select(experiments, contenders, filters)) {
    const bool wanted = cases.empty()
                            ? !quick || one.one_case->quick
                            : std::any_of(cases.begin(), cases.end(), [&](const std::string& glob) {
                                return glob_matches(glob, one.one_case->name);
                              });
    const std::vector<std::string>& without = one.one_case->without;
    std::erase_if(one.contenders, [&](const lab::Contender* contender) {
      return std::find(without.begin(), without.end(), contender->name) != without.end();
    });
    if (wanted && !one.contenders.empty()) {
      chosen.push_back(std::move(one));
    }
  }
  if (chosen.empty()) {
    throw CommandError(kBadUsage,
                       "no case is left to run; 'weir lab list' names cases and contenders");
  }
  return chosen;
}

int LabCommand::run() {
  const std::vector<const lab::Experiment*> experiments = chosen_experiments();
  std::vector<lab::Bound> bounds;
  if (!bounds_path.empty()) {
    bounds = load_bounds(bounds_path);
  } else if (strict) {
    throw CommandError(kBadUsage, "--strict goes with --check FILE");
  }
  Session session;
  const std::vector<Selected> selection = chosen_cases(experiments, session.contenders());
  std::optional<LoadedCapture> capture;
  if (std::any_of(selection.begin(), selection.end(), [](const Selected& s) {
        return s.experiment->workload == lab::Workload::forward;
      })) {
    capture = load_capture("");
  }
  output.open();

  const lab::Plan plan{rounds != 0 ? rounds
                       : quick     ? lab::kLeastRounds
                                   : kRounds,
                       quick ? kQuickSlot : kSlot};
  output.print(
      fmt::format("{} Every contender has {} ms in each of {} rounds, after one to warm "
                  "up.\n",
                  session.crew_text(),
                  std::chrono::milliseconds{quick ? kQuickSlot : kSlot}.count(), plan.rounds));
  session.run(selection, std::vector<lab::Plan>(selection.size(), plan),
              capture ? &capture->capture : nullptr, output);

  for (const lab::CaseResult& result : session.results()) {
    output.print(fmt::format("\n{} {}: {}\n{}", result.experiment->name, result.case_name,
                             result.experiment->question, table_of(result)));
  }
  const std::vector<lab::BoundCheck> checks = lab::check_bounds(bounds, session.results());
  if (!checks.empty()) {
    output.print(fmt::format("\nBounds of {}\n{}", bounds_path, lab::bounds_table(checks)));
  }
  const lab::MachineCard card = session.card();
  nlohmann::ordered_json document = lab::to_json(card, session.rows());
  if (!checks.empty()) {
    document["bounds"] = lab::bounds_to_json(checks);
  }
  output.write_json(lab::json_text(document));
  output.write_html(
      lab::html_text({"weir lab", command_line(), date_text(), {}, card}, session.results()));
  session.require_success();
  if (strict) {
    require_met(checks);
  }
  return kDone;
}

struct ListCommand {
  Output output;

  int run() {
    const std::vector<lab::Contender> contenders = load_contenders(lab::lab_options());
    output.open();
    std::string text = "experiments\n";
    nlohmann::ordered_json experiments = nlohmann::ordered_json::array();
    for (const lab::Experiment& experiment : lab::experiments()) {
      nlohmann::ordered_json cases = nlohmann::ordered_json::array();
      text += fmt::format("  {}: {}\n    idea: {}\n    expected: {}\n", experiment.name,
                          experiment.question, experiment.source, experiment.expected);
      for (const lab::Case& one : experiment.cases) {
        text += fmt::format("    case {}: {}\n", one.name, one.about);
        cases.push_back({{"name", one.name}, {"about", one.about}});
      }
      experiments.push_back({{"name", experiment.name},
                             {"question", experiment.question},
                             {"source", experiment.source},
                             {"expected", experiment.expected},
                             {"metric", experiment.metric.name},
                             {"unit", experiment.metric.unit},
                             {"cases", std::move(cases)},
                             {"contenders", experiment.contenders}});
    }
    text += "\ncontenders\n";
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    std::size_t width = 0;
    for (const lab::Contender& contender : contenders) {
      width = std::max(width, contender.name.size());
    }
    for (const lab::Contender& contender : contenders) {
      text += fmt::format("  {:{}}  {}\n", contender.name, width,
                          contender.missing.empty() ? contender.about : contender.missing);
      list.push_back(
          {{"name", contender.name}, {"about", contender.about}, {"missing", contender.missing}});
    }
    output.print(text);
    nlohmann::ordered_json document = lab::to_json(lab::machine_card(system_info()), {});
    document["experiments"] = std::move(experiments);
    document["contenders"] = std::move(list);
    output.write_json(lab::json_text(document));
    return kDone;
  }
};

}  // namespace

void add_lab(CLI::App& app, Action& chosen) {
  auto command = std::make_shared<LabCommand>();
  CLI::App* sub = app.add_subcommand(
      "lab", "Run experiments: weir beside its contenders, interleaved round by round");
  sub->add_option("experiment", command->names, "Experiments to run; all of them without a name")
      ->type_name("");
  sub->add_flag("--quick", command->quick,
                "Short rounds and few cases: all experiments in under 90 s");
  sub->add_option("--rounds", command->rounds, "Rounds to count, instead of 11 (7 with --quick)")
      ->type_name("N")
      ->check(check_rounds);
  sub->add_option("--case", command->cases,
                  "Only cases that match this pattern, also those --quick leaves out; may be "
                  "repeated")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  sub->add_option("--filter", command->filters,
                  "Only cases or contenders that match this pattern; may be repeated")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  sub->add_option("--check", command->bounds_path,
                  "Say which bounds of this file the ratios keep (lab/bounds.json)")
      ->type_name("FILE");
  sub->add_flag("--strict", command->strict,
                "With --check: fail unless every bound that was measured is met");
  command->output.add_json(*sub);
  command->output.add_html(*sub, "");
  sub->footer("Developers: WEIR_LAB_NO_DLOPEN=1 hides all contenders that are loaded at run time.");

  auto list = std::make_shared<ListCommand>();
  CLI::App* list_sub = sub->add_subcommand("list", "Name experiments, cases and contenders");
  list->output.add_json(*list_sub);

  sub->callback([command, list, list_sub, &chosen] {
    if (list_sub->parsed()) {
      chosen = [list] { return list->run(); };
    } else {
      chosen = [command] { return command->run(); };
    }
  });
}

}  // namespace weir::app
