// SPDX-License-Identifier: MIT
// lab/contenders/contenders.hpp — everyone who takes part, found or missing, by name. Calls the
// adapters beside it. Allocators of weir are made when first asked for and shared by its contenders.
#pragma once

#include <vector>

#include "lab/harness/experiment.hpp"
#include "weir/os/options.hpp"

namespace weir::lab {

// Buffers each bounded contender has: 16 MiB, of which rings and caches hold a third.
inline constexpr std::uint32_t kLabBuffers = 4096;

// Options of weir's allocators unless the environment says otherwise: as much memory as the others,
// on the same page size.
[[nodiscard]] Options lab_options();

// Loads the libraries that are installed.
[[nodiscard]] std::vector<Contender> find_contenders(const Options& weir_options);

// nullptr if there is none of that name.
[[nodiscard]] const Contender* find_contender(const std::vector<Contender>& contenders,
                                              const std::string& name);

}  // namespace weir::lab
