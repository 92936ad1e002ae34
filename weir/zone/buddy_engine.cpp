// SPDX-License-Identifier: MIT
#include "weir/zone/buddy_engine.hpp"

#include <bit>
#include <utility>

#include "weir/base/check.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir {

// Whoever gives a block has it: anything else is reported.
void BuddyEngine::check_given(const Page* page, PageIndex index, Order order) noexcept {
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
}

// ---- lists ----

void BuddyEngine::link(List& list, PageIndex index, bool at_tail, std::uint64_t& touched) noexcept {
  Page* page = page_at(index);
  const PageIndex neighbour = at_tail ? list.tail : list.head;
  page->prev = at_tail ? neighbour : kNoPage;
  page->next = at_tail ? kNoPage : neighbour;
  if (neighbour != kNoPage) {
    (at_tail ? page_at(neighbour)->next : page_at(neighbour)->prev) = index;
  } else {
    (at_tail ? list.head : list.tail) = index;
  }
  (at_tail ? list.tail : list.head) = index;
  touched += neighbour != kNoPage ? 2 : 1;
  ++list.count;
}

void BuddyEngine::unlink(List& list, PageIndex index, std::uint64_t& touched) noexcept {
  Page* page = page_at(index);
  touched += 1U + (page->prev != kNoPage ? 1U : 0U) + (page->next != kNoPage ? 1U : 0U);
  (page->prev != kNoPage ? page_at(page->prev)->next : list.head) = page->next;
  (page->next != kNoPage ? page_at(page->next)->prev : list.tail) = page->prev;
  page->prev = kNoPage;
  page->next = kNoPage;
  --list.count;
}

void BuddyEngine::insert(PageIndex index, Order order, bool at_tail, std::uint64_t& touched,
                         unsigned trimmed) noexcept {
  Page* page = page_at(index);
  if (order >= kPageblockOrder) {
    page->owner = trimmed;
    trimmed_ += static_cast<unsigned>(std::popcount(trimmed));
    at_tail = at_tail || trimmed == all_trimmed(order);
  }
  page->order.store(static_cast<std::uint8_t>(order.value), memory_order_relaxed);
  page->state.store(FrameState::kFree, memory_order_relaxed);
  link(lists_[order.value], index, at_tail, touched);
}

void BuddyEngine::remove(PageIndex index, Order order, std::uint64_t& touched) noexcept {
  trimmed_ -= static_cast<unsigned>(std::popcount(trimmed_in(index, order)));
  unlink(lists_[order.value], index, touched);
  page_at(index)->state.store(FrameState::kInner, memory_order_relaxed);
}

bool BuddyEngine::is_free_block(PageIndex index, Order order) const noexcept {
  const Page* page = page_at(index);
  return page->state.load(memory_order_relaxed) == FrameState::kFree &&
         page->order.load(memory_order_relaxed) == order.value;
}

void BuddyEngine::adopt(PageIndex first, std::uint64_t frames) noexcept {
  std::uint64_t at = first.value;
  const std::uint64_t end = at + frames;
  std::uint64_t touched = 0;
  free_pages_ += frames;
  while (at < end) {
    // The largest block that starts here and ends inside; at the tail, so that takes ascend.
    unsigned order =
        at == 0 ? kMaxOrderValue
                : std::min<unsigned>(static_cast<unsigned>(std::countr_zero(at)), kMaxOrderValue);
    while ((std::uint64_t{1} << order) > end - at) {
      --order;
    }
    insert({static_cast<std::uint32_t>(at)}, Order{order}, true, touched);
    at += std::uint64_t{1} << order;
  }
}

// ---- taking ----

PageIndex BuddyEngine::take(Order order) noexcept {
  if (order.value == 0 && unmerged() != 0) {
    if (unmerged_.count == 0) {
      break_cluster();
    }
    const PageIndex index = unmerged_.head;
    unlink(unmerged_, index, touched_taking_);
    page_at(index)->state.store(FrameState::kTaken, memory_order_relaxed);
    --free_pages_;
    return index;
  }
  unsigned found = order.value;
  while (found < kOrderCount && lists_[found].head == kNoPage) {
    ++found;
  }
  if (found == kOrderCount) {
    return kNoPage;
  }
  if (found == kPageblockOrderValue) {
    found = resident_order(found);
  }
  const PageIndex head = lists_[found].head;
  return cut(head, Order{found}, resident_half(head, Order{found}, order), order);
}

