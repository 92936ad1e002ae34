// SPDX-License-Identifier: MIT
// page/zone_state.hpp — how much of a zone is free, beside its watermarks and limits. A plain struct made
// by PageAllocator::zone_state(). Calls base only.
#pragma once

#include <cstdint>

#include "weir/base/types.hpp"

namespace weir {

// The lowest watermark that the free frames do not exceed; as in the kernel, equal is not enough. As a
// number: how many of the three they do not exceed.
enum class Mark : unsigned char { none, high, low, min };

[[nodiscard]] constexpr const char* mark_name(Mark mark) noexcept {
  switch (mark) {
    case Mark::none:
      return "above high";
    case Mark::high:
      return "below high";
    case Mark::low:
      return "below low";
    case Mark::min:
      return "below min";
  }
  return "unknown";
}

// In frames. Exact when every thread is at rest.
struct ZoneState {
  std::uint64_t managed = 0;
  std::uint64_t free = 0;  // in the engine and in whole clusters of the depot; not on per-CPU lists
  // All others, those that rest on per-CPU lists included; what users hold: PageAllocator::zone().census().out().
  std::uint64_t used = 0;
  std::uint64_t min = 0;
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  std::uint64_t reserve = 0;
  std::uint64_t limit = 0;       // 0: none
  std::uint64_t soft_limit = 0;  // 0: none
  Mark below = Mark::none;
  bool in_shortage = false;  // the lists are stopped

  [[nodiscard]] constexpr Mark mark_of(std::uint64_t frames) const noexcept {
    return frames <= min    ? Mark::min
           : frames <= low  ? Mark::low
           : frames <= high ? Mark::high
                            : Mark::none;
  }
};

}  // namespace weir
