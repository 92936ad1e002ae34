// SPDX-License-Identifier: MIT
#include "weir/percpu/cached_zone.hpp"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "weir/arch/cpu.hpp"
#include "weir/base/check.hpp"
#include "weir/os/clock.hpp"
#include "weir/percpu/zone_registry.hpp"

namespace weir {
namespace {

// Between names and addresses of single frames. Whole clusters have a loop of their own, whose length
// the compiler knows: it becomes vector code.
void to_pages(const PageIndex* from, Page** to, std::uint32_t n) noexcept {
  Page* const base = frame_table::g_pages;
  if (n == kClusterFrames) {
    for (std::uint32_t i = 0; i < kClusterFrames; ++i) {
      to[i] = base + from[i].value;
    }
    return;
  }
  for (std::uint32_t i = 0; i < n; ++i) {
    to[i] = base + from[i].value;
  }
}

void to_indexes(Page* const* from, PageIndex* to, std::uint32_t n) noexcept {
  const auto base = reinterpret_cast<std::uintptr_t>(frame_table::g_pages);
  const auto index = [base](const Page* page) {
    const std::uintptr_t bytes = reinterpret_cast<std::uintptr_t>(page) - base;
    return PageIndex{static_cast<std::uint32_t>(bytes / sizeof(Page))};
  };
  if (n == kClusterFrames) {
    for (std::uint32_t i = 0; i < kClusterFrames; ++i) {
      to[i] = index(from[i]);
    }
    return;
  }
  for (std::uint32_t i = 0; i < n; ++i) {
    to[i] = index(from[i]);
  }
}

// Waiting for another thread's few hundred instructions, unless it lost its CPU.
void wait_a_little(std::uint32_t spin) noexcept {
  if (spin < 64) {
    cpu_pause();
  } else {
    ::sched_yield();
  }
}

}  // namespace

// Counted on the block where it began, before it looks whether the zone is in shortage: whoever has
// stopped the lists and then finds the count at 0 knows that no page comes into the depot any more,
// for every later carrier sees the stop and leaves the depot alone.
class CachedZone::Carry {
 public:
  explicit Carry(CachedZone& zone) noexcept
      : zone_(zone),
        count_(zone.lists_.counted_block_here().carriers),
        nested_(thread_is_marked()) {
    ThreadMark::enter();  // a handler that interrupts a carrier must not wait for carriers
    count_.fetch_add(1, memory_order_seq_cst);  // pairs: enter_shortage seq_cst
  }
  ~Carry() {
    count_.fetch_sub(1, memory_order_release);  // pairs: carriers seq_cst
    if (!zone_.in_shortage()) [[likely]] {
      ThreadMark::leave();
      return;
    }
    // From here on the zone may be closed by whoever finds it whole, but its slot stays readable.
    zone_.settle();
    ThreadMark::leave();
    zone_.maybe_close();
  }
  Carry(const Carry&) = delete;
  Carry& operator=(const Carry&) = delete;

  // Whether this is a signal handler that interrupted a marked section: no lock for it.
  [[nodiscard]] bool nested() const noexcept { return nested_; }
  // Whether the depot and the lists are to be left alone.
  [[nodiscard]] bool stopped() const noexcept {
    return zone_.stopped_.load(memory_order_seq_cst);  // pairs: enter_shortage seq_cst
  }

 private:
  CachedZone& zone_;
  Atomic<std::uint32_t>& count_;
  bool nested_;
};

// A drainer between list or depot and engine; shortage_lock_ held. Counted like a carrier, for whoever
// decides about a refusal does so without that lock.
class CachedZone::DrainerCarry {
 public:
  explicit DrainerCarry(CachedZone& zone) noexcept : count_(zone.lists_.common_block().carriers) {
    count_.fetch_add(1, memory_order_seq_cst);  // pairs: carriers seq_cst
  }
  ~DrainerCarry() { count_.fetch_sub(1, memory_order_release); }  // pairs: carriers seq_cst
  DrainerCarry(const DrainerCarry&) = delete;
  DrainerCarry& operator=(const DrainerCarry&) = delete;

