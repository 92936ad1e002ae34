// SPDX-License-Identifier: MIT
// lab/experiments/experiments.cpp — the registry of experiments.
#include "lab/experiments/experiments.hpp"

#include <algorithm>
#include <vector>

namespace weir::lab {

std::span<const Experiment> experiments() {
  static const std::vector<Experiment> all = {forward_experiment(),       pairs_experiment(),
                                              bulk_experiment(),          cross_cpu_experiment(),
                                              engines_experiment(),       merge_experiment(),
                                              low_memory_experiment(),    mixed_load_experiment(),
                                              fragmentation_experiment(), compaction_experiment()};
  return all;
}

const Experiment* find_experiment(const std::string& name) {
  const std::span<const Experiment> all = experiments();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Experiment& e) { return e.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace weir::lab
