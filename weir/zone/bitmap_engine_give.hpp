// SPDX-License-Identifier: MIT
// zone/bitmap_engine_give.hpp — how BasicBitmapEngine takes frames back, one or many. Included by
// bitmap_engine.cpp and by the test that runs these bodies step by step.
//
// Every give checks all it was given, then sets bits, then counts: pageblock, zone.
#pragma once

#include <bit>

#include "weir/arch/cpu.hpp"
#include "weir/zone/bitmap_engine_steps.hpp"

namespace weir {

// ---- checks --------------------------------------------------------------------------------------

template <template <class> class AtomicT>
auto BasicBitmapEngine<AtomicT>::range_or_report(PageIndex page) const noexcept -> Range* {
  Range* const range = range_of(page);
  if (range == nullptr) [[unlikely]] {
    report_tail_free(page, "give to zone");
  }
  return range;
}

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::check_order(Block block, PageIndex page, Order order) noexcept {
  const Page* const head = page_at(page);
  if (head->state.load(memory_order_relaxed) == FrameState::kInner) [[unlikely]] {
    report_tail_free(page, "give to zone");
  }
  if (head->order.load(memory_order_relaxed) != order.value) [[unlikely]] {
    report_order(block, page, order);
  }
}

// The bits of a pageblock handed out whole are set, so that this finds its inside as well.
template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::check_bits(Block block, std::uint32_t word,
                                            std::uint64_t bits) noexcept {
  const std::uint64_t free = block.line().words[word].load(memory_order_relaxed) & bits;
  if (free != 0) [[unlikely]] {
    report_free(block, word, free);
  }
}

// The descriptor of the page has another order.
template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::report_order(Block block, PageIndex page, Order order) noexcept {
  const Order actual{page_at(page)->order.load(memory_order_relaxed)};
  const Place place = place_in(block.range, page);
  const std::uint64_t word = block.line().words[place.word].load(memory_order_relaxed);
  if (const std::uint64_t bit = word & std::uint64_t{1} << place.bit;
      actual.value == 0 && bit != 0) {
    report_free(block, place.word, bit);
  }
  report_wrong_order(page, order, actual);
}

// These bits are set.
template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::report_free(Block block, std::uint32_t word,
                                             std::uint64_t bits) noexcept {
  const PageIndex page = advance(
      block.first(), word * kBitWordFrames + static_cast<std::uint32_t>(std::countr_zero(bits)));
  if (!block.entry().whole()) {
    report_double_free(page, state_name(FrameState::kFree));
  }
  const Order actual{page_at(page)->order.load(memory_order_relaxed)};
  if (actual.value != 0) {
    report_wrong_order(page, Order{0}, actual);
  }
  report_tail_free(page, "give to zone");
}

// ---- gives ---------------------------------------------------------------------------------------

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::give(PageIndex page, Order order) noexcept {
  const Place place = place_in(range_or_report(page), page);
  if (order >= kPageblockOrder) {
    give_whole(place.block, page, order);
    return;
  }
  if (order.value > kWordOrder) {
    give_counts(give_words(place, page, order));
    return;
  }
  const std::uint64_t bits = run_bits(1, order.value) << place.bit;
  check_order(place.block, page, order);
  check_bits(place.block, place.word, bits);
  if (order.value > 0) {
    mark_given(page, order);
  }
  set_bits(place.block, place.word, bits);
  give_counts(add_count(place.block, frames_in(order)));
}

// Orders 7 and 8.
template <template <class> class AtomicT>
std::uint32_t BasicBitmapEngine<AtomicT>::give_words(Place place, PageIndex page,
                                                     Order order) noexcept {
  const std::uint32_t end = place.word + frames_in(order) / kBitWordFrames;
  check_order(place.block, page, order);
  for (std::uint32_t word = place.word; word < end; ++word) {
    check_bits(place.block, word, kAllBits);
  }
  mark_given(page, order);
  for (std::uint32_t word = place.word; word < end; ++word) {
    set_bits(place.block, word, kAllBits);
  }
  return add_count(place.block, frames_in(order));
}

// Orders 9 and 10. Nobody but its owner changes the entry of a whole pageblock, so that an addition does.
template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::give_whole(Block block, PageIndex page, Order order) noexcept {
  constexpr std::uint32_t kLess = BlockEntry::kWhole - kPageblockFrames;  // what an entry loses
  static_assert(BlockEntry::of(0, BlockEntry::kWhole).give_whole()->word ==
                BlockEntry::kWhole - kLess);
  const bool both = order == kMaxOrder;
  check_order(block, page, order);
  const Block neighbour{block.range, block.number ^ 1};
  const auto is_whole = [&](EntryPair pair) {
    return pair.at(block.half()).whole() && (!both || pair.at(neighbour.half()).whole());
  };
  AtomicT<std::uint32_t>& pair = block.pair();
  const std::uint32_t less =
      both ? kLess | kLess << EntryPair::kHalfBits : kLess << (block.half() * EntryPair::kHalfBits);
  if (!is_whole(EntryPair{pair.load(memory_order_relaxed)})) [[unlikely]] {
    report_double_free(page, state_name(FrameState::kFree));
  }
  mark_given(page, order);
  // pairs: take_whole(); sequentially consistent for forget()
  if (!is_whole(EntryPair{pair.fetch_sub(less, memory_order_seq_cst)})) [[unlikely]] {
    pair.fetch_add(less, memory_order_relaxed);  // somebody gave it at the same moment
    report_double_free(page, state_name(FrameState::kFree));
  }
  block.range->index.set(kFreeBucket, block.number);
  if (both) {
    block.range->index.set(kFreeBucket, neighbour.number);
  }
  give_counts(frames_in(order));
}

// ---- many at once --------------------------------------------------------------------------------

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::give_many(Order order, const PageIndex* pages,
                                           std::uint32_t n) noexcept {
  if (n < 2 || order.value > kWordOrder) {
    for (std::uint32_t i = 0; i < n; ++i) {
      give(pages[i], order);
    }
    return;
  }
  const std::uint32_t in_word = pages[0].value % kBitWordFrames;
  if (order.value == 0 && in_word + n <= kBitWordFrames && ascend(pages, n)) {
    static_cast<void>(range_or_report(pages[n - 1]));
    const Place place = place_in(range_or_report(pages[0]), pages[0]);
    const std::uint64_t bits = (kAllBits >> (kBitWordFrames - n)) << in_word;
    check_bits(place.block, place.word, bits);
    set_bits(place.block, place.word, bits);
    give_counts(add_count(place.block, n));
  } else {
    give_counts(give_scattered(order, pages, n));
  }
}

// What the pages have in common decides how. The loops over 64 pages have no branch that depends on one.
template <template <class> class AtomicT>
std::uint32_t BasicBitmapEngine<AtomicT>::give_scattered(Order order, const PageIndex* pages,
                                                         std::uint32_t n) noexcept {
  Range* const range = range_or_report(pages[0]);
  const Range view = *range;  // no write through a bit can change it
  std::uint32_t spread = 0;
  std::uint32_t elsewhere = 0;  // not 0: some are of other ranges
  const auto look = [&](std::uint32_t i) {
    spread |= pages[i].value ^ pages[0].value;
    elsewhere |= view.has(pages[i]) ? 0U : 1U;
  };
  if (n == kClusterFrames) {  // a constant, so that compilers look at several at once
    for (std::uint32_t i = 0; i < kClusterFrames; ++i) {
      look(i);
    }
  } else {
    for (std::uint32_t i = 0; i < n; ++i) {
      look(i);
    }
  }
  const auto line_of = [&view](PageIndex page) -> Line& {
    return view.lines[(page.value - view.base) / kPageblockFrames];
  };
  const bool ahead = view.blocks > kBlocksInCache && elsewhere == 0;
  for (std::uint32_t i = 0; ahead && i < n; ++i) {
    prefetch_for_write(&line_of(pages[i]));
  }
  const std::uint64_t run = run_bits(1, order.value);
  std::uint64_t wrong = elsewhere;
  for (std::uint32_t i = 0; elsewhere == 0 && i < n; ++i) {
    const std::uint32_t word = pages[i].value % kPageblockFrames / kBitWordFrames;
    wrong |= line_of(pages[i]).words[word].load(memory_order_relaxed) &
             (run << (pages[i].value % kBitWordFrames));
  }
  if (wrong != 0 || order.value > 0) {
    check_each(order, pages, n);
  }
  if (elsewhere != 0) [[unlikely]] {
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      const Place place = place_in(range_of(pages[i]), pages[i]);
      set_bits(place.block, place.word, run << place.bit);
      count += add_count(place.block, frames_in(order));
    }
    return count;
  }
  return spread < kStretchFrames ? give_near(range, order, pages, n)
                                 : give_apart(range, order, pages, n);
}

