// SPDX-License-Identifier: MIT
// lab/contenders/dpdk_plugin.hpp — the seam between the lab and the module that holds the DPDK
// contenders. DPDK's headers want their own compiler flags and its libraries may be absent: the
// module alone sees them. Calls dlopen(3); never unloads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/harness/experiment.hpp"
#include "lab/harness/trial.hpp"

namespace weir::lab {

// What the module exports under the name `weir_contender_dpdk`.
struct DpdkPlugin {
  static constexpr std::uint32_t kVersion = 1;
  std::uint32_t version;  // kVersion of the module; an older one is refused
  const char* (*library_version)();
  // Starts DPDK's environment on first use; `ops` is "ring_mp_mc" or "stack".
  TrialOrProblem (*make)(const TrialSetup& setup, const char* ops);
};
using DpdkPluginEntry = const DpdkPlugin* (*)();

// dpdk.mempool and dpdk.mempool-stack, found or missing.
[[nodiscard]] std::vector<Contender> dpdk_contenders();

}  // namespace weir::lab
