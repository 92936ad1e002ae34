// SPDX-License-Identifier: MIT
// percpu/carry.hpp — CachedZone's own: who carries pages between list, depot and engine, and how a request
// waits until nobody does. Included by the parts of CachedZone, and by page/compaction.cpp for Withholding.
#pragma once

#include <cstdint>

#include "weir/os/thread_mark.hpp"
#include "weir/os/wait.hpp"
#include "weir/percpu/cached_zone.hpp"

namespace weir {

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
    count_.fetch_add(1, memory_order_seq_cst);  // pairs: halt seq_cst
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
    return zone_.stopped_.load(memory_order_seq_cst);  // pairs: halt seq_cst
  }

 private:
  CachedZone& zone_;
  Atomic<std::uint32_t>& count_;
  bool nested_;
};

// A drainer between list or depot and engine, or who has a pageblock withheld or on its way. Counted like a
// carrier, for whoever decides about a refusal does so without their locks.
class CachedZone::Counted {
 public:
  explicit Counted(CachedZone& zone) noexcept : count_(zone.lists_.common_block().carriers) {
    count_.fetch_add(1, memory_order_seq_cst);  // pairs: carriers seq_cst
  }
  ~Counted() { count_.fetch_sub(1, memory_order_release); }  // pairs: carriers seq_cst
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  Atomic<std::uint32_t>& count_;
};

// As Counted, for somebody without a lock. Begins under the drainers' lock: a fork, which holds it, either
// waits for the end or comes before.
class CachedZone::Withholding {
 public:
  explicit Withholding(CachedZone& zone) noexcept : count_(zone.lists_.common_block().carriers) {
    const ThreadMark mark;
    const LockGuard guard{zone.shortage_lock_};
    count_.fetch_add(1, memory_order_seq_cst);  // pairs: carriers seq_cst
  }
  ~Withholding() { count_.fetch_sub(1, memory_order_release); }  // pairs: carriers seq_cst
  Withholding(const Withholding&) = delete;
  Withholding& operator=(const Withholding&) = delete;

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

}  // namespace weir
