// SPDX-License-Identifier: MIT
// zone/bitmap_engine_trim.hpp — how BasicBitmapEngine lends a wholly free pageblock to whoever gives its memory
// to the system, and keeps those marked. Included by bitmap_engine.cpp and by the test that runs these bodies
// step by step.
#pragma once

#include "weir/base/bits.hpp"
#include "weir/base/check.hpp"
#include "weir/zone/bitmap_engine_give.hpp"
#include "weir/zone/bitmap_engine_steps.hpp"

namespace weir {

// As every take: looks, claims from the zone's count, then tries the entry.
template <template <class> class AtomicT>
bool BasicBitmapEngine<AtomicT>::begin_trim(PageIndex page, std::uint64_t leave) noexcept {
  Range* const range = range_of(page);
  if (range == nullptr || !is_aligned(page.value, kPageblockFrames)) {
    return false;
  }
  const Block block = block_in(range, page);
  if (!block.entry().all_resident() || !take_counts(kPageblockFrames, leave)) {
    return false;
  }
  if (!update(block, [](BlockEntry entry) { return entry.take_resident(); })) {
    give_counts(kPageblockFrames);
    return false;
  }
  mark_taken(page, kPageblockOrder);
  return true;
}

// As give_whole(), but for the mark and the bucket: nobody but its owner changes the entry of a whole pageblock.
template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::end_trim(PageIndex page, bool done) noexcept {
  const Block block = block_in(range_or_report(page), page);
  if (!done) {
    give_whole(block, page, kPageblockOrder);
    return;
  }
  constexpr std::uint32_t kMore =
      (BlockEntry::kTrimmed | kPageblockFrames) - BlockEntry::kWhole;  // what an entry gains
  static_assert(BlockEntry::of(0, BlockEntry::kWhole).give_trimmed()->word ==
                BlockEntry::kWhole + kMore);
  check_order(block, page, kPageblockOrder);
  mark_given(page, kPageblockOrder);
  // pairs: take_whole(), update(); sequentially consistent for forget()
  const EntryPair seen{
      block.pair().fetch_add(kMore << (block.half() * EntryPair::kHalfBits), memory_order_seq_cst)};
  WEIR_CHECK(seen.at(block.half()).whole(), "BitmapEngine E6");
  block.range->index.set(kTrimmedBucket, block.number);
  give_counts(kPageblockFrames);
}

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::forget_trim(PageIndex page) noexcept {
  if (Range* const range = range_of(page); range != nullptr) {
    static_cast<void>(
        update(block_in(range, page), [](BlockEntry entry) { return entry.untrim(); }));
  }
}

template <template <class> class AtomicT>
bool BasicBitmapEngine<AtomicT>::is_trimmed(PageIndex page) const noexcept {
  Range* const range = range_of(page);
  return range != nullptr && block_in(range, page).entry().trimmed();
}

template <template <class> class AtomicT>
std::uint64_t BasicBitmapEngine<AtomicT>::trimmed_blocks() const noexcept {
  std::uint64_t blocks = 0;
  for_each_block([&blocks](Block block) { blocks += block.entry().trimmed() ? 1 : 0; });
  return blocks;
}

}  // namespace weir
