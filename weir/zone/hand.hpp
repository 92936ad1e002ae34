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
  // [begin, end) of frames, blocks of one order; changed under the zone lock or the list lock that
  // moves the pages, read by a forked child and, for statistics, by anybody.
  Relaxed<std::uint32_t> begin;
  Relaxed<std::uint32_t> end;
  Relaxed<Order> order;
  PageIndex frames[kClusterFrames] = {};

  [[nodiscard]] bool empty() const noexcept { return begin == end; }
  [[nodiscard]] std::uint32_t size() const noexcept { return end - begin; }
  // Frames in it, not blocks.
  [[nodiscard]] std::uint64_t frame_count() const noexcept {
    return std::uint64_t{size()} << Order{order}.value;
  }
  // The block on top, which must be there.
  [[nodiscard]] PageIndex pop() noexcept {
    end = end - 1;
    return frames[end];
  }
  void clear() noexcept {
    begin = 0;
    end = 0;
  }
};

}  // namespace weir
