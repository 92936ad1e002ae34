// SPDX-License-Identifier: MIT
// stats/frag_map.hpp — how the free memory of a zone lies: blocks by order, how much of it is of no use for
// a request, and every pageblock, as numbers and drawn. Reads the zone; no layer includes it. Takes the lock
// of the engine for a moment for each pageblock, where there is one; agrees in itself when all are at rest.
//
//   drawn     .  wholly free          1..9  tenths of it in use       #  full               !  withheld
//             W  out as one block     a..i  the same, of movables     @  full of movables   _  trimmed
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "weir/page/page_allocator.hpp"
#include "weir/zone/pageblock_view.hpp"

namespace weir {

struct FragMap {
  struct Block {
    PageIndex first;
    PageblockView view;
  };
  std::uint64_t managed = 0;                                 // frames
  std::uint64_t free = 0;                                    // in the engine
  std::array<std::uint64_t, kOrderCount> blocks_of_order{};  // free ones, as large as they are
  std::vector<Block> pageblocks;                             // those that are wholly the zone's

  // Share of the free memory, in thousandths, that lies in blocks too small for a request of this order; 0
  // when nothing is free. As /sys/kernel/debug/extfrag/unusable_index (Gorman and Whitcroft, "The what, the
  // why and the where to of anti-fragmentation", 2006).
  [[nodiscard]] unsigned unusable_index(Order order) const noexcept;
  // Why a request of this order fails, in thousandths: towards 0 for want of memory, towards 1000 because it
  // lies in pieces; -1000 when it would not fail. As /sys/kernel/debug/extfrag/extfrag_index.
  [[nodiscard]] int extfrag_index(Order order) const noexcept;
  // Wholly free pageblocks, those in blocks of order 10 included.
  [[nodiscard]] std::uint64_t whole_pageblocks() const noexcept;
};

[[nodiscard]] FragMap frag_map(const PageAllocator& pages);

// Every pageblock as one sign, `width` in a line, the address of its first in front.
[[nodiscard]] std::string draw(const FragMap& map, unsigned width = 64);
// One line, as in /proc/buddyinfo: how many free blocks there are of each order.
[[nodiscard]] std::string buddyinfo_text(const FragMap& map, const char* zone_name = "weir");
// The zone as in /proc/zoneinfo: watermarks, what is free, in lists and depot, and where.
[[nodiscard]] std::string zoneinfo_text(PageAllocator& pages, const char* zone_name = "weir");

}  // namespace weir
