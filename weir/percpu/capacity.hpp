// SPDX-License-Identifier: MIT
// percpu/capacity.hpp — how much a per-CPU list holds and moves. Pure functions; `batch`, `high_min`
// and `high_max` are the kernel's (zone_batchsize, zone_highsize in mm/page_alloc.c). Calls
// zone/watermarks, percpu/slab (which orders have lists), base.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "weir/base/bits.hpp"
#include "weir/base/config.hpp"
#include "weir/base/types.hpp"
#include "weir/percpu/slab.hpp"
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

// Order-0 pages a list starts with: what is asked, else two clusters; never less than those. A list
// that holds more makes a flow across CPUs slower: the pages cool down in it.
[[nodiscard]] constexpr std::uint32_t list_high(PageCount managed, std::uint64_t lists,
                                                std::uint64_t asked) noexcept {
  const std::uint64_t cluster = cluster_frames(managed, lists);
  return static_cast<std::uint32_t>(std::clamp(asked, 2 * cluster, kListCapacityMax));
}

// The most a list is ever given, by misses: the kernel's high_max within the ring.
[[nodiscard]] constexpr std::uint32_t list_high_max(PageCount managed, std::uint64_t lists,
                                                    std::uint64_t high) noexcept {
  return static_cast<std::uint32_t>(
      std::clamp(pcp_high_max(managed, lists), high, kListCapacityMax));
}

// Blocks that the list of a higher order holds. Orders 1 to 3 get a quarter of `high` in frames,
// and nothing in zones too small for whole clusters; pageblocks an 8th of the zone divided among the
// lists, two at most.
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
        std::min<std::uint64_t>(managed.value >> kPageblockOrderValue >> 3, 2 * lists) / lists);
  }
  return std::max(high >> (order + 2), 2 * blocks_per_move(order, cluster));
}

// What the lists of one CPU start with.
struct ListSizes {
  std::uint32_t cluster = 1;                        // frames moved at once
  std::array<std::uint32_t, kListOrders> blocks{};  // most of each list; none of order 0: no lists

  [[nodiscard]] constexpr std::uint64_t frames() const noexcept {
    std::uint64_t sum = 0;
    for (unsigned list = 0; list < kListOrders; ++list) {
      sum += std::uint64_t{blocks[list]} << order_of_list(list).value;
    }
    return sum;
  }
};

[[nodiscard]] constexpr ListSizes list_sizes(PageCount managed, std::uint64_t lists,
                                             std::uint64_t asked) noexcept {
  ListSizes sizes;
  sizes.cluster = cluster_frames(managed, lists);
  const std::uint32_t high = list_high(managed, lists, asked);
  for (unsigned list = 0; list < kListOrders; ++list) {
    sizes.blocks[list] = list_capacity(order_of_list(list).value, managed, lists, high);
  }
  return sizes;
}

// The same within `room` frames. What is missed least goes first: pageblocks, then orders 1 to 3,
// then single frames beyond two clusters, then the size of a cluster. With less than two frames there
// are no lists.
[[nodiscard]] constexpr ListSizes fit_lists(ListSizes sizes, std::uint64_t room) noexcept {
  if (room < 2) {
    sizes.blocks = {};
    return sizes;
  }
  if (sizes.frames() > room) {
    sizes.blocks[kSmallListOrders] = 0;
  }
  if (sizes.frames() > room) {
    sizes.blocks = {sizes.blocks[0]};
  }
  if (sizes.frames() > room) {
    const std::uint32_t cluster = sizes.cluster;
    sizes.cluster =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(cluster, pow2_floor(room / 2)));
    sizes.blocks[0] =
        sizes.cluster < cluster ? 2 * sizes.cluster : static_cast<std::uint32_t>(room);
  }
  return sizes;
}

// How much lies outside the engine at most.
struct CacheLimits {
  ListSizes sizes;                   // of the lists of each CPU counted upon
  std::uint32_t high = 0;            // of these: order-0 pages; 0: no lists
  std::uint32_t high_max = 0;        // and the most that a list is ever given
  std::uint32_t depot_clusters = 0;  // full clusters the depot keeps
  std::uint64_t total = 0;           // frames of all lists and the depot together
};

// The depot: two clusters a list, or its share of the zone where that is more, at most an 8th: what
// lies there is unmerged; one that is asked for has a cluster at least. The total: that, the lists,
// and once more as much for lists that have earned it; at most `cached`. Under a small cap the lists
// come first, and are made smaller until those of all CPUs fit.
[[nodiscard]] constexpr CacheLimits cache_limits(PageCount managed, std::uint64_t lists,
                                                 bool lists_on, bool deferred, std::uint64_t high,
                                                 std::uint64_t depot_frames, std::uint64_t cached,
                                                 std::uint64_t share = kDepotShare) noexcept {
  CacheLimits limits;
  limits.sizes = fit_lists(list_sizes(managed, lists, high), lists_on ? cached / lists : 0);
  limits.high = limits.sizes.blocks[0];
  if (limits.high == 0) {
    return limits;
  }
  const std::uint64_t cluster = limits.sizes.cluster;
  std::uint64_t clusters = 0;
  if (deferred) {
    clusters = depot_frames != 0 ? std::max<std::uint64_t>(depot_frames / cluster, 1)
                                 : std::min(std::max(2 * lists, managed.value / share / cluster),
                                            managed.value / 8 / cluster);
    clusters = std::min<std::uint64_t>(clusters, kDepotClustersMax);
  }
  const std::uint64_t started = limits.sizes.frames() * lists;
  limits.total = std::min(cached, started + 2 * clusters * cluster);
  limits.depot_clusters =
      static_cast<std::uint32_t>(std::min(clusters, (limits.total - started) / cluster));
  const std::uint64_t to_earn = (limits.total - started) / cluster - limits.depot_clusters;
  limits.high_max = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      list_high_max(managed, lists, limits.high), limits.high + to_earn * cluster));
  return limits;
}

}  // namespace weir
