// SPDX-License-Identifier: MIT
#include "weir/zone/zone.hpp"

#include <algorithm>
#include <memory>

#include "weir/arch/cpu.hpp"
#include "weir/base/check.hpp"
#include "weir/base/failpoint.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir {

// One hold of the zone lock: mark, lock, account, unlock.
class Zone::Hold {
 public:
  explicit Hold(Zone& zone) noexcept : zone_(zone) {
    const bool waited = zone_.lock_.lock_and_tell();
    start_ = cycle_counter();
    zone_.counters_.lock_acquisitions.add(1);
    zone_.counters_.lock_waits.add(waited ? 1 : 0);
    frames_ = zone_.take_in_loose();
  }
  ~Hold() {
    frames_ += zone_.take_in_loose();
    zone_.limits_.settle(zone_.out());
    zone_.counters_.lock_frames.add(frames_);
    zone_.counters_.lock_most_frames.raise_to(frames_);
    zone_.counters_.splits.raise_to(zone_.engine_.splits());
    zone_.counters_.merges.raise_to(zone_.engine_.merges());
    zone_.free_pages_.store(zone_.engine_.free_pages(), memory_order_relaxed);
    zone_.counters_.lock_longest_hold.raise_to(cycle_counter() - start_);
    zone_.lock_.unlock();
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  void took(std::uint64_t frames) noexcept {
    frames_ += frames;
    zone_.counters_.taken.add(frames);
  }
  void gave(std::uint64_t frames) noexcept {
    frames_ += frames;
    zone_.counters_.given.add(frames);
  }

 private:
  ThreadMark mark_;  // stands before the lock is taken, goes after it is free
  Zone& zone_;
  std::uint64_t start_ = 0;
  std::uint64_t frames_ = 0;
};

void Zone::open(PageCount reserve) noexcept {
  engine_ = BuddyEngine{};
  std::construct_at(&counters_);  // the slot may have held another zone before
  managed_ = PageCount{0};
  reserve_ = reserve;
  claimed_ = 0;
  limits_ = ZoneLimits{};
  hard_limit_.store(0, memory_order_relaxed);
  soft_limit_.store(0, memory_order_relaxed);
  watermarks_ = Watermarks{};
  free_pages_.store(0, memory_order_relaxed);
  loose_.store(kNoPage.value, memory_order_relaxed);
}

void Zone::adopt(PageIndex first, PageCount frames) noexcept {
  engine_.adopt(first, frames.value);
  managed_ += frames;
  free_pages_.store(engine_.free_pages(), memory_order_relaxed);
}

void Zone::seal() noexcept { watermarks_ = watermarks_of(managed_); }

void Zone::set_limits(PageCount hard, PageCount soft) noexcept {
  const Hold hold{*this};
  limits_.set(managed_, hard, soft, out());
  hard_limit_.store(hard.value, memory_order_relaxed);
  soft_limit_.store(soft.value, memory_order_relaxed);
}

// For `frames` that leave, or are promised, where `free` were free before.
void Zone::note_served(std::uint64_t frames, std::uint64_t free, bool may_use_reserve,
                       TakeReport* report) noexcept {
  const std::uint64_t before = managed_.value - free + claimed_;
  const bool crosses = limits_.crosses(before, frames);
  if (crosses) {
    limits_.cross();
    counters_.soft_crossings.add(1);
  }
  if (report == nullptr) {
    return;
  }
  if (crosses) {
    report->crossings = report->crossings + 1;
    report->crossing_used = before;
    report->crossing_asked = frames;
  }
  const std::uint64_t needed = frames + stays(false);
  if (may_use_reserve && needed > free) {
    report->from_reserve += std::min(frames, needed - free);
  }
}

void Zone::note_refused(std::uint64_t frames, bool may_use_reserve, TakeReport* report) noexcept {
  const bool by_limit = limits_.exceeds(out(), frames);
  if (report == nullptr || !report->tries_again) {
    counters_.refusals.add(1);
    counters_.limit_refusals.add(by_limit ? 1 : 0);
  }
  if (report != nullptr) {
    report->refused = true;
    report->by_limit = by_limit;
    report->used = out();
    report->usable = static_cast<std::int64_t>(engine_.free_pages()) -
                     static_cast<std::int64_t>(stays(may_use_reserve));
  }
}

[[gnu::always_inline]] inline PageIndex Zone::take_held(Hold& hold, Order order,
                                                        bool may_use_reserve,
                                                        TakeReport* report) noexcept {
  const std::uint64_t free = engine_.free_pages();
  const PageIndex page = engine_.take(order);
  if (page != kNoPage) {
    hold.took(frames_in(order));
    if (may_use_reserve || limits_.crosses(managed_.value - free + claimed_, frames_in(order)))
        [[unlikely]] {
      note_served(frames_in(order), free, may_use_reserve, report);
    }
  }
  return page;
}

PageIndex Zone::take(Order order, bool may_use_reserve, TakeReport* report) noexcept {
  if (thread_is_marked() || fails(Failpoint::zone_take) ||
      (order.value > 0 && fails(Failpoint::zone_take_high))) {
    return kNoPage;
  }
  Hold hold{*this};
  return may_now(frames_in(order), may_use_reserve)
             ? take_held(hold, order, may_use_reserve, report)
             : kNoPage;
}

std::uint32_t Zone::take_many(Order order, PageIndex* out, std::uint32_t n,
                              bool may_use_reserve) noexcept {
  if (fails(Failpoint::zone_take_cluster) ||
      (order.value > 0 && fails(Failpoint::zone_take_high))) {
    return 0;
  }
  Hold hold{*this};
  if (!may_now(std::uint64_t{n} << order.value, may_use_reserve)) {
    return 0;
  }
  const std::uint32_t got = engine_.take_many(order, out, n);
  hold.took(std::uint64_t{got} << order.value);
  return got;
}

PageIndex Zone::take_or_tell(Order order, bool may_use_reserve, const Outside& outside,
                             bool last_try, bool& quiet, TakeReport* report) noexcept {
  Hold hold{*this};
  const bool told_to_fail =
      fails(Failpoint::zone_take) || (order.value > 0 && fails(Failpoint::zone_take_high));
  if (!told_to_fail && allowed(frames_in(order), may_use_reserve)) {
    // What would cross the soft limit must be certain to do so.
    if (limits_.crosses(out(), frames_in(order)) && !last_try && !settled(outside)) {
      quiet = false;
      return kNoPage;
    }
    const PageIndex page = take_held(hold, order, may_use_reserve, report);
    if (page != kNoPage) {
      return page;
    }
  }
  // Whoever brought a page here did so under this lock before.
  quiet = told_to_fail || settled(outside);
  if (quiet || last_try) {
    note_refused(frames_in(order), may_use_reserve, report);
  }
  return kNoPage;
}

bool Zone::claim(std::uint64_t n, bool may_use_reserve, TakeReport* report) noexcept {
  if (fails(Failpoint::zone_take_cluster)) {
    return false;
  }
  const Hold hold{*this};
  const bool may = may_now(n, may_use_reserve);
  if (may) {
    note_served(n, engine_.free_pages(), may_use_reserve, report);
    claimed_ += n;
  }
  return may;
}

bool Zone::claim_or_tell(std::uint64_t n, bool may_use_reserve, const Outside& outside,
                         bool last_try, bool& quiet, TakeReport* report) noexcept {
  const Hold hold{*this};
  const bool told_to_fail = fails(Failpoint::zone_take_cluster);
  if (!told_to_fail && allowed(n, may_use_reserve)) {
    if (limits_.crosses(out(), n) && !last_try && !settled(outside)) {
      quiet = false;
      return false;
    }
    note_served(n, engine_.free_pages(), may_use_reserve, report);
    claimed_ += n;
    return true;
  }
  quiet = told_to_fail || settled(outside);
  if (quiet || last_try) {
    note_refused(n, may_use_reserve, report);
  }
  return false;
}

void Zone::take_claimed(PageIndex* out, std::uint32_t n) noexcept {
  Hold hold{*this};
  const std::uint32_t got = engine_.take_many(Order{0}, out, n);
  WEIR_CHECK(got == n, "Zone: what is claimed is there");
  claimed_ -= n;
  hold.took(n);
}

void Zone::give(PageIndex page, Order order) noexcept {
  if (thread_is_marked()) [[unlikely]] {
    push_loose(page);
    return;
  }
  Hold hold{*this};
  engine_.give(page, order);
  hold.gave(frames_in(order));
}

void Zone::give_many(const PageIndex* pages, std::uint32_t n, Order order) noexcept {
  Hold hold{*this};
  engine_.give_many(order, pages, n);
  hold.gave(std::uint64_t{n} << order.value);
}

void Zone::push_loose(PageIndex page) noexcept {
  std::uint32_t head = loose_.load(memory_order_relaxed);
  do {
    page_at(page)->next = {head};
    // pairs: take_in_loose acquire
  } while (
      !loose_.compare_exchange_weak(head, page.value, memory_order_release, memory_order_relaxed));
}

std::uint32_t Zone::take_in_loose() noexcept {
  if (!has_loose()) [[likely]] {
    return 0;
  }
  std::uint32_t frames = 0;
  // pairs: push_loose release
  PageIndex at{loose_.exchange(kNoPage.value, memory_order_acquire)};
  while (at != kNoPage) {
    const PageIndex next = page_at(at)->next;
    const Order order = order_of(page_at(at));
    engine_.give(at, order);
    frames += frames_in(order);
    at = next;
  }
  counters_.given.add(frames);
  return frames;
}

std::uint64_t Zone::free_blocks(Order order) noexcept {
  const Hold hold{*this};
  return engine_.free_blocks(order);
}

std::uint64_t Zone::exact_free_pages() noexcept {
  const Hold hold{*this};
  return engine_.free_pages();
}

std::uint64_t Zone::audit() noexcept {
  const Hold hold{*this};
  return engine_.audit();
}

}  // namespace weir
