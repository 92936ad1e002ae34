// SPDX-License-Identifier: MIT
// lab/harness/json.cpp — rows as JSON.
#include "lab/harness/json.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "weir/base/check.hpp"

namespace weir::lab {

nlohmann::ordered_json machine_to_json(const MachineCard& machine) {
  nlohmann::ordered_json modes = nlohmann::ordered_json::object();
  for (const auto& [name, value] : machine.modes) {
    modes[name] = value;
  }
  return {{"cpu", machine.cpu},           {"cpus", machine.cpus},   {"kernel", machine.kernel},
          {"compiler", machine.compiler}, {"build", machine.build}, {"commit", machine.commit},
          {"modes", std::move(modes)}};
}

nlohmann::ordered_json to_json(const MachineCard& machine, std::span<const Row> rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    // JSON has no word for them: they would silently become null.
    WEIR_CHECK(std::isfinite(row.median) && std::isfinite(row.low) && std::isfinite(row.high),
               "a figure is finite");
    list.push_back({{"experiment", row.experiment},
                    {"case", row.case_name},
                    {"contender", row.contender},
                    {"metric", row.metric},
                    {"unit", row.unit},
                    {"median", row.median},
                    {"low", row.low},
                    {"high", row.high},
                    {"rounds", row.rounds}});
  }
  return {{"schema", "weir/1"}, {"machine", machine_to_json(machine)}, {"rows", std::move(list)}};
}

std::string json_text(const nlohmann::ordered_json& document) {
  return document.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace weir::lab
