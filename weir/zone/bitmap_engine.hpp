// SPDX-License-Identifier: MIT
// zone/bitmap_engine.hpp — finds and takes back frames without a lock: a bit a frame, a count a
// pageblock, a count for all. Owns order and flag of descriptors of blocks above order 0 and, up to half a
// pageblock, the state of those inside; touches no other descriptor, nor any frame. Calls os/memory in adopt() and the destructor only. Never waits.
//
//   counts of the zone    free | claimed                                   one word
//   entry of a pageblock  free frames, and five flags                      16 bits, a pair is one word
//   bits of a pageblock   512, set = free                                  one cache line
//   index of a range      pageblocks by how full they are                  hints
//   slot of a CPU         the pageblock it has reserved, the word it took from last
//
//   take   claims from the zone's count, then from a pageblock's, then clears bits
//   give   sets bits, then adds to the pageblock's count, then to the zone's
//
// So a count never says more than is there: whoever has claimed single frames finds them, at the latest
// when all who were faster have found theirs. Orders 0 to 6 are an aligned run inside a word, 7 and 8
// are whole words; orders 9 and 10 change the entries alone and leave the bits set.
//
// Single frames come out of the pageblock that the CPU has reserved, then out of the fullest one: so the
// emptier ones have time to become wholly free, and those are used last; of them the trimmed ones (memory with
// the system) after all others. Who can move and who cannot are served from pageblocks of their own as long as
// there are such.
//
// A pageblock that is isolated keeps what is free there, and what comes back: nobody is served from it,
// and its frames are not counted as free until the isolation ends.
//
// E1: at rest, a pageblock's count is the number of its bits; a whole one has count 0 and every bit
// E2: at rest, the counts of all pageblocks that are not isolated add up to free + claimed
// E3: at rest, a pageblock that is in a bucket has a hint in that bucket's part of the index
// E4: at rest, a reserved pageblock is named by a slot
// E5: bits beyond the ends of a range are never set
// E6: at rest, a trimmed pageblock is wholly free, not reserved and not isolated
#pragma once

#include <cstdint>
#include <optional>

#include "weir/base/atomic.hpp"
#include "weir/base/config.hpp"
#include "weir/base/hot.hpp"
#include "weir/base/result.hpp"
#include "weir/base/types.hpp"
#include "weir/os/memory.hpp"
#include "weir/zone/block_index.hpp"
#include "weir/zone/frame.hpp"
#include "weir/zone/mobility.hpp"
#include "weir/zone/pageblock_state.hpp"
#include "weir/zone/pageblock_view.hpp"

namespace weir {

// AtomicT is Atomic everywhere but in a test that runs this code step by step. The bodies stand in
// bitmap_engine_{steps,take,give,isolate,trim,life}.hpp and are compiled once, in bitmap_engine.cpp.
template <template <class> class AtomicT>
class BasicBitmapEngine {
 public:
  static constexpr std::uint32_t kCpuSlots = 64;

  BasicBitmapEngine() = default;
  ~BasicBitmapEngine();
  BasicBitmapEngine(const BasicBitmapEngine&) = delete;
  BasicBitmapEngine& operator=(const BasicBitmapEngine&) = delete;

  // Not thread-safe, before use; several calls make several ranges. Makes frames free whose descriptors
  // the frame table has initialised; from here on they say kTaken, order 0, sole owner, free or not, but
  // for those of a block above order 0 that is out: its head has the order, the others say kInner. No
  // two ranges share a block of the largest order. Undone whole on failure.
  Error adopt(PageIndex first, PageCount frames, Memory& memory = system_memory()) noexcept;
  // Forgets all ranges. At rest; free_pages() may still be asked, and whoever is inside is_free() meanwhile
  // reads on: the ranges' memory goes with the next close().
  void close() noexcept;

  // From here on: any thread, lock-free, async-signal-safe, without a system call. `cpu`: any number,
  // best that of the CPU; those that agree modulo kCpuSlots share a slot.

