// SPDX-License-Identifier: MIT
// percpu/capacity.hpp — how much a per-CPU list holds and moves. Pure functions; `batch`, `high_min`
// and `high_max` are the kernel's (zone_batchsize, zone_highsize in mm/page_alloc.c). Calls
// zone/watermarks, base.
#pragma once

#include <algorithm>
#include <cstdint>

#include "weir/base/bits.hpp"
#include "weir/base/config.hpp"
#include "weir/base/types.hpp"
#include "weir/zone/watermarks.hpp"

namespace weir {

// 2^n - 1, at most 63: an exact power of two would alias cache colours between two tasks that take
// turns.
[[nodiscard]] constexpr std::uint32_t pcp_batch(PageCount managed) noexcept {
  std::uint64_t batch = std::min<std::uint64_t>(managed.value >> 10, kMiB.value / kFrameBytes);
  batch = std::max<std::uint64_t>(batch / 4, 1);
  batch = pow2_floor(batch + batch / 2) - 1;
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(batch, 1));
}

[[nodiscard]] constexpr std::uint64_t pcp_high_min(PageCount managed, std::uint64_t cpus) noexcept {
  return std::max<std::uint64_t>(watermarks_of(managed).low.value / cpus,
                                 std::uint64_t{4} * pcp_batch(managed));
}

[[nodiscard]] constexpr std::uint64_t pcp_high_max(PageCount managed, std::uint64_t cpus) noexcept {
  return std::max<std::uint64_t>(managed.value / 8 / cpus, std::uint64_t{4} * pcp_batch(managed));
}

// Frames moved at once between list and zone: a cluster, less in zones too small for that (a zone
// of 32 frames and two lists moves one).
[[nodiscard]] constexpr std::uint32_t cluster_frames(PageCount managed,
                                                     std::uint64_t lists) noexcept {
  const std::uint64_t share = pow2_floor<std::uint64_t>(managed.value / (16 * lists));
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(share, 1, kClusterFrames));
}

// Blocks of an order moved at once: a cluster's worth of frames.
[[nodiscard]] constexpr std::uint32_t blocks_per_move(unsigned order,
                                                      std::uint32_t cluster) noexcept {
  return std::max<std::uint32_t>(cluster >> order, 1);
}

// Order-0 pages a list holds: what is asked, else the formula; 0 or at least two clusters.
[[nodiscard]] constexpr std::uint32_t list_high(PageCount managed, std::uint64_t lists,
                                                std::uint64_t asked) noexcept {
  const std::uint64_t cluster = cluster_frames(managed, lists);
  const std::uint64_t high = asked != 0 ? asked : pcp_high_min(managed, lists);
  return static_cast<std::uint32_t>(std::clamp(high, 2 * cluster, kListCapacityMax));
}

// Blocks that the list of a higher order holds. Orders 1 to 3 get a quarter of `high` in frames,
// and nothing in zones too small for whole clusters; pageblocks a 1/8 share of the zone divided
// among the lists, four at most.
[[nodiscard]] constexpr std::uint32_t list_capacity(unsigned order, PageCount managed,
                                                    std::uint64_t lists,
                                                    std::uint32_t high) noexcept {
  if (order == 0) {
    return high;
  }
  const std::uint32_t cluster = cluster_frames(managed, lists);
  if (cluster < kClusterFrames) {
    return 0;
  }
  if (order == kPageblockOrderValue) {
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(managed.value >> kPageblockOrderValue >> 3, 4 * lists) / lists);
  }
  return std::max(high >> (order + 2), 2 * blocks_per_move(order, cluster));
}

}  // namespace weir
