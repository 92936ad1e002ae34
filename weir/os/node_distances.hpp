// SPDX-License-Identifier: MIT
// os/node_distances.hpp — how far NUMA nodes are from each other, and in which order they are asked. Calls
// os/id_set, os/text_file. A value that allocates; cold.
#pragma once

#include <cstdint>
#include <vector>

#include "weir/base/types.hpp"
#include "weir/os/id_set.hpp"

namespace weir {

class NodeDistances {
 public:
  // As the kernel counts where firmware does not say.
  static constexpr std::uint32_t kLocal = 10;
  static constexpr std::uint32_t kRemote = 20;

  // Of these nodes, kLocal from each to itself and kRemote to all others.
  explicit NodeDistances(const IdSet& nodes);

  // Nothing happens for a node that is none of them.
  void set(NodeId from, NodeId to, std::uint32_t distance) noexcept;
  // kLocal or kRemote where a node is none of them.
  [[nodiscard]] std::uint32_t distance(NodeId from, NodeId to) const noexcept;
  [[nodiscard]] const std::vector<NodeId>& nodes() const noexcept { return nodes_; }  // ascending

  // All nodes in the order in which the kernel falls back from `node`: itself, then the nearest first; of
  // equally near ones those with higher numbers before those with lower, so that not everybody turns to
  // node 0. `node` need not be one of them.
  [[nodiscard]] std::vector<NodeId> order_from(NodeId node) const;

 private:
  [[nodiscard]] std::size_t place_of(NodeId node) const noexcept;  // nodes_.size(): none

  std::vector<NodeId> nodes_;
  std::vector<std::uint32_t> distances_;  // row by row
};

// Reads <root>/sys/devices/system/node/node<N>/distance of each. A row that is missing or does not have a
// number for each node stays as the constructor made it.
[[nodiscard]] NodeDistances read_node_distances(const IdSet& nodes, const char* root = "");

}  // namespace weir