 private:
  Atomic<std::uint32_t>& count_;
};

// Carriers before depot: what a carrier that has gone left in the depot is seen there.
class CachedZone::Quiet final : public Zone::Outside {
 public:
  explicit Quiet(const CachedZone& zone) noexcept : zone_(zone) {}
  [[nodiscard]] bool quiet() const noexcept override {
    return zone_.carriers() == 0 && zone_.depot_.empty();
  }

 private:
  const CachedZone& zone_;
};

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
  limits_ = cache_limits(managed, sharers, options.lists, options.merge == Merge::deferred,
                         options.high.value, options.depot.value, options.cached.value);
  if (const Error error = lists_.open(managed, lists, limits_.high,
                                      options.free_order0 == FreeOrder0::list, sharers);
      error.failed()) {
    undo();
    return error;
  }
  if (lists_.capacity(0) == 0) {
    limits_ = {};  // no list, no cluster
  }
  const std::uint32_t shards = std::clamp<std::uint32_t>((sharers + 7) / 8, 1, Depot::kMaxShards);
  if (const Error error = depot_.open(limits_.depot_clusters + 2 * sharers + 2,
                                      limits_.depot_clusters, shards, lists_.cluster());
      error.failed()) {
    lists_.close();
    undo();
    return error;
  }
  granted_ = 0;
  zone_.open(options.reserve);
  for (const Piece& piece : pieces_) {
    zone_.adopt(piece.first, whole_pages(piece.extent.size));
  }
  zone_.seal();
  id_ = id;
  source_ = source;
  free_order0_ = options.free_order0;
  // Of what ordinary requests may take: an eighth or the low watermark, whichever is less.
  leave_above_.store(options.reserve.value + std::min(zone_.watermarks().low.value,
                                                      (managed.value - options.reserve.value) / 8),
                     memory_order_relaxed);
  waiters_.store(0, memory_order_relaxed);
  retired_.store(false, memory_order_relaxed);
  detached_.store(false, memory_order_relaxed);
  stopped_.store(false, memory_order_relaxed);
  range_.store(whole_pages(pieces_.front().extent.size).value << 32 | pieces_.front().first.value,
               memory_order_relaxed);
  return kOk;
}

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
    if (granted_ + share + depot <= limits_.total) {
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
      return page;
    }
  }
  if (thread_is_marked()) {
    return kNoPage;  // in a signal handler that interrupted a marked section
  }
  if (rights.no_wait) {
    // What others have on their lists or in hand is not looked for.
    bool quiet = false;
    return zone_.take_or_tell(order, rights.reserve, Quiet{*this}, true, quiet);
  }
  const PageIndex page = zone_.take(order, rights.reserve);
  if (is_page(page)) {
    maybe_leave_shortage();
    return page;
  }
  return alloc_in_shortage(order, rights);
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

// Searches and asks until the request is served or it is certain that it cannot be. ask(last_try, quiet)
// says whether it was served; where lists cannot be searched, the first try is the last.
template <class Ask>
void CachedZone::ask_until_quiet(Ask&& ask) noexcept {
  std::uint32_t life = 0;
  {
    const ThreadMark mark;  // a handler that forks here finds the two together
    life = forks_;
    waiters_.fetch_add(1, memory_order_relaxed);
  }
  for (std::uint32_t spin = 0;; ++spin) {
    const bool searched = search();
    bool quiet = false;
    if (ask(!searched, quiet) || quiet || !searched) {
      break;
    }
    wait_a_little(spin);
  }
  {
    const ThreadMark mark;
    if (forks_ == life) {  // else this is a child, where only requests that began there are counted
      waiters_.fetch_sub(1, memory_order_relaxed);
    }
  }
  maybe_leave_shortage();
}

