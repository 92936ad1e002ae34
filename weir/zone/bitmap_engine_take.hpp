// SPDX-License-Identifier: MIT
// zone/bitmap_engine_take.hpp — how BasicBitmapEngine finds and takes. Included by bitmap_engine.cpp and
// by the test that runs these bodies step by step.
//
// Every take is the same three steps: claim from the zone's count; find a pageblock, by loads alone; try to
// take from it, which may come too late and tells what it got. Then find again.
#pragma once

#include <algorithm>
#include <bit>
#include <utility>

#include "weir/zone/bitmap_engine_steps.hpp"

namespace weir {

// ---- whole pageblocks ----------------------------------------------------------------------------

// A wholly free pageblock, or two neighbours; trimmed ones last, but two of which one is trimmed only by a scan.
template <template <class> class AtomicT>
auto BasicBitmapEngine<AtomicT>::find_whole(Order order, std::uint32_t cpu) noexcept -> Block {
  if (Range* const range = ranges(); order == kPageblockOrder && range != nullptr) [[likely]] {
    const Block block{range, range->index.next_unpaired(kFreeBucket, start_of(*range, cpu))};
    if (block.number != kNone && block.entry().all_resident()) [[likely]] {
      return block;
    }
  }
  for (const unsigned bucket : {kFreeBucket, kTrimmedBucket}) {
    if (const Block block = find_hinted(order, bucket, cpu)) {
      return block;
    }
  }
  return scan(order);
}

// Orders 9 and 10. The hints stay: what is handed out whole is given back whole, and often soon. Whoever
// follows one meanwhile drops it.
template <template <class> class AtomicT>
bool BasicBitmapEngine<AtomicT>::take_whole(Block block, Order order) noexcept {
  AtomicT<std::uint32_t>& pair = block.pair();
  EntryPair seen{pair.load(memory_order_relaxed)};
  for (;;) {
    EntryPair after;
    if (order == kPageblockOrder) {
      const MaybeEntry entry = seen.at(block.half()).take_whole();
      if (!entry) {
        return false;
      }
      after = seen.with(block.half(), *entry);
    } else {
      const std::optional<EntryPair> both = seen.take_whole();
      if (!both) {
        return false;
      }
      after = *both;
    }
    // pairs: give_whole(), whose giver is done with the frames
    if (pair.compare_exchange_weak(seen.word, after.word, memory_order_seq_cst,
                                   memory_order_relaxed)) {
      return true;
    }
  }
}

// ---- takes ---------------------------------------------------------------------------------------

template <template <class> class AtomicT>
auto BasicBitmapEngine<AtomicT>::block_named(std::uint32_t name) const noexcept -> Block {
  const std::uint32_t base = name * kPageblockFrames;
  for (Range* range = ranges(); name != kNone && range != nullptr; range = range->next) {
    const std::uint32_t number = (base - range->base) / kPageblockFrames;
    if (number < range->blocks) {
      return {range, number};
    }
  }
  return {};
}

// What the CPU has reserved, while anything is left there: a reservation ends with the last frame.
template <template <class> class AtomicT>
auto BasicBitmapEngine<AtomicT>::own_block(const Slot& slot) const noexcept -> Block {
  const Block own = block_named(slot.reserved.load(memory_order_relaxed));
  return own && own.entry().reserved() ? own : Block{};
}

// The frames are claimed: all n are found. Each time a look round finds none, others have taken some or put
// some elsewhere.
template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::take_frames(PageIndex* out, std::uint32_t n, std::uint32_t cpu,
                                             Mobility mobility) noexcept {
  Slot& slot = slot_of(cpu, mobility);
  while (n != 0) {
    Block found = own_block(slot);
    if (!found) [[unlikely]] {
      found = find_part(Order{0}, cpu, mobility);
    }
    if (found) [[likely]] {
      const std::uint32_t got = take_singles(found, out, n, slot, mobility);
      out += got;
      n -= got;
    }
  }
}

template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::take_claimed(PageIndex* out, std::uint32_t n,
                                              std::uint32_t cpu) noexcept {
  take_frames(out, n, cpu, Mobility::pinned);
  counts_.word.fetch_sub(n * ZoneCounts::kOneClaimed, memory_order_relaxed);
}

template <template <class> class AtomicT>
PageIndex BasicBitmapEngine<AtomicT>::take(Order order, std::uint64_t leave, std::uint32_t cpu,
                                           Mobility mobility) noexcept {
  if (order == kPageblockOrder) {
    return take_pageblock(leave, cpu);
  }
  PageIndex page;
  if (order.value == 0) {
    if (!take_counts(1, leave)) {
      return kNoPage;
    }
    take_frames(&page, 1, cpu, mobility);
    return page;
  }
  return take_blocks(order, &page, 1, leave, cpu, mobility) == 1 ? page : kNoPage;
}

template <template <class> class AtomicT>
std::uint32_t BasicBitmapEngine<AtomicT>::take_many(Order order, PageIndex* out, std::uint32_t n,
                                                    std::uint64_t leave,
                                                    std::uint32_t cpu) noexcept {
  if (order.value > 0) {
    return take_blocks(order, out, n, leave, cpu, Mobility::pinned);
  }
  if (!take_counts(n, leave)) {
    return 0;
  }
  take_frames(out, n, cpu, Mobility::pinned);
  return n;
}

// Above order 0. Looks before it claims: a request for a block that is not there must not make others go
// without frames meanwhile.
template <template <class> class AtomicT>
std::uint32_t BasicBitmapEngine<AtomicT>::take_blocks(Order order, PageIndex* out, std::uint32_t n,
                                                      std::uint64_t leave, std::uint32_t cpu,
                                                      Mobility mobility) noexcept {
  Block found = n != 0 ? find(order, cpu, mobility) : Block{};
  if (!found || !take_counts(std::uint64_t{n} << order.value, leave)) {
    return 0;
  }
  std::uint32_t got = 0;
  while (found) {
    std::uint32_t lost = 0;
    const std::uint32_t more = try_take(found, order, out + got, n - got, mobility, lost);
    n -= lost;
    if (more != 0 && order < kPageblockOrder) {
      AtomicT<std::uint32_t>& last = slot_of(cpu, mobility).runs;
      if (last.load(memory_order_relaxed) != name_of(found)) {
        last.store(name_of(found), memory_order_relaxed);
      }
    }
    got += more;
    if (got == n) {
      return got;
    }
    found = find(order, cpu, mobility);
  }
  give_counts(std::uint64_t{n - got} << order.value);
  return got;
}

// The same for one of order 9.
template <template <class> class AtomicT>
PageIndex BasicBitmapEngine<AtomicT>::take_pageblock(std::uint64_t leave,
                                                     std::uint32_t cpu) noexcept {
  Block found = find_whole(kPageblockOrder, cpu);
  if (!found || !take_counts(kPageblockFrames, leave)) {
    return kNoPage;
  }
  while (!take_whole(found, kPageblockOrder)) {
    found = find_whole(kPageblockOrder, cpu);
    if (!found) {
      give_counts(kPageblockFrames);
      return kNoPage;
    }
  }
  mark_taken(found.first(), kPageblockOrder);
  return found.first();
}

// ---- finding -------------------------------------------------------------------------------------

template <template <class> class AtomicT>
auto BasicBitmapEngine<AtomicT>::find(Order order, std::uint32_t cpu, Mobility mobility) noexcept
    -> Block {
  return order < kPageblockOrder ? find_part(order, cpu, mobility) : find_whole(order, cpu);
}

// Of orders 0 to 8: out of the pageblock that served last, then out of the fullest of this mobility, then
// out of a wholly free one, the trimmed ones last: to mix costs more than a fault.
template <template <class> class AtomicT>
auto BasicBitmapEngine<AtomicT>::find_part(Order order, std::uint32_t cpu,
                                           Mobility mobility) noexcept -> Block {
  const Slot& slot = slot_of(cpu, mobility);
  if (order.value > 0) {
    const Block last = block_named(slot.runs.load(memory_order_relaxed));
    if (last && suits(last, order)) {
      return last;
    }
  }
  if (const Block own = own_block(slot); own && suits(own, order)) {
    return own;
  }
  const unsigned end = BlockEntry::bucket_of(kPageblockFrames, mobility) + 1;
  for (unsigned bucket = BlockEntry::bucket_of(frames_in(order), mobility); bucket < end;
       ++bucket) {
    if (const Block block = find_hinted(order, bucket, cpu)) {
      return block;
    }
  }
  for (const unsigned bucket : {kFreeBucket, kTrimmedBucket}) {
    if (const Block block = find_hinted(order, bucket, cpu)) {
      return block;
    }
  }
  return find_fallback(order, cpu,
                       mobility == Mobility::pinned ? Mobility::movable : Mobility::pinned);
}

// Among pageblocks of the other mobility: the emptiest first, down to those half free, which then change
// over; then the fullest, so that few are mixed. As Linux falls back: by the largest block that it can make
// its own, then by the smallest that it must steal (mm/page_alloc.c, __rmqueue_claim, __rmqueue_steal).
template <template <class> class AtomicT>
auto BasicBitmapEngine<AtomicT>::find_fallback(Order order, std::uint32_t cpu,
                                               Mobility other) noexcept -> Block {
  const unsigned first = BlockEntry::bucket_of(frames_in(order), other);
  const unsigned half = BlockEntry::bucket_of(kPageblockFrames / 2 + 1, other);
  for (unsigned bucket = BlockEntry::bucket_of(kPageblockFrames, other); bucket >= half; --bucket) {
    if (const Block block = find_hinted(order, bucket, cpu)) {
      return block;
    }
  }
  for (unsigned bucket = first; bucket < half; ++bucket) {
    if (const Block block = find_hinted(order, bucket, cpu)) {
      return block;
    }
  }
  return scan(order);
}

// Some of a bucket's pageblocks are looked at, one after the other; hints that are stale are dropped.
template <template <class> class AtomicT>
auto BasicBitmapEngine<AtomicT>::find_hinted(Order order, unsigned bucket,
                                             std::uint32_t cpu) noexcept -> Block {
  for (Range* range = ranges(); range != nullptr; range = range->next) {
    const auto next = [&](std::uint32_t from) {
      return order == kMaxOrder      ? range->index.next_pair(bucket, from)
             : bucket >= kFreeBucket ? range->index.next_unpaired(bucket, from)
                                     : range->index.next(bucket, from);
    };
    const std::uint32_t start = start_of(*range, cpu);
    std::uint32_t looks = 0;
    std::uint32_t from = start;
    std::uint32_t end = range->blocks;
    while (looks < kLooksInBucket) {
      const std::uint32_t at = next(from);
      if (at >= end) {
        if (start == 0 || end == start) {
          break;
        }
        // Once round: what lies before the start.
        from = 0;
        end = start;
        continue;
      }
      const Block block{range, at};
      const Block neighbour{range, at ^ 1};
      if (block.entry().bucket() != bucket) {
        forget(block, bucket);
      } else if (order == kMaxOrder && neighbour.entry().bucket() != bucket) {
        forget(neighbour, bucket);
      } else if (suits(block, order)) {
        return block;
      } else {
        ++looks;
        from = at + 1;
      }
    }
  }
  return {};
}

// All entries: finds what the hints do not tell, what others have reserved, and that there is nothing.
template <template <class> class AtomicT>
auto BasicBitmapEngine<AtomicT>::scan(Order order) const noexcept -> Block {
  const std::uint32_t least = std::min(frames_in(order), kPageblockFrames);
  for (Range* range = ranges(); range != nullptr; range = range->next) {
    for (std::uint32_t number = 0; number < range->blocks; number += 2) {
      if (EntryPair{range->pairs[number / 2].load(memory_order_relaxed)}.most() < least) {
        continue;
      }
      for (const Block block : {Block{range, number}, Block{range, number + 1}}) {
        if (suits(block, order)) {
          return block;
        }
      }
    }
  }
  return {};
}

template <template <class> class AtomicT>
bool BasicBitmapEngine<AtomicT>::suits(Block block, Order order) noexcept {
  const std::uint32_t count = block.entry().available();
  if (order.value == 0) {
    return count != 0;
  }
  if (order < kPageblockOrder) {
    return count >= frames_in(order) && runs_in(block, order, 1) != 0;
  }
  if (order == kPageblockOrder) {
    return count == kPageblockFrames;
  }
  return block.half() == 0 && EntryPair{block.pair().load(memory_order_relaxed)}.take_whole();
}

// Free blocks of orders 1 to 8, counted up to `most`.
template <template <class> class AtomicT>
std::uint32_t BasicBitmapEngine<AtomicT>::runs_in(Block block, Order order,
                                                  std::uint32_t most) noexcept {
  std::uint32_t runs = 0;
  if (order.value > kWordOrder) {
    std::uint32_t full = 0;
    for (std::uint32_t i = 0; i < kBitWords; ++i) {
      full |= block.line().words[i].load(memory_order_relaxed) == kAllBits ? 1U << i : 0;
    }
    return static_cast<std::uint32_t>(std::popcount(run_heads(full, order.value - kWordOrder)));
  }
  for (std::uint32_t i = 0; i < kBitWords && runs < most; ++i) {
    const std::uint64_t heads =
        run_heads(block.line().words[i].load(memory_order_relaxed), order.value);
    runs += heads == 0 ? 0 : static_cast<std::uint32_t>(std::popcount(heads));
  }
  return std::min(runs, most);
}

// ---- taking --------------------------------------------------------------------------------------

// Above order 0; as many as there are, up to n. lost: blocks that the caller's claim is smaller by.
template <template <class> class AtomicT>
std::uint32_t BasicBitmapEngine<AtomicT>::try_take(Block block, Order order, PageIndex* out,
                                                   std::uint32_t n, Mobility mobility,
                                                   std::uint32_t& lost) noexcept {
  std::uint32_t got = 0;
  if (order.value <= kWordOrder) {
    got = take_runs(block, order, out, n, mobility, lost);
  } else if (order < kPageblockOrder) {
    out[0] = take_words(block, order, mobility, lost);
    got = out[0] != kNoPage ? 1 : 0;
  } else {
    out[0] = block.first();
    got = take_whole(block, order) ? 1 : 0;
  }
  for (std::uint32_t i = 0; i < got; ++i) {
    mark_taken(out[i], order);
  }
  return got;
}

template <template <class> class AtomicT>
std::uint32_t BasicBitmapEngine<AtomicT>::take_singles(Block block, PageIndex* out, std::uint32_t n,
                                                       Slot& slot, Mobility mobility) noexcept {
  const MaybeEntry before = update(block, [n, mobility](BlockEntry entry) {
    const std::uint32_t some = std::min(n, entry.available());
    return some == 0          ? std::nullopt
           : entry.reserved() ? entry.less(some, mobility)
                              : entry.reserve(some, mobility);
  });
  if (!before) {
    return 0;
  }
  const std::uint32_t got = std::min(n, before->count());
  if (!before->reserved() && before->count() > got) {
    keep(slot, block);
  }
  // Of those counted there are as many bits, wherever others may take and give meanwhile.
  const bool own = slot.reserved.load(memory_order_relaxed) == name_of(block);
  const std::uint32_t first_word = own ? slot.word.load(memory_order_relaxed) % kBitWords : 0;
  std::uint32_t at = first_word;
  PageIndex* const end = out + got;
  for (;;) {
    AtomicT<std::uint64_t>& word = block.line().words[at];
    std::uint64_t seen = word.load(memory_order_relaxed);
    while (seen != 0) {
      const auto left = static_cast<std::uint32_t>(end - out);
      const std::uint64_t bits = left < kBitWordFrames ? lowest_bits(seen, left) : seen;
      // pairs: set_bits() release: what the last owner did to the frames is done
      if (word.compare_exchange_weak(seen, seen & ~bits, memory_order_acquire,
                                     memory_order_relaxed)) {
        out = name_bits(advance(block.first(), at * kBitWordFrames), bits, out);
        break;
      }
    }
    if (out == end) {
      break;
    }
    at = (at + 1) % kBitWords;
  }
  if (own && at != first_word) {
    slot.word.store(at, memory_order_relaxed);
  }
  return got;
}

// Orders 1 to 6. The count is taken before the runs are, so it may turn out too high: the rest goes back.
template <template <class> class AtomicT>
std::uint32_t BasicBitmapEngine<AtomicT>::take_runs(Block block, Order order, PageIndex* out,
                                                    std::uint32_t n, Mobility mobility,
                                                    std::uint32_t& lost) noexcept {
  const std::uint32_t visible = runs_in(block, order, n);
  std::uint32_t left = 0;
  const MaybeEntry before = update(block, [&](BlockEntry entry) {
    left = std::min(visible, entry.available() >> order.value);
    return left == 0 ? MaybeEntry{std::nullopt} : entry.less(left << order.value, mobility);
  });
  if (!before) {
    return 0;
  }
  PageIndex* const begin = out;
  // Runs that are no part of a larger one first.
  for (const auto heads_in : {lonely_heads, run_heads}) {
    for (std::uint32_t at = 0; at < kBitWords && left != 0; ++at) {
      AtomicT<std::uint64_t>& word = block.line().words[at];
      std::uint64_t seen = word.load(memory_order_relaxed);
      for (;;) {
        const std::uint64_t heads = lowest_bits(heads_in(seen, order.value), left);
        if (heads == 0) {
          break;
        }
        // pairs: set_bits() release
        if (word.compare_exchange_weak(seen, seen & ~run_bits(heads, order.value),
                                       memory_order_acquire, memory_order_relaxed)) {
          PageIndex* const first = out;
          out = name_bits(advance(block.first(), at * kBitWordFrames), heads, out);
          left -= static_cast<std::uint32_t>(out - first);
          break;
        }
      }
    }
  }
  lost = put_back(block, left << order.value) >> order.value;
  return static_cast<std::uint32_t>(out - begin);
}

// Orders 7 and 8: words that are free from end to end, one after the other.
template <template <class> class AtomicT>
PageIndex BasicBitmapEngine<AtomicT>::take_words(Block block, Order order, Mobility mobility,
                                                 std::uint32_t& lost) noexcept {
  const std::uint32_t size = frames_in(order) / kBitWordFrames;
  if (!update(block, [&](BlockEntry entry) { return entry.less(frames_in(order), mobility); })) {
    return kNoPage;
  }
  for (std::uint32_t at = 0; at < kBitWords; at += size) {
    std::uint32_t got = 0;
    while (got < size) {
      std::uint64_t seen = kAllBits;
      // pairs: set_bits() release
      if (!block.line().words[at + got].compare_exchange_strong(seen, 0, memory_order_acquire,
                                                                memory_order_relaxed)) {
        break;
      }
      ++got;
    }
    if (got == size) {
      return advance(block.first(), at * kBitWordFrames);
    }
    // The count still lacks all frames of the block, so these may be put back as they were.
    while (got > 0) {
      --got;
      set_bits(block, at + got, kAllBits);
    }
  }
  lost = put_back(block, frames_in(order)) >> order.value;
  return kNoPage;
}

// Where the pageblock was isolated meanwhile they are withheld, and others must do for the claim.
template <template <class> class AtomicT>
std::uint32_t BasicBitmapEngine<AtomicT>::put_back(Block block, std::uint32_t n) noexcept {
  if (n == 0) {
    return 0;
  }
  const std::uint32_t withheld = n - add_count(block, n);
  return withheld == 0 || take_counts(withheld, 0) ? 0 : withheld;
}

// The slot has this pageblock from now on, and the one before goes back to the index. A flag that is
// set here and whose slot another thread has overwritten meanwhile is cleared by that thread.
template <template <class> class AtomicT>
void BasicBitmapEngine<AtomicT>::keep(Slot& slot, Block block) noexcept {
  const std::uint32_t name = name_of(block);
  const std::uint32_t before = slot.reserved.exchange(name, memory_order_relaxed);
  slot.word.store(0, memory_order_relaxed);
  if (const Block old = block_named(before); old && before != name) {
    static_cast<void>(update(old, [](BlockEntry entry) { return entry.release(); }));
  }
}

}  // namespace weir
