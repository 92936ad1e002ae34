// SPDX-License-Identifier: MIT
// stats/node_snapshot.hpp — the state of each node of a NodeAllocator as a plain struct, and as text with the
// names of the kernel's numastat. Calls stats/snapshot, page/node_allocator; no layer includes it. Numbers
// agree with each other when every thread is at rest.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weir/base/counter.hpp"
#include "weir/page/node_allocator.hpp"
#include "weir/stats/snapshot.hpp"

namespace weir {

struct NodeSnapshot {
  NodeId node;
  NodeCounterValues counters;  // what did not go as it should
  // What the node's lists handed out, on its own CPUs and on others: counted by the lists themselves, in pages.
  // What passed them by (bulks of whole clusters, one page of each refill, large blocks) is in neither.
  std::uint64_t local_node = 0;
  std::uint64_t other_node = 0;
  std::uint64_t interleave_hit = 0;  // pages that the node had when its turn came
  Snapshot zone;
};

// Ascending by node.
[[nodiscard]] std::vector<NodeSnapshot> collect(NodeAllocator& pages);

// Lines of "node<N>.name value unit", and of each zone its frames.
[[nodiscard]] std::string to_text(std::span<const NodeSnapshot> nodes);

}  // namespace weir
