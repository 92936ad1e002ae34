// SPDX-License-Identifier: MIT
// zone/zone.hpp — the frames of one node: engine, reserve, watermarks, counters, and when a refusal is
// final. Calls zone/locked_engine or zone/bitmap_engine, as it was opened. Knows nothing of lists: it
// answers kNoPage and its caller gives something back and tries again.
//
// With the locked engine a signal handler that interrupted a section with a lock (thread_is_marked) is
// refused, and what it gives waits until the next call. The bitmap engine serves handlers like anybody.
#pragma once

#include <cstdint>

#include "weir/base/counter.hpp"
#include "weir/base/types.hpp"
#include "weir/os/options.hpp"
#include "weir/os/thread_mark.hpp"
#include "weir/zone/bitmap_engine.hpp"
#include "weir/zone/limits.hpp"
#include "weir/zone/locked_engine.hpp"
#include "weir/zone/watermarks.hpp"

namespace weir {

class Zone {
 public:
  Zone() = default;
  Zone(const Zone&) = delete;
  Zone& operator=(const Zone&) = delete;

  // Not thread-safe: before the zone is known to others.
  Error open(PageCount reserve, EngineChoice engine = EngineChoice::bitmap,
             BuddyMerge merge = BuddyMerge::eager) noexcept;
  Error adopt(PageIndex first, PageCount frames) noexcept;
  // Gives back what the engine keeps beside the frames. free_pages() may still be asked.
  void close() noexcept;
  // Sets the watermarks once all memory is adopted.
  void seal() noexcept;

  // A block or kNoPage. may_use_reserve: may leave fewer than `reserve` frames free. Here and below, no
  // more frames leave than the hard limit lets; what would cross the soft one is refused by all but
  // take_or_tell() and claim_or_tell(), whose callers have emptied lists and depot.
  [[nodiscard]] PageIndex take(Order order, bool may_use_reserve, TakeReport* report = nullptr,
                               Mobility mobility = Mobility::pinned) noexcept;
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
  // way anywhere: then nothing suitable was free outside the lists. A kNoPage that is final (quiet, or
  // last_try) is counted as a refusal, unless the report says that its caller tries again.
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
  // Counts and reports a refusal that the caller decided upon.
  void note_refused(std::uint64_t frames, bool may_use_reserve, TakeReport* report) noexcept;

  // From anywhere: in a marked thread the block goes to the loose stack.
  void give(PageIndex page, Order order) noexcept;
  // n << order at most a cluster.
  void give_many(const PageIndex* pages, std::uint32_t n, Order order) noexcept;

  // What engine.hpp calls isolation. Leaves the reserve to others. What is withheld counts as out: whoever
  // takes meanwhile is refused the sooner, and waits.
  [[nodiscard]] bool isolate(PageIndex page) noexcept;
  void end_isolation(PageIndex page) noexcept;
  [[nodiscard]] bool take_isolated(PageIndex page) noexcept;
  // A block for a page that is carried there.
  [[nodiscard]] PageIndex take_in(PageIndex page, Order order, Mobility mobility) noexcept;
  // The same from anywhere. Carrying changes nothing about what is used: no limit is looked at.
  [[nodiscard]] PageIndex take_room(Order order) noexcept;
  void split(PageIndex page, Order order) noexcept;
  [[nodiscard]] PageblockView pageblock(PageIndex page) const noexcept {
    return lock_free() ? bitmap_->pageblock(page) : locked_.pageblock(page);
  }

  // A wholly free pageblock for whoever gives its memory to the system, and back; zone/bitmap_engine.hpp. Leaves
  // `keep` frames free beside what the reserve and a limit keep back.
  [[nodiscard]] bool begin_trim(PageIndex pageblock, std::uint64_t keep) noexcept {
    const std::uint64_t leave = stays(false) + keep;
    return lock_free() ? bitmap_->begin_trim(pageblock, leave)
                       : locked_.begin_trim(pageblock, leave);
  }
  void end_trim(PageIndex pageblock, bool done) noexcept {
    lock_free() ? bitmap_->end_trim(pageblock, done) : locked_.end_trim(pageblock, done);
  }
  void forget_trim(PageIndex pageblock) noexcept {
    lock_free() ? bitmap_->forget_trim(pageblock) : locked_.forget_trim(pageblock);
  }
  [[nodiscard]] bool is_trimmed(PageIndex page) const noexcept {
    return lock_free() ? bitmap_->is_trimmed(page) : locked_.is_trimmed(page);
  }
  // Frames that are free and whose memory is with the system.
  [[nodiscard]] std::uint64_t trimmed_pages() const noexcept {
    return (lock_free() ? bitmap_->trimmed_blocks() : locked_.trimmed_blocks()) *
           frames_in(kPageblockOrder);
  }

