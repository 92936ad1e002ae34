// SPDX-License-Identifier: MIT
// zone/buddy_engine.hpp — free lists by order; splits and merges. Owns order, state and links of
// free descriptors. Never locks, never maps: the zone calls it under its lock.
//
//   take: first non-empty list from the order upward; the lower half is kept, upper halves go to
//         the head of the lists below, so a run of takes comes out in ascending order
//   give: joins with its buddy (index XOR 2^order) as long as that is free, whole and of this zone;
//         the block goes to the tail when the next larger buddy is free (it will soon be needed
//         for that merge), else to the head
#pragma once

#include <array>
#include <cstdint>

#include "weir/base/types.hpp"
#include "weir/zone/frame.hpp"

namespace weir {

class BuddyEngine {
 public:
  // Makes `frames` frames from `first` on free; their descriptors are kInner and unused.
  void adopt(PageIndex first, std::uint64_t frames) noexcept;

  // A block of this order or kNoPage. The block is kTaken.
  [[nodiscard]] PageIndex take(Order order) noexcept;
  // Takes a block back. Reports a block that is free already, a tail, or a wrong order.
  void give(PageIndex page, Order order) noexcept;

  // Up to n blocks of one order, ascending where they come from one split. Returns the number.
  std::uint32_t take_many(Order order, PageIndex* out, std::uint32_t n) noexcept;
  void give_many(Order order, const PageIndex* pages, std::uint32_t n) noexcept;

  [[nodiscard]] std::uint64_t free_pages() const noexcept { return free_pages_; }
  [[nodiscard]] std::uint64_t free_blocks(Order order) const noexcept {
    return lists_[order.value].count;
  }
  [[nodiscard]] std::uint64_t splits() const noexcept { return splits_; }
  [[nodiscard]] std::uint64_t merges() const noexcept { return merges_; }

  // Walks every list and checks I1..I4; aborts through WEIR_CHECK. Returns the frames found.
  std::uint64_t audit() const noexcept;

 private:
  struct List {
    PageIndex head = kNoPage;
    PageIndex tail = kNoPage;
    std::uint64_t count = 0;
  };

  void insert(PageIndex page, Order order, bool at_tail) noexcept;
  void remove(PageIndex page, Order order) noexcept;
  [[nodiscard]] bool is_free_block(PageIndex page, Order order) const noexcept;

  // I1: free_pages_ == sum over orders of count << order
  // I2: every block on list k is kFree with order k, aligned to 2^k
  // I3: no two free blocks of one order below the largest are buddies
  // I4: prev and next of neighbours on a list agree
  std::array<List, kOrderCount> lists_{};
  std::uint64_t free_pages_ = 0;
  std::uint64_t splits_ = 0;
  std::uint64_t merges_ = 0;
};

}  // namespace weir