  // Sets n single frames aside for the caller. False, and nothing done, when fewer than n + leave are free.
  [[nodiscard]] bool claim(std::uint64_t n, std::uint64_t leave) noexcept;
  void unclaim(std::uint64_t n) noexcept;
  // n single frames of a claim, n <= 64.
  void take_claimed(PageIndex* out, std::uint32_t n, std::uint32_t cpu) noexcept;

  // A block, or kNoPage: fewer than its frames + leave are free, or there is no such block.
  [[nodiscard]] PageIndex take(Order order, std::uint64_t leave, std::uint32_t cpu,
                               Mobility mobility = Mobility::pinned) noexcept;
  // n blocks or as many as were found; 0 when fewer than n << order + leave frames are free.
  std::uint32_t take_many(Order order, PageIndex* out, std::uint32_t n, std::uint64_t leave,
                          std::uint32_t cpu) noexcept;

  // Reports, before anything is changed, a frame that is free, a tail, or a wrong order.
  void give(PageIndex page, Order order) noexcept;
  // n << order <= 64 frames, in any order. Those of one stretch of eight pageblocks, and neighbours in the
  // array, make one change a word and one a pageblock; all together one of the zone. A page that is among
  // them twice is reported as well, but others may be given by then. Single frames inside a taken block
  // of order 1 to 8 are not seen: no descriptor is asked.
  void give_many(Order order, const PageIndex* pages, std::uint32_t n) noexcept;

  // Of a pageblock, which is named by any frame of it; one thread at a time is about one pageblock.
  // Withholds what is free there and what will come back. False, and nothing done, when it is isolated
  // already or out as a whole, or when fewer than `leave` frames would stay for others.
  [[nodiscard]] bool isolate(PageIndex page, std::uint64_t leave) noexcept;
  void end_isolation(PageIndex page) noexcept;
  // The whole of an isolated pageblock as a block of order 9; false while some of it is out.
  [[nodiscard]] bool take_isolated(PageIndex page) noexcept;
  // A block of order 0 to 8 out of this pageblock, or kNoPage.
  [[nodiscard]] PageIndex take_in(PageIndex page, Order order, std::uint64_t leave,
                                  Mobility mobility) noexcept;
  // Makes two blocks of order - 1 of one that the caller has; order > 0.
  void split(PageIndex page, Order order) noexcept;
  [[nodiscard]] PageblockView pageblock(PageIndex page) const noexcept;

  // Takes the pageblock that begins at `page` for trimming, if it is wholly free and not trimmed, and `leave`
  // frames more are free; false, and nothing done, otherwise. Any page of a range. Until end_trim() it is a
  // taken block of order 9.
  [[nodiscard]] bool begin_trim(PageIndex page, std::uint64_t leave) noexcept;
  // It is free again; `done`: as a trimmed one, until any frame of it is taken or it is isolated.
  void end_trim(PageIndex page, bool done) noexcept;
  // What was trimmed counts as resident again: somebody else may have touched it. Any page.
  void forget_trim(PageIndex page) noexcept;
  // Of the pageblock that this frame is in.
  [[nodiscard]] bool is_trimmed(PageIndex page) const noexcept;
  // Pageblocks; looks at every one.
  [[nodiscard]] std::uint64_t trimmed_blocks() const noexcept;

  // Free, not claimed and not withheld; exact at rest.
  [[nodiscard]] std::uint64_t free_pages() const noexcept;
  [[nodiscard]] std::uint64_t claimed_pages() const noexcept;
  // Free blocks as a buddy allocator would hold the same free frames; looks at every pageblock.
  [[nodiscard]] std::uint64_t free_blocks(Order order) const noexcept;
  [[nodiscard]] bool is_free(PageIndex page) const noexcept;
  // Of the pageblock that this frame is in.
  [[nodiscard]] std::uint32_t free_in_pageblock(PageIndex page) const noexcept;

