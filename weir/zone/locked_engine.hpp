// SPDX-License-Identifier: MIT
// zone/locked_engine.hpp — the buddy engine under a lock: holds, claims, and what signal handlers leave.
// Owns the zone lock and its counters. Calls zone/buddy_engine, os/lock. Knows no reserve.
//
// Every hold of the lock moves at most one cluster of frames (or one larger block), and what is loose.
// A signal handler that interrupted a section with a lock (thread_is_marked) never touches the lock: its
// takes are refused, its gives go to a loose stack that the next holder empties whole.
#pragma once

#include <cstdint>

#include "weir/base/counter.hpp"
#include "weir/base/types.hpp"
#include "weir/os/lock.hpp"
#include "weir/os/thread_mark.hpp"
#include "weir/zone/buddy_engine.hpp"
#include "weir/zone/engine.hpp"

namespace weir {

class LockedEngine {
 public:
  // `counters`: the zone's; lock_*, taken, given, splits, merges, descriptors_* are written here, under
  // the lock.
  constexpr explicit LockedEngine(ZoneCounters& counters) noexcept : counters_(counters) {}
  LockedEngine(const LockedEngine&) = delete;
  LockedEngine& operator=(const LockedEngine&) = delete;

  // Not thread-safe: before the engine is known to others. Empties it.
  void open(BuddyMerge merge) noexcept;
  Error adopt(PageIndex first, PageCount frames) noexcept;

  // Sets n frames aside if as many and `leave` more are free.
  [[nodiscard]] bool claim(std::uint64_t n, std::uint64_t leave) noexcept;
  void unclaim(std::uint64_t n) noexcept;
  // n single frames of a claim, at most a cluster.
  void take_claimed(PageIndex* out, std::uint32_t n, std::uint32_t cpu) noexcept;

  // A block or kNoPage; merges what waits unmerged, a cluster under each hold, before it says kNoPage.
  // Who can move and who cannot are not kept apart here.
  [[nodiscard]] PageIndex take(Order order, std::uint64_t leave, std::uint32_t cpu,
                               Mobility mobility = Mobility::pinned) noexcept;
  // Up to n blocks, ascending where they come from one split; n << order at most a cluster.
  std::uint32_t take_many(Order order, PageIndex* out, std::uint32_t n, std::uint64_t leave,
                          std::uint32_t cpu) noexcept;

  // From anywhere: in a marked thread the block goes to the loose stack.
  void give(PageIndex page, Order order) noexcept;
  // n << order at most a cluster. Not from a marked thread.
  void give_many(Order order, const PageIndex* pages, std::uint32_t n) noexcept;

  // A pageblock for trimming and back; see zone/bitmap_engine.hpp. Each a hold, in a marked section or not. Not
  // counted as taken or given: nobody gets it.
  [[nodiscard]] bool begin_trim(PageIndex page, std::uint64_t leave) noexcept;
  void end_trim(PageIndex page, bool done) noexcept;
  void forget_trim(PageIndex page) noexcept;
  [[nodiscard]] bool is_trimmed(PageIndex page) const noexcept;
  [[nodiscard]] std::uint64_t trimmed_blocks() const noexcept;

  // Merges all that waits unmerged now, a cluster under each hold.
  void merge_all() noexcept;

  // What engine.hpp calls isolation, 64 frames or one larger block under each hold (locked_isolation.cpp).
  [[nodiscard]] bool isolate(PageIndex page, std::uint64_t leave) noexcept;
  void end_isolation(PageIndex page) noexcept;
  [[nodiscard]] bool take_isolated(PageIndex page) noexcept;
  [[nodiscard]] PageIndex take_in(PageIndex page, Order order, std::uint64_t leave,
                                  Mobility mobility) noexcept;
  void split(PageIndex page, Order order) noexcept { BuddyEngine::split(page, order); }
  [[nodiscard]] PageblockView pageblock(PageIndex page) const noexcept;

  // Free and not claimed; exact at quiescence, any thread.
  [[nodiscard]] std::uint64_t free_pages() const noexcept {
    return free_pages_.load(memory_order_relaxed);
  }
  // Under the lock, loose frames taken in.
  [[nodiscard]] std::uint64_t exact_free_pages() noexcept;
  [[nodiscard]] std::uint64_t free_blocks(Order order) const noexcept;
  // Frames given from interrupted signal handlers and not yet taken in.
  [[nodiscard]] bool has_loose() const noexcept {
    return loose_.load(memory_order_relaxed) != kNoPage.value;
  }
  // Recounts the engine under the lock; aborts on a broken invariant. Returns the free frames.
  std::uint64_t audit() const noexcept;

  void lock_for_fork() noexcept { lock_.lock(); }
  void unlock_after_fork() noexcept { lock_.unlock(); }
  // In a forked child, the lock held: what other threads had claimed is nobody's.
  void forget_claims() noexcept {
    claimed_ = 0;
    free_pages_.store(buddy_.free_pages(), memory_order_relaxed);
  }
  // In a child forked without the lock: whoever held it does not exist, or is this thread's own.
  void reset_lock() noexcept { lock_.reset(); }

 private:
  class Hold;

  void push_loose(PageIndex page) noexcept;
  // lock_ held. Returns the frames taken in: as many as handlers have left.
  std::uint32_t take_in_loose() noexcept;
  [[nodiscard]] bool allowed(std::uint64_t frames, std::uint64_t leave) const noexcept {
    return buddy_.free_pages() >= frames + claimed_ + leave;
  }

  mutable Lock lock_;
  BuddyEngine buddy_;                           // under lock_
  std::uint64_t claimed_ = 0;                   // under lock_: single frames set aside
  ZoneCounters& counters_;                      // those named above: under lock_
  Atomic<std::uint64_t> free_pages_{0};         // written under lock_, read by anybody
  Atomic<std::uint32_t> loose_{kNoPage.value};  // stack linked through Page::next
};
static_assert(Engine<LockedEngine>);

}  // namespace weir
