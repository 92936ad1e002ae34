// SPDX-License-Identifier: MIT
// zone/locked_hold.hpp — LockedEngine's own: one hold of the lock, marked and accounted. Included by the
// parts of LockedEngine alone.
#pragma once

#include "weir/arch/cpu.hpp"
#include "weir/zone/locked_engine.hpp"

namespace weir {

// Mark, lock, account, unlock.
class LockedEngine::Hold {
 public:
  explicit Hold(LockedEngine& engine) noexcept : engine_(engine) {
    const bool waited = engine_.lock_.lock_and_tell();
    start_ = cycle_counter();
    engine_.counters_.lock_acquisitions.add(1);
    engine_.counters_.lock_waits.add(waited ? 1 : 0);
    frames_ = engine_.take_in_loose();
  }
  ~Hold() {
    frames_ += engine_.take_in_loose();
    ZoneCounters& counters = engine_.counters_;
    const BuddyEngine& buddy = engine_.buddy_;
    counters.lock_frames.add(frames_);
    counters.lock_most_frames.raise_to(frames_);
    counters.splits.raise_to(buddy.splits());
    counters.merges.raise_to(buddy.merges());
    counters.descriptors_taking.raise_to(buddy.touched_taking());
    counters.descriptors_giving.raise_to(buddy.touched_giving());
    engine_.free_pages_.store(buddy.free_pages() - engine_.claimed_, memory_order_relaxed);
    counters.lock_longest_hold.raise_to(cycle_counter() - start_);
    engine_.lock_.unlock();
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  void took(std::uint64_t frames) noexcept {
    frames_ += frames;
    engine_.counters_.taken.add(frames);
  }
  void gave(std::uint64_t frames) noexcept {
    frames_ += frames;
    engine_.counters_.given.add(frames);
  }
  void touched(std::uint64_t frames) noexcept { frames_ += frames; }

 private:
  ThreadMark mark_;  // stands before the lock is taken, goes after it is free
  LockedEngine& engine_;
  std::uint64_t start_ = 0;
  std::uint64_t frames_ = 0;
};

}  // namespace weir
