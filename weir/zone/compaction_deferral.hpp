// SPDX-License-Identifier: MIT
// zone/compaction_deferral.hpp — whether a run that carries pages together is worth a try after others have
// failed. A plain value, used by one thread at a time. Calls base only.
//
// As in the kernel (mm/compaction.c, defer_compaction): every failure doubles how many runs are left out
// before the next one, up to 63; only those for the order that failed, or a larger one; a success ends it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "weir/base/types.hpp"

namespace weir {

class CompactionDeferral {
 public:
  static constexpr unsigned kMostShift = 6;

  // Whether this run is left out; counts it.
  [[nodiscard]] constexpr bool leaves_out(Order order) noexcept {
    if (order < failed_ || considered_ >= limit()) {
      return false;
    }
    return ++considered_ < limit();
  }
  constexpr void failed(Order order) noexcept {
    considered_ = 0;
    shift_ = std::min(shift_ + 1, kMostShift);
    failed_ = std::min(failed_, order);
  }
  constexpr void succeeded(Order order) noexcept {
    if (order >= failed_) {
      *this = CompactionDeferral{};
    }
  }

 private:
  [[nodiscard]] constexpr std::uint32_t limit() const noexcept { return 1U << shift_; }

  std::uint32_t considered_ = 1;
  unsigned shift_ = 0;
  Order failed_{kMaxOrderValue};
};

}  // namespace weir
