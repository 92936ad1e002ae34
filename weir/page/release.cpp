// SPDX-License-Identifier: MIT
#include "weir/page/release.hpp"

#include "weir/base/report.hpp"
#include "weir/page/ref_count.hpp"

namespace weir {
namespace {

// Empty until a pool exists; then no page can bear the pool flag.
Atomic<PoolPageHook> g_pool_hook{nullptr};

// As release(), but past the lists.
void release_to_engine(Page* page, Order order) noexcept {
  if constexpr (kCheckedDrops) {
    verify_release(page, order);
  }
  const PageIndex index = index_of(page);
  zone_of(index).free_to_engine(index, order);
}

// What heads no block that is out has no last reference.
void verify_head(const Page* page) noexcept {
  switch (const FrameState state = page->state.load(memory_order_relaxed)) {
    case FrameState::kTaken:
    case FrameState::kLive:
      return;
    case FrameState::kAbsent:
      report_foreign_pointer(page, "release");
    case FrameState::kInner:
      report_tail_free(index_of(page), "release");
    default:
      report_double_free(index_of(page), state_name(state));
  }
}

// The last reference is gone and the count stands at one again: the page goes where it belongs.
void end_of_life(Page* page, std::uint32_t word) noexcept {
  if ((word & kPoolFlag) != 0) {
    g_pool_hook.load(memory_order_acquire)(page);  // pairs: set_pool_page_hook release
    return;
  }
  verify_head(page);
  if ((word & (kReserveFlag | kMovableFlag)) != 0) {
    if ((word & kReserveFlag) != 0) {
      page->word.fetch_and(~kReserveFlag, memory_order_relaxed);
    }
    release_to_engine(page, order_of(page));
    return;
  }
  release(page, order_of(page));
}

// Whoever carries pages elsewhere may take a reference at any moment, as long as the flag stands; so the
// last one goes together with the flag.
void unref_movable(Page* page, std::uint32_t n) noexcept {
  std::uint32_t word = page->word.load(memory_order_relaxed);
  for (;;) {
    const std::uint32_t refs = word & kRefMask;
    if (refs < n) [[unlikely]] {
      report_reference_underflow(index_of(page));
    }
    const bool last = refs == n;
    const std::uint32_t left = last ? (word & ~(kMovableFlag | kRefMask)) | kSoleOwner : word - n;
    // pairs: itself: what those before us did to the page is seen by its next life
    if (page->word.compare_exchange_weak(word, left, memory_order_acq_rel, memory_order_relaxed)) {
      if (last) {
        end_of_life(page, word);
      }
      return;
    }
  }
}

}  // namespace

void set_pool_page_hook(PoolPageHook hook) noexcept {
  g_pool_hook.store(hook, memory_order_release);  // pairs: end_of_life acquire
}

void mark_live(Page* page) noexcept {
  FrameState seen = FrameState::kTaken;
  if (!page->state.compare_exchange_strong(seen, FrameState::kLive, memory_order_relaxed)) {
    report_corrupt_list(index_of(page), "a page list handed out a page that is not free; it");
  }
}

void verify_release(Page* page, Order order) noexcept {
  // State before order: the order of a free block is not that of the page it once was.
  FrameState seen = page->state.load(memory_order_relaxed);
  if (seen == FrameState::kLive) {
    if (const Order actual = order_of(page); actual != order) {
      report_wrong_order(index_of(page), order, actual);
    }
    if (page->state.compare_exchange_strong(seen, FrameState::kTaken, memory_order_relaxed)) {
      return;
    }
  }
  if (seen == FrameState::kTaken) {
    report_double_free(index_of(page), state_name(seen));
  }
  verify_head(page);
}

void unref_slow(Page* page, std::uint32_t n) noexcept {
  if constexpr (!kCheckedDrops) {
    // What release_fast() does for the default zone, for all others: those of nodes are many.
    const std::uint64_t head = head_of(page);
    if (n == 1 && is_ordinary(head) &&
        PageLists::push_fast(zone_by_id(zone_in(head))->lists().blocks(), page)) {
      return;
    }
  }
  // pairs: the fetch_sub below — what those before us did to the page is seen by its next life
  std::uint32_t word = page->word.load(memory_order_acquire);
  if ((word & kMovableFlag) != 0) {
    unref_movable(page, n);
    return;
  }
  if ((word & kRefMask) == n) {
    // All references there are belong to the caller: nobody else can change the count.
    if (n != 1) {
      page->word.fetch_sub(n - 1, memory_order_relaxed);
    }
  } else {
    // pairs: itself, and the load in unref()
    word = page->word.fetch_sub(n, memory_order_acq_rel);
    const std::uint32_t before = word & kRefMask;
    if (before < n) [[unlikely]] {
      report_reference_underflow(index_of(page));
    }
    if (before != n) {
      return;
    }
    page->word.fetch_add(1, memory_order_relaxed);
  }
  end_of_life(page, word);
}

}  // namespace weir
