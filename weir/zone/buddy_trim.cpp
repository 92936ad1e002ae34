// SPDX-License-Identifier: MIT
// Which free pageblocks of the buddy engine have their memory with the system.
#include "weir/base/bits.hpp"
#include "weir/zone/buddy_engine.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir {

// The marks of a free block; none below order 9, where the word is its last owner's.
unsigned BuddyEngine::trimmed_in(PageIndex index, Order order) noexcept {
  return order < kPageblockOrder ? 0 : static_cast<unsigned>(page_at(index)->owner);
}

// Where the first block of order 9 is trimmed, all of that order are: then a block of order 10 is better of
// which a part is not.
unsigned BuddyEngine::resident_order(unsigned found) const noexcept {
  const PageIndex larger = lists_[kMaxOrderValue].head;
  const bool trimmed = trimmed_in(lists_[found].head, Order{found}) == all_trimmed(Order{found});
  return trimmed && larger != kNoPage && trimmed_in(larger, kMaxOrder) != all_trimmed(kMaxOrder)
             ? kMaxOrderValue
             : found;
}

// The free block of order 9 or 10 that a whole pageblock lies in, or kNoPage.
PageIndex BuddyEngine::free_head_of(PageIndex pageblock, Order& order) const noexcept {
  for (order = kPageblockOrder; order <= kMaxOrder; order = Order{order.value + 1}) {
    const PageIndex head{align_down(pageblock.value, frames_in(order))};
    if (is_free_block(head, order)) {
      return head;
    }
  }
  return kNoPage;
}

// Which half of a block of order 10 serves a smaller request: the upper one if only that is resident.
PageIndex BuddyEngine::resident_half(PageIndex head, Order from, Order to) noexcept {
  const bool upper = from == kMaxOrder && to < from && trimmed_in(head, from) == 0b01;
  return upper ? advance(head, frames_in(kPageblockOrder)) : head;
}

bool BuddyEngine::begin_trim(PageIndex index) noexcept {
  Order order;
  const PageIndex head =
      is_aligned(index.value, frames_in(kPageblockOrder)) ? free_head_of(index, order) : kNoPage;
  if (head == kNoPage || isolates(index) || is_trimmed(index)) {
    return false;
  }
  static_cast<void>(cut(head, order, index, kPageblockOrder));
  return true;
}

void BuddyEngine::end_trim(PageIndex index, bool done) noexcept {
  Page* page = page_at(index);
  check_given(page, index, kPageblockOrder);
  free_pages_ += frames_in(kPageblockOrder);
  page->word.store(word_of_order(Order{0}), memory_order_relaxed);
  merge_in(index, kPageblockOrder, done ? 1 : 0);
}

void BuddyEngine::forget_trim(PageIndex index) noexcept {
  const PageIndex pageblock{align_down(index.value, frames_in(kPageblockOrder))};
  if (!is_trimmed(pageblock)) {
    return;
  }
  Order order;
  const PageIndex head = free_head_of(pageblock, order);
  const unsigned trimmed = trimmed_in(head, order) & ~(pageblock == head ? 1U : 2U);
  remove(head, order, touched_giving_);
  insert(head, order, false, touched_giving_, trimmed);
}

bool BuddyEngine::is_trimmed(PageIndex index) const noexcept {
  const PageIndex pageblock{align_down(index.value, frames_in(kPageblockOrder))};
  Order order;
  const PageIndex head = free_head_of(pageblock, order);
  return head != kNoPage && (trimmed_in(head, order) >> (pageblock == head ? 0 : 1) & 1) != 0;
}

}  // namespace weir
