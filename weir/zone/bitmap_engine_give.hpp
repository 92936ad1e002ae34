// SPDX-License-Identifier: MIT
// zone/bitmap_engine_give.hpp — how BasicBitmapEngine takes frames back, and how the entry of a pageblock
// and its hint change. Included by bitmap_engine.cpp and by the test that runs these bodies step by step.
//
// Every give checks all it was given, then sets bits, then counts: pageblock, zone.
#pragma once

#include <bit>

#include "weir/arch/cpu.hpp"
#include "weir/base/check.hpp"
#include "weir/zone/bitmap_engine.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir {

// ---- an entry and its hint -----------------------------------------------------------------------

template <template <class> class AtomicT>
template <class Change>
std::optional<BlockEntry> BasicBitmapEngine<AtomicT>::update(Block block, Change change) noexcept {
  AtomicT<std::uint32_t>& pair = block.pair();
  const unsigned half = block.half();
  EntryPair seen{pair.load(memory_order_relaxed)};
  for (;;) {
    const BlockEntry before = seen.at(half);
    const std::optional<BlockEntry> after = change(before);
    if (!after) {
      return std::nullopt;
    }
    // pairs: itself, bits set before they were counted; sequentially consistent for forget()
    if (pair.compare_exchange_weak(seen.word, seen.with(half, *after).word, memory_order_seq_cst,
                                   memory_order_relaxed)) {
      if (before.bucket() != after->bucket()) [[unlikely]] {
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
  if (after.bucket() != kNoBucket) {
    block.range->index.set(after.bucket(), block.number);
  }
  // A hint at a pageblock handed out whole stays until somebody follows it: it is given back whole, and
  // often soon.
  if (before.bucket() != kNoBucket && !after.whole()) {
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
void BasicBitmapEngine<AtomicT>::add_count(Block block, std::uint32_t n) noexcept {
  WEIR_CHECK(update(block, [n](BlockEntry entry) { return entry.more(n); }), "BitmapEngine E1");
}

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
  const unsigned actual = page_at(page)->order.load(memory_order_relaxed);
  if (actual == order.value) [[likely]] {
    return;
  }
  const std::uint32_t frame = page.value % kPageblockFrames;
  const std::uint64_t word = block.line().words[frame / kBitWordFrames].load(memory_order_relaxed);
  if (block.entry().whole()) {
    if (actual == 0) {
      report_tail_free(page, "give to zone");
    }
  } else if ((word >> (frame % kBitWordFrames) & 1) != 0) {
    report_double_free(page, state_name(FrameState::kFree));
  }
  report_wrong_order(page, order, Order{actual});
}

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::check_bits(Block block, std::uint32_t word,
                                            std::uint64_t bits) noexcept {
  const PageIndex first = advance(block.first(), word * kBitWordFrames);
  if (block.entry().whole()) [[unlikely]] {
    const PageIndex page = advance(first, static_cast<unsigned>(std::countr_zero(bits)));
    check_order(block, page, Order{0});
    report_tail_free(page, "give to zone");
  }
  report_if_free(first, block.line().words[word].load(memory_order_relaxed) & bits);
}

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::report_if_free(PageIndex first, std::uint64_t bits) noexcept {
  if (bits != 0) [[unlikely]] {
    report_double_free(advance(first, static_cast<unsigned>(std::countr_zero(bits))),
                       state_name(FrameState::kFree));
  }
}

// ---- gives ---------------------------------------------------------------------------------------

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::mark_given(PageIndex page) noexcept {
  Page* const head = page_at(page);
  head->order.store(0, memory_order_relaxed);
  head->word.fetch_and(~kHighOrderFlag, memory_order_relaxed);
}

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::set_bits(Block block, std::uint32_t word,
                                          std::uint64_t bits) noexcept {
  AtomicT<std::uint64_t>& at = block.line().words[word];
  std::uint64_t seen = at.load(memory_order_relaxed);
  do {
    report_if_free(advance(block.first(), word * kBitWordFrames), seen & bits);
    // pairs: take_singles(), take_runs(), take_words() acquire
  } while (
      !at.compare_exchange_weak(seen, seen | bits, memory_order_release, memory_order_relaxed));
}

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::give_counts(std::uint64_t n) noexcept {
  // pairs: take_counts(), claim() acquire
  counts_.word.fetch_add(n, memory_order_release);
}

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::give(PageIndex page, Order order) noexcept {
  const Block block = block_in(range_or_report(page), page);
  const std::uint32_t frame = page.value % kPageblockFrames;
  if (order.value > 0) {
    check_order(block, page, order);
  }
  if (order < kPageblockOrder) {
    const std::uint32_t first_word = frame / kBitWordFrames;
    const std::uint32_t words = frames_in(order) / kBitWordFrames;  // 0: inside one
    const std::uint64_t bits =
        words == 0 ? run_bits(std::uint64_t{1} << (frame % kBitWordFrames), order.value) : kAllBits;
    for (std::uint32_t i = 0; i == 0 || i < words; ++i) {
      check_bits(block, first_word + i, bits);
    }
    if (order.value > 0) {
      mark_given(page);
    }
    for (std::uint32_t i = 0; i == 0 || i < words; ++i) {
      set_bits(block, first_word + i, bits);
    }
    add_count(block, frames_in(order));
  } else {
    give_whole(block, order);
  }
  give_counts(frames_in(order));
}

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::give_whole(Block block, Order order) noexcept {
  if (order == kPageblockOrder) {
    if (!block.entry().whole()) [[unlikely]] {
      report_double_free(block.first(), state_name(FrameState::kFree));
    }
    mark_given(block.first());
    WEIR_CHECK(update(block, [](BlockEntry entry) { return entry.give_whole(); }),
               "BitmapEngine E1");
    return;
  }
  EntryPair seen{block.pair().load(memory_order_relaxed)};
  if (!seen.give_whole()) [[unlikely]] {
    report_double_free(block.first(), state_name(FrameState::kFree));
  }
  mark_given(block.first());
  std::optional<EntryPair> after;
  do {
    after = seen.give_whole();
    WEIR_CHECK(after.has_value(), "BitmapEngine E1");
    // pairs: take_whole() acquire
  } while (!block.pair().compare_exchange_weak(seen.word, after->word, memory_order_seq_cst,
                                               memory_order_relaxed));
  for (const unsigned half : {0U, 1U}) {
    move_hint({block.range, block.number + half}, seen.at(half), after->at(half));
  }
}

// ---- many at once --------------------------------------------------------------------------------

// Up to 64 frames put together by word and pageblock. Some 2 KiB, of which little is touched when
// neighbours are given.
template <template <class> class AtomicT>
struct BasicBitmapEngine<AtomicT>::Sheaf {
  static constexpr std::uint32_t kMost = kClusterFrames;
  static constexpr std::uint32_t kPlaces = 2 * kMost;
  static constexpr std::uint8_t kEnd = 0xff;

  struct Bundle {  // of one pageblock
    Block block;
    std::uint16_t frames;
    std::uint8_t first;  // its first strand
  };
  struct Strand {  // of one word
    std::uint64_t bits;
    std::uint8_t word;
    std::uint8_t next;
  };

  void add(Block block, std::uint32_t frame, std::uint64_t bits, std::uint32_t frames) noexcept {
    Bundle& bundle = bundle_of(block);
    Strand& strand = strand_of(bundle, static_cast<std::uint8_t>(frame / kBitWordFrames));
    report_if_free(advance(block.first(), align_down(frame, kBitWordFrames)), strand.bits & bits);
    strand.bits |= bits;
    bundle.frames = static_cast<std::uint16_t>(bundle.frames + frames);
  }
  // Calls look(block, word, bits) for each word of a pageblock.
  template <class Look>
  void for_each_word(const Bundle& bundle, Look look) const noexcept {
    for (std::uint8_t at = bundle.first; at != kEnd; at = strands[at].next) {
      look(bundle.block, std::uint32_t{strands[at].word}, strands[at].bits);
    }
  }

  std::uint32_t bundle_count = 0;
  std::uint32_t strand_count = 0;
  std::uint8_t places[kPlaces] = {};  // hashed pageblocks: number of the bundle + 1
  Bundle bundles[kMost];
  Strand strands[kMost];

 private:
  Bundle& bundle_of(Block block) noexcept {
    // The multiplier spreads neighbours and multiples alike.
    std::uint32_t place = (block.number * 0x9e37'79b9U) >> (32 - std::countr_zero(kPlaces));
    while (places[place] != 0) {
      Bundle& bundle = bundles[places[place] - 1];
      if (bundle.block.number == block.number && bundle.block.range == block.range) {
        return bundle;
      }
      place = (place + 1) % kPlaces;
    }
    Bundle& bundle = bundles[bundle_count];
    places[place] = static_cast<std::uint8_t>(++bundle_count);
    bundle.block = block;
    bundle.frames = 0;
    bundle.first = kEnd;
    return bundle;
  }
  Strand& strand_of(Bundle& bundle, std::uint8_t word) noexcept {
    for (std::uint8_t at = bundle.first; at != kEnd; at = strands[at].next) {
      if (strands[at].word == word) {
        return strands[at];
      }
    }
    Strand& strand = strands[strand_count];
    strand.bits = 0;
    strand.word = word;
    strand.next = bundle.first;
    bundle.first = static_cast<std::uint8_t>(strand_count++);
    prefetch_for_write(&bundle.block.line().words[word]);
    return strand;
  }
};

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
    Range* const range = range_or_report(pages[0]);
    static_cast<void>(range_or_report(pages[n - 1]));
    const Block block = block_in(range, pages[0]);
    const std::uint32_t word = pages[0].value % kPageblockFrames / kBitWordFrames;
    const std::uint64_t bits = (kAllBits >> (kBitWordFrames - n)) << in_word;
    check_bits(block, word, bits);
    set_bits(block, word, bits);
    add_count(block, n);
  } else {
    give_scattered(order, pages, n);
  }
  give_counts(std::uint64_t{n} << order.value);
}

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::give_scattered(Order order, const PageIndex* pages,
                                                std::uint32_t n) noexcept {
  Sheaf sheaf;
  Range* range = range_or_report(pages[0]);
  const std::uint64_t run = run_bits(1, order.value);
  for (std::uint32_t i = 0; i < n; ++i) {
    if (!range->has(pages[i])) [[unlikely]] {
      range = range_or_report(pages[i]);
    }
    const Block block = block_in(range, pages[i]);
    if (order.value > 0) {
      check_order(block, pages[i], order);
    }
    const std::uint32_t frame = pages[i].value % kPageblockFrames;
    sheaf.add(block, frame, run << (frame % kBitWordFrames), frames_in(order));
  }
  for (std::uint32_t i = 0; i < sheaf.bundle_count; ++i) {
    sheaf.for_each_word(sheaf.bundles[i], check_bits);
  }
  for (std::uint32_t i = 0; order.value > 0 && i < n; ++i) {
    mark_given(pages[i]);
  }
  for (std::uint32_t i = 0; i < sheaf.bundle_count; ++i) {
    const auto& bundle = sheaf.bundles[i];
    sheaf.for_each_word(bundle, [this](Block block, std::uint32_t word, std::uint64_t bits) {
      set_bits(block, word, bits);
    });
    add_count(bundle.block, bundle.frames);
  }
}

}  // namespace weir
