// SPDX-License-Identifier: MIT
// percpu/twin_lock.hpp — the lock word of a CPU's lists in their locked form. Calls base, arch,
// os/thread_mark, sched_yield(2).
// Users only ever try it; drainers may wait. Whoever holds it bears a thread mark: a signal handler
// that interrupts the holder waits for no lock of weir, of whatever zone, and drains nothing, so no
// drainer waits for such a handler.
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
    return !fails(Failpoint::list_busy) && seize();
  }

  // For drainers.
  void lock() noexcept {
    // A holder is a few instructions from the end unless it lost its CPU.
    for (std::uint32_t spin = 0; !seize(); ++spin) {
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
      if (seize()) {
        return true;
      }
      cpu_pause();
    }
    return false;
  }

  // Racy by nature; for tests.
  [[nodiscard]] bool held() const noexcept { return held_.load(memory_order_relaxed) != 0; }

  // In a forked child: the holder was a thread that does not exist here.
  void reset() noexcept { held_.store(0, memory_order_relaxed); }

  WEIR_HOT void unlock() noexcept {
    held_.store(0, memory_order_release);  // pairs: seize acquire
    ThreadMark::leave();
  }

 private:
  static constexpr std::uint32_t kSpins = 64;

  WEIR_HOT bool seize() noexcept {
    ThreadMark::enter();
    std::uint32_t free = 0;
    // pairs: unlock release
    if (held_.compare_exchange_strong(free, 1, memory_order_acquire, memory_order_relaxed)) {
      return true;
    }
    ThreadMark::leave();
    return false;
  }

  Atomic<std::uint32_t> held_{0};
};

}  // namespace weir
