// SPDX-License-Identifier: MIT
// page/compaction.hpp — makes large blocks by carrying movable pages elsewhere, with the help of their
// owners (page/page_mover.hpp). Calls percpu, zone, page/page_mover. Cold.
//
// A run over the whole zone has two scanners, as in the kernel (mm/compaction.c): one goes up from the start
// and carries pages away, the other comes down from the end and finds room for them. Other than there, which
// pageblocks are emptied is decided before: the emptiest, as many as find room in the rest. So the scanners
// never get into each other's way, no page is carried that need not be, and what is full stays as it is.
//
// A pageblock is isolated while it is emptied: what is carried away, and what is freed there meanwhile,
// goes to nobody else. A refusal waits for that.
#pragma once

#include <cstdint>

#include "weir/percpu/cached_zone.hpp"

namespace weir {

// What a run did.
struct CompactionReport {
  std::uint64_t emptied = 0;  // pageblocks that became wholly free
  std::uint64_t failed = 0;   // that were tried and did not
  std::uint64_t moved = 0;    // frames carried elsewhere
  std::uint64_t refused = 0;  // pages that were to be carried and were not, whatever the reason
};

namespace compaction {

// The whole zone. Waits for a run that is under way. From a callback, a signal handler that interrupted weir,
// and a child that does not serve the zone nothing is done.
CompactionReport compact(CachedZone& zone) noexcept;

// Room for one block of this order, above 0, for a request that found none. True if it is worth another
// try. Left out for a while after failures, and when a run is under way.
bool make_room(CachedZone& zone, Order order) noexcept;

// Pageblocks one after the other for so many frames, taken as blocks of order 9; the first, or kNoPage.
[[nodiscard]] PageIndex take_range(CachedZone& zone, std::uint64_t frames) noexcept;

// Marks a page that was just taken as one of this mover's.
void mark_movable(Page* page, std::uint64_t mover) noexcept;

}  // namespace compaction
}  // namespace weir
