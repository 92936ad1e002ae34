// SPDX-License-Identifier: MIT
#include "weir/percpu/cached_zone.hpp"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "weir/arch/cpu.hpp"
#include "weir/base/check.hpp"
#include "weir/percpu/zone_registry.hpp"

namespace weir {

Error CachedZone::open(std::uint16_t id, Source* source, const std::vector<Extent>& extents,
                       const Options& options, std::uint32_t lists, std::uint32_t cpus) {
  // A thread that gave back the last page of the zone that was here before may be on its way out
  // through maybe_leave_shortage().
  const ThreadMark mark;
  const LockGuard guard{shortage_lock_};
  PageCount managed{0};
  pieces_.clear();
  pieces_.reserve(extents.size());
  const auto undo = [this] {
    while (!pieces_.empty()) {
      const Piece& piece = pieces_.back();
      frame_table::release_range(piece.first, piece.extent.base, piece.extent.size);
      pieces_.pop_back();
    }
  };
  for (const Extent& extent : extents) {
    Result<PageIndex> first = frame_table::reserve_range(extent.base, extent.size, id);
    if (!first) {
      undo();
      return first.error();
    }
    pieces_.push_back({extent, *first});
    managed += whole_pages(extent.size);
  }
  const std::uint32_t sharers = cpus != 0 ? cpus : lists;
  const std::uint32_t high = options.lists ? list_high(managed, sharers, options.high.value) : 0;
  if (const Error error =
          lists_.open(managed, lists, high, options.free_order0 == FreeOrder0::list, sharers);
      error.failed()) {
    undo();
    return error;
  }
  zone_.open(options.reserve);
  for (const Piece& piece : pieces_) {
    zone_.adopt(piece.first, whole_pages(piece.extent.size));
  }
  zone_.seal();
  id_ = id;
  source_ = source;
  free_order0_ = options.free_order0;
  // Above what ordinary requests may not take anyway.
  leave_above_.store(
      options.reserve.value + std::min(zone_.watermarks().low.value, managed.value / 8),
      memory_order_relaxed);
  waiters_.store(0, memory_order_relaxed);
  retired_.store(false, memory_order_relaxed);
  detached_.store(false, memory_order_relaxed);
  stopped_.store(!lists_.start(), memory_order_relaxed);
  range_.store(whole_pages(pieces_.front().extent.size).value << 32 | pieces_.front().first.value,
               memory_order_relaxed);
  return kOk;
}

Hand* CachedZone::pick_up() noexcept {
  // Counted before anything can be put in: whoever finds the count at 0 under the zone lock, with
  // all lists stopped, knows that no hand can be filled any more without that lock.
  hands_in_use_.fetch_add(1, memory_order_relaxed);
  for (Hand& hand : hands_) {
    // pairs: put_down release
    if (!hand.busy.load(memory_order_relaxed) && !hand.busy.exchange(true, memory_order_acquire)) {
      return &hand;
    }
  }
  hands_in_use_.fetch_sub(1, memory_order_relaxed);
  return nullptr;
}

void CachedZone::put_down(Hand& hand) noexcept {
  WEIR_ASSERT(hand.empty(), "CachedZone: a hand is put down empty");
  hand.busy.store(false, memory_order_release);      // pairs: pick_up acquire
  hands_in_use_.fetch_sub(1, memory_order_release);  // pairs: Zone::take_or_tell acquire
}

PageIndex CachedZone::alloc_slow(Order order, TakeRights rights, PageIndex why) noexcept {
  if (thread_is_marked() || detached()) {
    return kNoPage;  // in a signal handler that interrupted a locked section; or not ours
  }
  const unsigned list = kListOfOrder[order.value];
  if (why == kNoPage && list != kNoList && lists_.capacity(list) != 0 && !in_shortage()) {
    const ThreadMark mark;
    if (Hand* hand = pick_up()) {
      PageIndex page = kNoPage;
      // Without the right to the reserve: what one request may take, a list may not hold for others.
      zone_.take_into(*hand, order, blocks_per_move(order.value, lists_.cluster()), false);
      if (!hand->empty()) {
        page = hand->pop();
        if (!hand->empty()) {
          lists_.refill_from(*hand, list);
        }
        if (!hand->empty()) {
          zone_.give_hand(*hand);
        }
      }
      put_down(*hand);
      if (page != kNoPage) {
        return page;
      }
    }
  }
  if (rights.no_wait) {
    // What others have on their lists or in hand is not looked for.
    bool none_in_hand = false;
    return zone_.take_or_tell(order, rights.reserve, hands_in_use_, true, none_in_hand);
  }
  const PageIndex page = zone_.take(order, rights.reserve);
  if (page != kNoPage) {
    maybe_leave_shortage();
    return page;
  }
  return alloc_in_shortage(order, rights);
}

PageIndex CachedZone::alloc_in_shortage(Order order, TakeRights rights) noexcept {
  if (lists_.caller_inside()) {
    return kNoPage;  // a signal handler would wait for what it has interrupted
  }
  PageIndex page = kNoPage;
  waiters_.fetch_add(1, memory_order_relaxed);
  for (std::uint32_t spin = 0;; ++spin) {
    {
      const ThreadMark mark;
      const LockGuard guard{shortage_lock_};
      enter_shortage();
    }
    bool none_in_hand = false;
    page = zone_.take_or_tell(order, rights.reserve, hands_in_use_, false, none_in_hand);
    if (page != kNoPage || none_in_hand) {
      break;
    }
    // Somebody carries pages: a few hundred instructions, unless it lost its CPU.
    if (spin < 64) {
      cpu_pause();
    } else {
      ::sched_yield();
    }
  }
  waiters_.fetch_sub(1, memory_order_relaxed);
  maybe_leave_shortage();
  return page;
}

void CachedZone::harvest(std::uint32_t cpu, bool stop) noexcept {
  // What is there now and no more: a running list may fill as fast as it is emptied.
  std::uint64_t left = stop ? UINT64_MAX : lists_.cached(cpu);
  while (left != 0) {
    const bool outside = lists_.harvest(cpu, stop, harvest_hand_);
    WEIR_ASSERT(outside, "CachedZone: a drainer is not inside a list");
    if (!outside || harvest_hand_.empty()) {
      return;
    }
    const std::uint64_t frames = harvest_hand_.frame_count();
    zone_.give_hand(harvest_hand_);
    left -= std::min(left, frames);
  }
}

void CachedZone::enter_shortage() noexcept {
  if (in_shortage()) {
    return;
  }
  stopped_.store(true, memory_order_relaxed);  // slow paths stop refilling
  for (std::uint32_t cpu = 0; cpu < lists_.count(); ++cpu) {
    harvest(cpu, true);
  }
  zone_.counters().shortages.add(1);
}

void CachedZone::maybe_leave_shortage() noexcept {
  const auto may_leave = [this] {
    return in_shortage() && waiters_.load(memory_order_relaxed) == 0 &&
           zone_.free_pages() >= leave_above_.load(memory_order_relaxed) &&
           !retired_.load(memory_order_relaxed) && !detached();
  };
  if (!may_leave() || thread_is_marked()) {
    return;
  }
  const ThreadMark mark;
  if (!shortage_lock_.try_lock()) {
    return;  // whoever holds it will come by here as well
  }
  if (may_leave()) {
    stopped_.store(!lists_.start(), memory_order_relaxed);
  }
  shortage_lock_.unlock();
}

void CachedZone::free_to_engine(PageIndex page, Order order) noexcept {
  if (detached()) {
    return;
  }
  zone_.give(page, order);
  maybe_leave_shortage();
  maybe_close();
}

void CachedZone::free_slow(PageIndex page, Order order) noexcept {
  if (detached()) {
    return;
  }
  const unsigned list = kListOfOrder[order.value];
  bool kept = false;
  if (!thread_is_marked() && list != kNoList && lists_.capacity(list) != 0 && !in_shortage() &&
      (list != 0 || free_order0_ == FreeOrder0::list)) {
    const ThreadMark mark;
    if (Hand* hand = pick_up()) {
      lists_.spill_into(*hand, list, blocks_per_move(order.value, lists_.cluster()));
      kept = lists_.push(list, page);
      if (!hand->empty()) {
        zone_.give_hand(*hand);
      }
      put_down(*hand);
    }
  }
  if (kept) {
    maybe_close();  // what was in the hand may have been the last to come home
  } else {
    free_to_engine(page, order);
  }
}

std::size_t CachedZone::alloc_bulk(PageIndex* out, std::size_t n, TakeRights rights) noexcept {
  const std::uint32_t cluster = lists_.cluster();
  std::size_t got = 0;
  while (got < n) {
    const auto want = static_cast<std::uint32_t>(std::min<std::size_t>(n - got, kListCapacityMax));
    got += lists_.pop_batch(out + got, want);
    if (got == n) {
      break;
    }
    if (n - got >= cluster && !thread_is_marked() && !detached()) {
      // A whole cluster need not pass through the list.
      const std::uint32_t taken = zone_.take_many(out + got, cluster, rights.reserve);
      got += taken;
      if (taken != 0) {
        continue;
      }
    }
    // The first page of a refill, or the last resort.
    const PageIndex page = alloc_slow(Order{0}, rights, kNoPage);
    if (!is_page(page)) {
      break;
    }
    out[got++] = page;
  }
  return got;
}

void CachedZone::free_bulk(const PageIndex* pages, std::size_t n) noexcept {
  while (n != 0) {
    std::uint32_t done = lists_.push_batch(
        pages, static_cast<std::uint32_t>(std::min<std::size_t>(n, kListCapacityMax)));
    pages += done;
    n -= done;
    if (n == 0) {
      return;
    }
    if (thread_is_marked() || detached()) {
      free_slow(*pages++, Order{0});
      --n;
      continue;
    }
    done = 0;
    if (lists_.capacity(0) != 0 && !in_shortage() && free_order0_ == FreeOrder0::list) {
      const ThreadMark mark;
      if (Hand* hand = pick_up()) {
        lists_.spill_into(*hand, 0, lists_.cluster());
        if (!hand->empty()) {
          done = lists_.push_batch(
              pages, static_cast<std::uint32_t>(std::min<std::size_t>(n, hand->size())));
          zone_.give_hand(*hand);
        }
        put_down(*hand);
      }
    }
    if (done == 0) {
      done = static_cast<std::uint32_t>(std::min<std::size_t>(n, lists_.cluster()));
      zone_.give_many(pages, done, Order{0});
      maybe_leave_shortage();
    }
    pages += done;
    n -= done;
  }
  maybe_close();
}

Error CachedZone::drain(CpuId cpu) noexcept {
  if (cpu.value >= lists_.count()) {
    return {Errc::too_large, "number of a CPU", 0};
  }
  if (thread_is_marked() || lists_.caller_inside()) {
    return {Errc::would_block, "drain inside a signal handler", 0};
  }
  const ThreadMark mark;
  const LockGuard guard{shortage_lock_};
  zone_.counters().drains.add(1);
  if (!in_shortage()) {
    harvest(cpu.value, false);
  }
  return kOk;
}

Error CachedZone::drain_all() noexcept {
  for (std::uint32_t cpu = 0; cpu < lists_.count(); ++cpu) {
    if (const Error error = drain(CpuId{cpu}); error.failed()) {
      return error;
    }
  }
  return kOk;
}

std::uint64_t CachedZone::retire() noexcept {
  std::uint64_t out = 0;
  {
    const ThreadMark mark;
    const LockGuard guard{shortage_lock_};
    enter_shortage();
    out = zone_.managed().value - zone_.exact_free_pages();
    retired_.store(true, memory_order_relaxed);
  }
  if (!detached()) {
    maybe_close();
  }
  return out;
}

void CachedZone::close_if_home() noexcept { maybe_close(); }

void CachedZone::maybe_close() noexcept {
  if (!retired_.load(memory_order_relaxed) || thread_is_marked()) [[likely]] {
    return;
  }
  {
    const ThreadMark mark;
    const LockGuard guard{shortage_lock_};
    // Retired and all home is seen by exactly one: close() ends the retirement.
    if (!retired_.load(memory_order_relaxed) || zone_.exact_free_pages() != zone_.managed().value) {
      return;
    }
    close();
  }
  zone_registry::forget(*this);
}

void CachedZone::close() noexcept {
  range_.store(0, memory_order_relaxed);
  for (const Piece& piece : pieces_) {
    frame_table::release_range(piece.first, piece.extent.base, piece.extent.size);
    if (source_ != nullptr) {
      source_->give_back(piece.extent);
    }
  }
  pieces_.clear();
  delete std::exchange(source_, nullptr);
  lists_.close();
  retired_.store(false, memory_order_relaxed);
}

CachedZone::Census CachedZone::census() noexcept {
  Census census;
  census.managed = zone_.managed().value;
  for (std::uint32_t cpu = 0; cpu < lists_.count(); ++cpu) {
    census.lists += lists_.cached(cpu);
  }
  for (const Hand& hand : hands_) {
    census.hands += hand.frame_count();
  }
  census.engine = zone_.exact_free_pages();
  return census;
}

PercpuCounterValues CachedZone::percpu_counters() const noexcept {
  PercpuCounterValues sum;
  for (std::uint32_t cpu = 0; cpu < lists_.count(); ++cpu) {
    sum += lists_.counters(cpu);
  }
  return sum;
}

bool CachedZone::try_lock_for_fork() noexcept {
  if (!shortage_lock_.try_lock()) {
    return false;
  }
  if (!lists_.try_lock_for_fork()) {
    shortage_lock_.unlock();
    return false;
  }
  zone_.lock_for_fork();  // its holder is marked and waits for nothing
  return true;
}

void CachedZone::unlock_in_parent() noexcept {
  zone_.unlock_after_fork();
  lists_.unlock_after_fork();
  shortage_lock_.unlock();
}

void CachedZone::unlock_in_child() noexcept {
  unlock_in_parent();
  // Threads that carried pages do not exist here.
  for (Hand& hand : hands_) {
    if (!hand.empty()) {
      zone_.give_hand(hand);
    }
    hand.busy.store(false, memory_order_relaxed);
  }
  hands_in_use_.store(0, memory_order_relaxed);
  waiters_.store(0, memory_order_relaxed);
  const bool shared = std::any_of(pieces_.begin(), pieces_.end(), [](const Piece& piece) {
    return piece.extent.source == SourceKind::memfd;
  });
  if (shared) {
    // The frames are the parent's as well, the books are not: hands off.
    enter_shortage();
    detached_.store(true, memory_order_relaxed);
    static bool told = false;
    notice_once(told, "zones on shared memory are not usable in a forked child");
  }
}

}  // namespace weir
