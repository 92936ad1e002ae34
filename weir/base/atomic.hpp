// SPDX-License-Identifier: MIT
// base/atomic.hpp — the only place that names std::atomic, so that a model build can swap it.
// Orders are spelled out at each use; a non-relaxed one names its partner.
#pragma once

#include <atomic>
#include <cstdint>

namespace weir {

template <class T>
using Atomic = std::atomic<T>;

using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;

// A value written by one thread at a time, under whatever lock its owner names, that others may look
// at without that lock: every access is relaxed, so they read some value that was there.
template <class T>
class Relaxed {
 public:
  constexpr Relaxed(T value = T{}) noexcept
      : value_(value) {}  // NOLINT(google-explicit-constructor)
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;
  Relaxed& operator=(T value) noexcept {
    value_.store(value, memory_order_relaxed);
    return *this;
  }
  operator T() const noexcept {  // NOLINT(google-explicit-constructor)
    return value_.load(memory_order_relaxed);
  }
  Relaxed& operator+=(T n) noexcept { return *this = static_cast<T>(T{*this} + n); }

 private:
  Atomic<T> value_;
};

// The eight bytes at a place that atomics of a smaller width make up, in one load. The place is
// aligned to eight.
[[nodiscard]] inline std::uint64_t load_wide_acquire(const void* place) noexcept {
  using Wide [[gnu::may_alias]] = std::uint64_t;
  return __atomic_load_n(static_cast<const Wide*>(place), __ATOMIC_ACQUIRE);
}

// Orders this thread's accesses as seen by a signal handler on this same thread: costs no
// instruction, only keeps the compiler from moving them.
inline void signal_fence() noexcept {
  std::atomic_signal_fence(std::memory_order_seq_cst);  // pairs: the handler it is interrupted by
}

}  // namespace weir
