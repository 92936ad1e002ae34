// SPDX-License-Identifier: MIT
// zone/zone.hpp — the frames of one node: engine, lock, reserve, watermarks, counters. Calls
// zone/buddy_engine, os/lock. Knows nothing of lists: it answers kNoPage and its caller gives
// something back and tries again.
//
// Every hold of the lock moves at most one cluster of frames (or one larger block), and what is
// loose. A signal handler that interrupted a section with a lock (thread_is_marked) never touches
// the lock: its takes are refused, its gives go to a loose stack that the next holder empties whole.
#pragma once

#include <cstdint>

#include "weir/base/counter.hpp"
#include "weir/base/types.hpp"
#include "weir/os/lock.hpp"
#include "weir/os/thread_mark.hpp"
#include "weir/zone/buddy_engine.hpp"
#include "weir/zone/engine.hpp"
#include "weir/zone/limits.hpp"
#include "weir/zone/watermarks.hpp"

namespace weir {

class Zone {
 public:
  static_assert(Engine<BuddyEngine>);

  Zone() = default;
  Zone(const Zone&) = delete;
  Zone& operator=(const Zone&) = delete;

  // Not thread-safe: before the zone is known to others.
  void open(PageCount reserve) noexcept;
  void adopt(PageIndex first, PageCount frames) noexcept;
  // Sets the watermarks once all memory is adopted.
  void seal() noexcept;

  // A block or kNoPage. may_use_reserve: may leave fewer than `reserve` frames free. Here and below, no
  // more frames leave than the hard limit lets; what would cross the soft one is refused by all but
  // take_or_tell() and claim_or_tell(), whose callers have emptied lists and depot.
  [[nodiscard]] PageIndex take(Order order, bool may_use_reserve,
                               TakeReport* report = nullptr) noexcept;
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
  // or last_try) is counted as a refusal, unless the report says that its caller tries again.
  [[nodiscard]] PageIndex take_or_tell(Order order, bool may_use_reserve, const Outside& outside,
                                       bool last_try, bool& quiet,
                                       TakeReport* report = nullptr) noexcept;

  // Sets n single frames aside for the caller, who gets them with take_claimed() and nobody else;
  // none, and false, when fewer are free. For requests of all or nothing. From claim to take_claimed the
  // caller bears a thread mark: a claim must not be forgotten in a forked child (claims of threads that
  // do not exist there are).
  [[nodiscard]] bool claim(std::uint64_t n, bool may_use_reserve,
                           TakeReport* report = nullptr) noexcept;
  // The same with `quiet` and last_try as above.
  [[nodiscard]] bool claim_or_tell(std::uint64_t n, bool may_use_reserve, const Outside& outside,
                                   bool last_try, bool& quiet,
                                   TakeReport* report = nullptr) noexcept;
  void take_claimed(PageIndex* out, std::uint32_t n) noexcept;  // n at most a cluster

  // From anywhere: in a marked thread the block goes to the loose stack.
  void give(PageIndex page, Order order) noexcept;
  // n << order at most a cluster.
  void give_many(const PageIndex* pages, std::uint32_t n, Order order) noexcept;

  // 0 is no limit. What is out already stays out: nothing more leaves until enough has come back.
  void set_limits(PageCount hard, PageCount soft) noexcept;
  // Any thread; one of them may be older than the other.
  [[nodiscard]] PageCount hard_limit() const noexcept {
    return {hard_limit_.load(memory_order_relaxed)};
  }
  [[nodiscard]] PageCount soft_limit() const noexcept {
    return {soft_limit_.load(memory_order_relaxed)};
  }

  // Frames free in the engine; exact at quiescence, any thread.
  [[nodiscard]] std::uint64_t free_pages() const noexcept {
    return free_pages_.load(memory_order_relaxed);
  }
  [[nodiscard]] PageCount managed() const noexcept { return managed_; }
  [[nodiscard]] PageCount reserve() const noexcept { return reserve_; }
  [[nodiscard]] const Watermarks& watermarks() const noexcept { return watermarks_; }

  [[nodiscard]] std::uint64_t free_blocks(Order order) noexcept;
  // The same under the lock, loose frames taken in: exact as far as the engine goes.
  [[nodiscard]] std::uint64_t exact_free_pages() noexcept;
  // Frames given from interrupted signal handlers and not yet taken in.
  [[nodiscard]] bool has_loose() const noexcept {
    return loose_.load(memory_order_relaxed) != kNoPage.value;
  }
  [[nodiscard]] ZoneCounters& counters() noexcept { return counters_; }
  [[nodiscard]] const ZoneCounters& counters() const noexcept { return counters_; }

  // Recounts the engine under the lock; aborts on a broken invariant. Returns the free frames.
  std::uint64_t audit() noexcept;

  void lock_for_fork() noexcept { lock_.lock(); }
  void unlock_after_fork() noexcept { lock_.unlock(); }
  // In a forked child, the lock held: what other threads had claimed is nobody's.
  void forget_claims() noexcept { claimed_ = 0; }
  // In a child forked without the lock: whoever held it does not exist, or is this thread's own.
  void reset_lock() noexcept { lock_.reset(); }

 private:
  class Hold;

  void push_loose(PageIndex page) noexcept;
  // lock_ held. Returns the frames taken in: as many as handlers have left.
  std::uint32_t take_in_loose() noexcept;
  [[nodiscard]] bool allowed(std::uint64_t frames, bool may_use_reserve) const noexcept {
    return engine_.free_pages() >= frames + stays(may_use_reserve);
  }
  // Frames that the request may not have.
  [[nodiscard]] std::uint64_t stays(bool may_use_reserve) const noexcept {
    return claimed_ + limits_.kept() + (may_use_reserve ? 0 : reserve_.value);
  }
  // Frames that have left the engine, or are promised.
  [[nodiscard]] std::uint64_t out() const noexcept {
    return managed_.value - engine_.free_pages() + claimed_;
  }
  [[nodiscard]] bool may_now(std::uint64_t frames, bool may_use_reserve) const noexcept {
    return allowed(frames, may_use_reserve) && !limits_.crosses(out(), frames);
  }
  [[nodiscard]] bool settled(const Outside& outside) const noexcept {
    return outside.quiet() && !has_loose();
  }
  PageIndex take_held(Hold& hold, Order order, bool may_use_reserve, TakeReport* report) noexcept;
  void note_served(std::uint64_t frames, std::uint64_t free, bool may_use_reserve,
                   TakeReport* report) noexcept;
  void note_refused(std::uint64_t frames, bool may_use_reserve, TakeReport* report) noexcept;

  alignas(kNoFalseSharing) Lock lock_;
  BuddyEngine engine_;                   // under lock_
  std::uint64_t claimed_ = 0;            // under lock_: single frames set aside
  ZoneLimits limits_;                    // under lock_
  ZoneCounters counters_;                // under lock_; shortages, drains: under CachedZone's
  Atomic<std::uint64_t> free_pages_{0};  // written under lock_, read by anybody
  Atomic<std::uint32_t> loose_{kNoPage.value};  // stack linked through Page::next
  Atomic<std::uint64_t> hard_limit_{0};         // as limits_, read by anybody
  Atomic<std::uint64_t> soft_limit_{0};
  PageCount managed_;  // constant once sealed
  PageCount reserve_;
  Watermarks watermarks_{};
};

}  // namespace weir
