// SPDX-License-Identifier: MIT
// zone/buddy_engine.hpp — free lists by order; splits and merges. Owns order, state and links of
// free descriptors. Never locks, never maps: zone/locked_engine calls it under its lock.
//
//   take: first non-empty list from the order upward; the lower half is kept, upper halves go to
//         the head of the lists below, so a run of takes comes out in ascending order
//   give: joins with its buddy (index XOR 2^order) as long as that is free, whole and of this zone;
//         the block goes to the tail when the next larger buddy is free (it will soon be needed
//         for that merge), else to the head
//   trim: a free block of order 9 or 10 bears a mark for each pageblock whose memory is with the system;
//         wholly trimmed blocks stand at the tail and are taken when nothing else is there
//
// That is BuddyMerge::eager. The two others put merging off, as was proposed for Linux (Aaron Lu, "zone
// lock scalability", 2018): single frames that come back wait on a list of their own, look at no buddy
// and are taken again first. merge_some() merges what waits. With `clusters` a whole cluster waits as one:
// its frames are linked before the lock is taken and read after it is free, so that under the lock one
// descriptor is touched for 64 frames.
#pragma once

#include <array>
#include <cstdint>

#include "weir/base/types.hpp"
#include "weir/zone/frame.hpp"
#include "weir/zone/pageblock_view.hpp"

namespace weir {

enum class BuddyMerge : unsigned char { eager, skip, clusters };

class BuddyEngine {
 public:
  BuddyEngine() = default;
  explicit BuddyEngine(BuddyMerge merge) noexcept : merge_(merge) {}

  // Makes `frames` frames from `first` on free; their descriptors are kInner and unused.
  void adopt(PageIndex first, std::uint64_t frames) noexcept;

  // A block of this order or kNoPage. The block is kTaken.
  [[nodiscard]] PageIndex take(Order order) noexcept;
  // Takes a block back. Reports a block that is free already, a tail, or a wrong order.
  void give(PageIndex page, Order order) noexcept;

  // Up to n blocks of one order, ascending where they come from one split. Returns the number.
  std::uint32_t take_many(Order order, PageIndex* out, std::uint32_t n) noexcept;
  void give_many(Order order, const PageIndex* pages, std::uint32_t n) noexcept;

  // Clusters as one, with BuddyMerge::clusters. pack() and unpack() are not under the lock: nobody else
  // knows these frames. pack() names the cluster by its first frame and reports like give().
  [[nodiscard]] bool keeps_clusters() const noexcept { return merge_ == BuddyMerge::clusters; }
  [[nodiscard]] static PageIndex pack(const PageIndex* pages) noexcept;
  static void unpack(PageIndex cluster, PageIndex* out) noexcept;
  void give_cluster(PageIndex cluster) noexcept;
  [[nodiscard]] PageIndex take_cluster() noexcept;  // kNoPage: there is none

  // Takes the pageblock that begins at `page` for trimming, if it is wholly free, merged and not trimmed.
  // Any page of the engine. Until end_trim() it is a taken block of order 9.
  [[nodiscard]] bool begin_trim(PageIndex page) noexcept;
  // It is free again; `done`: as a trimmed one, until any frame of it is taken.
  void end_trim(PageIndex page, bool done) noexcept;
  void forget_trim(PageIndex page) noexcept;
  [[nodiscard]] bool is_trimmed(PageIndex page) const noexcept;
  [[nodiscard]] std::uint64_t trimmed_blocks() const noexcept { return trimmed_; }

  // Merges frames that wait unmerged, the oldest first, until at least n are merged or none is left.
  void merge_some(std::uint32_t n) noexcept;
  [[nodiscard]] std::uint64_t unmerged() const noexcept {
    return unmerged_.count + std::uint64_t{clusters_} * kClusterFrames;
  }

  // What engine.hpp calls isolation, in steps of at most 64 frames or one larger block
  // (buddy_isolation.cpp). All pageblocks from the first to the last isolated one are withheld: gives
  // bring nothing on a list there. Nothing waits unmerged while a pageblock is isolated that could be of it.
  [[nodiscard]] bool begin_isolation(PageIndex block) noexcept;
  // Of the 64 frames from here on, those free: off the lists. Returns how many.
  std::uint32_t withhold(PageIndex from) noexcept;
  void end_isolation(PageIndex block) noexcept;  // then the same 64 by 64:
  std::uint32_t release(PageIndex from) noexcept;
  [[nodiscard]] bool take_isolated(PageIndex block) noexcept;
  [[nodiscard]] bool isolates(PageIndex page) const noexcept {
    return page.value - isolated_from_ < isolated_frames_;
  }
  [[nodiscard]] bool isolates() const noexcept { return isolated_frames_ != 0; }
  // A block out of this pageblock, or kNoPage.
  [[nodiscard]] PageIndex take_in(PageIndex block, Order order) noexcept;
  static void split(PageIndex page, Order order) noexcept;  // of a block that the caller has
  [[nodiscard]] PageblockView pageblock(PageIndex block) const noexcept;

