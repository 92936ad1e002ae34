// SPDX-License-Identifier: MIT
// zone/pageblock_state.hpp — the packed words of the bitmap engine and every change they can make, as
// pure functions on values. Calls base only; knows no atomics: the engine applies these in its
// compare-and-swap loops.
//
//   entry of a pageblock    | left 1 | movable 1 | isolated 1 | trimmed 1 | reserved 1 | whole 1 | count 10 |
//   entries of a pair       | odd pageblock 16 | even pageblock 16 |       one order 10 is one word
//   counts of a zone        | claimed 32 | free 32 |
//   bits of a pageblock     8 words of 64 bits, a set bit is a free frame
//
//   example: 3 frames free, reserved -> 0x0803; handed out as one block of order 9 -> 0x0400
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>

#include "weir/base/config.hpp"
#include "weir/base/hot.hpp"
#include "weir/base/types.hpp"
#include "weir/zone/mobility.hpp"

namespace weir {

inline constexpr unsigned kBitWordShift = 6;  // frames of a word of bits: 64
inline constexpr std::uint32_t kBitWordFrames = 1U << kBitWordShift;
inline constexpr std::uint32_t kBitWords = kPageblockFrames / kBitWordFrames;
static_assert(kBitWords == 8);                         // one cache line of bits a pageblock
inline constexpr unsigned kWordOrder = kBitWordShift;  // the largest order inside one word

// Pageblocks are told apart by how many of their frames are free. For each mobility the index has a bucket
// for each 64 counts, fullest first; it has one for the wholly free and one for those of them whose memory is
// with the system; some pageblocks are in none.
inline constexpr unsigned kBucketShift = 6;
inline constexpr unsigned kPartialBuckets = kPageblockFrames >> kBucketShift;
inline constexpr unsigned kFreeBucket = kMobilities * kPartialBuckets;
inline constexpr unsigned kTrimmedBucket = kFreeBucket + 1;
inline constexpr unsigned kBuckets = kTrimmedBucket + 1;
inline constexpr unsigned kNoBucket = ~0U;

// ---- a pageblock ---------------------------------------------------------------------------------

class MaybeEntry;

struct BlockEntry {
  static constexpr unsigned kCountMask = (1U << 10) - 1;
  static constexpr unsigned kWhole = 1U << 10;     // handed out as order 9, or half of an order 10
  static constexpr unsigned kReserved = 1U << 11;  // some CPU allocates from it; others avoid it
  static constexpr unsigned kTrimmed = 1U << 12;   // wholly free, and its memory is with the system
  static constexpr unsigned kIsolated = 1U << 13;  // nobody takes from it; what comes back stays
  static constexpr unsigned kMovable = 1U << 14;   // who can move is served from it
  static_assert(kPageblockFrames <= kCountMask);

  std::uint32_t word = 0;  // the lower 16 bits

  friend constexpr bool operator==(BlockEntry, BlockEntry) = default;

  // Frames that may still be taken one by one; 0 while it is whole.
  [[nodiscard]] constexpr std::uint32_t count() const noexcept { return word & kCountMask; }
  [[nodiscard]] constexpr bool whole() const noexcept { return (word & kWhole) != 0; }
  [[nodiscard]] constexpr bool reserved() const noexcept { return (word & kReserved) != 0; }
  [[nodiscard]] constexpr bool isolated() const noexcept { return (word & kIsolated) != 0; }
  [[nodiscard]] constexpr bool all_free() const noexcept { return count() == kPageblockFrames; }
  // Frames that anybody may take.
  [[nodiscard]] constexpr std::uint32_t available() const noexcept {
    return isolated() ? 0 : count();
  }
  [[nodiscard]] constexpr Mobility mobility() const noexcept {
    return (word & kMovable) != 0 ? Mobility::movable : Mobility::pinned;
  }
  [[nodiscard]] constexpr bool trimmed() const noexcept { return (word & kTrimmed) != 0; }
  // All free for anybody, and not trimmed.
  [[nodiscard]] constexpr bool all_resident() const noexcept {
    return (word & (kCountMask | kTrimmed | kIsolated)) == kPageblockFrames;
  }

  [[nodiscard]] static constexpr BlockEntry of(std::uint32_t count, unsigned flags = 0) noexcept {
    return {count | flags};
  }

