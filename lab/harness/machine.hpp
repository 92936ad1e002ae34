// SPDX-License-Identifier: MIT
// lab/harness/machine.hpp — the machine card of a result, and equal page sizes for all contenders.
// Calls os/system_info, lab/harness/build_info, prctl(2).
#pragma once

#include <string>

#include "lab/harness/crew.hpp"
#include "lab/harness/rows.hpp"
#include "weir/os/system_info.hpp"

namespace weir::lab {

// CPU, kernel and build; modes are still empty.
[[nodiscard]] MachineCard machine_card(const SystemInfo& system);

// "0 and 1", or "0 alone: both threads take turns".
[[nodiscard]] std::string cpus_text(CpuPair cpus);

// Switches transparent huge pages off for this process, so that every contender, also one that asks
// the kernel by itself, stands on 4 KiB pages. Returns what holds from now on, for the machine card.
[[nodiscard]] std::string equal_page_size();

}  // namespace weir::lab
