// SPDX-License-Identifier: MIT
// percpu/cached_zone.hpp — a zone behind its per-CPU lists and its depot: the fast paths, refill,
// spill, drain and shortage. Calls zone, percpu/page_lists. Knows pages by index and order, single
// frames also by descriptor; references are the page layer's.
//
//   engine  <->  depot  <->  list of this CPU  <->  user        a cluster at a time but for the last
//
// A list that runs dry takes a cluster from the depot, one that runs over gives its oldest cluster
// there; a bulk of a whole cluster that the list cannot serve is the depot's cluster itself. The
// engine is asked when the depot is empty, and given to when it is full. So a steady flow from one CPU
// to another passes the depot and never the zone's lock.
//
// The depot is merging put off, and it is put off only while there is enough: when engine and depot have
// fewer frames free than the low watermark, the depot is merged, and what lists give up goes to the engine
// until more than the high watermark are free again. A request for a larger block that the engine cannot
// serve merges the depot before anything else is stopped.
//
// Shortage. "Refused" means that no suitable block was free anywhere. Looking into one list after
// another cannot show that, because pages move meanwhile. So a request that finds nothing stops all
// lists with one fence, takes what is in them and in the depot into the engine and leaves them
// stopped: every later free reaches the engine, where it is found under one lock. Slow paths that may
// carry pages are counted, each on the CPU where it began; a refusal waits until none is under way.
// Lists start again when enough is free and nobody waits, a millisecond later at the earliest: so
// exhaustion costs at most a fence each millisecond. A larger block that a complete search did not find is
// not searched for again for a while, longer each time (defer_search): lists would stand still for it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weir/backing/extent.hpp"
#include "weir/backing/source.hpp"
#include "weir/base/hot.hpp"
#include "weir/base/result.hpp"
#include "weir/os/options.hpp"
#include "weir/percpu/page_lists.hpp"
#include "weir/percpu/pin.hpp"
#include "weir/zone/compaction_deferral.hpp"
#include "weir/zone/depot.hpp"
#include "weir/zone/frame_table.hpp"
#include "weir/zone/pin_table.hpp"
#include "weir/zone/zone.hpp"

namespace weir {

// What a request may do beyond the ordinary.
struct TakeRights {
  bool reserve = false;          // may take the reserve
  bool no_wait = false;          // rather be refused than stop other CPUs' lists and wait for hands
  TakeReport* report = nullptr;  // where it is told what became of it in the zone
};

// Where pages go that come all together or not at all, a cluster or less at a time. Called in a marked
// section: no lock of weir, no request.
class PageSink {
 public:
  virtual void put(Page* const* pages, std::uint32_t n) noexcept = 0;

 protected:
  ~PageSink() = default;
};

// What became of a trim.
struct TrimReport {
  Bytes returned;         // whole pageblocks that the system took, touched before or not
  Bytes pinned;           // pageblocks left alone because they are pinned, free or not
  const char* note = "";  // why it ended early or did nothing; empty when it saw every pageblock
};

class CachedZone {
 public:
  CachedZone() = default;
  CachedZone(const CachedZone&) = delete;
  CachedZone& operator=(const CachedZone&) = delete;

  // Memory of a zone while it is put together.
  struct Piece {
    Extent extent;
    PageIndex first;
  };
  // A pageblock of one.
  struct Pageblock {
    PageIndex first;
    const Piece& piece;
  };

  // Adds the memory, opens the lists and starts them. Takes over `source` (may be nullptr: the
  // pieces are borrowed). Undone whole on failure, the source given back to the caller.
  Error open(std::uint16_t id, Source* source, const std::vector<Extent>& extents,
             const Options& options, std::uint32_t lists, std::uint32_t cpus);

