// SPDX-License-Identifier: MIT
#include "weir/page/node_plan.hpp"

#include <algorithm>

#include "weir/percpu/zone_registry.hpp"

namespace weir {
namespace {

constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);

std::size_t place_in(std::span<const NodeId> ascending, NodeId node) noexcept {
  const auto found = std::lower_bound(ascending.begin(), ascending.end(), node);
  return found != ascending.end() && *found == node
             ? static_cast<std::size_t>(found - ascending.begin())
             : kNowhere;
}

Error check(const NodeMachine& machine, NodePolicy policy, std::span<const NodeId> set) noexcept {
  if (machine.serving.empty() || machine.serving.size() >= kMaxZones) {
    return {Errc::bad_option, "number of nodes"};
  }
  for (std::size_t i = 0; i < set.size(); ++i) {
    if (place_in(machine.serving, set[i]) == kNowhere ||
        std::find(set.begin(), set.begin() + static_cast<std::ptrdiff_t>(i), set[i]) !=
            set.begin() + static_cast<std::ptrdiff_t>(i)) {
      return {Errc::bad_option, "a policy names a node that has no memory here, or names it twice"};
    }
  }
  switch (policy) {
    case NodePolicy::local:
      return set.empty() ? kOk : Error{Errc::bad_option, "the policy local takes no nodes"};
    case NodePolicy::preferred:
      return set.size() == 1 ? kOk : Error{Errc::bad_option, "the policy preferred takes one node"};
    case NodePolicy::bind:
      return !set.empty() ? kOk : Error{Errc::bad_option, "the policy bind takes a set of nodes"};
    case NodePolicy::interleave:
      return kOk;
  }
  return {Errc::bad_option, "policy"};
}

}  // namespace

const char* policy_name(NodePolicy policy) noexcept {
  switch (policy) {
    case NodePolicy::local:
      return "local";
    case NodePolicy::preferred:
      return "preferred";
    case NodePolicy::bind:
      return "bind";
    case NodePolicy::interleave:
      return "interleave";
  }
  return "unknown";
}

NodeMachine real_machine(const Topology& topology, std::span<const NodeId> given,
                         const char* root) {
  NodeMachine machine{{}, read_node_distances(topology.nodes, root), {}};
  machine.serving.assign(given.begin(), given.end());
  if (given.empty()) {
    const IdSet& with_memory = topology.memory_nodes;
    for (std::uint32_t id = with_memory.next(0); id != IdSet::kNone;
         id = with_memory.next(id + 1)) {
      machine.serving.push_back(NodeId{static_cast<std::int32_t>(id)});
    }
  }
  std::sort(machine.serving.begin(), machine.serving.end());
  machine.serving.erase(std::unique(machine.serving.begin(), machine.serving.end()),
                        machine.serving.end());
  for (std::uint32_t cpu = 0; cpu < topology.cpu_limit; ++cpu) {
    machine.node_of_cpu.push_back(topology.node_of(CpuId{cpu}));
  }
  return machine;
}

NodeMachine pretended_machine(std::uint32_t n, std::uint32_t cpus) {
  IdSet nodes;
  for (std::uint32_t id = 0; id < std::min<std::uint32_t>(n, kMaxZones); ++id) {
    nodes.insert(id);
  }
  NodeMachine machine{{}, NodeDistances(nodes), {}};
  machine.serving = machine.distances.nodes();
  for (std::uint32_t cpu = 0; cpu < cpus && n != 0; ++cpu) {
    machine.node_of_cpu.push_back(NodeId{static_cast<std::int32_t>(cpu % n)});
  }
  return machine;
}

Result<NodePlan> NodePlan::make(const NodeMachine& machine, NodePolicy policy,
                                std::span<const NodeId> set) {
  if (const Error error = check(machine, policy, set); error.failed()) {
    return error;
  }
  NodePlan plan;
  plan.views_ = machine.distances.nodes();
  for (const NodeId node : machine.serving) {
    if (place_in(plan.views_, node) == kNowhere) {
      return {Errc::bad_option, "a node that this machine does not have"};
    }
  }
  const auto view_of = [&plan](NodeId node) {
    return static_cast<std::uint16_t>(place_in(plan.views_, node));
  };
  plan.any_view_ = view_of(machine.serving.front());
  for (const NodeId from : plan.views_) {
    Sequence& sequence = plan.sequences_.emplace_back();
    for (const NodeId node : machine.distances.order_from(from)) {
      const std::size_t place = place_in(machine.serving, node);
      const bool may_serve =
          policy != NodePolicy::bind || std::find(set.begin(), set.end(), node) != set.end();
      if (place != kNowhere && may_serve) {
        sequence.push_back(static_cast<Place>(place));
      }
    }
  }
  for (const NodeId node : machine.serving) {
    plan.view_of_place_.push_back(view_of(node));
  }
  for (const NodeId node : machine.node_of_cpu) {
    plan.view_of_cpu_.push_back(policy == NodePolicy::preferred           ? view_of(set.front())
                                : place_in(plan.views_, node) == kNowhere ? plan.any_view_
                                                                          : view_of(node));
  }
  if (policy == NodePolicy::preferred) {
    plan.any_view_ = view_of(set.front());
  }
  if (policy == NodePolicy::interleave) {
    for (const NodeId node : set.empty() ? std::span<const NodeId>(machine.serving) : set) {
      plan.turns_.push_back(static_cast<Place>(place_in(machine.serving, node)));
    }
  }
  return plan;
}

const NodePlan::Sequence& NodePlan::of_node(NodeId node) const noexcept {
  const std::size_t view = place_in(views_, node);
  return sequences_[view == kNowhere ? any_view_ : view];
}

}  // namespace weir
