// SPDX-License-Identifier: MIT
// lab/harness/json.hpp — rows as JSON of the schema "weir/1":
//   {"schema": "weir/1", "machine": {cpu, cpus, kernel, compiler, build, commit, modes},
//    "rows": [{"experiment", "case", "contender", "metric", "unit", "median", "low", "high",
//              "rounds"}, ...]}
// `modes` is an object of texts. Calls nlohmann-json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "lab/harness/rows.hpp"

namespace weir::lab {

[[nodiscard]] nlohmann::ordered_json machine_to_json(const MachineCard& machine);
[[nodiscard]] nlohmann::ordered_json to_json(const MachineCard& machine, std::span<const Row> rows);

// The text of a document, ending in a newline. Bytes that are no UTF-8 are replaced.
[[nodiscard]] std::string json_text(const nlohmann::ordered_json& document);

}  // namespace weir::lab
