// SPDX-License-Identifier: MIT
// page/release.hpp — giving a page back, one or many. Every owner ends here. It takes pages that
// nobody owns any more; counting is the owners' business. It chooses, by order, between per-CPU list
// and engine; pages of the reserve go to the engine (release.cpp). Calls percpu, zone.
#pragma once

#include <algorithm>
#include <cstddef>

#include "weir/base/hot.hpp"
#include "weir/base/types.hpp"
#include "weir/percpu/zone_registry.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir {

// A page whose last reference went and that belongs to a pool: the pool takes it. Rank 7 registers
// itself here, before its first page exists; the only call in weir that goes upward.
using PoolPageHook = void (*)(Page* page) noexcept;
void set_pool_page_hook(PoolPageHook hook) noexcept;

// Checked builds: the page becomes live, or is no longer; anything else it was is reported.
void mark_live(Page* page) noexcept;
void verify_release(Page* page, Order order) noexcept;

// The whole of releasing an ordinary page of the default zone: one load of its descriptor, one push.
// False, and nothing happened, for everything else: shared, reserve, pool, higher order, another
// zone, no room on the list.
[[nodiscard]] WEIR_HOT bool release_fast(Page* page) noexcept {
  if constexpr (kCheckedDrops) {
    return false;
  }
  const zone_registry::DefaultLists& lists = zone_registry::g_default_lists;
  // pairs: zone_registry::make_default release
  return head_of(page) == lists.head.load(memory_order_acquire) &&
         PageLists::push_fast(lists.blocks.load(memory_order_relaxed), page);
}

// Gives back a block whose word is kSoleOwner (with kHighOrderFlag above order 0). Any thread,
// async-signal-safe. An order without a list leads to the dead list, whose refusal to the engine.
inline void release(Page* page, Order order) noexcept {
  if constexpr (kCheckedDrops) {
    verify_release(page, order);
  }
  const PageIndex index = index_of(page);
  zone_of(index).free(index, order);
}

// As release_fast() for as many of n pages, none of them nullptr, as go that way in whole clusters;
// returns how many, from the front.
[[nodiscard]] WEIR_HOT std::size_t release_bulk_fast(Page* const* pages, std::size_t n) noexcept {
  if constexpr (kCheckedDrops) {
    return 0;
  }
  const zone_registry::DefaultLists& lists = zone_registry::g_default_lists;
  // pairs: zone_registry::make_default release
  const std::uint64_t head = lists.head.load(memory_order_acquire);
  std::byte* const blocks = lists.blocks.load(memory_order_relaxed);
  std::size_t done = 0;
  while (done < n) {
    const auto part = static_cast<std::uint32_t>(std::min<std::size_t>(n - done, kClusterFrames));
    if (!PageLists::push_alike_fast(blocks, pages + done, part, head)) [[unlikely]] {
      break;
    }
    done += part;
  }
  return done;
}

}  // namespace weir
