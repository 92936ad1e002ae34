// SPDX-License-Identifier: MIT
// percpu/cached_zone.hpp — a zone behind its per-CPU lists: the fast paths, refill, spill, drain and
// shortage. Calls zone, percpu/page_lists. Works on indexes and order; references are the page
// layer's.
//
// Shortage. "Refused" means that no suitable block was free anywhere. Looking into one list after
// another cannot show that, because pages move meanwhile. So a request that finds nothing stops all
// lists, takes what is in them into the engine and leaves them stopped: every later free reaches the
// engine, where it is found under one lock. Pages that threads carry between engine and list lie in
// hands, which are counted; a refusal waits until no hand is in use. Lists start again when enough is
// free and nobody waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weir/backing/extent.hpp"
#include "weir/backing/source.hpp"
#include "weir/base/hot.hpp"
#include "weir/base/result.hpp"
#include "weir/os/options.hpp"
#include "weir/percpu/page_lists.hpp"
#include "weir/zone/frame_table.hpp"
#include "weir/zone/zone.hpp"

namespace weir {

// What a request may do beyond the ordinary.
struct TakeRights {
  bool reserve = false;  // may take the reserve
  bool no_wait = false;  // rather be refused than stop other CPUs' lists and wait for hands
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

  // Adds the memory, opens the lists and starts them. Takes over `source` (may be nullptr: the
  // pieces are borrowed). Undone whole on failure, the source given back to the caller.
  Error open(std::uint16_t id, Source* source, const std::vector<Extent>& extents,
             const Options& options, std::uint32_t lists, std::uint32_t cpus);

  // One block, or kNoPage. Any thread, async-signal-safe.
  [[nodiscard]] WEIR_HOT PageIndex alloc(Order order, TakeRights rights) noexcept {
    const PageIndex page = lists_.pop(kListOfOrder[order.value]);
    if (is_page(page)) [[likely]] {
      return page;
    }
    return alloc_slow(order, rights, page);
  }

  // Takes back a block. Any thread, async-signal-safe, never fails.
  WEIR_HOT void free(PageIndex page, Order order) noexcept {
    if (!lists_.push(kListOfOrder[order.value], page)) [[unlikely]] {
      free_slow(page, order);
    }
  }

  // The same past the lists: a page of the reserve is for those with the right alone, and whoever
  // pops a list is not asked for one.
  void free_to_engine(PageIndex page, Order order) noexcept;

  // Up to n single frames; fewer only when no more were free.
  std::size_t alloc_bulk(PageIndex* out, std::size_t n, TakeRights rights) noexcept;
  void free_bulk(const PageIndex* pages, std::size_t n) noexcept;

  // Empties the lists of one CPU or of all into the engine, without the help of the threads there.
  // too_large: no such CPU; would_block: called from a signal handler inside a list or lock.
  Error drain(CpuId cpu) noexcept;
  Error drain_all() noexcept;

  // The owner has gone: the zone closes as soon as all its pages are home, perhaps at once.
  // Returns the frames still out.
  std::uint64_t retire() noexcept;
  // Closes a retired zone that is whole again; for whoever finds one that was left to him.
  void close_if_home() noexcept;

  [[nodiscard]] std::uint16_t id() const noexcept { return id_; }
  // The first piece, for the range test of the default zone.
  [[nodiscard]] WEIR_HOT bool holds(PageIndex page) const noexcept {
    const std::uint64_t range = range_.load(memory_order_relaxed);
    return page.value - static_cast<std::uint32_t>(range) < static_cast<std::uint32_t>(range >> 32);
  }
  [[nodiscard]] Zone& zone() noexcept { return zone_; }
  [[nodiscard]] const Zone& zone() const noexcept { return zone_; }
  [[nodiscard]] PageLists& lists() noexcept { return lists_; }
  [[nodiscard]] const PageLists& lists() const noexcept { return lists_; }
  [[nodiscard]] const std::vector<Piece>& pieces() const noexcept { return pieces_; }
  [[nodiscard]] bool in_shortage() const noexcept { return stopped_.load(memory_order_relaxed); }
  // A shared mapping inherited through fork: not ours to hand out.
  [[nodiscard]] bool detached() const noexcept { return detached_.load(memory_order_relaxed); }

  // Where the frames are; adds up to managed when every thread is at rest.
  struct Census {
    std::uint64_t managed = 0;
    std::uint64_t engine = 0;
    std::uint64_t lists = 0;
    std::uint64_t hands = 0;
    // While pages move a frame may be seen in two places, or in none.
    [[nodiscard]] std::uint64_t out() const noexcept {
      const std::uint64_t inside = engine + lists + hands;
      return inside < managed ? managed - inside : 0;
    }
  };
  [[nodiscard]] Census census() noexcept;
  [[nodiscard]] PercpuCounterValues percpu_counters() const noexcept;

  // Drain lock, lists, zone lock, in this order. False, holding nothing, when one of them is not to
  // be had soon: its holder may be waiting, in a signal handler, for something the caller holds.
  [[nodiscard]] bool try_lock_for_fork() noexcept;
  void unlock_in_parent() noexcept;
  void unlock_in_child() noexcept;

 private:
  WEIR_COLD PageIndex alloc_slow(Order order, TakeRights rights, PageIndex why) noexcept;
  WEIR_COLD void free_slow(PageIndex page, Order order) noexcept;
  PageIndex alloc_in_shortage(Order order, TakeRights rights) noexcept;
  // shortage_lock_ held, which is taken only by callers that are not inside a list: a drainer holds
  // it while it waits for lists.
  void harvest(std::uint32_t cpu, bool stop) noexcept;
  void enter_shortage() noexcept;
  void maybe_leave_shortage() noexcept;
  void maybe_close() noexcept;
  void close() noexcept;

  [[nodiscard]] Hand* pick_up() noexcept;
  void put_down(Hand& hand) noexcept;

  static constexpr std::size_t kHands = 16;

  // Frames of the first piece << 32 | its first index, in one word: whoever reads it while the slot
  // changes owner sees one zone or the other. Read by every free; constant while open.
  Atomic<std::uint64_t> range_{0};
  PageLists lists_;
  std::uint16_t id_ = 0;
  FreeOrder0 free_order0_ = FreeOrder0::list;
  Atomic<std::uint64_t> leave_above_{0};  // frames free in the engine that end a shortage

  Zone zone_;
  Hand hands_[kHands];
  Hand harvest_hand_;  // used under shortage_lock_
  alignas(kNoFalseSharing) Lock shortage_lock_;
  Atomic<bool> stopped_{true};        // written under shortage_lock_
  Atomic<std::uint32_t> waiters_{0};  // requests in alloc_in_shortage
  Atomic<std::uint32_t> hands_in_use_{0};
  Atomic<bool> retired_{false};
  Atomic<bool> detached_{false};
  Source* source_ = nullptr;
  std::vector<Piece> pieces_;
};

}  // namespace weir
