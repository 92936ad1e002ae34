// SPDX-License-Identifier: MIT
// percpu/slab.hpp — the memory of one CPU's lists. Calls base only.
//
//   CpuBlock | lock | counters | list 0 (order 0) | 1 | 2 | 3 | 4 (pageblocks) | 5 (none) | ... rings
//
//   one list is a ring of indexes:
//
//        floor            top         ceil
//          v               v           v
//     . . |x|x|x|x|x|x|x|x| . . . . . . |          x = pages, oldest at floor, hottest below top
//
//     pop     fails if top == floor      takes ring[--top]
//     push    fails if top >= ceil       writes ring[top++]
//     spill   floor moves up: the oldest leave, ceil moves with it
//     stop    ceil = limit = floor, and floor moves up to top: full at once and empty when the
//             drainer has taken what was inside, at no cost to push and pop
//
// Positions only ever count up or down by what moves; they are compared by difference, so they may
// wrap. List 5 belongs to orders that have no list: empty, full, and never anything else.
#pragma once

#include <array>
#include <cstdint>

#include "weir/base/config.hpp"
#include "weir/base/counter.hpp"
#include "weir/base/types.hpp"
#include "weir/percpu/twin_lock.hpp"

namespace weir {

inline constexpr unsigned kNoList = kListOrders;  // index of the dead list

// Order -> list.
inline constexpr std::array<std::uint8_t, kOrderCount> kListOfOrder = [] {
  std::array<std::uint8_t, kOrderCount> lists{};
  for (unsigned order = 0; order < kOrderCount; ++order) {
    lists[order] = static_cast<std::uint8_t>(order < kSmallListOrders ? order : kNoList);
  }
  lists[kPageblockOrderValue] = kSmallListOrders;
  return lists;
}();
[[nodiscard]] constexpr Order order_of_list(unsigned list) noexcept {
  return Order{list < kSmallListOrders ? list : kPageblockOrderValue};
}

struct PageRing {
  std::uint32_t top = 0;
  std::uint32_t floor = 0;
  std::uint32_t ceil = 0;   // where pushes of users end
  std::uint32_t limit = 0;  // where refills end: floor + capacity while the list runs
  std::uint32_t mask = 0;   // size of the ring - 1, a power of two at least capacity
  std::uint32_t capacity = 0;
  PageIndex* ring = nullptr;

  [[nodiscard]] std::uint32_t count() const noexcept { return top - floor; }
  [[nodiscard]] std::uint32_t push_room() const noexcept { return room_below(ceil); }
  [[nodiscard]] std::uint32_t refill_room() const noexcept { return room_below(limit); }

 private:
  // A stopped list that is still being emptied has its ends below top.
  [[nodiscard]] std::uint32_t room_below(std::uint32_t end) const noexcept {
    const auto room = static_cast<std::int32_t>(end - top);
    return room > 0 ? static_cast<std::uint32_t>(room) : 0;
  }
};

// Everything below the lock is written by its holder; the counters alone are read by anybody.
struct alignas(kNoFalseSharing) CpuBlock {
  TwinLock lock;
  std::array<PageRing, kListOrders + 1> lists;
  PercpuCounters counters;
};

}  // namespace weir
