// SPDX-License-Identifier: MIT
// zone/hand.hpp — a body for pages on their way between engine and list. Calls base only.
// Frames in a hand are free memory that neither side holds: a zone refuses a request only when no
// hand is in use. Hands lie in memory of the zone, not on a thread's stack, so that a forked child
// finds what threads that do not exist in it were carrying.
#pragma once

#include <cstdint>

#include "weir/base/atomic.hpp"
#include "weir/base/types.hpp"

namespace weir {

struct alignas(kCacheLine) Hand {
  Atomic<bool> busy{false};  // claimed by exchange; freed by the claimer
  // [begin, end) of frames; changed under the zone lock or the list lock that moves the pages,
  // read by a forked child.
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  Order order;
  PageIndex frames[kClusterFrames] = {};

  [[nodiscard]] bool empty() const noexcept { return begin == end; }
  [[nodiscard]] std::uint32_t size() const noexcept { return end - begin; }
  void clear() noexcept { begin = end = 0; }
};

}  // namespace weir