// Reports what is wrong, or makes the descriptors those of free frames.
template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::check_each(Order order, const PageIndex* pages,
                                            std::uint32_t n) const noexcept {
  for (std::uint32_t i = 0; i < n; ++i) {
    const Place place = place_in(range_or_report(pages[i]), pages[i]);
    if (order.value > 0) {
      check_order(place.block, pages[i], order);
    }
    check_bits(place.block, place.word, run_bits(1, order.value) << place.bit);
  }
  for (std::uint32_t i = 0; order.value > 0 && i < n; ++i) {
    mark_given(pages[i], order);
  }
}

// Some page of these is here twice.
template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::report_twice(const PageIndex* pages, std::uint32_t n) noexcept {
  for (std::uint32_t i = 0; i < n; ++i) {
    for (std::uint32_t j = 0; j < i; ++j) {
      if (pages[i] == pages[j]) {
        report_double_free(pages[i], state_name(FrameState::kFree));
      }
    }
  }
}

// All in one aligned stretch of eight pageblocks: a table of its words, one change for each that is there.
template <template <class> class AtomicT>
std::uint32_t BasicBitmapEngine<AtomicT>::give_near(Range* range, Order order,
                                                    const PageIndex* pages,
                                                    std::uint32_t n) noexcept {
  std::uint64_t bits[kStretchFrames / kBitWordFrames] = {};
  const std::uint64_t run = run_bits(1, order.value);
  std::uint64_t words = 0;  // those with bits
  std::uint64_t twice = 0;
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint32_t word = pages[i].value % kStretchFrames / kBitWordFrames;
    const std::uint64_t more = run << (pages[i].value % kBitWordFrames);
    twice |= bits[word] & more;
    bits[word] |= more;
    words |= std::uint64_t{1} << word;
  }
  if (twice != 0) [[unlikely]] {
    report_twice(pages, n);
  }
  const PageIndex first{align_down(pages[0].value, kStretchFrames)};
  std::uint32_t counted = 0;
  while (words != 0) {
    const auto begin = static_cast<std::uint32_t>(std::countr_zero(words)) / kBitWords;
    const Block block = block_in(range, advance(first, begin * kPageblockFrames));
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < kBitWords; ++i) {
      if (const std::uint64_t some = bits[begin * kBitWords + i]; some != 0) {
        set_bits(block, i, some);
        count += static_cast<std::uint32_t>(std::popcount(some));
      }
    }
    counted += add_count(block, count);
    words &= ~(std::uint64_t{0xff} << (begin * kBitWords));
  }
  return counted;
}