PageIndex CachedZone::alloc_in_shortage(Order order, TakeRights rights) noexcept {
  PageIndex page = kNoPage;
  ask_until_quiet([&](bool last_try, bool& quiet) {
    page = zone_.take_or_tell(order, rights.reserve, Quiet{*this}, last_try, quiet);
    return is_page(page);
  });
  return page;
}

std::uint32_t CachedZone::take_cluster(Page** out, TakeRights rights) noexcept {
  if (!may_list(0)) {
    return 0;
  }
  const Carry carry{*this};
  if (carry.stopped()) {
    return 0;
  }
  const std::uint32_t shard = shard_here();
  const std::uint32_t n = lists_.cluster();
  if (const ClusterId id = depot_.take_full(shard); id != kNoCluster) {
    to_pages(depot_.body(id).frames, out, n);
    depot_.give_empty(id, shard);
    lists_.counted_block_here().counters.clusters_taken.add_shared(1);
    return n;
  }
  if (carry.nested()) {
    return 0;
  }
  PageIndex pages[kClusterFrames];
  const std::uint32_t got = zone_.take_many(Order{0}, pages, n, rights.reserve);
  to_pages(pages, out, got);
  return got;
}

std::size_t CachedZone::alloc_bulk_slow(Page** out, std::size_t n, TakeRights rights) noexcept {
  const std::uint32_t cluster = lists_.cluster();
  std::size_t got = 0;
  if (may_list(0)) {
    start_here();
  }
  // The caller has just found that the list does not hold the first part.
  for (bool tried = true; got < n && !detached(); tried = false) {
    const auto want = static_cast<std::uint32_t>(std::min<std::size_t>(n - got, cluster));
    std::uint32_t taken = !tried && lists_.pop_exactly(out + got, want) ? want : 0;
    if (lists_.locked_here_and_now()) {
      taken = lists_.pop_batch(out + got, want);
    }
    if (taken == 0 && want == cluster) {
      taken = take_cluster(out + got, rights);  // a whole cluster need not pass through the list
    }
    if (taken == 0) {
      taken = lists_.pop_batch(out + got, want);
    }
    if (taken == 0) {
      const PageIndex page = alloc_slow(Order{0}, rights);
      if (!is_page(page)) {
        break;
      }
      out[got] = page_at(page);
      taken = 1;
    }
    got += taken;
  }
  return got;
}

std::size_t CachedZone::alloc_bulk(PageIndex* out, std::size_t n, TakeRights rights) noexcept {
  Page* pages[kClusterFrames];
  std::size_t got = 0;
  while (got < n) {
    const auto want = static_cast<std::uint32_t>(std::min<std::size_t>(n - got, kClusterFrames));
    const auto taken = static_cast<std::uint32_t>(alloc_bulk(pages, want, rights));
    to_indexes(pages, out + got, taken);
    got += taken;
    if (taken < want) {
      break;
    }
  }
  return got;
}

bool CachedZone::alloc_exactly(Page** out, std::size_t n, TakeRights rights) noexcept {
  // Whoever holds a part of what it wants keeps it from others who could go on with it: so all at once
  // from the list, or all at once from the engine, where it is set aside under the lock.
  if (n == 0 || (n <= kClusterFrames && lists_.pop_all(out, static_cast<std::uint32_t>(n)))) {
    return true;
  }
  if (thread_is_marked() || detached()) {
    return false;
  }
  const auto take = [&] {
    PageIndex pages[kClusterFrames];
    for (std::size_t done = 0; done < n;) {
      const auto part = static_cast<std::uint32_t>(std::min<std::size_t>(n - done, kClusterFrames));
      zone_.take_claimed(pages, part);
      to_pages(pages, out + done, part);
      done += part;
    }
  };
  {
    const ThreadMark mark;
    if (zone_.claim(n, rights.reserve)) {
      take();
      return true;
    }
  }
  if (rights.no_wait) {
    return false;
  }
  bool served = false;
  ask_until_quiet([&](bool last_try, bool& quiet) {
    const ThreadMark mark;
    served = zone_.claim_or_tell(n, rights.reserve, Quiet{*this}, last_try, quiet);
    if (served) {
      take();
    }
    return served;
  });
  return served;
}

