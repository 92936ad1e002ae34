// SPDX-License-Identifier: MIT
// lab/harness/runner.hpp — runs one case: all contenders, round by round, by the plan. Calls crew,
// plan, control, progress, interrupt.
#pragma once

#include <span>
#include <string>

#include "lab/harness/crew.hpp"
#include "lab/harness/experiment.hpp"
#include "lab/harness/plan.hpp"
#include "lab/harness/progress.hpp"
#include "lab/harness/result.hpp"

namespace weir::lab {

// The case decides on the batch of `setup`. Stops after the round in which a contender proved faulty or an interrupt came. A contender that
// is missing or cannot be set up takes no part and says why; one of weir's that cannot be set up is
// a fault.
[[nodiscard]] CaseResult run_case(const Experiment& experiment, const std::string& case_name,
                                  const TrialSetup& setup,
                                  std::span<const Contender* const> contenders, const Plan& plan,
                                  Crew& crew, Progress& progress);

}  // namespace weir::lab