// From all over: what follows one another in the array is put together where it lies together. To look
// further for neighbours would cost more than the changes it saves. A page that is here twice is found when
// it comes for the second time.
template <template <class> class AtomicT>
std::uint32_t BasicBitmapEngine<AtomicT>::give_apart(Range* range, Order order,
                                                     const PageIndex* pages,
                                                     std::uint32_t n) noexcept {
  const std::uint64_t run = run_bits(1, order.value);
  for (std::uint32_t i = 0; i < n;) {
    const Place place = place_in(range, pages[i]);
    std::uint64_t bits = run << place.bit;
    const std::uint32_t word = pages[i].value / kBitWordFrames;
    while (++i < n && pages[i].value / kBitWordFrames == word) {
      const std::uint64_t more = run << (pages[i].value % kBitWordFrames);
      if ((bits & more) != 0) [[unlikely]] {
        report_free(place.block, place.word, bits & more);
      }
      bits |= more;
    }
    set_bits(place.block, place.word, bits);
  }
  std::uint32_t counted = 0;
  for (std::uint32_t i = 0; i < n;) {
    const std::uint32_t begin = i;
    const std::uint32_t block = pages[i].value / kPageblockFrames;
    while (++i < n && pages[i].value / kPageblockFrames == block) {
    }
    counted += add_count(block_in(range, pages[begin]), (i - begin) << order.value);
  }
  return counted;
}

}  // namespace weir