  // At rest. Recounts everything, aborts through WEIR_CHECK on a broken invariant. Returns the frames
  // that are here, claimed and withheld ones included.
  std::uint64_t audit() const noexcept;
  // In a forked child with one thread: counts, hints and slots anew from bits and flags, claims and
  // isolations forgotten.
  // What was on its way between two of them belongs to nobody.
  void recover_in_child() noexcept;

  // Memory that stands beside the frames, this object included.
  [[nodiscard]] Bytes metadata() const noexcept;

 private:
  using Index = BasicBlockIndex<AtomicT>;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  // How many pageblocks of a bucket are looked at for a run before emptier ones are.
  static constexpr std::uint32_t kLooksInBucket = 8;
  // With so many pageblocks their bits are taken to be in the first cache, else they are asked for ahead.
  static constexpr std::uint32_t kBlocksInCache = 256;
  // What give_near() has a table of words for.
  static constexpr std::uint32_t kStretchFrames = 8 * kPageblockFrames;

  struct alignas(kCacheLine) Line {
    AtomicT<std::uint64_t> words[kBitWords];
  };
  // In the first bytes of its own memory; constant after adopt() but for what it points at.
  struct Range {
    std::uint32_t first = 0;  // the first frame
    std::uint32_t frames = 0;
    std::uint32_t base = 0;    // first, rounded down to a block of the largest order
    std::uint32_t blocks = 0;  // pageblocks from base on, an even number
    Line* lines = nullptr;
    AtomicT<std::uint32_t>* pairs = nullptr;
    Index index;
    Range* next = nullptr;
    Bytes memory_size;
    Memory* memory = nullptr;

    [[nodiscard]] bool has(PageIndex page) const noexcept { return page.value - first < frames; }
  };
  // A pageblock: its range and its number there, of 64 bits because compilers load it so after they have
  // stored it: of 32 it would wait for the store each time.
  struct Block {
    Range* range = nullptr;
    std::uint64_t number = 0;

    [[nodiscard]] explicit operator bool() const noexcept { return range != nullptr; }
    [[nodiscard]] AtomicT<std::uint32_t>& pair() const noexcept { return range->pairs[number / 2]; }
    [[nodiscard]] unsigned half() const noexcept { return static_cast<unsigned>(number % 2); }
    [[nodiscard]] BlockEntry entry() const noexcept {
      return EntryPair{pair().load(memory_order_relaxed)}.at(half());
    }
    [[nodiscard]] Line& line() const noexcept { return range->lines[number]; }
    [[nodiscard]] PageIndex first() const noexcept {
      return {range->base + static_cast<std::uint32_t>(number) * kPageblockFrames};
    }
  };
  // A frame: its pageblock, and its bit there.
  struct Place {
    Block block;
    std::uint32_t word;
    std::uint32_t bit;
  };
  // Hints, written by the threads that pass this CPU number. A block is known by first frame / 512.
  struct alignas(kNoFalseSharing) Slot {
    AtomicT<std::uint32_t> reserved{kNone};  // the pageblock single frames come from
    AtomicT<std::uint32_t> word{0};          // the word of it that had some last
    AtomicT<std::uint32_t> runs{kNone};      // the pageblock that had a run of several last
  };
  struct alignas(kNoFalseSharing) Counts {
    AtomicT<std::uint64_t> word{0};
  };