  [[nodiscard]] std::uint64_t free_pages() const noexcept { return free_pages_; }
  // On its list; of order 0 with those that wait unmerged.
  [[nodiscard]] std::uint64_t free_blocks(Order order) const noexcept {
    return lists_[order.value].count + (order.value == 0 ? unmerged() : 0);
  }
  [[nodiscard]] std::uint64_t splits() const noexcept { return splits_; }
  [[nodiscard]] std::uint64_t merges() const noexcept { return merges_; }
  // Descriptors looked at or written by takes and by gives: what makes a hold of the lock long.
  [[nodiscard]] std::uint64_t touched_taking() const noexcept { return touched_taking_; }
  [[nodiscard]] std::uint64_t touched_giving() const noexcept { return touched_giving_; }

  // Walks every list and checks I1..I6; aborts through WEIR_CHECK. Returns the frames found.
  std::uint64_t audit() const noexcept;

 private:
  struct List {
    PageIndex head = kNoPage;
    PageIndex tail = kNoPage;
    std::uint64_t count = 0;
  };

  // Links alone; `touched` counts the descriptors.
  static void link(List& list, PageIndex page, bool at_tail, std::uint64_t& touched) noexcept;
  static void unlink(List& list, PageIndex page, std::uint64_t& touched) noexcept;
  [[nodiscard]] PageIndex cut(PageIndex head, Order from, PageIndex wanted, Order to) noexcept;
  // `trimmed`: a bit for each pageblock of the block, the lower one's first.
  void insert(PageIndex page, Order order, bool at_tail, std::uint64_t& touched,
              unsigned trimmed = 0) noexcept;
  void remove(PageIndex page, Order order, std::uint64_t& touched) noexcept;
  void merge_in(PageIndex page, Order order, unsigned trimmed = 0) noexcept;
  static void check_given(const Page* page, PageIndex index, Order order) noexcept;

  // buddy_trim.cpp
  // The marks of a block whose memory is all with the system; 0 below order 9.
  [[nodiscard]] static constexpr unsigned all_trimmed(Order order) noexcept {
    return order == kMaxOrder ? 0b11U : order == kPageblockOrder ? 0b1U : 0;
  }
  [[nodiscard]] static unsigned trimmed_in(PageIndex page, Order order) noexcept;
  [[nodiscard]] unsigned resident_order(unsigned found) const noexcept;
  [[nodiscard]] static PageIndex resident_half(PageIndex head, Order from, Order to) noexcept;
  [[nodiscard]] PageIndex free_head_of(PageIndex pageblock, Order& order) const noexcept;
  void wait_unmerged(PageIndex page) noexcept;
  void break_cluster() noexcept;
  [[nodiscard]] bool is_free_block(PageIndex page, Order order) const noexcept;

  // I1: free_pages_ == sum over orders of count << order, unmerged() included
  // I2: every block on list k is kFree with order k, aligned to 2^k
  // I3: no two free blocks of one order below the largest are buddies, unless one waits unmerged
  // I4: prev and next of neighbours on a list agree
  // I5: every frame that waits, alone or in a cluster, is kUnmerged and of order 0
  // I6: no free block on a list is inside the isolated pageblocks once these were withheld
  // I7: trimmed_ is the number of marks; `owner` of free blocks of order 9 and 10 holds them and nothing else;
  //     on a list no resident block follows a wholly trimmed one
  BuddyMerge merge_ = BuddyMerge::eager;
  std::array<List, kOrderCount> lists_{};
  List unmerged_{};
  // Clusters that wait, a stack: the first frame's `prev` leads to the next cluster, `next` of each frame
  // to the next of its cluster.
  PageIndex cluster_top_ = kNoPage;
  std::uint32_t clusters_ = 0;
  std::uint64_t free_pages_ = 0;  // on lists or waiting; not those withheld
  std::uint32_t isolated_from_ = 0;
  std::uint32_t isolated_frames_ = 0;  // whole pageblocks
  std::uint64_t trimmed_ = 0;
  std::uint64_t splits_ = 0;
  std::uint64_t merges_ = 0;
  std::uint64_t touched_taking_ = 0;
  std::uint64_t touched_giving_ = 0;
};

}  // namespace weir