  // n frames fewer; none when there are not so many for anybody. A reservation ends with the last frame, so
  // that whoever gives to the pageblock next brings it back into the index. While at least half of it is
  // free, a pageblock takes the mobility of who takes from it; later it keeps what it has.
  [[nodiscard]] constexpr MaybeEntry less(std::uint32_t n,
                                          Mobility mobility = Mobility::pinned) const noexcept;
  // n frames more; none when the pageblock is whole or would have more than all.
  [[nodiscard]] constexpr MaybeEntry more(std::uint32_t n) const noexcept;
  // n frames fewer and, if any are left and no CPU has it, reserved.
  [[nodiscard]] constexpr MaybeEntry reserve(std::uint32_t n,
                                             Mobility mobility = Mobility::pinned) const noexcept;
  [[nodiscard]] constexpr MaybeEntry release() const noexcept;
  // All frames at once; a reservation ends.
  [[nodiscard]] constexpr MaybeEntry take_whole() const noexcept;
  [[nodiscard]] constexpr MaybeEntry give_whole() const noexcept;
  // What was handed out whole is out in parts.
  [[nodiscard]] constexpr MaybeEntry split_whole() const noexcept;
  // Nobody takes from it from here on, a reservation ends; none when it is so already, or out as a whole.
  [[nodiscard]] constexpr MaybeEntry isolate() const noexcept;
  [[nodiscard]] constexpr MaybeEntry end_isolation() const noexcept;
  // For whoever isolated it, once all of it is free.
  [[nodiscard]] constexpr MaybeEntry take_isolated() const noexcept;
  // For trimming: all frames at once, unless they are trimmed already; and back, with the mark. Every change
  // that takes a frame ends the mark, and so do isolate() and untrim().
  [[nodiscard]] constexpr MaybeEntry take_resident() const noexcept;
  [[nodiscard]] constexpr MaybeEntry give_trimmed() const noexcept;
  [[nodiscard]] constexpr MaybeEntry untrim() const noexcept;

  // The bucket of so many free frames, not all, for this mobility.
  [[nodiscard]] static constexpr unsigned bucket_of(std::uint32_t count,
                                                    Mobility mobility) noexcept {
    return static_cast<unsigned>(mobility) * kPartialBuckets + ((count - 1) >> kBucketShift);
  }
  // Where the index has it; kNoBucket when nobody should look for it there.
  [[nodiscard]] constexpr unsigned bucket() const noexcept {
    if (count() == 0 || (word & (kReserved | kIsolated)) != 0) {
      return kNoBucket;
    }
    return !all_free() ? bucket_of(count(), mobility()) : trimmed() ? kTrimmedBucket : kFreeBucket;
  }
  // Whether it may have moved to another bucket; false only if it has not. Cheaper than to ask for both.
  [[nodiscard]] constexpr bool may_move(BlockEntry after) const noexcept {
    if ((word & after.word & kReserved) != 0) {
      return false;
    }
    return ((word - 1U) ^ (after.word - 1U)) >> kBucketShift != 0 || all_free() || after.all_free();
  }
};

// An entry, or that a change is refused. One register, where std::optional is two stores that one load then
// waits for.
class MaybeEntry {
 public:
  constexpr MaybeEntry(BlockEntry entry) noexcept : entry_(entry) {}   // NOLINT
  constexpr MaybeEntry(std::nullopt_t) noexcept : entry_{kRefused} {}  // NOLINT
  friend constexpr bool operator==(MaybeEntry, MaybeEntry) = default;

  [[nodiscard]] constexpr bool has_value() const noexcept { return entry_.word != kRefused; }
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return has_value(); }
  [[nodiscard]] constexpr BlockEntry operator*() const noexcept { return entry_; }
  [[nodiscard]] constexpr const BlockEntry* operator->() const noexcept { return &entry_; }

 private:
  static constexpr std::uint32_t kRefused = 1U << 31;
  BlockEntry entry_;
};

