// SPDX-License-Identifier: MIT
// zone/cluster.hpp — a cluster's body and its name. Calls base only. A body is an array of page
// indexes; whoever holds its name, alone may touch it. Never allocates, never counts.
#pragma once

#include <compare>
#include <cstdint>

#include "weir/base/config.hpp"
#include "weir/base/types.hpp"

namespace weir {

// Name of a body inside its depot.
struct ClusterId {
  std::uint16_t value;

  friend constexpr auto operator<=>(ClusterId, ClusterId) = default;
};
inline constexpr ClusterId kNoCluster{0xffff};

// Four cache lines, so that a copy to or from a list is a copy of whole lines.
struct alignas(kCacheLine) Cluster {
  PageIndex frames[kClusterFrames];
};
static_assert(sizeof(Cluster) == 256);

}  // namespace weir
