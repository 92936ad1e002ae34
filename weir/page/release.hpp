// SPDX-License-Identifier: MIT
// page/release.hpp — giving a page back, one or many. Every owner ends here. It takes pages that
// nobody owns any more; counting is the owners' business. It chooses, by order, between per-CPU list
// and engine; pages of the reserve go to the engine (release.cpp). Calls percpu, zone.
#pragma once

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

// Gives back a block whose word is kSoleOwner (with kHighOrderFlag above order 0). Any thread,
// async-signal-safe. An order without a list leads to the dead list, whose refusal to the engine.
WEIR_HOT void release(Page* page, Order order) noexcept {
  if constexpr (kCheckedDrops) {
    verify_release(page, order);
  }
  const PageIndex index = index_of(page);
  zone_of(index).free(index, order);
}

// Gives back n single frames, each as release() takes them; runs of one zone go in bulk. Any
// thread.
void release_bulk(Page* const* pages, std::size_t n) noexcept;

}  // namespace weir