// ---- giving ----

void CachedZone::give_to_engine(const PageIndex* pages, std::uint32_t n, Order order,
                                bool nested) noexcept {
  if (!nested) {
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
  if (depot_.give_full(id, shard)) {
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

bool CachedZone::give_cluster(Page* const* pages) noexcept {
  if (!may_list(0) || free_order0_ != FreeOrder0::list || depot_.capacity() == 0) {
    return false;
  }
  const Carry carry{*this};
  if (carry.stopped()) {
    return false;
  }
  const std::uint32_t shard = shard_here();
  const ClusterId id = depot_.take_empty(shard);
  if (id == kNoCluster) {
    return false;
  }
  to_indexes(pages, depot_.body(id).frames, lists_.cluster());
  put_full(id, shard, carry.nested());
  return true;
}

void CachedZone::free_bulk_slow(Page* const* pages, std::size_t n) noexcept {
  const std::uint32_t cluster = lists_.cluster();
  if (may_list(0)) {
    start_here();
  }
  // The caller has just found that the list has no room for the first part.
  for (bool tried = true; n != 0 && !detached(); tried = false) {
    const auto want = static_cast<std::uint32_t>(std::min<std::size_t>(n, cluster));
    const bool listed = may_list(0) && free_order0_ == FreeOrder0::list;
    std::uint32_t given = !tried && lists_.push_exactly(pages, want) ? want : 0;
    if (lists_.locked_here_and_now() && listed) {
      given = lists_.push_batch(pages, want);
    }
    if (given == 0 && want == cluster && give_cluster(pages)) {
      given = want;
    }
    if (given == 0 && listed) {
      given = lists_.push_batch(pages, want);
    }
    if (given == 0 && !listed && !thread_is_marked()) {
      PageIndex frames[kClusterFrames];
      to_indexes(pages, frames, want);
      zone_.give_many(frames, want, Order{0});
      maybe_leave_shortage();
      given = want;
    }
    if (given == 0) {
      free_slow(index_of(*pages), Order{0});
      given = 1;
    }
    pages += given;
    n -= given;
  }
  maybe_close();
}

void CachedZone::free_bulk(const PageIndex* pages, std::size_t n) noexcept {
  Page* some[kClusterFrames];
  while (n != 0) {
    const auto part = static_cast<std::uint32_t>(std::min<std::size_t>(n, kClusterFrames));
    to_pages(pages, some, part);
    free_bulk(some, part);
    pages += part;
    n -= part;
  }
}

// ---- draining, shortage ----

void CachedZone::harvest(CpuId cpu) noexcept {
  const DrainerCarry carry{*this};
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
  const DrainerCarry carry{*this};
  const std::uint32_t full = depot_.full_clusters();
  for (std::uint32_t i = 0; i < full; ++i) {
    const ClusterId id = depot_.take_full(0);
    if (id == kNoCluster) {
      break;
    }
    merge(id, lists_.cluster(), 0);
  }
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
  if (!in_shortage()) {
    if (const Error error = lists_.stop_all(); error.failed()) {
      return error;
    }
    harvest_all();
    lists_.start_all();
  }
  drain_depot();
  return kOk;
}

// ---- housekeeping ----

void CachedZone::tick() noexcept {
  if (thread_is_marked() || detached()) {
    return;
  }
  {
    const ThreadMark mark;
    const LockGuard guard{shortage_lock_};
    if (!in_shortage() && !retired_.load(memory_order_relaxed)) {
      for (std::uint32_t shard = 0; shard < depot_.shards(); ++shard) {
        merge_oldest(shard);
      }
      lists_.for_each_started([this](CpuId cpu) { tune(cpu); });
    }
  }
  maybe_leave_shortage();
}

// The clusters at the bottom of a shard, which nobody has wanted since the last tick. They are reached
// by taking what lies above; meanwhile others find less, and ask the engine.
void CachedZone::merge_oldest(std::uint32_t shard) noexcept {
  const DrainerCarry carry{*this};
  ClusterId above[kTickClusters];
  const std::uint32_t n = std::min(depot_.exchange_low_water(shard), kTickClusters);
  std::uint32_t taken = 0;
  while (n != 0 && taken < kTickClusters) {
    const ClusterId id = depot_.take_full_here(shard);
    if (id == kNoCluster) {
      break;
    }
    above[taken++] = id;
  }
  const std::uint32_t newer = taken > n ? taken - n : 0;
  for (std::uint32_t i = taken; i-- > newer;) {
    merge(above[i], lists_.cluster(), shard);
  }
  for (std::uint32_t i = newer; i-- != 0;) {
    if (!depot_.give_full(above[i], shard)) {
      merge(above[i], lists_.cluster(), shard);
    }
  }
  if (n != 0) {
    static_cast<void>(depot_.exchange_low_water(shard));  // what was taken here, nobody wanted
  }
}

void CachedZone::tune(CpuId cpu) noexcept {
  bool idle = true;  // all lists of this CPU
  for (unsigned list = 0; list < kListOrders; ++list) {
    ListHead& head = lists_.block(cpu.value).lists[list];
    const auto word = static_cast<std::uint32_t>(head.word.load(memory_order_relaxed));
    const bool same = word == head.last_word.exchange(word, memory_order_relaxed);
    idle = idle && same;
  }
  ListHead& head = lists_.block(cpu.value).lists[0];
  const std::uint32_t misses = head.misses.exchange(0, memory_order_relaxed);
  const std::uint32_t overflows = head.overflows.exchange(0, memory_order_relaxed);
  const std::uint32_t cluster = lists_.cluster();
  const std::uint32_t now = lists_.capacity(cpu, 0);
  if (idle) {
    if (lists_.cached(cpu.value) != 0 || now > limits_.high) {
      resize(cpu, std::min(now, limits_.high));
    }
  } else if (misses != 0 && overflows != 0) {
    // It ran dry and over: it would have kept what it gave away.
    if (now + cluster <= limits_.high_max &&
        granted_ + cluster + std::uint64_t{depot_.capacity()} * cluster <= limits_.total) {
      granted_ += cluster;
      lists_.set_capacity(cpu, 0, now + cluster);  // its CPU takes it over at the next spill
    }
  } else if (now > limits_.high && (misses != 0 || overflows != 0)) {
    resize(cpu, limits_.high);  // one way only: what it holds cools down
  }
}

// At once, from afar: the list ends empty, with another capacity.
void CachedZone::resize(CpuId cpu, std::uint32_t capacity) noexcept {
  if (lists_.stop(cpu).failed()) {
    return;
  }
  harvest(cpu);
  const std::uint32_t before = lists_.capacity(cpu, 0);
  lists_.set_capacity(cpu, 0, capacity);
  granted_ = granted_ + lists_.capacity(cpu, 0) - before;
  lists_.start(cpu);
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
    retired_.store(true, memory_order_relaxed);
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
    if (zone_.exact_free_pages() == zone_.managed().value && carriers() == 0) {
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
  pieces_.clear();
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
  // The child gets a copy that is made while other threads run: everything they may change must be
  // at rest. Lists are stopped; carriers are waited for, for a while, and new ones leave the depot
  // alone.
  frozen_ = !in_shortage();
  if (frozen_) {
    if (const Error error = halt(false); error.failed()) {
      frozen_ = false;
      shortage_lock_.unlock();
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
  zone_.forget_claims();
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
  zone_.reset_lock();
  static bool told = false;
  notice_once(
      told,
      "forked where weir could not be brought to rest (inside weir, or the kernel refused a "
      "fence): its zones are not usable in this child");
}

}  // namespace weir
