// SPDX-License-Identifier: MIT
// os/lock.hpp — a lock of one word: spin briefly, then sleep on a futex. Calls arch, futex(2).
// Never allocates. Not recursive; a holder interrupted by a signal handler must not be asked again
// from that handler (callers carry a thread mark, see os/thread_mark.hpp).
#pragma once

#include <cstdint>

#include "weir/base/atomic.hpp"
#include "weir/base/hot.hpp"

namespace weir {

class Lock {
 public:
  Lock() = default;
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  [[nodiscard]] WEIR_HOT bool try_lock() noexcept {
    std::uint32_t expected = kFree;
    // pairs: unlock release
    return word_.compare_exchange_strong(expected, kHeld, memory_order_acquire,
                                         memory_order_relaxed);
  }

  void lock() noexcept { static_cast<void>(lock_and_tell()); }

  // Takes the lock; true when it was found held and had to be waited for.
  WEIR_HOT bool lock_and_tell() noexcept {
    if (try_lock()) [[likely]] {
      return false;
    }
    lock_slow();
    return true;
  }

  WEIR_HOT void unlock() noexcept {
    // pairs: try_lock, lock_slow acquire
    if (word_.exchange(kFree, memory_order_release) == kHeldWithSleepers) [[unlikely]] {
      wake_one();
    }
  }

  // In a process that is single-threaded by now: free, whoever held it. Its holder may still unlock it.
  void reset() noexcept { word_.store(kFree, memory_order_relaxed); }

  // Racy by nature; for statistics and tests.
  [[nodiscard]] bool held() const noexcept { return word_.load(memory_order_relaxed) != kFree; }

 private:
  static constexpr std::uint32_t kFree = 0;
  static constexpr std::uint32_t kHeld = 1;
  static constexpr std::uint32_t kHeldWithSleepers = 2;

  WEIR_COLD void lock_slow() noexcept;
  WEIR_COLD void wake_one() noexcept;

  Atomic<std::uint32_t> word_{kFree};
};

class [[nodiscard]] LockGuard {
 public:
  explicit LockGuard(Lock& lock) noexcept : lock_(lock) { lock_.lock(); }
  ~LockGuard() { lock_.unlock(); }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;

 private:
  Lock& lock_;
};

}  // namespace weir