  // One block, or kNoPage. Any thread, async-signal-safe.
  [[nodiscard]] PageIndex alloc(Order order, TakeRights rights) noexcept {
    const PageIndex page = lists_.pop(kListOfOrder[order.value]);
    return is_page(page) ? page : alloc_slow(order, rights);
  }
  // What is left to try when the list had nothing.
  [[nodiscard]] WEIR_COLD PageIndex alloc_slow(Order order, TakeRights rights) noexcept;

  // A block for a page that can be carried elsewhere: out of the engine, from pageblocks of such pages as
  // long as there are any, else whatever alloc() finds.
  [[nodiscard]] PageIndex alloc_movable(Order order, TakeRights rights) noexcept;

  // Takes back a block. Any thread, async-signal-safe, never fails.
  void free(PageIndex page, Order order) noexcept {
    if (!lists_.push(kListOfOrder[order.value], page)) {
      free_slow(page, order);
    }
  }
  WEIR_COLD void free_slow(PageIndex page, Order order) noexcept;

  // The same past the lists: a page of the reserve is for those with the right alone, and whoever
  // pops a list is not asked for one.
  void free_to_engine(PageIndex page, Order order) noexcept;

  // Up to n single frames; fewer only when no more were free.
  [[nodiscard]] WEIR_HOT std::size_t alloc_bulk(Page** out, std::size_t n,
                                                TakeRights rights) noexcept {
    return alloc_bulk_or(out, n, [rights](CachedZone& zone, Page** rest, std::size_t missing) {
      return zone.alloc_bulk_slow(rest, missing, rights);
    });
  }
  // The same with beyond(zone, out, n) for what this CPU's list does not hold.
  template <class Beyond>
  [[nodiscard]] WEIR_HOT std::size_t alloc_bulk_or(Page** out, std::size_t n,
                                                   Beyond&& beyond) noexcept {
    std::size_t got = 0;
    while (got < n) {
      const auto want = static_cast<std::uint32_t>(std::min<std::size_t>(n - got, kClusterFrames));
      if (!lists_.pop_exactly(out + got, want)) [[unlikely]] {
        return got + beyond(*this, out + got, n - got);
      }
      got += want;
    }
    return n;
  }
  WEIR_HOT void free_bulk(Page* const* pages, std::size_t n) noexcept {
    while (n != 0) {
      const auto part = static_cast<std::uint32_t>(std::min<std::size_t>(n, kClusterFrames));
      if (!lists_.push_exactly(pages, part)) [[unlikely]] {
        free_bulk_slow(pages, n);
        return;
      }
      pages += part;
      n -= part;
    }
  }
  // The same by index.
  [[nodiscard]] std::size_t alloc_bulk(PageIndex* out, std::size_t n, TakeRights rights) noexcept;
  void free_bulk(const PageIndex* pages, std::size_t n) noexcept;
  // n single frames or none. Refused only if fewer than n were free at one moment: nobody loses to
  // another such request that is refused as well.
  [[nodiscard]] bool alloc_exactly(Page** out, std::size_t n, TakeRights rights) noexcept;
  [[nodiscard]] bool alloc_exactly(PageSink& sink, std::size_t n, TakeRights rights) noexcept;
  // For who has just found that this CPU's list does not hold the first of them.
  WEIR_COLD std::size_t alloc_bulk_slow(Page** out, std::size_t n, TakeRights rights) noexcept;

  // Frames that may be outside the engine (zone/limits.hpp); 0 is no limit. Afterwards no request is
  // served beyond them; what is out already stays. would_block: inside a signal handler that interrupted
  // weir; bad_option: a limit that is no more than the reserve; the system's error when it refuses the
  // fence: then the limits are as before.
  Error set_limits(PageCount hard, PageCount soft) noexcept;

