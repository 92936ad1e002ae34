// SPDX-License-Identifier: MIT
// apps/weir/measure.hpp — what `weir demo` and `weir lab` share: the session that measures
// (threads, contenders, machine card) and the selection of what is measured. Calls lab.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/weir/output.hpp"
#include "lab/harness/crew.hpp"
#include "lab/harness/experiment.hpp"
#include "lab/harness/interrupt.hpp"
#include "lab/harness/plan.hpp"
#include "lab/harness/result.hpp"
#include "lab/harness/rows.hpp"
#include "weir/io/capture.hpp"
#include "weir/os/options.hpp"

namespace weir::app {

// One case and who takes part in it.
struct Selected {
  const lab::Experiment* experiment = nullptr;
  const lab::Case* one_case = nullptr;
  std::vector<const lab::Contender*> contenders;

  [[nodiscard]] std::size_t present() const;  // contenders that are not missing
};

// True if a glob (`*`, `?`, `[...]`) matches all of the text.
[[nodiscard]] bool glob_matches(const std::string& glob, const std::string& text);

// Cases of the experiments with those contenders that a filter matches by their own name, or by the
// name of the case ("mix" or "forward/mix"). No filter keeps all. Throws CommandError(kBadUsage)
// for a filter that matches nothing.
[[nodiscard]] std::vector<Selected> select(std::span<const lab::Experiment* const> experiments,
                                           const std::vector<lab::Contender>& contenders,
                                           const std::vector<std::string>& filters);

// The capture at `path`, or the repository's without a path. Throws CommandError(kBadUsage).
struct LoadedCapture {
  std::string path;
  Capture capture;
};
[[nodiscard]] LoadedCapture load_capture(const std::string& path);

// Every contender, found or missing. Where the C library has reserved too little thread-local memory
// for a library that is loaded late, the command starts itself once more with a larger reserve
// (glibc.rtld.optional_static_tls): to be called before there are other threads or open files.
[[nodiscard]] std::vector<lab::Contender> load_contenders(const Options& options);

class Session {
 public:
  // Puts all contenders on equal pages, tries weir's options, starts the threads.
  // Throws CommandError.
  Session();

  [[nodiscard]] const std::vector<lab::Contender>& contenders() const { return contenders_; }
  [[nodiscard]] lab::Crew& crew() { return *crew_; }
  // One line for people: where the threads run, and what is unusual about it.
  [[nodiscard]] std::string crew_text() const;

  // Runs the cases one after the other until all are done, one is faulty, or an interrupt came.
  void run(std::span<const Selected> selection, std::span<const lab::Plan> plans,
           const Capture* capture, const Output& output);

  [[nodiscard]] std::span<const lab::CaseResult> results() const { return results_; }
  [[nodiscard]] std::vector<lab::Row> rows() const;
  // With noise and missing contenders of the results so far.
  [[nodiscard]] lab::MachineCard card() const;

  // Throws CommandError(kFailed) if the work was faulty, cut short, or measured nothing.
  void require_success() const;

 private:
  std::vector<lab::Contender> contenders_;
  std::unique_ptr<lab::Crew> crew_;
  lab::MachineCard card_;
  std::vector<lab::CaseResult> results_;
  bool interrupted_ = false;
};

}  // namespace weir::app
