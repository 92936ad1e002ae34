// SPDX-License-Identifier: MIT
#include "weir/zone/buddy_engine.hpp"

#include <bit>

#include "weir/base/check.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir {

void BuddyEngine::insert(PageIndex index, Order order, bool at_tail) noexcept {
  List& list = lists_[order.value];
  Page* page = page_at(index);
  page->order.store(static_cast<std::uint8_t>(order.value), memory_order_relaxed);
  page->state.store(FrameState::kFree, memory_order_relaxed);
  if (at_tail) {
    page->prev = list.tail;
    page->next = kNoPage;
    (list.tail != kNoPage ? page_at(list.tail)->next : list.head) = index;
    list.tail = index;
  } else {
    page->prev = kNoPage;
    page->next = list.head;
    (list.head != kNoPage ? page_at(list.head)->prev : list.tail) = index;
    list.head = index;
  }
  ++list.count;
}

void BuddyEngine::remove(PageIndex index, Order order) noexcept {
  List& list = lists_[order.value];
  Page* page = page_at(index);
  (page->prev != kNoPage ? page_at(page->prev)->next : list.head) = page->next;
  (page->next != kNoPage ? page_at(page->next)->prev : list.tail) = page->prev;
  page->prev = kNoPage;
  page->next = kNoPage;
  page->state.store(FrameState::kInner, memory_order_relaxed);
  --list.count;
}

bool BuddyEngine::is_free_block(PageIndex index, Order order) const noexcept {
  const Page* page = page_at(index);
  return page->state.load(memory_order_relaxed) == FrameState::kFree &&
         page->order.load(memory_order_relaxed) == order.value;
}

void BuddyEngine::adopt(PageIndex first, std::uint64_t frames) noexcept {
  std::uint64_t at = first.value;
  const std::uint64_t end = at + frames;
  free_pages_ += frames;
  while (at < end) {
    // The largest block that starts here and ends inside; at the tail, so that takes ascend.
    unsigned order =
        at == 0 ? kMaxOrderValue
                : std::min<unsigned>(static_cast<unsigned>(std::countr_zero(at)), kMaxOrderValue);
    while ((std::uint64_t{1} << order) > end - at) {
      --order;
    }
    insert({static_cast<std::uint32_t>(at)}, Order{order}, true);
    at += std::uint64_t{1} << order;
  }
}

PageIndex BuddyEngine::take(Order order) noexcept {
  unsigned found = order.value;
  while (found < kOrderCount && lists_[found].head == kNoPage) {
    ++found;
  }
  if (found == kOrderCount) {
    return kNoPage;
  }
  const PageIndex index = lists_[found].head;
  remove(index, Order{found});
  while (found > order.value) {
    --found;
    ++splits_;
    insert(advance(index, frames_in(Order{found})), Order{found}, false);
  }
  free_pages_ -= frames_in(order);
  Page* page = page_at(index);
  page->order.store(static_cast<std::uint8_t>(order.value), memory_order_relaxed);
  page->state.store(FrameState::kTaken, memory_order_relaxed);
  if (order.value > 0) {
    // Adding the flag, never storing the word: somebody may be looking at the count.
    page->word.fetch_or(kHighOrderFlag, memory_order_relaxed);
  }
  return index;
}

void BuddyEngine::give(PageIndex index, Order order) noexcept {
  Page* page = page_at(index);
  const FrameState state = page->state.load(memory_order_relaxed);
  if (state != FrameState::kTaken) [[unlikely]] {
    if (state == FrameState::kInner || state == FrameState::kAbsent) {
      report_tail_free(index, "give to zone");
    }
    report_double_free(index, state_name(state));
  }
  if (const unsigned actual = page->order.load(memory_order_relaxed); actual != order.value)
      [[unlikely]] {
    report_wrong_order(index, order, Order{actual});
  }
  if (order.value > 0) {
    page->word.fetch_and(~kHighOrderFlag, memory_order_relaxed);
  }
  page->state.store(FrameState::kInner, memory_order_relaxed);
  free_pages_ += frames_in(order);
  while (order < kMaxOrder) {
    const PageIndex buddy = buddy_of(index, order);
    if (!is_free_block(buddy, order)) {
      break;
    }
    remove(buddy, order);
    index = {index.value & buddy.value};
    order = Order{order.value + 1};
    ++merges_;
  }
  bool at_tail = false;
  if (order.value + 1 < kMaxOrderValue) {
    const Order above{order.value + 1};
    const PageIndex merged{index.value & buddy_of(index, order).value};
    at_tail = is_free_block(buddy_of(merged, above), above);
  }
  insert(index, order, at_tail);
}

std::uint32_t BuddyEngine::take_many(Order order, PageIndex* out, std::uint32_t n) noexcept {
  for (std::uint32_t i = 0; i < n; ++i) {
    out[i] = take(order);
    if (out[i] == kNoPage) {
      return i;
    }
  }
  return n;
}

void BuddyEngine::give_many(Order order, const PageIndex* pages, std::uint32_t n) noexcept {
  for (std::uint32_t i = 0; i < n; ++i) {
    give(pages[i], order);
  }
}

std::uint64_t BuddyEngine::audit() const noexcept {
  std::uint64_t frames = 0;
  for (unsigned k = 0; k < kOrderCount; ++k) {
    const Order order{k};
    std::uint64_t count = 0;
    PageIndex before = kNoPage;
    for (PageIndex at = lists_[k].head; at != kNoPage; at = page_at(at)->next) {
      WEIR_CHECK(is_free_block(at, order), "BuddyEngine I2");
      WEIR_CHECK(is_aligned(at.value, frames_in(order)), "BuddyEngine I2");
      WEIR_CHECK(k == kMaxOrderValue || !is_free_block(buddy_of(at, order), order),
                 "BuddyEngine I3");
      WEIR_CHECK(page_at(at)->prev == before, "BuddyEngine I4");
      before = at;
      ++count;
      WEIR_CHECK(count <= lists_[k].count, "BuddyEngine I1");
    }
    WEIR_CHECK(lists_[k].tail == before, "BuddyEngine I4");
    WEIR_CHECK(count == lists_[k].count, "BuddyEngine I1");
    frames += count << k;
  }
  WEIR_CHECK(frames == free_pages_, "BuddyEngine I1");
  return frames;
}

}  // namespace weir
