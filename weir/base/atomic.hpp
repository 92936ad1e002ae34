// SPDX-License-Identifier: MIT
// base/atomic.hpp — the only place that names std::atomic, so that a model build can swap it.
// Orders are spelled out at each use; a non-relaxed one names its partner.
#pragma once

#include <atomic>

namespace weir {

template <class T>
using Atomic = std::atomic<T>;

using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;

// Orders this thread's accesses as seen by a signal handler on this same thread: costs no
// instruction, only keeps the compiler from moving them.
inline void signal_fence() noexcept {
  std::atomic_signal_fence(std::memory_order_seq_cst);  // pairs: the handler it is interrupted by
}

}  // namespace weir
