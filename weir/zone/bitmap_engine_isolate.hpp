// SPDX-License-Identifier: MIT
// zone/bitmap_engine_isolate.hpp — what BasicBitmapEngine does with a pageblock that is named: withholds it,
// takes out of it, looks at it; and how a block that is out becomes two. Included by bitmap_engine.cpp and by
// the test that runs these bodies step by step.
#pragma once

#include "weir/zone/bitmap_engine_take.hpp"

namespace weir {

template <template <class> class AtomicT>
auto BasicBitmapEngine<AtomicT>::block_of(PageIndex page) const noexcept -> Block {
  Range* const range = range_of(page);
  return range != nullptr ? block_in(range, page) : Block{};
}

// The zone's count first, as by every taker: what is withheld was never promised to anybody.
template <template <class> class AtomicT>
bool BasicBitmapEngine<AtomicT>::isolate(PageIndex page, std::uint64_t leave) noexcept {
  const Block block = block_of(page);
  if (!block) {
    return false;
  }
  for (;;) {
    const std::uint32_t count = block.entry().count();
    if (!block.entry().isolate() || (count != 0 && !take_counts(count, leave))) {
      return false;
    }
    const auto as_counted = [count](BlockEntry entry) {
      return entry.count() == count ? entry.isolate() : MaybeEntry{std::nullopt};
    };
    if (update(block, as_counted)) {
      return true;
    }
    if (count != 0) {
      give_counts(count);  // somebody took or gave meanwhile
    }
  }
}

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::end_isolation(PageIndex page) noexcept {
  const Block block = block_of(page);
  const MaybeEntry before = update(block, [](BlockEntry entry) { return entry.end_isolation(); });
  if (before && before->count() != 0) {
    give_counts(before->count());
  }
}

template <template <class> class AtomicT>
bool BasicBitmapEngine<AtomicT>::take_isolated(PageIndex page) noexcept {
  const Block block = block_of(page);
  if (!update(block, [](BlockEntry entry) { return entry.take_isolated(); })) {
    return false;
  }
  mark_taken(block.first(), kPageblockOrder);
  return true;
}

template <template <class> class AtomicT>
PageIndex BasicBitmapEngine<AtomicT>::take_in(PageIndex page, Order order, std::uint64_t leave,
                                              Mobility mobility) noexcept {
  const Block block = block_of(page);
  if (!block || order >= kPageblockOrder || !suits(block, order) ||
      !take_counts(frames_in(order), leave)) {
    return kNoPage;
  }
  PageIndex taken = kNoPage;
  std::uint32_t lost = 0;
  const bool got = order.value <= kWordOrder
                       ? take_runs(block, order, &taken, 1, mobility, lost) == 1
                       : (taken = take_words(block, order, mobility, lost)) != kNoPage;
  if (!got) {
    if (lost == 0) {
      give_counts(frames_in(order));
    }
    return kNoPage;
  }
  if (order.value > 0) {
    mark_taken(taken, order);
  }
  return taken;
}

// A pageblock that is out as a whole has its bits set; in parts that are out it has none.
template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::split(PageIndex page, Order order) noexcept {
  const Order half{order.value - 1};
  Page* const lower = page_at(page);
  if (order == kPageblockOrder) {
    const Block block = block_of(page);
    for (AtomicT<std::uint64_t>& word : block.line().words) {
      word.store(0, memory_order_relaxed);  // nobody else looks at them before the entry changes
    }
    mark_inside(lower, half, FrameState::kInner);
    mark_inside(lower + frames_in(half), half, FrameState::kInner);
    static_cast<void>(update(block, [](BlockEntry entry) { return entry.split_whole(); }));
  }
  split_head(lower, half);
}

template <template <class> class AtomicT>
PageblockView BasicBitmapEngine<AtomicT>::pageblock(PageIndex page) const noexcept {
  const Block block = block_of(page);
  if (!block) {
    return {};
  }
  const BlockEntry entry = block.entry();
  return {entry.count(), entry.whole(), entry.isolated(), entry.trimmed(), entry.mobility()};
}

}  // namespace weir
