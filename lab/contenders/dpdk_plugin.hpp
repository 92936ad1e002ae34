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

enum class DpdkKind : unsigned char {
  mempool,        // on its default ring
  mempool_bulk,   // the same, 64 at once whatever the case says
  mempool_stack,  // on a stack
  mbuf,           // packet buffers with a reference count
};

// What the module exports under the name `weir_contender_dpdk`.
struct DpdkPlugin {
  static constexpr std::uint32_t kVersion = 2;
  std::uint32_t version;  // kVersion of the module; an older one is refused
  const char* (*library_version)();
  // Starts DPDK's environment on first use.
  TrialOrProblem (*make)(const TrialSetup& setup, DpdkKind kind);
};
using DpdkPluginEntry = const DpdkPlugin* (*)();

// dpdk.mempool, dpdk.mempool+bulk, dpdk.mempool-stack and dpdk.mbuf, found or missing.
[[nodiscard]] std::vector<Contender> dpdk_contenders();

}  // namespace weir::lab