  // Empties the lists of one CPU, or of all and the depot, into the engine, without the help of the
  // threads there. too_large: no such CPU; would_block: called from a signal handler inside a list or
  // lock; the system's error when it refuses the fence: then nothing was drained.
  Error drain(CpuId cpu) noexcept;
  Error drain_all() noexcept;
  // Housekeeping, to be called now and then (every 10 to 1000 ms) by anybody, or by nobody: gives
  // capacity to lists that ran both dry and over since the last tick, takes it from others, empties
  // lists that nobody used, and merges clusters that lay in the depot all the time.
  void tick() noexcept;

  // Gives whole free pageblocks back to the system, `target` bytes at most, in steps of one, after it has
  // emptied lists and depot. What is taken again later is zero and costs a page fault. Any thread; the owner
  // must not end meanwhile. docs/design/trim.md.
  Bytes trim(Bytes target, TrimReport* report = nullptr) noexcept;
  // Frames that are free and whose memory is with the system. Looks at every pageblock or takes the zone lock.
  [[nodiscard]] std::uint64_t trimmed_pages() const noexcept { return zone_.trimmed_pages(); }

  // Until the pin ends, the memory of the range and of all pageblocks that it touches stays where it is; a step
  // of a trim that is under way there is waited for. Pins overlap as they like. zero_size, misaligned (whole
  // frames), foreign (begins outside), too_large (ends outside), would_block (in a signal handler that
  // interrupted weir). Costs a count a pageblock.
  [[nodiscard]] Result<Pin> pin(std::span<const std::byte> range) noexcept;
  // Whether a pin touches one of these frames' pageblocks. Certain only to whoever holds the lock of trims.
  [[nodiscard]] bool is_pinned(PageIndex first, std::uint64_t frames) const noexcept {
    return pins_.is_pinned(first, frames);
  }
  // Pin's own. Any thread, async-signal-safe; the last one of a retired zone may close it.
  void unpin(PageIndex first, std::uint64_t frames) noexcept;

  // The owner has gone: the zone closes as soon as all its pages are home
  // and no pin is left, perhaps at once.
  // Returns the frames still out.
  std::uint64_t retire() noexcept;
  // For the registry, in a marked section: closes a retired zone that is whole again. busy: somebody
  // drains it just now; that may be for a list which this thread's signal handler has interrupted.
  enum class Closing : std::uint8_t { no, done, busy };
  [[nodiscard]] Closing close_if_home() noexcept;

  [[nodiscard]] std::uint16_t id() const noexcept { return id_; }
  // The first piece, for the range test of the default zone.
  [[nodiscard]] WEIR_HOT bool holds(PageIndex page) const noexcept {
    const std::uint64_t range = range_.load(memory_order_relaxed);
    return page.value - static_cast<std::uint32_t>(range) < static_cast<std::uint32_t>(range >> 32);
  }
  [[nodiscard]] Zone& zone() noexcept { return zone_; }
  [[nodiscard]] const Zone& zone() const noexcept { return zone_; }
  [[nodiscard]] PageLists& lists() noexcept { return lists_; }
  [[nodiscard]] Depot& depot() noexcept { return depot_; }
  [[nodiscard]] const Depot& depot() const noexcept { return depot_; }
  // Free for whoever asks without draining: in the engine and in whole clusters of the depot.
  [[nodiscard]] std::uint64_t free_pages() const noexcept {
    return zone_.free_pages() + depot_.frames();
  }
  [[nodiscard]] const PageLists& lists() const noexcept { return lists_; }
  [[nodiscard]] const std::vector<Piece>& pieces() const noexcept { return pieces_; }
  [[nodiscard]] bool in_shortage() const noexcept { return stopped_.load(memory_order_relaxed); }
  [[nodiscard]] const CacheLimits& limits() const noexcept { return limits_; }
  // A shared mapping inherited through fork: not ours to hand out.
  [[nodiscard]] bool detached() const noexcept { return detached_.load(memory_order_relaxed); }

  // Whoever lives while frames are withheld from others for a moment: no request is refused meanwhile
  // (percpu/carry.hpp).
  class Counted;
  class Withholding;

