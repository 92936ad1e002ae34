// SPDX-License-Identifier: MIT
// zone/zone.hpp — the frames of one node: engine, reserve, watermarks, counters, and when a refusal is
// final. Calls zone/locked_engine. Knows nothing of lists: it answers kNoPage and its caller gives
// something back and tries again.
//
// A signal handler that interrupted a section with a lock (thread_is_marked) is refused, and what it
// gives waits until the next call: see zone/locked_engine.
#pragma once

#include <cstdint>

#include "weir/base/counter.hpp"
#include "weir/base/types.hpp"
#include "weir/zone/locked_engine.hpp"
#include "weir/zone/watermarks.hpp"

namespace weir {

class Zone {
 public:
  Zone() = default;
  Zone(const Zone&) = delete;
  Zone& operator=(const Zone&) = delete;

  // Not thread-safe: before the zone is known to others.
  void open(PageCount reserve, BuddyMerge merge = BuddyMerge::eager) noexcept;
  Error adopt(PageIndex first, PageCount frames) noexcept;
  // Sets the watermarks once all memory is adopted.
  void seal() noexcept;

  // A block or kNoPage. may_use_reserve: may leave fewer than `reserve` frames free.
  [[nodiscard]] PageIndex take(Order order, bool may_use_reserve) noexcept;
  // Up to n blocks, ascending where they come from one split; n << order at most a cluster. Like all
  // that follow but give(): not from a handler that interrupted a marked section, see there.
  std::uint32_t take_many(Order order, PageIndex* out, std::uint32_t n,
                          bool may_use_reserve) noexcept;

  // What take_or_tell asks when it finds nothing: whether no page is on its way outside the engine.
  class Outside {
   public:
    [[nodiscard]] virtual bool quiet() const noexcept = 0;

   protected:
    ~Outside() = default;
  };
  // A block, or kNoPage with `quiet` telling whether, at that moment, no page of this zone was on its
  // way anywhere: then nothing suitable was free outside the lists. A kNoPage that is final (quiet,
  // or last_try) is counted as a refusal.
  [[nodiscard]] PageIndex take_or_tell(Order order, bool may_use_reserve, const Outside& outside,
                                       bool last_try, bool& quiet) noexcept;

  // Sets n single frames aside for the caller, who gets them with take_claimed() and nobody else;
  // none, and false, when fewer are free. For requests of all or nothing. From claim to take_claimed the
  // caller bears a thread mark: a claim must not be forgotten in a forked child (claims of threads that
  // do not exist there are).
  [[nodiscard]] bool claim(std::uint64_t n, bool may_use_reserve) noexcept;
  // The same with `quiet` and last_try as above.
  [[nodiscard]] bool claim_or_tell(std::uint64_t n, bool may_use_reserve, const Outside& outside,
                                   bool last_try, bool& quiet) noexcept;
  void take_claimed(PageIndex* out, std::uint32_t n) noexcept;  // n at most a cluster

  // From anywhere: in a marked thread the block goes to the loose stack.
  void give(PageIndex page, Order order) noexcept;
  // n << order at most a cluster.
  void give_many(const PageIndex* pages, std::uint32_t n, Order order) noexcept;

  // Merges all that gives of single frames have put off, in bounded steps.
  void merge_all() noexcept { engine_.merge_all(); }

  // Frames free in the engine; exact at quiescence, any thread.
  [[nodiscard]] std::uint64_t free_pages() const noexcept { return engine_.free_pages(); }
  [[nodiscard]] PageCount managed() const noexcept { return managed_; }
  [[nodiscard]] PageCount reserve() const noexcept { return reserve_; }
  [[nodiscard]] const Watermarks& watermarks() const noexcept { return watermarks_; }

  [[nodiscard]] std::uint64_t free_blocks(Order order) const noexcept {
    return engine_.free_blocks(order);
  }
  // The same under the lock, loose frames taken in: exact as far as the engine goes.
  [[nodiscard]] std::uint64_t exact_free_pages() noexcept { return engine_.exact_free_pages(); }
  // Frames given from interrupted signal handlers and not yet taken in.
  [[nodiscard]] bool has_loose() const noexcept { return engine_.has_loose(); }
  [[nodiscard]] ZoneCounters& counters() noexcept { return counters_; }
  [[nodiscard]] const ZoneCounters& counters() const noexcept { return counters_; }

  // Recounts the engine; aborts on a broken invariant. Returns the free frames.
  std::uint64_t audit() const noexcept { return engine_.audit(); }

  void lock_for_fork() noexcept { engine_.lock_for_fork(); }
  void unlock_after_fork() noexcept { engine_.unlock_after_fork(); }
  // In a forked child, locked for it: what other threads had claimed is nobody's.
  void forget_claims() noexcept { engine_.forget_claims(); }
  // In a child forked without the lock: whoever held it does not exist, or is this thread's own.
  void reset_lock() noexcept { engine_.reset_lock(); }

 private:
  template <class Ask>
  [[nodiscard]] bool ask_or_tell(Ask&& ask, bool told_to_fail, const Outside& outside,
                                 bool last_try, bool& quiet) noexcept;
  [[nodiscard]] std::uint64_t leave(bool may_use_reserve) const noexcept {
    return may_use_reserve ? 0 : reserve_.value;
  }

  ZoneCounters
      counters_;  // the engine's under its lock; refusals by anybody; the others CachedZone's
  alignas(kNoFalseSharing) LockedEngine engine_{counters_};
  PageCount managed_;  // constant once sealed
  PageCount reserve_;
  Watermarks watermarks_{};
};

}  // namespace weir
