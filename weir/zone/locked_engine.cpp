// SPDX-License-Identifier: MIT
#include "weir/zone/locked_engine.hpp"

#include "weir/arch/cpu.hpp"
#include "weir/base/check.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir {

// One hold of the lock: mark, lock, account, unlock.
class LockedEngine::Hold {
 public:
  explicit Hold(LockedEngine& engine) noexcept : engine_(engine) {
    const bool waited = engine_.lock_.lock_and_tell();
    start_ = cycle_counter();
    engine_.counters_.lock_acquisitions.add(1);
    engine_.counters_.lock_waits.add(waited ? 1 : 0);
    frames_ = engine_.take_in_loose();
  }
  ~Hold() {
    frames_ += engine_.take_in_loose();
    ZoneCounters& counters = engine_.counters_;
    const BuddyEngine& buddy = engine_.buddy_;
    counters.lock_frames.add(frames_);
    counters.lock_most_frames.raise_to(frames_);
    counters.splits.raise_to(buddy.splits());
    counters.merges.raise_to(buddy.merges());
    counters.descriptors_taking.raise_to(buddy.touched_taking());
    counters.descriptors_giving.raise_to(buddy.touched_giving());
    engine_.free_pages_.store(buddy.free_pages() - engine_.claimed_, memory_order_relaxed);
    counters.lock_longest_hold.raise_to(cycle_counter() - start_);
    engine_.lock_.unlock();
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  void took(std::uint64_t frames) noexcept {
    frames_ += frames;
    engine_.counters_.taken.add(frames);
  }
  void gave(std::uint64_t frames) noexcept {
    frames_ += frames;
    engine_.counters_.given.add(frames);
  }
  void merged(std::uint64_t frames) noexcept { frames_ += frames; }

 private:
  ThreadMark mark_;  // stands before the lock is taken, goes after it is free
  LockedEngine& engine_;
  std::uint64_t start_ = 0;
  std::uint64_t frames_ = 0;
};

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

PageIndex LockedEngine::take(Order order, std::uint64_t leave, std::uint32_t) noexcept {
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
    hold.merged(kClusterFrames);
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
  if (as_one) {
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
    hold.merged(step);
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
