// SPDX-License-Identifier: MIT
// lab/harness/rows.hpp — a figure as it leaves the lab: one row per number, counters too.
// Plain data; calls the C++ library only.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace weir::lab {

struct Row {
  std::string experiment;
  std::string case_name;
  std::string contender;
  std::string metric;
  std::string unit;
  double median = 0;
  double low = 0;
  double high = 0;
  std::size_t rounds = 0;
};

// The machine a figure was taken on, and how.
struct MachineCard {
  std::string cpu;
  unsigned cpus = 0;
  std::string kernel;
  std::string compiler;
  std::string build;
  std::string commit;
  std::vector<std::pair<std::string, std::string>> modes;  // name, value; in order
};

}  // namespace weir::lab
