// SPDX-License-Identifier: MIT
// lab/experiments/experiments.hpp — the experiments there are. One file each beside this one; a new
// one is added by a function here and a line in experiments.cpp.
#pragma once

#include <span>
#include <string>

#include "lab/harness/experiment.hpp"

namespace weir::lab {

[[nodiscard]] Experiment forward_experiment();
[[nodiscard]] Experiment pairs_experiment();
[[nodiscard]] Experiment bulk_experiment();
[[nodiscard]] Experiment cross_cpu_experiment();
[[nodiscard]] Experiment engines_experiment();
[[nodiscard]] Experiment merge_experiment();
[[nodiscard]] Experiment low_memory_experiment();
[[nodiscard]] Experiment mixed_load_experiment();
[[nodiscard]] Experiment fragmentation_experiment();
[[nodiscard]] Experiment compaction_experiment();

// In the order of `weir lab list`; live as long as the program.
[[nodiscard]] std::span<const Experiment> experiments();

// nullptr if there is none of that name.
[[nodiscard]] const Experiment* find_experiment(const std::string& name);

}  // namespace weir::lab
