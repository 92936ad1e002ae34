// SPDX-License-Identifier: MIT
// zone/bitmap_engine_life.hpp — how BasicBitmapEngine gets its memory, is looked at, recounted and put
// right in a forked child. Included by bitmap_engine.cpp and by the test that runs these bodies step by step.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>
#include <new>

#include "weir/base/bits.hpp"
#include "weir/base/check.hpp"
#include "weir/zone/bitmap_engine.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir {

template <template <class> class AtomicT>
BasicBitmapEngine<AtomicT>::~BasicBitmapEngine() {
  close();
  release(retired_);
}

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::release(Range* ranges) noexcept {
  while (ranges != nullptr) {
    Range* const range = ranges;
    ranges = range->next;
    range->memory->release(reinterpret_cast<std::byte*>(range), range->memory_size);
  }
}

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::close() noexcept {
  if (Range* const ended = ranges(); ended != nullptr) {
    ranges_.store(nullptr, memory_order_relaxed);
    release(retired_);
    retired_ = ended;
  }
  counts_.word.store(0, memory_order_relaxed);
  for (Slot& slot : slots_) {
    slot.reserved.store(kNone, memory_order_relaxed);
    slot.word.store(0, memory_order_relaxed);
    slot.runs.store(kNone, memory_order_relaxed);
  }
}

// The memory of a range:  | Range | lines, 64 bytes a pageblock | pairs, 4 bytes for two | index |
template <template <class> class AtomicT>
Error BasicBitmapEngine<AtomicT>::adopt(PageIndex first, PageCount frames,
                                        Memory& memory) noexcept {
  if (frames.value == 0) {
    return {Errc::zero_size, "bitmap engine: frames"};
  }
  if (frames.value > kNoPage.value - std::uint64_t{first.value}) {
    return {Errc::too_large, "bitmap engine: frames"};
  }
  const std::uint32_t base = align_down(first.value, kMaxBlockFrames);
  const auto blocks = static_cast<std::uint32_t>(align_up<std::uint64_t>(
      div_round_up<std::uint64_t>(first.value - base + frames.value, kPageblockFrames), 2));
  const std::uint64_t lines_at = align_up<std::uint64_t>(sizeof(Range), kCacheLine);
  const std::uint64_t pairs_at = lines_at + sizeof(Line) * std::uint64_t{blocks};
  const std::uint64_t index_at =
      align_up<std::uint64_t>(pairs_at + sizeof(std::uint32_t) * (blocks / 2), kCacheLine);
  const Bytes size{align_up<std::uint64_t>(index_at + Index::bytes_for(blocks), kFrameBytes)};
  Result<std::byte*> got = memory.reserve(size, Bytes{kFrameBytes});
  if (!got) {
    return got.error();
  }
  if (const Error error = memory.commit(*got, size); error.failed()) {
    memory.release(*got, size);
    return error;
  }
  Range* const range = new (*got) Range;
  range->first = first.value;
  range->frames = static_cast<std::uint32_t>(frames.value);
  range->base = base;
  range->blocks = blocks;
  range->lines = reinterpret_cast<Line*>(*got + lines_at);
  range->pairs = reinterpret_cast<AtomicT<std::uint32_t>*>(*got + pairs_at);
  range->index.open(*got + index_at, blocks);
  range->memory_size = size;
  range->memory = &memory;
  fill(*range);
  Range* last = ranges();
  while (last != nullptr && last->next != nullptr) {
    last = last->next;
  }
  if (last != nullptr) {
    last->next = range;
  } else {
    ranges_.store(range, memory_order_relaxed);
  }
  counts_.word.fetch_add(frames.value, memory_order_relaxed);
  return kOk;
}

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::fill(Range& range) noexcept {
  for (std::uint32_t number = 0; number < range.blocks; ++number) {
    new (&range.lines[number]) Line{};
    if (number % 2 == 0) {
      new (&range.pairs[number / 2]) AtomicT<std::uint32_t>{0};
    }
    const Block block{&range, number};
    std::uint32_t count = 0;
    for (std::uint32_t word = 0; word < kBitWords; ++word) {
      const std::uint64_t bits = bits_of(block, word);
      block.line().words[word].store(bits, memory_order_relaxed);
      count += static_cast<std::uint32_t>(std::popcount(bits));
    }
    if (count != 0) {
      static_cast<void>(add_count(block, count));
    }
  }
  for (std::uint32_t i = 0; i < range.frames; ++i) {
    page_at({range.first + i})->state.store(FrameState::kTaken, memory_order_relaxed);
  }
}

// The frames of a word that its range has.
template <template <class> class AtomicT>
std::uint64_t BasicBitmapEngine<AtomicT>::bits_of(Block block, std::uint32_t word) noexcept {
  const Range& range = *block.range;
  const std::uint64_t begin =
      block.number * std::uint64_t{kPageblockFrames} + word * kBitWordFrames;
  const std::uint64_t first = range.first - range.base;
  const std::uint64_t end = first + range.frames;
  const auto below = [begin](std::uint64_t limit) {  // bits of frames below it
    return limit <= begin                    ? 0
           : limit - begin >= kBitWordFrames ? kAllBits
                                             : (std::uint64_t{1} << (limit - begin)) - 1;
  };
  return below(end) & ~below(first);
}

template <template <class> class AtomicT>
std::uint64_t BasicBitmapEngine<AtomicT>::free_pages() const noexcept {
  return ZoneCounts{counts_.word.load(memory_order_relaxed)}.free();
}

