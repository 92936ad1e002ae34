// SPDX-License-Identifier: MIT
#include "weir/stats/node_snapshot.hpp"

#include <algorithm>

namespace weir {

std::vector<NodeSnapshot> collect(NodeAllocator& pages) {
  std::vector<NodeSnapshot> nodes;
  for (const NodeId node : pages.nodes()) {
    NodeSnapshot& one = nodes.emplace_back();
    one.node = node;
    one.zone = collect(pages.at(node));
    one.counters = values_of(pages.counters(node));
    for (std::uint32_t cpu = 0; cpu < one.zone.by_cpu.size(); ++cpu) {
      const bool own = pages.node_of(CpuId{cpu}) == node;
      (own ? one.local_node : one.other_node) += one.zone.by_cpu[cpu].pops;
    }
    if (pages.policy() == NodePolicy::interleave) {
      const std::uint64_t missed = one.counters.numa_foreign + one.counters.refused;
      const std::uint64_t turns = pages.turns_of(node);
      one.interleave_hit = turns - std::min(turns, missed);
    }
  }
  return nodes;
}

std::string to_text(std::span<const NodeSnapshot> nodes) {
  std::string text;
  for (const NodeSnapshot& one : nodes) {
    const std::string prefix = "node" + std::to_string(one.node.value) + '.';
    const auto line = [&](std::string_view name, std::uint64_t value, std::string_view unit) {
      text += prefix;
      text += name;
      text += ' ' + std::to_string(value) + ' ';
      text += unit;
      text += '\n';
    };
    for_each(one.counters, [&](const CounterInfo& info, std::uint64_t value) {
      line(info.name, value, info.unit);
    });
    line("local_node", one.local_node, "pages");
    line("other_node", one.other_node, "pages");
    line("interleave_hit", one.interleave_hit, "pages");
    line("refusals", one.zone.zone.refusals, "count");
    line("managed", one.zone.census.managed, "frames");
    line("engine", one.zone.census.engine, "frames");
    line("lists", one.zone.census.lists, "frames");
    line("depot", one.zone.census.depot, "frames");
    line("out", one.zone.census.out(), "frames");
    line("limit", one.zone.state.limit, "frames");
    line("below_mark", static_cast<std::uint64_t>(one.zone.state.below), "marks");
  }
  return text;
}

}  // namespace weir
