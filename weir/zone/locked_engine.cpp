// SPDX-License-Identifier: MIT
#include "weir/zone/locked_engine.hpp"

#include "weir/base/bits.hpp"
#include "weir/base/check.hpp"
#include "weir/zone/frame_table.hpp"
#include "weir/zone/locked_hold.hpp"

namespace weir {

void LockedEngine::open(BuddyMerge merge) noexcept {
  buddy_ = BuddyEngine{merge};
  claimed_ = 0;
  free_pages_.store(0, memory_order_relaxed);
  loose_.store(kNoPage.value, memory_order_relaxed);
}

Error LockedEngine::adopt(PageIndex first, PageCount frames) noexcept {
  buddy_.adopt(first, frames.value);
  free_pages_.store(buddy_.free_pages(), memory_order_relaxed);
  return kOk;
}

// ---- claims ----

bool LockedEngine::claim(std::uint64_t n, std::uint64_t leave) noexcept {
  const Hold hold{*this};
  const bool may = allowed(n, leave);
  claimed_ += may ? n : 0;
  return may;
}

void LockedEngine::unclaim(std::uint64_t n) noexcept {
  const Hold hold{*this};
  claimed_ -= n;
}

void LockedEngine::take_claimed(PageIndex* out, std::uint32_t n, std::uint32_t) noexcept {
  Hold hold{*this};
  const std::uint32_t got = buddy_.take_many(Order{0}, out, n);
  WEIR_CHECK(got == n, "LockedEngine: what is claimed is there");
  claimed_ -= n;
  hold.took(n);
}

// ---- taking ----

PageIndex LockedEngine::take(Order order, std::uint64_t leave, std::uint32_t, Mobility) noexcept {
  if (thread_is_marked()) {
    return kNoPage;
  }
  for (;;) {
    Hold hold{*this};
    if (!allowed(frames_in(order), leave)) {
      return kNoPage;
    }
    const PageIndex page = buddy_.take(order);
    if (page != kNoPage) {
      hold.took(frames_in(order));
      return page;
    }
    if (buddy_.unmerged() == 0) {
      return kNoPage;
    }
    buddy_.merge_some(kClusterFrames);
    hold.touched(kClusterFrames);
  }
}

std::uint32_t LockedEngine::take_many(Order order, PageIndex* out, std::uint32_t n,
                                      std::uint64_t leave, std::uint32_t) noexcept {
  PageIndex cluster = kNoPage;
  {
    Hold hold{*this};
    if (!allowed(std::uint64_t{n} << order.value, leave)) {
      return 0;
    }
    if (order.value == 0 && n == kClusterFrames && buddy_.keeps_clusters()) {
      cluster = buddy_.take_cluster();
    }
    if (cluster == kNoPage) {
      n = buddy_.take_many(order, out, n);
    }
    hold.took(std::uint64_t{n} << order.value);
  }
  if (cluster != kNoPage) {
    BuddyEngine::unpack(cluster, out);
  }
  return n;
}

// ---- giving ----

void LockedEngine::give(PageIndex page, Order order) noexcept {
  if (thread_is_marked()) [[unlikely]] {
    push_loose(page);
    return;
  }
  Hold hold{*this};
  buddy_.give(page, order);
  hold.gave(frames_in(order));
}

void LockedEngine::give_many(Order order, const PageIndex* pages, std::uint32_t n) noexcept {
  const bool as_one = order.value == 0 && n == kClusterFrames && buddy_.keeps_clusters();
  const PageIndex cluster = as_one ? BuddyEngine::pack(pages) : kNoPage;
  Hold hold{*this};
  if (as_one && buddy_.isolates()) {  // some of them may have to be withheld
    PageIndex one_by_one[kClusterFrames];
    BuddyEngine::unpack(cluster, one_by_one);
    buddy_.give_many(order, one_by_one, n);
  } else if (as_one) {
    buddy_.give_cluster(cluster);
  } else {
    buddy_.give_many(order, pages, n);
  }
  hold.gave(std::uint64_t{n} << order.value);
}

void LockedEngine::merge_all() noexcept {
  // No more than wait now: others may go on giving.
  for (std::uint64_t left = ~std::uint64_t{0}; left != 0;) {
    Hold hold{*this};
    left = left < buddy_.unmerged() ? left : buddy_.unmerged();
    const std::uint64_t step = left < kClusterFrames ? left : kClusterFrames;
    buddy_.merge_some(static_cast<std::uint32_t>(step));
    hold.touched(step);
    left -= step;
  }
}

void LockedEngine::push_loose(PageIndex page) noexcept {
  std::uint32_t head = loose_.load(memory_order_relaxed);
  do {
    page_at(page)->next = {head};
    // pairs: take_in_loose acquire
  } while (
      !loose_.compare_exchange_weak(head, page.value, memory_order_release, memory_order_relaxed));
}

std::uint32_t LockedEngine::take_in_loose() noexcept {
  if (!has_loose()) [[likely]] {
    return 0;
  }
  std::uint32_t frames = 0;
  // pairs: push_loose release
  PageIndex at{loose_.exchange(kNoPage.value, memory_order_acquire)};
  while (at != kNoPage) {
    const PageIndex next = page_at(at)->next;
    const Order order = order_of(page_at(at));
    buddy_.give(at, order);
    frames += frames_in(order);
    at = next;
  }
  counters_.given.add(frames);
  return frames;
}

// ---- trimming ----

bool LockedEngine::begin_trim(PageIndex page, std::uint64_t leave) noexcept {
  // A look without the lock first: most pageblocks of a busy zone are not free.
  const auto looks_free = [](PageIndex head, Order order) {
    return page_at(head)->state.load(memory_order_relaxed) == FrameState::kFree &&
           order_of(page_at(head)) == order;
  };
  if (!looks_free(page, kPageblockOrder) &&
      !looks_free({align_down(page.value, kMaxBlockFrames)}, kMaxOrder)) {
    return false;
  }
  Hold hold{*this};
  if (!allowed(frames_in(kPageblockOrder), leave) || !buddy_.begin_trim(page)) {
    return false;
  }
  hold.touched(frames_in(kPageblockOrder));
  return true;
}

void LockedEngine::end_trim(PageIndex page, bool done) noexcept {
  Hold hold{*this};
  buddy_.end_trim(page, done);
  hold.touched(frames_in(kPageblockOrder));
}

void LockedEngine::forget_trim(PageIndex page) noexcept {
  const Hold hold{*this};
  buddy_.forget_trim(page);
}

bool LockedEngine::is_trimmed(PageIndex page) const noexcept {
  const ThreadMark mark;
  const LockGuard guard{lock_};
  return buddy_.is_trimmed(page);
}

std::uint64_t LockedEngine::trimmed_blocks() const noexcept {
  const ThreadMark mark;
  const LockGuard guard{lock_};
  return buddy_.trimmed_blocks();
}

// ---- looking ----

std::uint64_t LockedEngine::exact_free_pages() noexcept {
  const Hold hold{*this};
  return buddy_.free_pages() - claimed_;
}

std::uint64_t LockedEngine::free_blocks(Order order) const noexcept {
  const ThreadMark mark;
  const LockGuard guard{lock_};
  return buddy_.free_blocks(order);
}

std::uint64_t LockedEngine::audit() const noexcept {
  const ThreadMark mark;
  const LockGuard guard{lock_};
  return buddy_.audit();
}

}  // namespace weir
