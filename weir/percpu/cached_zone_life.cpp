// SPDX-License-Identifier: MIT
// How a zone opens, ends, and lives through a fork.
#include <algorithm>
#include <utility>

#include "weir/base/report.hpp"
#include "weir/percpu/carry.hpp"
#include "weir/percpu/zone_registry.hpp"

namespace weir {
namespace {

// With a depot, what reaches the engine is merged there.
constexpr BuddyMerge buddy_merge(Merge merge) {
  switch (merge) {
    case Merge::skip:
      return BuddyMerge::skip;
    case Merge::clusters:
      return BuddyMerge::clusters;
    case Merge::deferred:
    case Merge::immediate:
      break;
  }
  return BuddyMerge::eager;
}

// Of what a tick compares with: no count ever is this.
constexpr std::uint64_t kNeverSeen = ~std::uint64_t{0};

}  // namespace

Error CachedZone::open(std::uint16_t id, Source* source, const std::vector<Extent>& extents,
                       const Options& options, std::uint32_t lists, std::uint32_t cpus) {
  // A thread that gave back the last page of the zone that was here before may be on its way out
  // through maybe_leave_shortage().
  const ThreadMark mark;
  const LockGuard guard{shortage_lock_};
  PageCount managed{0};
  pieces_.clear();
  pieces_.reserve(extents.size());
  std::uint64_t frames = 0;
  for (const Extent& extent : extents) {
    frames += whole_pages(extent.size).value;
  }
  pins_.open(frames, extents.size());
  const auto undo = [this] {
    while (!pieces_.empty()) {
      const Piece& piece = pieces_.back();
      frame_table::release_range(piece.first, piece.extent.base, piece.extent.size);
      pieces_.pop_back();
    }
    pins_.close();
  };
  for (const Extent& extent : extents) {
    Result<PageIndex> first = frame_table::reserve_range(extent.base, extent.size, id);
    if (!first) {
      undo();
      return first.error();
    }
    pieces_.push_back({extent, *first});
    pins_.add_piece(*first, whole_pages(extent.size).value);
    managed += whole_pages(extent.size);
  }
  const std::uint32_t sharers = cpus != 0 ? cpus : lists;
  // By what may be out: lists that hold more than a limit leaves would be emptied all the time.
  const PageCount available = options.limit.value != 0 ? std::min(options.limit, managed) : managed;
  limits_ =
      cache_limits(available, sharers, options.lists && list_mode().form != ListForm::off,
                   options.merge == Merge::deferred, options.high.value, options.depot.value,
                   options.cached.value,
                   options.engine == EngineChoice::bitmap ? kDepotShareLockFree : kDepotShare);
  if (const Error error =
          lists_.open(lists, limits_.sizes, options.free_order0 == FreeOrder0::list);
      error.failed()) {
    undo();
    return error;
  }
  const std::uint32_t shards = std::clamp<std::uint32_t>((sharers + 7) / 8, 1, Depot::kMaxShards);
  if (const Error error = depot_.open(limits_.depot_clusters + 2 * sharers + 2,
                                      limits_.depot_clusters, shards, lists_.cluster());
      error.failed()) {
    lists_.close();
    undo();
    return error;
  }
  granted_ = limits_.sizes.frames() * sharers;
  expected_ = sharers;
  Error error = zone_.open(options.reserve, options.engine, buddy_merge(options.merge));
  for (const Piece& piece : pieces_) {
    if (!error.failed()) {
      error = zone_.adopt(piece.first, whole_pages(piece.extent.size));
    }
  }
  if (error.failed()) {
    zone_.close();
    depot_.close();
    lists_.close();
    undo();
    return error;
  }
  zone_.seal();
  id_ = id;
  source_ = source;
  free_order0_ = options.free_order0;
  if (options.limit.value != 0 || options.soft_limit.value != 0) {
    zone_.set_limits(options.limit, options.soft_limit);
  }
  leave_above_.store(enough(options.limit), memory_order_relaxed);
  // Where the whole zone is hardly more than the watermarks, parts of it stand for them.
  low_ = std::min(zone_.watermarks().low.value, managed.value / 8);
  high_ = std::min(zone_.watermarks().high.value, managed.value / 6);
  below_low_.store(false, memory_order_relaxed);
  failed_order_.store(kOrderCount, memory_order_relaxed);
  compaction_.deferral = {};
  waiters_.store(0, memory_order_relaxed);
  // Explicit huge pages are scarce: what the system takes, another may have before it is wanted again. They go
  // back when the user says so, never by themselves.
  const bool gives_back = source_ != nullptr && extents.front().page_size == Bytes{kFrameBytes};
  idle_trim_ns_ = gives_back ? std::chrono::nanoseconds{options.idle_trim}.count() : 0;
  idle_taken_.store(kNeverSeen, memory_order_relaxed);
  idle_given_.store(kNeverSeen, memory_order_relaxed);
  idle_next_.store(0, memory_order_relaxed);
  retired_.store(false, memory_order_relaxed);
  detached_.store(false, memory_order_relaxed);
  stopped_.store(false, memory_order_relaxed);
  range_.store(whole_pages(pieces_.front().extent.size).value << 32 | pieces_.front().first.value,
               memory_order_relaxed);
  return kOk;
}

// ---- the end of a zone ----

std::uint64_t CachedZone::retire() noexcept {
  if (detached()) {
    return 0;  // the parent's business
  }
  std::uint64_t out = 0;
  {
    const ThreadMark mark;
    const LockGuard guard{shortage_lock_};
    retired_.store(true, memory_order_seq_cst);  // pairs: unpin()
    static_cast<void>(enter_shortage());
    drain_depot();
    out = zone_.managed().value - zone_.exact_free_pages();
  }
  maybe_close();
  return out;
}

void CachedZone::maybe_close() noexcept {
  if (retired_.load(memory_order_relaxed) && !thread_is_marked()) [[unlikely]] {
    zone_registry::close_if_home(*this);
  }
}

CachedZone::Closing CachedZone::close_if_home() noexcept {
  if (!retired_.load(memory_order_relaxed)) {
    return Closing::no;
  }
  if (!shortage_lock_.try_lock()) {
    return Closing::busy;
  }
  Closing answer = Closing::no;
  if (retired_.load(memory_order_relaxed)) {  // seen by exactly one: close() ends the retirement
    drain_depot();
    // A carrier may have given its pages already and still be inside the lists' memory: it comes by
    // here when it is done.
    if (zone_.exact_free_pages() == zone_.managed().value && carriers() == 0 && pins_.live() == 0) {
      close();
      answer = Closing::done;
    }
  }
  shortage_lock_.unlock();
  return answer;
}

void CachedZone::close() noexcept {
  range_.store(0, memory_order_relaxed);
  for (const Piece& piece : pieces_) {
    frame_table::release_range(piece.first, piece.extent.base, piece.extent.size);
    if (source_ != nullptr) {
      source_->give_back(piece.extent);
    }
  }
  zone_.close();  // after its addresses are known to nobody
  pieces_.clear();
  pins_.close();
  delete std::exchange(source_, nullptr);
  lists_.close();
  depot_.close();
  retired_.store(false, memory_order_relaxed);
}

// ---- looking ----

CachedZone::Census CachedZone::census() noexcept {
  Census census;
  census.managed = zone_.managed().value;
  for (std::uint32_t cpu = 0; cpu < lists_.count(); ++cpu) {
    census.lists += lists_.cached(cpu);
  }
  census.depot = depot_.frames();
  census.engine = zone_.exact_free_pages();
  return census;
}

PercpuCounterValues CachedZone::percpu_counters() const noexcept {
  PercpuCounterValues sum = values_of(lists_.common_block().counters);
  for (std::uint32_t cpu = 0; cpu < lists_.count(); ++cpu) {
    sum += lists_.counters(cpu);
  }
  return sum;
}

// ---- fork ----

CachedZone::ForkLock CachedZone::try_lock_for_fork() noexcept {
  if (!shortage_lock_.try_lock()) {
    return ForkLock::busy;
  }
  if (!trim_lock_.try_lock()) {  // a step of a trim or a pin: soon over
    shortage_lock_.unlock();
    return ForkLock::busy;
  }
  // The child gets a copy that is made while other threads run: everything they may change must be
  // at rest. Lists are stopped; carriers are waited for, for a while, and new ones leave the depot
  // alone.
  frozen_ = !in_shortage();
  if (frozen_) {
    if (const Error error = halt(false); error.failed()) {
      frozen_ = false;
      thaw();
      return error.code == Errc::would_block ? ForkLock::busy : ForkLock::refused;
    }
  }
  for (std::uint32_t spin = 0; carriers() != 0; ++spin) {
    if (spin == kForkPatience) {
      thaw();
      return ForkLock::busy;
    }
    wait_a_little(spin);
  }
  zone_.lock_for_fork();  // its holder is marked and waits for nothing
  return ForkLock::held;
}

void CachedZone::thaw() noexcept {
  if (std::exchange(frozen_, false)) {
    resume();
  }
  trim_lock_.unlock();
  shortage_lock_.unlock();
}

void CachedZone::unlock_in_parent() noexcept {
  zone_.unlock_after_fork();
  thaw();
}

void CachedZone::unlock_in_child() noexcept {
  lists_.forget_holders();
  // Those threads do not exist here; a request of this one, interrupted by a handler, knows by forks_.
  waiters_.store(0, memory_order_relaxed);
  forks_ = forks_ + 1;
  compaction_.lock.reset();
  compaction_.holder.store(0, memory_order_relaxed);
  zone_.recover_in_child();
  const bool shared = std::any_of(pieces_.begin(), pieces_.end(), [](const Piece& piece) {
    return piece.extent.source == SourceKind::memfd;
  });
  if (shared) {
    // The frames are the parent's as well, the books are not: the lists stay as the fork stopped them.
    frozen_ = false;
    detached_.store(true, memory_order_relaxed);
    static bool told = false;
    notice_once(told, "zones on shared memory are not usable in a forked child");
  }
  unlock_in_parent();
}

void CachedZone::detach() noexcept {
  detached_.store(true, memory_order_relaxed);
  lists_.disown();
  // Whoever held them does not exist here, or is what the handler that forked has interrupted.
  shortage_lock_.reset();
  trim_lock_.reset();
  zone_.reset_lock();
  static bool told = false;
  notice_once(
      told,
      "forked where weir could not be brought to rest (inside weir, or the kernel refused a "
      "fence): its zones are not usable in this child");
}

}  // namespace weir
