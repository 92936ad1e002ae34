// SPDX-License-Identifier: MIT
#include "weir/percpu/cached_zone.hpp"

#include <algorithm>

#include "weir/os/clock.hpp"
#include "weir/percpu/carry.hpp"

namespace weir {
std::uint64_t CachedZone::carriers() const noexcept {
  // The other half of Carry's order: a stop, then this look; there a count, then a look at the stop.
  std::uint64_t sum = lists_.common_block().carriers.load(memory_order_seq_cst);  // pairs: Carry
  lists_.for_each_started([&](CpuId cpu) {
    sum += lists_.block(cpu.value).carriers.load(memory_order_seq_cst);  // pairs: Carry seq_cst
  });
  return sum;
}

// A carrier that was under way when the lists were stopped may have left something in the depot. It is
// counted no more, so the zone may close meanwhile: nothing but the slot is looked at before the lock.
void CachedZone::settle() noexcept {
  // Marked by the carrier alone: no lock is held. Whoever has the lock now looks into the depot itself,
  // or is followed by one who does before anybody is refused.
  if (t_marked_sections != 1 || depot_.empty() || !shortage_lock_.try_lock()) {
    return;
  }
  if (in_shortage() && !depot_.empty()) {
    drain_depot();
  }
  shortage_lock_.unlock();
}

bool CachedZone::may_list(unsigned list) const noexcept {
  return list != kNoList && lists_.capacity(list) != 0 && !in_shortage();
}

std::uint32_t CachedZone::shard_here() const noexcept {
  const CpuId cpu = lists_.cpu_here();
  return cpu == kNoCpu ? 0 : cpu.value / 8 % depot_.shards();
}

void CachedZone::start_here() noexcept {
  if (lists_.started_here() || thread_is_marked()) {
    return;
  }
  const ThreadMark mark;
  if (!shortage_lock_.try_lock()) {
    return;  // the next one who comes by
  }
  const CpuId cpu = lists_.cpu_here();
  if (cpu != kNoCpu && !lists_.is_started(cpu) && !in_shortage()) {
    const std::uint64_t share = lists_.frames_at_start();
    const std::uint64_t depot = std::uint64_t{depot_.capacity()} * lists_.cluster();
    if (expected_ != 0) {
      --expected_;
      lists_.start(cpu);
    } else if (granted_ + share + depot <= limits_.total) {
      granted_ += share;
      lists_.start(cpu);
    }
  }
  shortage_lock_.unlock();
}

// ---- taking ----

PageIndex CachedZone::alloc_slow(Order order, TakeRights rights) noexcept {
  if (detached()) {
    return kNoPage;
  }
  const unsigned list = kListOfOrder[order.value];
  if (may_list(list)) {
    start_here();
    if (Page* page = lists_.pop_slow(list)) {
      return index_of(page);
    }
    const PageIndex page = refill(list);
    if (is_page(page)) {
      watch_low();
      return page;
    }
  }
  if (thread_is_marked()) {
    // In a signal handler that interrupted a marked section: what can be had without a lock.
    return zone_.lock_free() ? zone_.take(order, rights.reserve, rights.report) : kNoPage;
  }
  if (rights.no_wait) {
    // What others have on their lists or in hand is not looked for.
    bool quiet = false;
    const PageIndex page =
        zone_.take_or_tell(order, rights.reserve, Quiet{*this}, true, quiet, rights.report);
    if (is_page(page)) {
      maybe_leave_shortage();
    }
    return page;
  }
  const PageIndex page = zone_.take(order, rights.reserve, rights.report);
  if (is_page(page)) {
    maybe_leave_shortage();
    return page;
  }
  return order.value == 0 ? alloc_in_shortage(order, rights) : alloc_merged(order, rights);
}

PageIndex CachedZone::alloc_movable(Order order, TakeRights rights) noexcept {
  if (detached()) {
    return kNoPage;
  }
  const PageIndex page = zone_.take(order, rights.reserve, rights.report, Mobility::movable);
  if (is_page(page)) {
    watch_low();
    maybe_leave_shortage();
    return page;
  }
  return alloc(order, rights);
}

// A larger block that the engine does not have as it is.
PageIndex CachedZone::alloc_merged(Order order, TakeRights rights) noexcept {
  if (!depot_.empty()) {
    {
      const ThreadMark mark;
      const LockGuard guard{shortage_lock_};
      drain_depot();
    }
    const PageIndex page = zone_.take(order, rights.reserve, rights.report);
    if (is_page(page)) {
      return page;
    }
  }
  if (search_deferred(order)) {
    zone_.counters().deferred.add_shared(1);
    zone_.note_refused(frames_in(order), rights.reserve, rights.report);
    return kNoPage;
  }
  const PageIndex page = alloc_in_shortage(order, rights);
  defer_search(order, is_page(page));
  return page;
}

// Whether a complete search for a block of this size would hardly find one now: it did not lately, and the
// engine has not been given as many frames since. Every failure in a row doubles what "lately" means.
bool CachedZone::search_deferred(Order order) const noexcept {
  if (order.value < failed_order_.load(memory_order_relaxed) ||
      zone_.counters().given.get() - failed_given_.load(memory_order_relaxed) >= frames_in(order)) {
    return false;
  }
  const std::uint32_t doublings =
      std::min(failures_.load(memory_order_relaxed), kMostSearchDoublings);
  return system_clock().now_ns() - failed_at_.load(memory_order_relaxed) < kShortageNs << doublings;
}

void CachedZone::defer_search(Order order, bool found) noexcept {
  const std::uint32_t failed = failed_order_.load(memory_order_relaxed);
  if (found) {
    if (order.value >= failed) {
      failed_order_.store(kOrderCount, memory_order_relaxed);
    }
    return;
  }
  failures_.store(order.value >= failed ? failures_.load(memory_order_relaxed) + 1 : 0,
                  memory_order_relaxed);
  failed_given_.store(zone_.counters().given.get(), memory_order_relaxed);
  failed_at_.store(system_clock().now_ns(), memory_order_relaxed);
  failed_order_.store(std::min(order.value, failed), memory_order_relaxed);
}

// After frames left engine or depot: when few are left there, what waits is merged.
void CachedZone::watch_low() noexcept {
  // The engine alone first: the depot's count is in a line that other CPUs write.
  if (zone_.free_pages() >= low_ || depot_.capacity() == 0 ||
      below_low_.load(memory_order_relaxed) || free_pages() >= low_ || thread_is_marked() ||
      below_low_.exchange(true, memory_order_relaxed)) [[likely]] {
    return;
  }
  zone_.counters().low_crossings.add_shared(1);
  const ThreadMark mark;
  const LockGuard guard{shortage_lock_};
  drain_depot();
}

// Whether a cluster that comes back goes to the engine now.
bool CachedZone::merge_at_once() noexcept {
  if (!below_low_.load(memory_order_relaxed)) [[likely]] {
    return false;
  }
  if (free_pages() <= high_) {
    return true;
  }
  below_low_.store(false, memory_order_relaxed);
  return false;
}

PageIndex CachedZone::refill(unsigned list) noexcept {
  const Carry carry{*this};
  if (carry.stopped()) {
    return kNoPage;
  }
  if (list == 0) {
    const PageIndex page = refill_from_depot();
    if (is_page(page)) {
      return page;
    }
  }
  return carry.nested() || !lists_.usable_here() ? kNoPage : refill_from_engine(list);
}

PageIndex CachedZone::refill_from_depot() noexcept {
  const std::uint32_t shard = shard_here();
  std::uint32_t n = lists_.cluster();
  // Partial ones first, so that they do not pile up.
  std::uint32_t part = 0;
  ClusterId id = depot_.take_partial(shard, part);
  if (id != kNoCluster) {
    n = part;
  } else {
    id = depot_.take_full(shard);
    if (id == kNoCluster) {
      return kNoPage;
    }
  }
  lists_.counted_block_here().counters.clusters_taken.add_shared(1);
  const PageIndex* frames = depot_.body(id).frames;
  const PageIndex page = frames[--n];
  n -= lists_.refill(0, frames, n);
  if (n == 0) {
    depot_.give_empty(id, shard);
  } else {
    depot_.give_partial(id, n, shard);
  }
  return page;
}

PageIndex CachedZone::refill_from_engine(unsigned list) noexcept {
  const Order order = order_of_list(list);
  PageIndex pages[kClusterFrames];
  // Without the right to the reserve: what one request may take, a list may not hold for others.
  std::uint32_t n =
      zone_.take_many(order, pages, blocks_per_move(order.value, lists_.cluster()), false);
  if (n == 0) {
    return kNoPage;
  }
  std::reverse(pages, pages + n);  // the lowest comes out first
  const PageIndex page = pages[--n];
  n -= lists_.refill(list, pages, n);
  if (n != 0) {
    zone_.give_many(pages, n, order);
  }
  return page;
}

// Brings all that lists and depot hold into the engine. False where the kernel refuses the fence: then
// lists were not searched.
bool CachedZone::search() noexcept {
  const ThreadMark mark;
  const LockGuard guard{shortage_lock_};
  const bool stopped = !enter_shortage().failed();
  drain_depot();
  return stopped;
}

PageIndex CachedZone::alloc_in_shortage(Order order, TakeRights rights) noexcept {
  PageIndex page = kNoPage;
  ask_until_quiet([&](bool last_try, bool& quiet) {
    page = zone_.take_or_tell(order, rights.reserve, Quiet{*this}, last_try, quiet, rights.report);
    return is_page(page);
  });
  return page;
}

// ---- giving ----

void CachedZone::give_to_engine(const PageIndex* pages, std::uint32_t n, Order order,
                                bool nested) noexcept {
  if (!nested || zone_.lock_free()) {
    zone_.give_many(pages, n, order);
    return;
  }
  for (std::uint32_t i = 0; i < n; ++i) {
    zone_.give(pages[i], order);  // to the loose stack
  }
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
  if (may_list(list) && (list != 0 || free_order0_ == FreeOrder0::list)) {
    start_here();
    if (lists_.push_slow(list, page_at(page))) {
      return;
    }
    const Carry carry{*this};
    if (!carry.stopped()) {
      spill(list, carry.nested());
      if (lists_.push_slow(list, page_at(page))) {
        return;
      }
    }
  }
  free_to_engine(page, order);
}

// A whole cluster: to the depot, else to the engine.
void CachedZone::put_full(ClusterId id, std::uint32_t shard, bool nested) noexcept {
  if (!merge_at_once() && depot_.give_full(id, shard)) {
    lists_.counted_block_here().counters.clusters_given.add_shared(1);
    return;
  }
  give_to_engine(depot_.body(id).frames, lists_.cluster(), Order{0}, nested);
  depot_.give_empty(id, shard);
}

void CachedZone::put_partial(ClusterId id, std::uint32_t n, std::uint32_t shard,
                             bool nested) noexcept {
  if (depot_.full_clusters() + depot_.partial_clusters() < depot_.capacity()) {
    depot_.give_partial(id, n, shard);
    return;
  }
  give_to_engine(depot_.body(id).frames, n, Order{0}, nested);
  depot_.give_empty(id, shard);
}

void CachedZone::spill(unsigned list, bool nested) noexcept {
  lists_.apply_capacity(list);
  const Order order = order_of_list(list);
  const std::uint32_t cluster = lists_.cluster();
  const std::uint32_t shard = shard_here();
  if (list == 0 && depot_.capacity() != 0) {
    if (const ClusterId id = depot_.take_empty(shard); id != kNoCluster) {
      const std::uint32_t n = lists_.spill(0, depot_.body(id).frames, cluster);
      if (n == cluster) {
        put_full(id, shard, nested);
      } else if (n != 0) {
        put_partial(id, n, shard, nested);
      } else {
        depot_.give_empty(id, shard);
      }
      return;
    }
  }
  PageIndex pages[kClusterFrames];
  const std::uint32_t n = lists_.spill(list, pages, blocks_per_move(order.value, cluster));
  if (n != 0) {
    give_to_engine(pages, n, order, nested);
  }
}

// ---- draining, shortage ----

void CachedZone::harvest(CpuId cpu) noexcept {
  const Counted carry{*this};
  PageIndex pages[kClusterFrames];
  Order order;
  while (const std::uint32_t n = lists_.harvest(cpu, pages, kClusterFrames, order)) {
    zone_.give_many(pages, n, order);
  }
}

void CachedZone::harvest_all() noexcept {
  lists_.for_each_started([this](CpuId cpu) { harvest(cpu); });
}

// No more than there are now: others may go on giving.
void CachedZone::drain_depot() noexcept {
  const Counted carry{*this};
  const std::uint32_t full = depot_.full_clusters();
  for (std::uint32_t i = 0; i < full; ++i) {
    const ClusterId id = depot_.take_full(0);
    if (id == kNoCluster) {
      break;
    }
    merge(id, lists_.cluster(), 0);
  }
  drain_partial_clusters();
}

void CachedZone::drain_partial_clusters() noexcept {
  const Counted carry{*this};
  const std::uint32_t partial = depot_.partial_clusters();
  for (std::uint32_t i = 0; i < partial; ++i) {
    std::uint32_t n = 0;
    const ClusterId id = depot_.take_partial(0, n);
    if (id == kNoCluster) {
      break;
    }
    merge(id, n, 0);
  }
}

// In order of index: neighbours meet while their descriptors are near.
void CachedZone::merge(ClusterId id, std::uint32_t n, std::uint32_t shard) noexcept {
  PageIndex* frames = depot_.body(id).frames;
  std::sort(frames, frames + n);
  zone_.give_many(frames, n, Order{0});
  zone_.counters().clusters_merged.add(1);
  depot_.give_empty(id, shard);
}

// Stops the lists, for a shortage or around a fork.
Error CachedZone::halt(bool patient) noexcept {
  stopped_.store(true, memory_order_seq_cst);  // pairs: Carry seq_cst
  const Error error = lists_.stop_all(patient);
  if (error.failed()) {
    stopped_.store(false, memory_order_relaxed);
  }
  return error;
}

void CachedZone::resume() noexcept {
  stopped_.store(false, memory_order_relaxed);
  lists_.start_all();
}

Error CachedZone::enter_shortage() noexcept {
  if (in_shortage()) {
    return kOk;
  }
  if (const Error error = halt(true); error.failed()) {
    return error;
  }
  since_.store(system_clock().now_ns(), memory_order_relaxed);
  harvest_all();
  zone_.counters().shortages.add(1);
  return kOk;
}

void CachedZone::maybe_leave_shortage() noexcept {
  const auto may_leave = [this] {
    return in_shortage() && waiters_.load(memory_order_relaxed) == 0 &&
           zone_.free_pages() >= leave_above_.load(memory_order_relaxed) &&
           !retired_.load(memory_order_relaxed) && !detached() &&
           system_clock().now_ns() - since_.load(memory_order_relaxed) >= kShortageNs;
  };
  if (!may_leave() || thread_is_marked()) {
    return;
  }
  const ThreadMark mark;
  if (!shortage_lock_.try_lock()) {
    return;  // whoever holds it will come by here as well
  }
  if (may_leave()) {
    resume();
  }
  shortage_lock_.unlock();
}

Error CachedZone::drain(CpuId cpu) noexcept {
  if (cpu.value >= lists_.count()) {
    return {Errc::too_large, "number of a CPU", 0};
  }
  if (thread_is_marked()) {
    return {Errc::would_block, "drain inside a signal handler", 0};
  }
  if (detached()) {
    return kOk;
  }
  const ThreadMark mark;
  const LockGuard guard{shortage_lock_};
  zone_.counters().drains.add(1);
  failed_order_.store(kOrderCount, memory_order_relaxed);
  if (in_shortage() || !lists_.is_started(cpu)) {
    return kOk;
  }
  if (const Error error = lists_.stop(cpu); error.failed()) {
    return error;
  }
  harvest(cpu);
  lists_.start(cpu);
  return kOk;
}

Error CachedZone::drain_all() noexcept {
  if (thread_is_marked()) {
    return {Errc::would_block, "drain inside a signal handler", 0};
  }
  if (detached()) {
    return kOk;
  }
  const ThreadMark mark;
  const LockGuard guard{shortage_lock_};
  zone_.counters().drains.add(1);
  failed_order_.store(kOrderCount, memory_order_relaxed);
  if (!in_shortage()) {
    if (const Error error = lists_.stop_all(); error.failed()) {
      return error;
    }
    harvest_all();
    lists_.start_all();
  }
  drain_depot();
  zone_.merge_all();
  return kOk;
}

}  // namespace weir
