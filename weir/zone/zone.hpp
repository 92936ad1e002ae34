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
#include "weir/zone/hand.hpp"
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

  // A block or kNoPage. may_use_reserve: may leave fewer than `reserve` frames free.
  [[nodiscard]] PageIndex take(Order order, bool may_use_reserve) noexcept;
  // Up to n single frames straight to the caller, n at most a cluster.
  std::uint32_t take_many(PageIndex* out, std::uint32_t n, bool may_use_reserve) noexcept;
  // Up to n blocks into an empty hand, the lowest on top; n << order at most a cluster.
  std::uint32_t take_into(Hand& hand, Order order, std::uint32_t n, bool may_use_reserve) noexcept;

  // A block, or kNoPage with `none_in_hand` telling whether, at that moment, no hand of this zone
  // was in use: then nothing suitable was free anywhere outside the lists. A kNoPage that is final
  // (none in hand, or last_try) is counted as a refusal.
  [[nodiscard]] PageIndex take_or_tell(Order order, bool may_use_reserve,
                                       const Atomic<std::uint32_t>& hands_in_use, bool last_try,
                                       bool& none_in_hand) noexcept;

  void give(PageIndex page, Order order) noexcept;
  // n << order at most a cluster.
  void give_many(const PageIndex* pages, std::uint32_t n, Order order) noexcept;
  void give_hand(Hand& hand) noexcept;

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

 private:
  class Hold;

  void push_loose(PageIndex page) noexcept;
  // lock_ held. Returns the frames taken in: as many as handlers have left.
  std::uint32_t take_in_loose() noexcept;
  [[nodiscard]] bool allowed(std::uint64_t frames, bool may_use_reserve) const noexcept {
    return may_use_reserve || engine_.free_pages() >= frames + reserve_.value;
  }

  alignas(kNoFalseSharing) Lock lock_;
  BuddyEngine engine_;                   // under lock_
  ZoneCounters counters_;                // under lock_; shortages, drains: under CachedZone's
  Atomic<std::uint64_t> free_pages_{0};  // written under lock_, read by anybody
  Atomic<std::uint32_t> loose_{kNoPage.value};  // stack linked through Page::next
  PageCount managed_;                           // constant once sealed
  PageCount reserve_;
  Watermarks watermarks_{};
};

}  // namespace weir