  // Who carries pages together: one thread at a time, and whether it is worth a try.
  struct Compaction {
    Lock lock;
    Atomic<std::uintptr_t> holder{0};  // thread_token(); read by a handler on the same thread
    CompactionDeferral deferral;       // under lock
  };
  [[nodiscard]] Compaction& compaction() noexcept { return compaction_; }
  // How long it must be quiet before ticks give memory back; 0: they never do.
  [[nodiscard]] std::chrono::nanoseconds idle_trim() const noexcept {
    return std::chrono::nanoseconds{idle_trim_ns_};
  }
  // Of the counts of pins.
  [[nodiscard]] Bytes pins_metadata() const noexcept { return pins_.metadata(); }

  // Where the frames are; adds up to managed when every thread is at rest.
  struct Census {
    std::uint64_t managed = 0;
    std::uint64_t engine = 0;
    std::uint64_t depot = 0;
    std::uint64_t lists = 0;
    // While pages move a frame may be seen in two places, or in none.
    [[nodiscard]] std::uint64_t out() const noexcept {
      const std::uint64_t inside = engine + depot + lists;
      return inside < managed ? managed - inside : 0;
    }
  };
  [[nodiscard]] Census census() noexcept;
  [[nodiscard]] PercpuCounterValues percpu_counters() const noexcept;

  // Drain lock, lists, zone lock, in this order. busy, holding nothing, when one of them is not to be had
  // soon: its holder may be waiting, in a signal handler, for something the caller holds. refused: the
  // kernel grants no fence.
  enum class ForkLock : std::uint8_t { held, busy, refused };
  [[nodiscard]] ForkLock try_lock_for_fork() noexcept;
  void unlock_in_parent() noexcept;
  void unlock_in_child() noexcept;
  // In a child that was forked without them: the zone serves no more.
  void detach() noexcept;

 private:
  // A slow path that may hold pages which are neither in engine, depot, list nor in a user's hands.
  class Carry;
  class Quiet;

  PageIndex refill(unsigned list) noexcept;
  PageIndex refill_from_depot() noexcept;
  PageIndex refill_from_engine(unsigned list) noexcept;
  void spill(unsigned list, bool nested) noexcept;
  void put_full(ClusterId id, std::uint32_t shard, bool nested) noexcept;
  void put_partial(ClusterId id, std::uint32_t n, std::uint32_t shard, bool nested) noexcept;
  bool search() noexcept;
  template <class Ask>
  void ask_until_quiet(Ask&& ask) noexcept;
  PageIndex alloc_in_shortage(Order order, TakeRights rights) noexcept;
  PageIndex alloc_merged(Order order, TakeRights rights) noexcept;
  [[nodiscard]] bool search_deferred(Order order) const noexcept;
  void defer_search(Order order, bool found) noexcept;
  void watch_low() noexcept;
  [[nodiscard]] bool merge_at_once() noexcept;
  WEIR_COLD void free_bulk_slow(Page* const* pages, std::size_t n) noexcept;
  template <class Place>
  bool take_exactly(std::size_t n, TakeRights rights, Place&& place) noexcept;
  std::uint32_t take_cluster(Page** out, TakeRights rights) noexcept;
  bool give_cluster(Page* const* pages) noexcept;
  [[nodiscard]] bool may_list(unsigned list) const noexcept;
  void start_here() noexcept;
  [[nodiscard]] std::uint32_t shard_here() const noexcept;
  [[nodiscard]] std::uint64_t carriers() const noexcept;
  void give_to_engine(const PageIndex* pages, std::uint32_t n, Order order, bool nested) noexcept;