template <template <class> class AtomicT>
std::uint64_t BasicBitmapEngine<AtomicT>::claimed_pages() const noexcept {
  return ZoneCounts{counts_.word.load(memory_order_relaxed)}.claimed();
}

template <template <class> class AtomicT>
std::uint64_t BasicBitmapEngine<AtomicT>::free_blocks(Order order) const noexcept {
  std::uint64_t blocks = 0;
  for_each_block([&](Block block) {
    const BlockEntry entry = block.entry();
    const bool all = entry.available() == kPageblockFrames;
    if (order >= kPageblockOrder) {
      const BlockEntry neighbour = Block{block.range, block.number ^ 1}.entry();
      const bool paired = all && neighbour.available() == kPageblockFrames;
      blocks +=
          order == kMaxOrder ? (paired && block.half() == 0 ? 1 : 0) : (all && !paired ? 1 : 0);
    } else if (!entry.whole() && !entry.isolated() && !all) {
      std::uint64_t words[kBitWords];
      read_bits(block, words);
      blocks += maximal_blocks(words, order.value);
    }
  });
  return blocks;
}

template <template <class> class AtomicT>
std::uint32_t BasicBitmapEngine<AtomicT>::read_bits(Block block,
                                                    std::uint64_t (&words)[kBitWords]) noexcept {
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < kBitWords; ++i) {
    words[i] = block.line().words[i].load(memory_order_relaxed);
    count += static_cast<std::uint32_t>(std::popcount(words[i]));
  }
  return count;
}

template <template <class> class AtomicT>
bool BasicBitmapEngine<AtomicT>::is_free(PageIndex page) const noexcept {
  Range* const range = range_of(page);
  if (range == nullptr) {
    return false;
  }
  const Block block = block_in(range, page);
  const std::uint32_t frame = page.value % kPageblockFrames;
  const std::uint64_t word = block.line().words[frame / kBitWordFrames].load(memory_order_relaxed);
  return !block.entry().whole() && (word >> (frame % kBitWordFrames) & 1) != 0;
}

template <template <class> class AtomicT>
std::uint32_t BasicBitmapEngine<AtomicT>::free_in_pageblock(PageIndex page) const noexcept {
  Range* const range = range_of(page);
  return range == nullptr ? 0 : block_in(range, page).entry().count();
}

template <template <class> class AtomicT>
std::uint64_t BasicBitmapEngine<AtomicT>::audit() const noexcept {
  std::uint64_t frames = 0;
  std::uint64_t available = 0;
  for_each_block([&](Block block) {
    const BlockEntry entry = block.entry();
    std::uint64_t words[kBitWords];
    const std::uint32_t bits = read_bits(block, words);
    WEIR_CHECK(
        entry.whole() ? entry.count() == 0 && bits == kPageblockFrames : entry.count() == bits,
        "BitmapEngine E1");
    WEIR_CHECK(entry.bucket() == kNoBucket || block.range->index.test(entry.bucket(), block.number),
               "BitmapEngine E3");
    WEIR_CHECK(!entry.reserved() || std::any_of(std::begin(slots_), std::end(slots_),
                                                [&](const Slot& slot) {
                                                  return slot.reserved.load(memory_order_relaxed) ==
                                                         name_of(block);
                                                }),
               "BitmapEngine E4");
    WEIR_CHECK(!entry.trimmed() || (entry.all_free() && !entry.reserved() && !entry.isolated()),
               "BitmapEngine E6");
    for (std::uint32_t word = 0; word < kBitWords; ++word) {
      WEIR_CHECK((words[word] & ~bits_of(block, word)) == 0, "BitmapEngine E5");
    }
    frames += entry.count();
    available += entry.available();
  });
  for (const Range* range = ranges(); range != nullptr; range = range->next) {
    WEIR_CHECK(range->index.consistent(), "BlockIndex X1");
  }
  WEIR_CHECK(available == free_pages() + claimed_pages(), "BitmapEngine E2");
  return frames;
}

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::recover_in_child() noexcept {
  for (Slot& slot : slots_) {
    slot.reserved.store(kNone, memory_order_relaxed);
    slot.runs.store(kNone, memory_order_relaxed);
    slot.word.store(0, memory_order_relaxed);
  }
  for (Range* range = ranges(); range != nullptr; range = range->next) {
    range->index.clear_all();
  }
  std::uint64_t frames = 0;
  for_each_block([&](Block block) {
    std::uint64_t words[kBitWords];
    const std::uint32_t bits = read_bits(block, words);
    // Nobody has begun to take from one that is still marked as trimmed.
    const unsigned word = block.entry().word;
    const BlockEntry entry =
        (word & BlockEntry::kWhole) != 0
            ? BlockEntry::of(0, BlockEntry::kWhole)
            : BlockEntry::of(bits, word & (BlockEntry::kMovable | BlockEntry::kTrimmed));
    const EntryPair pair{block.pair().load(memory_order_relaxed)};
    block.pair().store(pair.with(block.half(), entry).word, memory_order_relaxed);
    if (entry.bucket() != kNoBucket) {
      block.range->index.set(entry.bucket(), block.number);
    }
    frames += entry.count();
  });
  counts_.word.store(ZoneCounts::of(frames, 0).word, memory_order_relaxed);
}

template <template <class> class AtomicT>
Bytes BasicBitmapEngine<AtomicT>::metadata() const noexcept {
  Bytes size{sizeof *this};
  for (const Range* range = ranges(); range != nullptr; range = range->next) {
    size = size + range->memory_size;
  }
  return size;
}

}  // namespace weir