  // 0 is no limit. What is out already stays out: nothing more leaves until enough has come back.
  void set_limits(PageCount hard, PageCount soft) noexcept;
  [[nodiscard]] PageCount hard_limit() const noexcept { return limits_.hard(); }
  // Whether so many more, or fewer, frames out would be more than the hard limit lets.
  [[nodiscard]] bool exceeds_limit(std::uint64_t more, std::uint64_t fewer = 0) const noexcept {
    return limits_.exceeds(out() - fewer, more);
  }
  [[nodiscard]] PageCount soft_limit() const noexcept { return limits_.soft(); }

  // Merges all that gives of single frames have put off, in bounded steps.
  void merge_all() noexcept {
    if (!lock_free()) {
      locked_.merge_all();
    }
  }

  // Frames free in the engine; exact at quiescence, any thread.
  [[nodiscard]] std::uint64_t free_pages() const noexcept {
    return lock_free() ? bitmap_->free_pages() : locked_.free_pages();
  }
  // Whether the engine takes no lock: then signal handlers are served wherever they came.
  [[nodiscard]] bool lock_free() const noexcept { return lock_free_.load(memory_order_relaxed); }
  // Whether this frame heads a block that has left the engine. Any frame of this zone.
  [[nodiscard]] bool is_taken(PageIndex page) const noexcept;
  [[nodiscard]] PageCount managed() const noexcept { return managed_; }
  [[nodiscard]] PageCount reserve() const noexcept { return reserve_; }
  [[nodiscard]] const Watermarks& watermarks() const noexcept { return watermarks_; }

  [[nodiscard]] std::uint64_t free_blocks(Order order) const noexcept {
    return lock_free() ? bitmap_->free_blocks(order) : locked_.free_blocks(order);
  }
  // The same under the lock where there is one, loose frames taken in: exact as far as the engine goes.
  [[nodiscard]] std::uint64_t exact_free_pages() noexcept {
    return lock_free() ? bitmap_->free_pages() : locked_.exact_free_pages();
  }
  // Frames given from interrupted signal handlers and not yet taken in.
  [[nodiscard]] bool has_loose() const noexcept { return !lock_free() && locked_.has_loose(); }
  [[nodiscard]] ZoneCounters& counters() noexcept { return counters_; }
  [[nodiscard]] const ZoneCounters& counters() const noexcept { return counters_; }

  // Recounts the engine (without a lock: at rest); aborts on a broken invariant. Returns free frames.
  std::uint64_t audit() const noexcept { return lock_free() ? bitmap_->audit() : locked_.audit(); }

  void lock_for_fork() noexcept { locked_.lock_for_fork(); }
  void unlock_after_fork() noexcept { locked_.unlock_after_fork(); }
  // In a forked child, locked for it: what other threads had claimed or were about is nobody's.
  void recover_in_child() noexcept;
  // In a child forked without the lock: whoever held it does not exist, or is this thread's own.
  void reset_lock() noexcept { locked_.reset_lock(); }
  // Of the engine, beside the descriptors.
  [[nodiscard]] Bytes metadata() const noexcept {
    return lock_free() ? bitmap_->metadata() : Bytes{sizeof(LockedEngine)};
  }

 private:
  template <class Ask>
  [[nodiscard]] bool ask_or_tell(Ask&& ask, std::uint64_t frames, bool may_use_reserve,
                                 bool told_to_fail, const Outside& outside, bool last_try,
                                 bool& quiet, TakeReport* report) noexcept;
  // Frames that the request may not have.
  [[nodiscard]] std::uint64_t stays(bool may_use_reserve) const noexcept {
    return limits_.kept() + (may_use_reserve ? 0 : reserve_.value);
  }
  // Frames that have left the engine, or are promised.
  [[nodiscard]] std::uint64_t out() const noexcept { return managed_.value - free_pages(); }
  void note_served(std::uint64_t frames, bool may_use_reserve, TakeReport* report) noexcept;
  // Calls `use` with the engine there is.
  template <class Use>
  decltype(auto) with_engine(Use&& use) noexcept {
    if (!lock_free()) {
      return use(locked_);
    }
    // A handler that interrupts it may allocate, but a child forked there would go on with books that were
    // counted anew meanwhile.
    const ThreadMark mark;
    return use(*bitmap_);
  }
  void count_given(std::uint64_t frames) noexcept;

  ZoneCounters counters_;  // the locked engine's under its lock; others by anybody
  alignas(kNoFalseSharing) LockedEngine locked_{counters_};
  // Made by the first zone of this slot that wants one, and kept: whoever comes late to a zone that has
  // closed may still ask for its count.
  BitmapEngine* bitmap_ = nullptr;
  Atomic<bool> lock_free_{false};  // constant once sealed
  ZoneLimits limits_;
  PageCount managed_;  // constant once sealed
  PageCount reserve_;
  Watermarks watermarks_{};
};

}  // namespace weir