  // shortage_lock_ held: it is the drainer's lock of the lists as well. Never taken by a marked thread.
  void harvest(CpuId cpu) noexcept;
  void harvest_all() noexcept;
  void drain_depot() noexcept;
  void drain_partial_clusters() noexcept;
  Error halt(bool patient) noexcept;
  void resume() noexcept;
  void thaw() noexcept;
  Error enter_shortage() noexcept;
  void merge(ClusterId id, std::uint32_t n, std::uint32_t shard) noexcept;
  void merge_oldest(std::uint32_t shard) noexcept;
  void tune(CpuId cpu) noexcept;
  void resize(CpuId cpu, std::uint32_t capacity) noexcept;
  void settle() noexcept;
  void maybe_leave_shortage() noexcept;
  [[nodiscard]] std::uint64_t enough(PageCount hard) const noexcept;
  void maybe_close() noexcept;
  void close() noexcept;

  enum class TrimStep : std::uint8_t { done, not_free, pinned, refused, stopped };
  TrimStep trim_one(const Pageblock& at) noexcept;
  [[nodiscard]] bool outlast_shortage() noexcept;
  void trim_idle() noexcept;

  static constexpr std::uint32_t kTickClusters =
      1024;  // most clusters of the depot a tick looks at

  // Frames of the first piece << 32 | its first index, in one word: whoever reads it while the slot
  // changes owner sees one zone or the other. Read by every free; constant while open.
  Atomic<std::uint64_t> range_{0};
  PageLists lists_;
  std::uint16_t id_ = 0;
  FreeOrder0 free_order0_ = FreeOrder0::list;
  Atomic<std::uint64_t> leave_above_{0};  // frames free in the engine that end a shortage

  // Free frames, in engine and depot, below which clusters merge at once, and above which they wait
  // again; constant while open. And which of both it is.
  std::uint64_t low_ = 0;
  std::uint64_t high_ = 0;
  Atomic<bool> below_low_{false};
  // The smallest order that a complete search did not find, and when, how often in a row, and how much
  // the engine had been given by then: hints, each by itself.
  Atomic<std::uint32_t> failed_order_{kOrderCount};
  Atomic<std::uint32_t> failures_{0};
  Atomic<std::uint64_t> failed_at_{0};     // ns
  Atomic<std::uint64_t> failed_given_{0};  // frames

  Compaction compaction_;
  CacheLimits limits_;  // constant while open
  Depot depot_;
  Zone zone_;
  alignas(kNoFalseSharing) Lock shortage_lock_;
  Atomic<bool> stopped_{true};        // written under shortage_lock_
  Atomic<std::uint64_t> since_{0};    // ns: when the shortage was entered; as stopped_
  Atomic<std::uint32_t> waiters_{0};  // requests in ask_until_quiet
  std::uint32_t forks_ = 0;           // how many generations of children this process is down
  // Frames that lists may hold: those of all CPUs counted upon, whether they have come by or not, and
  // what lists have earned. And how many of these CPUs have not come by. Under shortage_lock_.
  std::uint64_t granted_ = 0;
  std::uint32_t expected_ = 0;
  bool frozen_ = false;  // around fork: the lists are stopped for its sake
  Atomic<bool> retired_{false};
  Atomic<bool> detached_{false};
  Source* source_ = nullptr;
  std::vector<Piece> pieces_;

  // Held during a step of a trim, the system call included, and by whoever pins: so no pageblock is pinned
  // while it is given back. Taken after shortage_lock_, if at all; marked.
  Lock trim_lock_;
  PinTable pins_;
  std::uint64_t idle_trim_ns_ = 0;  // 0: never; constant while open
  // What the last tick saw, hints of whoever ticks: frames taken from the engine by then, since when there have
  // been no more, frames given when the last whole round and the present one began, and where that goes on.
  Atomic<std::uint64_t> idle_taken_{0};
  Atomic<std::uint64_t> idle_since_{0};  // ns
  Atomic<std::uint64_t> idle_given_{0};
  Atomic<std::uint64_t> idle_round_{0};
  Atomic<std::uint64_t> idle_next_{0};  // pageblocks of all pieces
};

}  // namespace weir
