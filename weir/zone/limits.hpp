// SPDX-License-Identifier: MIT
// zone/limits.hpp — how many frames may be outside the engine: a hard limit and a soft one, and what a
// request learns of them. State of one zone, each word by itself; any thread. Calls base only.
//
//   engine  | kept back by the limit | reserve | for everybody |     outside the engine: out
//           |<- managed - hard limit ->|
//
// A limit is a part of the engine that nobody gets. So it costs no counter of its own, and is exact
// where the engine decides what may be taken: out <= hard limit, whatever lies on lists or in the depot.
// Those are emptied before a request is refused; then `out` is what users hold.
//
// The soft limit is crossed when a request is served that takes `out` from at most the limit above it.
// Below it, frames leave the engine only as long as they do not cross; what would cross is served after
// lists and depot were emptied, so that the crossing counts users' frames alone. Once it is crossed
// nothing is looked at, until `out`, lists and depot included, has fallen to the limit again.
#pragma once

#include <cstdint>

#include "weir/base/atomic.hpp"
#include "weir/base/types.hpp"

namespace weir {

// What a request that went as far as the zone learned there. Each number is told by the word above it,
// and is nothing without it.
struct TakeReport {
  bool tries_again = false;  // told by the caller: a refusal is not its last word, and not counted

  bool refused = false;
  bool by_limit = false;  // the refusal: it would have exceeded the hard limit
  std::uint64_t used;     // frames out when that happened
  std::int64_t usable;    // frames the refused request might have had; negative: owed first

  std::uint32_t crossings = 0;   // of the soft limit, upward
  std::uint64_t crossing_used;   // frames out before the last of them
  std::uint64_t crossing_asked;  // frames that it added

  std::uint64_t from_reserve = 0;  // of the frames served: those below the reserve
};

class ZoneLimits {
 public:
  // 0 is no limit. `out` is what stands outside now: above the soft limit, it counts as crossed.
  void set(PageCount managed, PageCount hard, PageCount soft, std::uint64_t out) noexcept {
    kept_.store(hard.value != 0 && hard < managed ? (managed - hard).value : 0,
                memory_order_relaxed);
    hard_.store(hard.value != 0 ? hard.value : kNone, memory_order_relaxed);
    soft_.store(soft.value != 0 ? soft.value : kNone, memory_order_relaxed);
    above_.store(soft.value != 0 && out > soft.value, memory_order_relaxed);
  }
  [[nodiscard]] PageCount hard() const noexcept { return shown(hard_); }
  [[nodiscard]] PageCount soft() const noexcept { return shown(soft_); }

  // Frames that stay in the engine.
  [[nodiscard]] std::uint64_t kept() const noexcept { return kept_.load(memory_order_relaxed); }

  [[nodiscard]] bool exceeds(std::uint64_t out, std::uint64_t frames) const noexcept {
    return out + frames > hard_.load(memory_order_relaxed);
  }
  // Whether `frames` more would cross the soft limit. Where it was crossed: whether `out` has come back
  // meanwhile is seen here.
  [[nodiscard]] bool crosses(std::uint64_t out, std::uint64_t frames) noexcept {
    const std::uint64_t soft = soft_.load(memory_order_relaxed);
    if (out + frames <= soft) [[likely]] {
      return false;
    }
    if (out <= soft) {
      above_.store(false, memory_order_relaxed);
    }
    return !above_.load(memory_order_relaxed);
  }
  // Of those who cross at once, one is told true.
  [[nodiscard]] bool cross() noexcept { return !above_.exchange(true, memory_order_relaxed); }

 private:
  static constexpr std::uint64_t kNone = UINT64_MAX / 2;  // more than any `out` and frames
  [[nodiscard]] static PageCount shown(const Atomic<std::uint64_t>& limit) noexcept {
    const std::uint64_t value = limit.load(memory_order_relaxed);
    return {value == kNone ? 0 : value};
  }

  Atomic<std::uint64_t> kept_{0};
  Atomic<std::uint64_t> hard_{kNone};
  Atomic<std::uint64_t> soft_{kNone};
  Atomic<bool> above_{false};  // crossed, and not yet back
};

}  // namespace weir
