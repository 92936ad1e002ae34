// SPDX-License-Identifier: MIT
// lab/harness/experiment.hpp — what an experiment is and who takes part. Plain descriptions; the
// registries stand in lab/experiments and lab/contenders. Calls lab/harness/trial.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lab/harness/trial.hpp"

namespace weir::lab {

// The number an experiment is about.
struct Metric {
  const char* name;        // "rate", "time": the name in rows
  const char* unit;        // of rows: "packets/s"
  const char* shown_unit;  // of tables: "Mpackets/s"
  double shown_per_unit;   // 1e-6
  bool higher_is_better;
};

enum class Side : unsigned char { weir, other, floor };

struct Contender {
  std::string name;     // as in rows
  std::string about;    // one line
  std::string missing;  // why it cannot take part here; empty if it can
  Side side = Side::other;
  std::function<TrialOrProblem(const TrialSetup&)> make;
};

struct Case {
  std::string name;
  std::string about;
  std::uint32_t batch = 64;            // TrialSetup::batch
  bool quick = true;                   // runs in a quick lab, too
  std::vector<std::string> without{};  // contenders that take no part in this case
};

// Further numbers of an experiment that the text shows: a table with a line for each contender and a column
// for each metric, its medians.
struct Details {
  struct Column {
    const char* head;
    const char* metric;
  };
  std::string title;  // head of the first column: "ns a page at"
  std::vector<Column> columns;
};

struct Experiment {
  std::string name;
  std::string question;
  std::string source;    // whose idea: where the question or the method comes from
  std::string expected;  // the shape of the answer, told before it is measured
  std::string meaning;   // what the number does and does not say
  Workload workload = Workload::pairs;
  Metric metric{};
  std::vector<Case> cases;
  std::vector<std::string> contenders;  // in the order of tables
  // Contenders that weir's rows are set against in a table of their own.
  std::vector<std::string> references{};
  std::vector<Details> details{};
};

// nullptr if there is none of that name.
[[nodiscard]] inline const Case* find_case(const Experiment& experiment, const std::string& name) {
  for (const Case& one : experiment.cases) {
    if (one.name == name) {
      return &one;
    }
  }
  return nullptr;
}

}  // namespace weir::lab
