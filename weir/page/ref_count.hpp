// SPDX-License-Identifier: MIT
// page/ref_count.hpp — references on a page. Calls zone/frame, page/release.
//
// A sole owner of an ordinary page is recognised by one acquire load and releases without a write.
// Everything else — shared, order above 0, pool, reserve — goes the slow way. A count never wraps:
// taking a reference at kMaxRefs fails, dropping one that nobody holds is reported where the word
// shows it (a word of 1 on a page that is already free does not; checked builds catch that too).
#pragma once

#include <cstdint>

#include "weir/base/hot.hpp"
#include "weir/page/release.hpp"
#include "weir/zone/frame.hpp"

namespace weir {

// One more reference on a page that the caller already holds one on. False at the limit; then
// nothing changed. Any thread; one atomic addition.
[[nodiscard]] WEIR_HOT bool ref(Page* page, std::uint32_t n = 1) noexcept {
  if (n >= kMaxRefs) [[unlikely]] {
    return false;  // and the sum below cannot reach into the flags
  }
  // relaxed: the caller's own reference keeps the page; nothing is published by taking another.
  const std::uint32_t before = page->word.fetch_add(n, memory_order_relaxed);
  if ((before & kRefMask) + n > kMaxRefs) [[unlikely]] {
    page->word.fetch_sub(n, memory_order_relaxed);
    return false;
  }
  return true;
}

// The slow half of unref(); also right for every page.
WEIR_COLD void unref_slow(Page* page, std::uint32_t n) noexcept;

// Drops a reference; the last one gives the page back to where it belongs (per-CPU list, zone,
// pool). Any thread; async-signal-safe unless the page is a pool's or the last of an allocator that
// has ended. nullptr is ignored.
WEIR_HOT void unref(Page* page) noexcept {
  if (page != nullptr && !release_fast(page)) [[unlikely]] {
    unref_slow(page, 1);
  }
}

// Drops n references at once, as a fragment cache does when it settles its stock.
WEIR_HOT void unref_many(Page* page, std::uint32_t n) noexcept { unref_slow(page, n); }

// It came out of the reserve, for an emergency request. Whoever recycles pages in place gives such a one
// back instead, so that the reserve fills again; given back, it goes past the lists to the engine.
[[nodiscard]] inline bool is_emergency(const Page* page) noexcept {
  return (page->word.load(memory_order_relaxed) & kReserveFlag) != 0;
}

// References held now; exact only when nobody changes them.
[[nodiscard]] inline std::uint32_t ref_count(const Page* page) noexcept {
  return page->word.load(memory_order_relaxed) & kRefMask;
}

}  // namespace weir
