// SPDX-License-Identifier: MIT
// zone/bitmap_engine_steps.hpp — the single steps that takes and gives of BasicBitmapEngine are made of:
// one change each of the zone's counts, an entry and its hint, a word of bits, a descriptor. Included by the
// other bodies.
#pragma once

#include <bit>

#include "weir/base/check.hpp"
#include "weir/zone/bitmap_engine.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir {

// ---- the zone's count ----------------------------------------------------------------------------

template <template <class> class AtomicT>
bool BasicBitmapEngine<AtomicT>::take_counts(std::uint64_t n, std::uint64_t leave) noexcept {
  ZoneCounts seen{counts_.word.load(memory_order_relaxed)};
  for (;;) {
    const std::optional<ZoneCounts> left = seen.take(n, leave);
    if (!left) {
      return false;
    }
    // pairs: give() release: the counts of pageblocks that this one sums are seen
    if (counts_.word.compare_exchange_weak(seen.word, left->word, memory_order_acquire,
                                           memory_order_relaxed)) {
      return true;
    }
  }
}

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::give_counts(std::uint64_t n) noexcept {
  // pairs: take_counts(), claim() acquire
  counts_.word.fetch_add(n, memory_order_release);
}

template <template <class> class AtomicT>
bool BasicBitmapEngine<AtomicT>::claim(std::uint64_t n, std::uint64_t leave) noexcept {
  ZoneCounts seen{counts_.word.load(memory_order_relaxed)};
  for (;;) {
    const std::optional<ZoneCounts> left = seen.claim(n, leave);
    if (!left) {
      return false;
    }
    // pairs: give() release
    if (counts_.word.compare_exchange_weak(seen.word, left->word, memory_order_acquire,
                                           memory_order_relaxed)) {
      return true;
    }
  }
}

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::unclaim(std::uint64_t n) noexcept {
  // pairs: take_counts(), claim() acquire
  counts_.word.fetch_add(ZoneCounts::unclaim(n), memory_order_release);
}

// ---- an entry and its hint -----------------------------------------------------------------------

template <template <class> class AtomicT>
template <class Change>
MaybeEntry BasicBitmapEngine<AtomicT>::update(Block block, Change change) noexcept {
  AtomicT<std::uint32_t>& pair = block.pair();
  const unsigned half = block.half();
  EntryPair seen{pair.load(memory_order_relaxed)};
  for (;;) {
    const BlockEntry before = seen.at(half);
    const MaybeEntry after = change(before);
    if (!after) {
      return std::nullopt;
    }
    // pairs: itself, bits set before they were counted; sequentially consistent for forget()
    if (pair.compare_exchange_weak(seen.word, seen.with(half, *after).word, memory_order_seq_cst,
                                   memory_order_relaxed)) {
      if (before.may_move(*after)) [[unlikely]] {
        move_hint(block, before, *after);
      }
      return before;
    }
  }
}

// The new hint first: at no moment has a pageblock none.
template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::move_hint(Block block, BlockEntry before,
                                           BlockEntry after) noexcept {
  if (before.bucket() == after.bucket()) {
    return;
  }
  if (after.bucket() != kNoBucket) {
    block.range->index.set(after.bucket(), block.number);
  }
  if (before.bucket() != kNoBucket) {
    forget(block, before.bucket());
  }
}

// Somebody may bring the pageblock into the bucket again between the change of the entry and this, and
// see the old hint: so the entry is looked at once more.
template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::forget(Block block, unsigned bucket) noexcept {
  block.range->index.clear(bucket, block.number);
  // pairs: update(), BasicBlockIndex::set
  const EntryPair now{block.pair().load(memory_order_seq_cst)};
  if (now.at(block.half()).bucket() == bucket) {
    block.range->index.set(bucket, block.number);
  }
}

template <template <class> class AtomicT>
std::uint32_t BasicBitmapEngine<AtomicT>::add_count(Block block, std::uint32_t n) noexcept {
  // An addition needs no loop: bits that were taken may always be counted again.
  // pairs: update(); sequentially consistent for forget()
  const EntryPair seen{
      block.pair().fetch_add(n << (block.half() * EntryPair::kHalfBits), memory_order_seq_cst)};
  const BlockEntry before = seen.at(block.half());
  const MaybeEntry after = before.more(n);
  WEIR_CHECK(after.has_value(), "BitmapEngine E1");
  if (before.may_move(*after)) [[unlikely]] {
    move_hint(block, before, *after);
  }
  return before.isolated() ? 0 : n;
}

// ---- bits and descriptors ------------------------------------------------------------------------

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::set_bits(Block block, std::uint32_t word,
                                          std::uint64_t bits) noexcept {
  // Bits that are clear are added as they are set, and an addition tells what was there. A second give
  // that comes at the same moment is found here; its change is undone for the report.
  AtomicT<std::uint64_t>& at = block.line().words[word];
  // pairs: take_singles(), take_runs(), take_words() acquire
  const std::uint64_t seen = at.fetch_add(bits, memory_order_release);
  if ((seen & bits) != 0) [[unlikely]] {
    at.fetch_sub(bits, memory_order_relaxed);
    report_free(block, word, seen & bits);
  }
}

// The inside of a block says so as long as the block is out, up to half a pageblock: there a drop of a tail
// is seen at once. That of a larger one is seen when it comes here, by the flag of its pageblock.
template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::mark_taken(PageIndex page, Order order) noexcept {
  Page* const head = page_at(page);
  head->order.store(static_cast<std::uint8_t>(order.value), memory_order_relaxed);
  head->word.store(word_of_order(order), memory_order_relaxed);
  mark_inside(head, order, FrameState::kInner);
}

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::mark_given(PageIndex page, Order order) noexcept {
  Page* const head = page_at(page);
  head->order.store(0, memory_order_relaxed);
  head->word.store(word_of_order(Order{0}), memory_order_relaxed);
  mark_inside(head, order, FrameState::kTaken);
}

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::mark_inside(Page* head, Order order, FrameState state) noexcept {
  if (order < kPageblockOrder) {
    for (std::uint32_t i = 1; i < frames_in(order); ++i) {
      head[i].state.store(state, memory_order_relaxed);
    }
  }
}

}  // namespace weir
