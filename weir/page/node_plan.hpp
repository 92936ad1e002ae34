// SPDX-License-Identifier: MIT
// page/node_plan.hpp — which NUMA node a request is for, and who is asked after it. A value worked out once
// from nodes, distances and a policy; knows no zone. Calls os/topology, os/node_distances.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "weir/base/result.hpp"
#include "weir/base/types.hpp"
#include "weir/os/node_distances.hpp"
#include "weir/os/topology.hpp"

namespace weir {

// Whose memory a request gets, as set_mempolicy(2) names it.
enum class NodePolicy : unsigned char {
  local,       // of the node of the CPU that asks, then of the nearest that has some
  preferred,   // of one node, whoever asks, then of those nearest to it
  bind,        // as local, but of a set of nodes alone: who is not in it is never asked
  interleave,  // of the nodes of a set in turns; then of those nearest to the one whose turn it is
};
[[nodiscard]] const char* policy_name(NodePolicy policy) noexcept;

// A machine as a plan sees it: the real one, or one that is pretended.
struct NodeMachine {
  std::vector<NodeId> serving;      // nodes that have an allocator, ascending
  NodeDistances distances;          // of all nodes, those without memory too
  std::vector<NodeId> node_of_cpu;  // kAnyNode: not known
};
// Nodes with memory (or those of them that are given) and the CPUs of `topology`.
[[nodiscard]] NodeMachine real_machine(const Topology& topology, std::span<const NodeId> given,
                                       const char* root = "");
// Nodes 0 to n-1; CPU c is of node c % n.
[[nodiscard]] NodeMachine pretended_machine(std::uint32_t n, std::uint32_t cpus);

class NodePlan {
 public:
  // A place is a serving node's number in NodeMachine::serving, from 0.
  using Place = std::uint8_t;
  using Sequence = std::vector<Place>;  // never empty: who is asked, one after the other

  // bad_option: no node serves, or more than there can be zones; a node in `set` that does not serve or
  // is there twice; `preferred` without exactly one; `bind` without any. An empty set of `interleave` is all
  // nodes; `local` has none.
  [[nodiscard]] static Result<NodePlan> make(const NodeMachine& machine, NodePolicy policy,
                                             std::span<const NodeId> set);

  [[nodiscard]] const Sequence& of_cpu(CpuId cpu) const noexcept {
    return sequences_[cpu.value < view_of_cpu_.size() ? view_of_cpu_[cpu.value] : any_view_];
  }
  // For a request that names a node: it, then the nearest; of the set alone where the policy is `bind`. A
  // node nobody knows counts as the first that serves.
  [[nodiscard]] const Sequence& of_node(NodeId node) const noexcept;
  [[nodiscard]] const Sequence& of_place(Place place) const noexcept {
    return sequences_[view_of_place_[place]];
  }
  // `interleave`: the places that take turns; else empty.
  [[nodiscard]] const Sequence& turns() const noexcept { return turns_; }

 private:
  std::vector<NodeId> views_;        // nodes from which one may look, ascending
  std::vector<Sequence> sequences_;  // for each view
  std::vector<std::uint16_t> view_of_cpu_;
  std::vector<std::uint16_t> view_of_place_;
  std::uint16_t any_view_ = 0;
  Sequence turns_;
};

}  // namespace weir
