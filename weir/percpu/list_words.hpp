// SPDX-License-Identifier: MIT
// percpu/list_words.hpp — reading the words of a list. Calls percpu/slab. For the parts of PageLists.
#pragma once

#include <cstdint>

#include "weir/percpu/slab.hpp"

namespace weir {

inline Bounds bounds_of(const ListHead& head) noexcept {
  return {head.bounds.load(memory_order_relaxed)};
}

// Room below an end, of a list whose words may be read at different moments.
inline std::uint32_t room_below(std::uint32_t end, std::uint32_t top) noexcept {
  return end > top ? end - top : 0;
}

inline std::uint32_t place_of(std::uint32_t position, unsigned list) noexcept {
  return position & (kRingPlaces[list] - 1);
}

}  // namespace weir
