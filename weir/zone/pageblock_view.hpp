// SPDX-License-Identifier: MIT
// zone/pageblock_view.hpp — one pageblock as it stands, for those who choose among pageblocks and for those
// who draw them. A plain value. Calls base only.
#pragma once

#include <cstdint>

#include "weir/base/config.hpp"
#include "weir/base/types.hpp"
#include "weir/zone/mobility.hpp"

namespace weir {

struct PageblockView {
  std::uint32_t free = 0;  // frames in the engine, withheld ones included
  bool whole = false;      // out as one block of order 9, or as half of one of order 10
  bool isolated = false;   // its free frames are withheld
  bool trimmed = false;    // wholly free, and its memory is with the system
  // Of those it serves; without meaning while it is wholly free.
  Mobility mobility = Mobility::pinned;

  [[nodiscard]] constexpr bool all_free() const noexcept { return free == kPageblockFrames; }
};

}  // namespace weir
