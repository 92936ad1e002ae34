// SPDX-License-Identifier: MIT
// percpu/twin_lock.hpp — the lock word of a CPU's lists in their locked form. Calls base, arch,
// os/thread_mark, sched_yield(2).
// Users only ever try it; drainers may wait. The word is the holder's token, so that a signal
// handler which interrupted the holder can tell that waiting would be for ever.
#pragma once

#include <sched.h>

#include <cstdint>

#include "weir/arch/cpu.hpp"
#include "weir/base/atomic.hpp"
#include "weir/base/failpoint.hpp"
#include "weir/base/hot.hpp"
#include "weir/os/thread_mark.hpp"

namespace weir {

class TwinLock {
 public:
  [[nodiscard]] WEIR_HOT bool try_lock() noexcept {
    if (fails(Failpoint::list_busy)) {
      return false;
    }
    std::uintptr_t expected = 0;
    // pairs: unlock release
    return holder_.compare_exchange_strong(expected, thread_token(), memory_order_acquire,
                                           memory_order_relaxed);
  }

  // For drainers. False when this very thread holds it (we are in a signal handler).
  [[nodiscard]] bool lock() noexcept {
    for (std::uint32_t spin = 0;; ++spin) {
      std::uintptr_t seen = 0;
      // pairs: unlock release
      if (holder_.compare_exchange_strong(seen, thread_token(), memory_order_acquire,
                                          memory_order_relaxed)) {
        return true;
      }
      if (seen == thread_token()) {
        return false;
      }
      // A holder is a few instructions from the end unless it lost its CPU.
      if (spin < kSpins) {
        cpu_pause();
      } else {
        ::sched_yield();
      }
    }
  }

  // For whoever must not wait while it holds other locks: false when a while was not enough.
  [[nodiscard]] bool lock_soon() noexcept {
    for (std::uint32_t spin = 0; spin < kSpins; ++spin) {
      std::uintptr_t seen = 0;
      // pairs: unlock release
      if (holder_.compare_exchange_strong(seen, thread_token(), memory_order_acquire,
                                          memory_order_relaxed)) {
        return true;
      }
      cpu_pause();
    }
    return false;
  }

  // Whether this very thread is inside: we are in a signal handler that interrupted it.
  [[nodiscard]] bool held_by_caller() const noexcept {
    return holder_.load(memory_order_relaxed) == thread_token();
  }

  // In a forked child: the holder was a thread that does not exist here.
  void reset() noexcept { holder_.store(0, memory_order_relaxed); }

  WEIR_HOT void unlock() noexcept {
    holder_.store(0, memory_order_release);  // pairs: try_lock, lock, lock_soon acquire
  }

 private:
  static constexpr std::uint32_t kSpins = 64;

  Atomic<std::uintptr_t> holder_{0};
};

}  // namespace weir
