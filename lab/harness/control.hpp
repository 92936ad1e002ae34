// SPDX-License-Identifier: MIT
// lab/harness/control.hpp — the control loop: pure arithmetic, no memory, nothing that an
// allocator could change. When its time varies, the machine did. Calls the clock.
#pragma once

#include <cstdint>

namespace weir::lab {

// A spread (10th to 90th percentile, of the median) beyond this is called noisy.
inline constexpr double kNoisySpread = 0.15;

// Nanoseconds of one step of a dependent multiply-and-add chain, measured over some 0.3 ms.
[[nodiscard]] double control_step_ns();

}  // namespace weir::lab
