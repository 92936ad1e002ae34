// SPDX-License-Identifier: MIT
#include "weir/os/node_distances.hpp"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <string_view>
#include <tuple>

#include "weir/os/text_file.hpp"

namespace weir {

NodeDistances::NodeDistances(const IdSet& nodes) {
  for (std::uint32_t id = nodes.next(0); id != IdSet::kNone; id = nodes.next(id + 1)) {
    nodes_.push_back(NodeId{static_cast<std::int32_t>(id)});
  }
  distances_.assign(nodes_.size() * nodes_.size(), kRemote);
  for (const NodeId node : nodes_) {
    set(node, node, kLocal);
  }
}

std::size_t NodeDistances::place_of(NodeId node) const noexcept {
  const auto found = std::lower_bound(nodes_.begin(), nodes_.end(), node);
  return found != nodes_.end() && *found == node ? static_cast<std::size_t>(found - nodes_.begin())
                                                 : nodes_.size();
}

void NodeDistances::set(NodeId from, NodeId to, std::uint32_t distance) noexcept {
  const std::size_t row = place_of(from);
  const std::size_t column = place_of(to);
  if (row != nodes_.size() && column != nodes_.size()) {
    distances_[row * nodes_.size() + column] = distance;
  }
}

std::uint32_t NodeDistances::distance(NodeId from, NodeId to) const noexcept {
  const std::size_t row = place_of(from);
  const std::size_t column = place_of(to);
  if (row == nodes_.size() || column == nodes_.size()) {
    return from == to ? kLocal : kRemote;
  }
  return distances_[row * nodes_.size() + column];
}

std::vector<NodeId> NodeDistances::order_from(NodeId node) const {
  std::vector<NodeId> order = nodes_;
  const auto rank = [&](NodeId to) {
    return std::tuple{to != node, distance(node, to), to < node, to};
  };
  std::sort(order.begin(), order.end(), [&](NodeId a, NodeId b) { return rank(a) < rank(b); });
  return order;
}

NodeDistances read_node_distances(const IdSet& nodes, const char* root) {
  NodeDistances result(nodes);
  for (const NodeId from : result.nodes()) {
    char path[PATH_MAX];
    std::snprintf(path, sizeof path, "%s/sys/devices/system/node/node%d/distance", root,
                  from.value);
    TextFile file(path);
    const auto line = file.next_line();
    std::vector<std::uint32_t> row;
    for (std::string_view rest = line.value_or(""); !rest.empty();) {
      rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
      const auto number = take_number(rest);
      if (!number || *number > UINT8_MAX) {  // the kernel's own bound
        break;
      }
      row.push_back(static_cast<std::uint32_t>(*number));
    }
    // A number for each node that is online, in their order.
    if (row.size() != result.nodes().size()) {
      continue;
    }
    for (std::size_t column = 0; column < row.size(); ++column) {
      result.set(from, result.nodes()[column], row[column]);
    }
  }
  return result;
}

}  // namespace weir