constexpr MaybeEntry BlockEntry::less(std::uint32_t n, Mobility mobility) const noexcept {
  if (available() < n) {
    return std::nullopt;
  }
  const unsigned kind = count() < kPageblockFrames / 2  ? word & kMovable
                        : mobility == Mobility::movable ? kMovable
                                                        : 0;
  const unsigned flags = word & (count() == n ? kWhole : kWhole | kReserved);
  return of(count() - n, flags | kind);
}
constexpr MaybeEntry BlockEntry::more(std::uint32_t n) const noexcept {
  if ((word & (kWhole | kCountMask)) + n > kPageblockFrames) {  // as whole() is more than all
    return std::nullopt;
  }
  return of(word + n);
}
constexpr MaybeEntry BlockEntry::reserve(std::uint32_t n, Mobility mobility) const noexcept {
  const MaybeEntry left = less(n, mobility);
  return left && left->count() != 0 ? of((*left).word, kReserved) : left;
}
constexpr MaybeEntry BlockEntry::release() const noexcept {
  return reserved() ? MaybeEntry{of(word & ~kReserved)} : std::nullopt;
}
constexpr MaybeEntry BlockEntry::take_whole() const noexcept {
  return available() == kPageblockFrames ? MaybeEntry{of(0, kWhole)} : std::nullopt;
}
constexpr MaybeEntry BlockEntry::give_whole() const noexcept {
  return whole() ? MaybeEntry{of(kPageblockFrames)} : std::nullopt;
}
constexpr MaybeEntry BlockEntry::split_whole() const noexcept {
  return whole() ? MaybeEntry{of(0)} : std::nullopt;
}
constexpr MaybeEntry BlockEntry::isolate() const noexcept {
  return whole() || isolated() ? std::nullopt
                               : MaybeEntry{of((word & ~(kReserved | kTrimmed)) | kIsolated)};
}
constexpr MaybeEntry BlockEntry::end_isolation() const noexcept {
  return isolated() ? MaybeEntry{of(word & ~kIsolated)} : std::nullopt;
}
constexpr MaybeEntry BlockEntry::take_isolated() const noexcept {
  return isolated() && all_free() ? MaybeEntry{of(0, kWhole)} : std::nullopt;
}
constexpr MaybeEntry BlockEntry::take_resident() const noexcept {
  return all_resident() ? take_whole() : std::nullopt;
}
constexpr MaybeEntry BlockEntry::give_trimmed() const noexcept {
  return whole() ? MaybeEntry{of(kPageblockFrames, kTrimmed)} : std::nullopt;
}
constexpr MaybeEntry BlockEntry::untrim() const noexcept {
  return trimmed() ? MaybeEntry{of(word & ~kTrimmed)} : std::nullopt;
}

// The entries of two pageblocks that make one block of order 10.
struct EntryPair {
  static constexpr unsigned kHalfBits = 16;

  std::uint32_t word = 0;

  [[nodiscard]] constexpr BlockEntry at(unsigned half) const noexcept {
    return {(word >> (half * kHalfBits)) & 0xffffU};
  }
  [[nodiscard]] constexpr EntryPair with(unsigned half, BlockEntry entry) const noexcept {
    const unsigned shift = half * kHalfBits;
    return {(word & ~(0xffffU << shift)) | entry.word << shift};
  }
  [[nodiscard]] static constexpr EntryPair of(BlockEntry even, BlockEntry odd) noexcept {
    return EntryPair{}.with(0, even).with(1, odd);
  }
  // The count of the one that has more.
  [[nodiscard]] constexpr std::uint32_t most() const noexcept {
    return std::max(at(0).count(), at(1).count());
  }
  [[nodiscard]] constexpr std::optional<EntryPair> take_whole() const noexcept {
    const MaybeEntry even = at(0).take_whole();
    const MaybeEntry odd = at(1).take_whole();
    return even && odd ? std::optional{of(*even, *odd)} : std::nullopt;
  }
  [[nodiscard]] constexpr std::optional<EntryPair> give_whole() const noexcept {
    const MaybeEntry even = at(0).give_whole();
    const MaybeEntry odd = at(1).give_whole();
    return even && odd ? std::optional{of(*even, *odd)} : std::nullopt;
  }
};

// ---- a zone --------------------------------------------------------------------------------------

// Frames anybody may claim, and frames claimed by callers who have not taken them yet. No zone has
// more than 2^32 frames, for indexes have 32 bits.
struct ZoneCounts {
  static constexpr unsigned kClaimedShift = 32;
  static constexpr std::uint64_t kOneClaimed = std::uint64_t{1} << kClaimedShift;

  std::uint64_t word = 0;

  [[nodiscard]] constexpr std::uint64_t free() const noexcept { return word & (kOneClaimed - 1); }
  [[nodiscard]] constexpr std::uint64_t claimed() const noexcept { return word >> kClaimedShift; }
  [[nodiscard]] static constexpr ZoneCounts of(std::uint64_t free, std::uint64_t claimed) noexcept {
    return {free | claimed << kClaimedShift};
  }
  // Whether n may go and `leave` stay; any values.
  [[nodiscard]] constexpr bool has(std::uint64_t n, std::uint64_t leave) const noexcept {
    return n <= free() && leave <= free() - n;
  }
  // For whoever takes at once: the claim is never seen.
  [[nodiscard]] constexpr std::optional<ZoneCounts> take(std::uint64_t n,
                                                         std::uint64_t leave) const noexcept {
    return has(n, leave) ? std::optional{ZoneCounts{word - n}} : std::nullopt;
  }
  [[nodiscard]] constexpr std::optional<ZoneCounts> claim(std::uint64_t n,
                                                          std::uint64_t leave) const noexcept {
    return has(n, leave) ? std::optional{ZoneCounts{word - n + n * kOneClaimed}} : std::nullopt;
  }
  // What to add to the word to undo a claim.
  [[nodiscard]] static constexpr std::uint64_t unclaim(std::uint64_t n) noexcept {
    return n - n * kOneClaimed;
  }
};