  [[nodiscard]] WEIR_HOT Range* range_of(PageIndex page) const noexcept {
    Range* range = ranges();
    while (range != nullptr && !range->has(page)) {
      range = range->next;
    }
    return range;
  }
  [[nodiscard]] WEIR_HOT static Block block_in(Range* range, PageIndex page) noexcept {
    return {range, (page.value - range->base) / kPageblockFrames};
  }
  [[nodiscard]] WEIR_HOT static Place place_in(Range* range, PageIndex page) noexcept {
    return {block_in(range, page), page.value % kPageblockFrames / kBitWordFrames,
            page.value % kBitWordFrames};
  }
  // By the number in a slot; empty for kNone.
  [[nodiscard]] WEIR_HOT Block block_named(std::uint32_t name) const noexcept;
  [[nodiscard]] static std::uint32_t name_of(Block block) noexcept {
    return block.first().value / kPageblockFrames;
  }
  // Each CPU looks from a place of its own on, few CPUs from places far apart: so their entries and hints
  // lie in other cache lines.
  [[nodiscard]] static std::uint32_t start_of(const Range& range, std::uint32_t cpu) noexcept {
    return static_cast<std::uint32_t>(std::uint64_t{range.blocks} * spread_out(cpu) / kCpuSlots);
  }
  // The bits of a slot's number in the opposite order: 0, 32, 16, 48, 8, ...
  [[nodiscard]] static constexpr std::uint32_t spread_out(std::uint32_t cpu) noexcept {
    static_assert(kCpuSlots == 64);
    std::uint32_t slot = cpu % kCpuSlots;
    slot = (slot & 0b000'111) << 3 | slot >> 3;
    return (slot & 0b001'001) << 2 | (slot & 0b010'010) | (slot & 0b100'100) >> 2;
  }
  [[nodiscard]] Slot& slot_of(std::uint32_t cpu, Mobility mobility) noexcept {
    return slots_[static_cast<unsigned>(mobility) * kCpuSlots + cpu % kCpuSlots];
  }

  // bitmap_engine_steps.hpp
  [[nodiscard]] WEIR_HOT bool take_counts(std::uint64_t n, std::uint64_t leave) noexcept;
  WEIR_HOT void give_counts(std::uint64_t n) noexcept;
  // Applies a change of a pageblock's entry and moves its hint. The entry before it, or nothing when
  // the change is refused.
  template <class Change>
  WEIR_HOT MaybeEntry update(Block block, Change change) noexcept;
  // Returns how many of the n anybody may take now: all, or none where they are withheld.
  [[nodiscard]] WEIR_HOT std::uint32_t add_count(Block block, std::uint32_t n) noexcept;
  WEIR_COLD void move_hint(Block block, BlockEntry before, BlockEntry after) noexcept;
  void forget(Block block, unsigned bucket) noexcept;
  WEIR_HOT void set_bits(Block block, std::uint32_t word, std::uint64_t bits) noexcept;
  WEIR_HOT static void mark_taken(PageIndex page, Order order) noexcept;
  WEIR_HOT static void mark_given(PageIndex page, Order order) noexcept;
  WEIR_HOT static void mark_inside(Page* head, Order order, FrameState state) noexcept;

  // bitmap_engine_take.hpp
  [[nodiscard]] WEIR_HOT PageIndex take_pageblock(std::uint64_t leave, std::uint32_t cpu) noexcept;
  WEIR_HOT void take_frames(PageIndex* out, std::uint32_t n, std::uint32_t cpu,
                            Mobility mobility) noexcept;
  std::uint32_t take_blocks(Order order, PageIndex* out, std::uint32_t n, std::uint64_t leave,
                            std::uint32_t cpu, Mobility mobility) noexcept;
  [[nodiscard]] WEIR_HOT Block own_block(const Slot& slot) const noexcept;
  [[nodiscard]] Block find(Order order, std::uint32_t cpu, Mobility mobility) noexcept;
  [[nodiscard]] WEIR_HOT Block find_whole(Order order, std::uint32_t cpu) noexcept;
  [[nodiscard]] Block find_part(Order order, std::uint32_t cpu, Mobility mobility) noexcept;
  [[nodiscard]] Block find_fallback(Order order, std::uint32_t cpu, Mobility other) noexcept;
  [[nodiscard]] Block find_hinted(Order order, unsigned bucket, std::uint32_t cpu) noexcept;
  [[nodiscard]] Block scan(Order order) const noexcept;
  [[nodiscard]] static bool suits(Block block, Order order) noexcept;
  [[nodiscard]] static std::uint32_t runs_in(Block block, Order order, std::uint32_t most) noexcept;
  std::uint32_t try_take(Block block, Order order, PageIndex* out, std::uint32_t n,
                         Mobility mobility, std::uint32_t& lost) noexcept;
  std::uint32_t take_singles(Block block, PageIndex* out, std::uint32_t n, Slot& slot,
                             Mobility mobility) noexcept;
  std::uint32_t take_runs(Block block, Order order, PageIndex* out, std::uint32_t n,
                          Mobility mobility, std::uint32_t& lost) noexcept;
  [[nodiscard]] PageIndex take_words(Block block, Order order, Mobility mobility,
                                     std::uint32_t& lost) noexcept;
  // Frames that a taker has claimed of the zone and counted out of this pageblock, and not found here.
  // Returns how many of the claim are gone.
  [[nodiscard]] std::uint32_t put_back(Block block, std::uint32_t n) noexcept;
  [[nodiscard]] WEIR_HOT bool take_whole(Block block, Order order) noexcept;
  void keep(Slot& slot, Block block) noexcept;

  // bitmap_engine_give.hpp
  WEIR_COLD static void report_order(Block block, PageIndex page, Order order) noexcept;
  WEIR_COLD static void report_free(Block block, std::uint32_t word, std::uint64_t bits) noexcept;
  [[nodiscard]] Range* range_or_report(PageIndex page) const noexcept;
  WEIR_HOT static void check_order(Block block, PageIndex page, Order order) noexcept;
  WEIR_HOT static void check_bits(Block block, std::uint32_t word, std::uint64_t bits) noexcept;
  WEIR_HOT void give_whole(Block block, PageIndex page, Order order) noexcept;
  // Those that return a number: how many of the frames anybody may take now.
  [[nodiscard]] std::uint32_t give_words(Place place, PageIndex page, Order order) noexcept;
  [[nodiscard]] std::uint32_t give_scattered(Order order, const PageIndex* pages,
                                             std::uint32_t n) noexcept;
  void check_each(Order order, const PageIndex* pages, std::uint32_t n) const noexcept;
  static void report_twice(const PageIndex* pages, std::uint32_t n) noexcept;
  [[nodiscard]] std::uint32_t give_near(Range* range, Order order, const PageIndex* pages,
                                        std::uint32_t n) noexcept;
  [[nodiscard]] std::uint32_t give_apart(Range* range, Order order, const PageIndex* pages,
                                         std::uint32_t n) noexcept;

  // bitmap_engine_isolate.hpp
  [[nodiscard]] Block block_of(PageIndex page) const noexcept;

  // bitmap_engine_life.hpp
  void fill(Range& range) noexcept;
  [[nodiscard]] static std::uint64_t bits_of(Block block, std::uint32_t word) noexcept;
  static std::uint32_t read_bits(Block block, std::uint64_t (&words)[kBitWords]) noexcept;

  template <class Look>
  void for_each_block(Look look) const {
    for (Range* range = ranges(); range != nullptr; range = range->next) {
      for (std::uint32_t number = 0; number < range->blocks; ++number) {
        look(Block{range, number});
      }
    }
  }

  [[nodiscard]] WEIR_HOT Range* ranges() const noexcept {
    return ranges_.load(memory_order_relaxed);
  }
  static void release(Range* ranges) noexcept;

  Atomic<Range*> ranges_{nullptr};  // constant after adopt()
  Range* retired_ = nullptr;        // of the time before the last close(), for whoever is late
  Counts counts_;
  Slot slots_[kMobilities * kCpuSlots];
};

using BitmapEngine = BasicBitmapEngine<Atomic>;
extern template class BasicBitmapEngine<Atomic>;

}  // namespace weir
