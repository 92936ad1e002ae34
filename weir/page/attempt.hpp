// SPDX-License-Identifier: MIT
// page/attempt.hpp — a request that a list could not serve, from its first try to its last: zone,
// reclaimers, limit watches. What comes out is live, zeroed and marked as the flags say. Calls percpu,
// page/callback.
//
// Before a request is refused: its list, the depot, the engine, the reserve if it is an emergency; then
// all lists and the depot, merged in the engine; then, for a larger block, movable pages are carried out of its
// way; then the reclaimers, one after the other, with another
// try whenever they gave enough, and for single frames all over again as long as they give anything.
#pragma once

#include <cstddef>

#include "weir/page/alloc_flags.hpp"
#include "weir/page/page_run.hpp"
#include "weir/percpu/cached_zone.hpp"

namespace weir::attempt {

// One page of an order that exists, or nullptr.
// Not marked as cold, for every 64th comes this way, and cold code is made small, not fast.
[[nodiscard]] Page* page(CachedZone& zone, Order order, AllocFlags flags) noexcept;
// One that can be carried elsewhere, by the mover with this id.
[[nodiscard]] Page* movable_page(CachedZone& zone, Order order, AllocFlags flags,
                                 std::uint64_t mover) noexcept;
// Up to n single frames; fewer only when no more were free.
[[nodiscard]] WEIR_COLD std::size_t singles(CachedZone& zone, Page** out, std::size_t n,
                                            AllocFlags flags) noexcept;
// The same of ordinary ones for who has just found that the list of this CPU does not hold them.
[[nodiscard]] WEIR_COLD std::size_t beyond_list(CachedZone& zone, Page** out,
                                                std::size_t n) noexcept;
// For who has several zones to ask: what this one has on its list, in the depot and in the engine above the
// reserve. Nobody's lists are stopped, no reclaimer is asked, and finding nothing is no refusal yet.
[[nodiscard]] Page* page_at_hand(CachedZone& zone, Order order, AllocFlags flags) noexcept;
[[nodiscard]] std::size_t singles_at_hand(CachedZone& zone, Page** out, std::size_t n,
                                          AllocFlags flags) noexcept;
// Frames one after the other: up to a largest block, and more. Empty when there are none.
[[nodiscard]] PageRun run(CachedZone& zone, std::uint64_t frames, AllocFlags flags) noexcept;
[[nodiscard]] PageRun long_run(CachedZone& zone, std::uint64_t frames, AllocFlags flags) noexcept;
// n single frames or none.
[[nodiscard]] bool exactly(CachedZone& zone, Page** out, std::size_t n, AllocFlags flags) noexcept;
[[nodiscard]] bool exactly(CachedZone& zone, PageSink& sink, std::size_t n,
                           AllocFlags flags) noexcept;

}  // namespace weir::attempt
