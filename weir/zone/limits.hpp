// SPDX-License-Identifier: MIT
// zone/limits.hpp — how many frames may be outside the engine: a hard limit and a soft one, and what a
// request learns of them. Pure state of one zone, under its lock. Calls base only.
//
//   engine  | kept back by the limit | reserve | for everybody |     outside the engine: out
//           |<- managed - hard limit ->|
//
// A limit is a part of the engine that nobody gets. So it costs no counter of its own, and is exact
// under the one lock that every frame passes on its way out: out <= hard limit, whatever lies on lists
// or in the depot. Those are emptied before a request is refused; then `out` is what users hold.
//
// The soft limit is crossed when a request is served that takes `out` from at most the limit above it.
// Below it, frames leave the engine only as long as they do not cross; what would cross is served after
// lists and depot were emptied, so that the crossing counts users' frames alone. Once it is crossed
// nothing is looked at, until `out`, lists and depot included, has fallen to the limit again.
#pragma once

#include <cstdint>

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
    kept_ = hard.value != 0 && hard < managed ? (managed - hard).value : 0;
    hard_most_ = hard.value != 0 ? hard.value : UINT64_MAX;
    soft_most_ = soft.value != 0 ? soft.value : UINT64_MAX;
    above_ = out > soft_most_;
  }

  // Frames that stay in the engine.
  [[nodiscard]] std::uint64_t kept() const noexcept { return kept_; }

  [[nodiscard]] bool exceeds(std::uint64_t out, std::uint64_t frames) const noexcept {
    return out + frames > hard_most_;
  }
  [[nodiscard]] bool crosses(std::uint64_t out, std::uint64_t frames) const noexcept {
    return !above_ && out + frames > soft_most_;
  }
  void cross() noexcept { above_ = true; }
  // After anything moved.
  void settle(std::uint64_t out) noexcept {
    if (out <= soft_most_) {
      above_ = false;
    }
  }

 private:
  std::uint64_t kept_ = 0;
  std::uint64_t hard_most_ = UINT64_MAX;
  std::uint64_t soft_most_ = UINT64_MAX;
  bool above_ = false;  // crossed, and not yet back
};

}  // namespace weir