// ---- bits ----------------------------------------------------------------------------------------

inline constexpr std::uint64_t kAllBits = ~std::uint64_t{0};

// Places where a run of 2^order frames may begin.
[[nodiscard]] constexpr std::uint64_t aligned_places(unsigned order) noexcept {
  constexpr std::uint64_t kPlaces[kWordOrder + 1] = {~std::uint64_t{0},
                                                     0x5555'5555'5555'5555U,
                                                     0x1111'1111'1111'1111U,
                                                     0x0101'0101'0101'0101U,
                                                     0x0001'0001'0001'0001U,
                                                     0x0000'0001'0000'0001U,
                                                     1};
  return kPlaces[order];
}

// The first bits of all aligned free runs of 2^order frames in a word.
[[nodiscard]] constexpr std::uint64_t run_heads(std::uint64_t word, unsigned order) noexcept {
  for (unsigned k = 0; k < order; ++k) {
    word &= word >> (1U << k);
  }
  return word & aligned_places(order);
}

// All bits of the runs that begin at these.
[[nodiscard]] constexpr std::uint64_t run_bits(std::uint64_t heads, unsigned order) noexcept {
  for (unsigned k = 0; k < order; ++k) {
    heads |= heads << (1U << k);
  }
  return heads;
}

// Of these heads the ones whose buddy is not free as well: taking them splits nothing larger.
[[nodiscard]] constexpr std::uint64_t lonely_heads(std::uint64_t word, unsigned order) noexcept {
  const std::uint64_t heads = run_heads(word, order);
  if (order == kWordOrder) {
    return heads;
  }
  const std::uint64_t larger = run_heads(word, order + 1);
  return heads & ~(larger | larger << (1U << order));
}

// The lowest n set bits, or all when there are fewer.
[[nodiscard]] constexpr std::uint64_t lowest_bits(std::uint64_t word, std::uint32_t n) noexcept {
  std::uint64_t rest = word;
  for (; n != 0 && rest != 0; --n) {
    rest &= rest - 1;
  }
  return word & ~rest;
}

// Writes the names of these frames, ascending; `first` is that of bit 0. Returns the end of what it wrote.
constexpr PageIndex* name_bits(PageIndex first, std::uint64_t bits, PageIndex* out) noexcept {
  if (bits == kAllBits) {
    for (std::uint32_t i = 0; i < kBitWordFrames; ++i) {
      out[i] = advance(first, i);
    }
    return out + kBitWordFrames;
  }
  for (; bits != 0; bits &= bits - 1) {
    *out++ = advance(first, static_cast<unsigned>(std::countr_zero(bits)));
  }
  return out;
}

// Whether these frames follow one another.
[[nodiscard]] constexpr bool ascend(const PageIndex* pages, std::uint32_t n) noexcept {
  std::uint32_t differences = 0;
  const auto look = [&](std::uint32_t i) { differences |= pages[i].value ^ (pages[0].value + i); };
  if (n == kBitWordFrames) {  // a constant, so that compilers look at several at once
    for (std::uint32_t i = 0; i < kBitWordFrames; ++i) {
      look(i);
    }
  } else {
    for (std::uint32_t i = 0; i < n; ++i) {
      look(i);
    }
  }
  return differences == 0;
}

// Blocks of this order, 0 to 8, as a buddy allocator would hold the same free frames: aligned, and
// not half of a larger one. The pageblock must not be wholly free.
[[nodiscard]] constexpr std::uint32_t maximal_blocks(const std::uint64_t (&words)[kBitWords],
                                                     unsigned order) noexcept {
  std::uint32_t blocks = 0;
  std::uint32_t full = 0;  // a bit for each word that is free from end to end
  for (std::uint32_t i = 0; i < kBitWords; ++i) {
    if (words[i] == kAllBits) {
      full |= 1U << i;
    } else if (order < kWordOrder) {
      blocks += static_cast<std::uint32_t>(std::popcount(lonely_heads(words[i], order)));
    }
  }
  if (order < kWordOrder) {
    return blocks;
  }
  // Words are to a pageblock what frames are to a word.
  return static_cast<std::uint32_t>(std::popcount(lonely_heads(full, order - kWordOrder)));
}

}  // namespace weir
