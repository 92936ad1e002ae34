// SPDX-License-Identifier: MIT
// base/failpoint.hpp — named places where a test makes the library fail: the k-th time, or always.
// Calls base/atomic. Compiles to the constant false outside builds with test hooks.
#pragma once

#include <cstdint>

#include "weir/base/atomic.hpp"
#include "weir/base/config.hpp"

namespace weir {

enum class Failpoint : unsigned char {
#define WEIR_FAILPOINT(name, help) name,
#include "weir/base/failpoints.def"
#undef WEIR_FAILPOINT
  count_
};
inline constexpr unsigned kFailpointCount = static_cast<unsigned>(Failpoint::count_);

namespace failpoints {

struct Cell {
  Atomic<std::uint64_t> hits{0};   // times the point was reached since reset
  Atomic<std::uint64_t> from{0};   // first hit that fails (1-based); 0 = none
  Atomic<std::uint64_t> count{0};  // how many fail from there
};
inline Cell cells[kFailpointCount];  // NOLINT: test-only state, empty of meaning in release

// The k-th hit from now (1-based) fails, and `count` hits in all. Any thread.
inline void arm(Failpoint point, std::uint64_t k, std::uint64_t count = 1) {
  Cell& cell = cells[static_cast<unsigned>(point)];
  cell.hits.store(0, memory_order_relaxed);
  cell.count.store(count, memory_order_relaxed);
  cell.from.store(k, memory_order_relaxed);
}
inline void fail_always(Failpoint point) { arm(point, 1, UINT64_MAX / 2); }
inline void reset() {
  for (Cell& cell : cells) {
    cell.from.store(0, memory_order_relaxed);
    cell.count.store(0, memory_order_relaxed);
    cell.hits.store(0, memory_order_relaxed);
  }
}
inline std::uint64_t hits(Failpoint point) {
  return cells[static_cast<unsigned>(point)].hits.load(memory_order_relaxed);
}

}  // namespace failpoints

// True when a test asked this point to fail now.
[[nodiscard]] inline bool fails(Failpoint point) noexcept {
  if constexpr (kTestHooks) {
    failpoints::Cell& cell = failpoints::cells[static_cast<unsigned>(point)];
    const std::uint64_t hit = cell.hits.fetch_add(1, memory_order_relaxed) + 1;
    const std::uint64_t from = cell.from.load(memory_order_relaxed);
    return from != 0 && hit >= from && hit - from < cell.count.load(memory_order_relaxed);
  } else {
    static_cast<void>(point);
    return false;
  }
}

}  // namespace weir