// Takes a free block off its list and splits it until the one that is wanted is left, which is taken.
PageIndex BuddyEngine::cut(PageIndex head, Order from, PageIndex wanted, Order to) noexcept {
  const unsigned trimmed = trimmed_in(head, from);
  remove(head, from, touched_taking_);
  while (from > to) {
    from = Order{from.value - 1};
    ++splits_;
    const PageIndex half{head.value + frames_in(from)};
    const bool upper = wanted.value >= half.value;
    const unsigned of_other = from < kPageblockOrder ? 0 : upper ? trimmed & 1 : trimmed >> 1;
    insert(upper ? head : half, from, false, touched_taking_, of_other);
    head = upper ? half : head;
  }
  free_pages_ -= frames_in(to);
  Page* page = page_at(head);
  page->order.store(static_cast<std::uint8_t>(to.value), memory_order_relaxed);
  page->state.store(FrameState::kTaken, memory_order_relaxed);
  if (to.value > 0) {
    page->word.store(word_of_order(to), memory_order_relaxed);
  }
  return head;
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

// ---- giving ----

void BuddyEngine::give(PageIndex index, Order order) noexcept {
  Page* page = page_at(index);
  check_given(page, index, order);
  if (order.value > 0) {
    page->word.store(word_of_order(Order{0}), memory_order_relaxed);
  }
  if (isolates(index)) [[unlikely]] {
    page->state.store(FrameState::kIsolated, memory_order_relaxed);
    return;
  }
  free_pages_ += frames_in(order);
  if (order.value == 0 && merge_ != BuddyMerge::eager) {
    wait_unmerged(index);
    return;
  }
  merge_in(index, order);
}

// A block that is on no list becomes free, with its buddies where these are.
void BuddyEngine::merge_in(PageIndex index, Order order, unsigned trimmed) noexcept {
  page_at(index)->state.store(FrameState::kInner, memory_order_relaxed);
  while (order < kMaxOrder) {
    const PageIndex buddy = buddy_of(index, order);
    ++touched_giving_;
    if (!is_free_block(buddy, order) || isolates(buddy)) {
      break;  // what is being withheld stays by itself
    }
    if (order == kPageblockOrder) {
      const unsigned of_buddy = trimmed_in(buddy, order);
      trimmed = index < buddy ? trimmed | of_buddy << 1 : of_buddy | trimmed << 1;
    }
    remove(buddy, order, touched_giving_);
    index = {index.value & buddy.value};
    order = Order{order.value + 1};
    ++merges_;
  }
  bool at_tail = false;
  if (order.value + 1 < kMaxOrderValue) {
    const Order above{order.value + 1};
    const PageIndex merged{index.value & buddy_of(index, order).value};
    ++touched_giving_;
    at_tail = is_free_block(buddy_of(merged, above), above);
  }
  insert(index, order, at_tail, touched_giving_, trimmed);
}

void BuddyEngine::give_many(Order order, const PageIndex* pages, std::uint32_t n) noexcept {
  for (std::uint32_t i = 0; i < n; ++i) {
    give(pages[i], order);
  }
}

// ---- merging put off ----

void BuddyEngine::wait_unmerged(PageIndex index) noexcept {
  page_at(index)->state.store(FrameState::kUnmerged, memory_order_relaxed);
  link(unmerged_, index, false, touched_giving_);
}

PageIndex BuddyEngine::pack(const PageIndex* pages) noexcept {
  for (std::uint32_t i = 0; i < kClusterFrames; ++i) {
    Page* page = page_at(pages[i]);
    check_given(page, pages[i], Order{0});
    page->state.store(FrameState::kUnmerged, memory_order_relaxed);
    page->next = i + 1 < kClusterFrames ? pages[i + 1] : kNoPage;
  }
  return pages[0];
}

void BuddyEngine::unpack(PageIndex cluster, PageIndex* out) noexcept {
  for (std::uint32_t i = 0; i < kClusterFrames; ++i) {
    Page* page = page_at(cluster);
    out[i] = cluster;
    cluster = std::exchange(page->next, kNoPage);
    page->prev = kNoPage;
    page->state.store(FrameState::kTaken, memory_order_relaxed);
  }
}

void BuddyEngine::give_cluster(PageIndex cluster) noexcept {
  page_at(cluster)->prev = std::exchange(cluster_top_, cluster);
  ++clusters_;
  free_pages_ += kClusterFrames;
  ++touched_giving_;
}

PageIndex BuddyEngine::take_cluster() noexcept {
  if (clusters_ == 0) {
    return kNoPage;
  }
  const PageIndex cluster = cluster_top_;
  cluster_top_ = page_at(cluster)->prev;
  --clusters_;
  free_pages_ -= kClusterFrames;
  ++touched_taking_;
  return cluster;
}

// The top cluster's frames wait one by one from here on.
void BuddyEngine::break_cluster() noexcept {
  PageIndex frames[kClusterFrames];
  unpack(take_cluster(), frames);
  for (std::uint32_t i = kClusterFrames; i-- > 0;) {
    wait_unmerged(frames[i]);
  }
  free_pages_ += kClusterFrames;
}

void BuddyEngine::merge_some(std::uint32_t n) noexcept {
  for (std::uint32_t merged = 0; merged < n && unmerged() != 0; ++merged) {
    if (unmerged_.count == 0) {
      break_cluster();
    }
    const PageIndex index = unmerged_.tail;
    unlink(unmerged_, index, touched_giving_);
    merge_in(index, Order{0});
  }
}

// ---- audit ----

std::uint64_t BuddyEngine::audit() const noexcept {
  const auto waits = [](PageIndex index) {
    const Page* page = page_at(index);
    return page->state.load(memory_order_relaxed) == FrameState::kUnmerged &&
           page->order.load(memory_order_relaxed) == 0;
  };
  std::uint64_t frames = 0;
  const auto walk = [&](const List& list, auto check) {
    std::uint64_t count = 0;
    PageIndex before = kNoPage;
    for (PageIndex at = list.head; at != kNoPage; at = page_at(at)->next) {
      check(at);
      WEIR_CHECK(page_at(at)->prev == before, "BuddyEngine I4");
      before = at;
      ++count;
      WEIR_CHECK(count <= list.count, "BuddyEngine I1");
    }
    WEIR_CHECK(list.tail == before, "BuddyEngine I4");
    WEIR_CHECK(count == list.count, "BuddyEngine I1");
    return count;
  };
  std::uint64_t marks = 0;
  for (unsigned k = 0; k < kOrderCount; ++k) {
    const Order order{k};
    bool after_trimmed = false;
    frames += walk(lists_[k],
                   [&](PageIndex at) {
                     WEIR_CHECK(is_free_block(at, order), "BuddyEngine I2");
                     WEIR_CHECK(is_aligned(at.value, frames_in(order)), "BuddyEngine I2");
                     WEIR_CHECK(k == kMaxOrderValue || !is_free_block(buddy_of(at, order), order),
                                "BuddyEngine I3");
                     const unsigned trimmed = trimmed_in(at, order);
                     const bool wholly = trimmed != 0 && trimmed == all_trimmed(order);
                     WEIR_CHECK(trimmed <= all_trimmed(order), "BuddyEngine I7");
                     WEIR_CHECK(wholly || !after_trimmed, "BuddyEngine I7");
                     after_trimmed = wholly;
                     marks += static_cast<unsigned>(std::popcount(trimmed));
                   })
              << k;
  }
  frames += walk(unmerged_, [&](PageIndex at) { WEIR_CHECK(waits(at), "BuddyEngine I5"); });
  std::uint32_t clusters = 0;
  for (PageIndex top = cluster_top_; top != kNoPage; top = page_at(top)->prev) {
    WEIR_CHECK(++clusters <= clusters_, "BuddyEngine I1");
    PageIndex at = top;
    for (std::uint32_t i = 0; i < kClusterFrames; ++i) {
      WEIR_CHECK(at != kNoPage && waits(at), "BuddyEngine I5");
      at = page_at(at)->next;
    }
    WEIR_CHECK(at == kNoPage, "BuddyEngine I5");
    frames += kClusterFrames;
  }
  WEIR_CHECK(clusters == clusters_, "BuddyEngine I1");
  WEIR_CHECK(frames == free_pages_, "BuddyEngine I1");
  WEIR_CHECK(marks == trimmed_, "BuddyEngine I7");
  return frames;
}

}  // namespace weir
