// SPDX-License-Identifier: MIT
// apps/weir/measure.cpp — the measuring session.
#include "apps/weir/measure.hpp"

#include <fmt/format.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "apps/weir/command.hpp"
#include "lab/contenders/contenders.hpp"
#include "lab/contenders/libraries.hpp"
#include "lab/harness/machine.hpp"
#include "lab/harness/progress.hpp"
#include "lab/harness/runner.hpp"
#include "lab/harness/statistics.hpp"
#include "weir/os/system_info.hpp"
#include "weir/page/page_allocator.hpp"

namespace weir::app {

namespace fs = std::filesystem;

std::size_t Selected::present() const {
  return static_cast<std::size_t>(
      std::count_if(contenders.begin(), contenders.end(),
                    [](const lab::Contender* contender) { return contender->missing.empty(); }));
}

bool glob_matches(const std::string& glob, const std::string& text) {
  return ::fnmatch(glob.c_str(), text.c_str(), 0) == 0;
}

std::vector<Selected> select(std::span<const lab::Experiment* const> experiments,
                             const std::vector<lab::Contender>& contenders,
                             const std::vector<std::string>& filters) {
  std::vector<Selected> selection;
  std::set<std::string> useful;
  for (const lab::Experiment* experiment : experiments) {
    for (const lab::Case& one_case : experiment->cases) {
      Selected selected{experiment, &one_case, {}};
      for (const std::string& name : experiment->contenders) {
        bool wanted = filters.empty();
        for (const std::string& filter : filters) {
          if (glob_matches(filter, name) || glob_matches(filter, one_case.name) ||
              glob_matches(filter, experiment->name + "/" + one_case.name)) {
            wanted = true;
            useful.insert(filter);
          }
        }
        if (const lab::Contender* contender = lab::find_contender(contenders, name);
            wanted && contender != nullptr) {
          selected.contenders.push_back(contender);
        }
      }
      if (!selected.contenders.empty()) {
        selection.push_back(std::move(selected));
      }
    }
  }
  for (const std::string& filter : filters) {
    if (!useful.contains(filter)) {
      throw CommandError(kBadUsage,
                         fmt::format("--filter '{}' matches no case and no contender; 'weir lab "
                                     "list' names them",
                                     filter));
    }
  }
  return selection;
}

namespace {

// The tree this was built from, then where it may have been copied or installed to.
std::string default_capture() {
  constexpr const char* kName = "mix.pcap";
  std::error_code failed;
  const fs::path self = fs::read_symlink("/proc/self/exe", failed).parent_path();
  const fs::path source_tree = fs::path(__FILE__).parent_path().parent_path().parent_path();
  for (const fs::path& path : {source_tree / "data" / kName, self / kName,
                               self.parent_path() / "share" / "weir" / kName}) {
    if (fs::exists(path, failed)) {
      return path.string();
    }
  }
  throw CommandError(kBadUsage,
                     fmt::format("no {} found beside the command, in ../share/weir or in "
                                 "the source tree; name a capture with --capture FILE",
                                 kName));
}

}  // namespace

LoadedCapture load_capture(const std::string& path) {
  std::string found = path.empty() ? default_capture() : path;
  Result<Capture> capture = Capture::load(found.c_str());
  if (!capture) {
    throw CommandError(kBadUsage, fmt::format("{}; --capture needs a pcap file of Ethernet frames",
                                              capture_problem(found.c_str(), capture.error())));
  }
  return {std::move(found), std::move(capture).value()};
}

std::vector<lab::Contender> load_contenders(const Options& options) {
  std::vector<lab::Contender> contenders = lab::find_contenders(options);
  constexpr std::string_view kTunable = "glibc.rtld.optional_static_tls";
  const char* const set = std::getenv("GLIBC_TUNABLES");
  const std::string tunables = set == nullptr ? "" : set;
  if (!lab::static_tls_exhausted() || tunables.find(kTunable) != std::string::npos) {
    return contenders;
  }
  const std::string wanted =
      fmt::format("{}{}{}=16384", tunables, tunables.empty() ? "" : ":", kTunable);
  ::setenv("GLIBC_TUNABLES", wanted.c_str(), 1);
  std::error_code failed;
  const fs::path self = fs::read_symlink("/proc/self/exe", failed);
  ::execv(self.c_str(), command_arguments());
  return contenders;  // it could not start again: then without that library
}

Session::Session() {
  const Options options = with_environment(lab::lab_options());
  const std::string pages = lab::equal_page_size();
  std::string lists;
  try {
    // Before anything is measured: options that cannot be, or memory there is not.
    const PageAllocator trial(options);
    lists = trial.effective().list_mode;
  } catch (const std::invalid_argument& error) {
    throw CommandError(kBadUsage, error.what());
  } catch (const std::system_error& error) {
    throw CommandError(kFailed, error.what());
  }
  contenders_ = load_contenders(options);
  crew_ = std::make_unique<lab::Crew>(lab::choose_cpus());
  card_ = lab::machine_card(system_info());
  card_.modes = {
      {"threads on CPU", lab::cpus_text(crew_->cpus())},
      {"page size", pages},
      {"buffers", fmt::format("{} of {} bytes where bounded", lab::kLabBuffers, kFrameBytes)},
      {"lists", lists},
      {"options", options_text(options).data()},
      {"low and high", "least and greatest round; of ratios: 95 % interval of the median"},
  };
  if (!crew_->problem().empty()) {
    card_.modes.emplace_back("pinning", crew_->problem());
  }
}

std::string Session::crew_text() const {
  const lab::CpuPair cpus = crew_->cpus();
  std::string text =
      cpus.shared()
          ? fmt::format(
                "Only CPU {} may be used: both threads share it and take turns, so nothing "
                "crosses CPUs.",
                cpus.lead)
          : fmt::format("CPU {} leads, CPU {} follows.", cpus.lead, cpus.follow);
  if (!crew_->problem().empty()) {
    text += " " + crew_->problem() + ".";
  }
  return text;
}

void Session::run(std::span<const Selected> selection, std::span<const lab::Plan> plans,
                  const Capture* capture, const Output& output) {
  std::size_t steps = 0;
  for (std::size_t i = 0; i < selection.size(); ++i) {
    steps += selection[i].present() * (plans[i].rounds + 1);
  }
  const lab::InterruptGuard guard;
  lab::Progress progress(output.progress_stream(), output.progress_on_terminal(), steps);
  for (std::size_t i = 0; i < selection.size() && !interrupted_; ++i) {
    const Selected& one = selection[i];
    const lab::TrialSetup setup{one.experiment->workload, capture, lab::kLabBuffers};
    results_.push_back(lab::run_case(*one.experiment, one.one_case->name, setup, one.contenders,
                                     plans[i], *crew_, progress));
    interrupted_ = lab::interrupted();
    if (!results_.back().fault.empty()) {
      break;
    }
  }
}

std::vector<lab::Row> Session::rows() const {
  std::vector<lab::Row> rows;
  for (const lab::CaseResult& result : results_) {
    const std::vector<lab::Row> more = rows_of(result);
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

lab::MachineCard Session::card() const {
  lab::MachineCard card = card_;
  double spread = 0;
  bool noisy = false;
  std::set<std::string> told;
  for (const lab::CaseResult& result : results_) {
    spread = std::max(spread, lab::relative_spread(result.control_ns));
    noisy = noisy || result.noisy();
    for (const lab::ContenderResult& contender : result.contenders) {
      if (!contender.absent.empty() && told.insert(contender.name).second) {
        card.modes.emplace_back("without " + contender.name, contender.absent);
      }
    }
  }
  card.modes.emplace_back("noise", fmt::format("{}: a loop of arithmetic varied by {:.1f} %",
                                               noisy ? "noisy" : "quiet", 100 * spread));
  return card;
}

void Session::require_success() const {
  std::size_t rounds = 0;
  for (const lab::CaseResult& result : results_) {
    if (!result.fault.empty()) {
      throw CommandError(kFailed, result.fault);
    }
    rounds += result.rounds;
  }
  if (interrupted_) {
    const lab::CaseResult& last = results_.back();
    throw CommandError(kFailed,
                       fmt::format("interrupted: {} {} has {} of {} rounds", last.experiment->name,
                                   last.case_name, last.rounds, last.planned));
  }
  if (rounds == 0) {
    throw CommandError(kFailed,
                       "none of the contenders asked for is there; the table says what to "
                       "install");
  }
}

}  // namespace weir::app
