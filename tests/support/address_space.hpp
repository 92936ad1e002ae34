// SPDX-License-Identifier: MIT
// support/address_space.hpp — whether a piece of code leaves memory mapped behind. Reads /proc.
//
// Measured by the size of the address space: the number of mappings depends on which neighbours the
// kernel joins, which is another at each run. The heap may grow at any time, so only growth that
// comes back each time is a leak.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>

#include "tests/support/process.hpp"

namespace weir::test {

// Frames of address space this process has mapped.
[[nodiscard]] inline std::uint64_t mapped_frames() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t frames = 0;
  statm >> frames;
  return frames;
}

// Runs the body once or several times. Always false under sanitizers, which map on their own.
[[nodiscard]] inline bool leaves_memory_mapped(const std::function<void()>& body) {
  static_cast<void>(mapped_frames());
  for (int attempt = 0; attempt < 4; ++attempt) {
    const std::uint64_t before = mapped_frames();
    body();
    if (kSanitized || mapped_frames() <= before) {
      return false;
    }
  }
  return true;
}

}  // namespace weir::test
