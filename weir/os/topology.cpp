// SPDX-License-Identifier: MIT
#include "weir/os/topology.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <optional>

#include "weir/os/text_file.hpp"

namespace weir {
namespace {

std::optional<IdSet> read_list(const char* root, const char* file) noexcept {
  char path[PATH_MAX];
  std::snprintf(path, sizeof path, "%s%s", root, file);
  TextFile text(path);
  const auto line = text.next_line();
  return line ? IdSet::parse(*line) : std::nullopt;
}

std::optional<IdSet> allowed_from_status(const char* root, std::string_view name) noexcept {
  char path[PATH_MAX];
  std::snprintf(path, sizeof path, "%s/proc/self/status", root);
  TextFile status(path);
  while (auto line = status.next_line()) {
    if (line->starts_with(name)) {
      line->remove_prefix(name.size());
      line->remove_prefix(std::min(line->find_first_not_of(" \t"), line->size()));
      return IdSet::parse(*line);
    }
  }
  return std::nullopt;
}

IdSet allowed_from_kernel() noexcept {
  // As wide as the set: the call fails when the kernel's own mask is wider than what it is given.
  unsigned long mask[IdSet::kLimit / (CHAR_BIT * sizeof(unsigned long))] = {};
  constexpr unsigned kBits = CHAR_BIT * sizeof(unsigned long);
  IdSet allowed;
  if (::sched_getaffinity(0, sizeof mask, reinterpret_cast<cpu_set_t*>(mask)) == 0) {
    for (std::uint32_t cpu = 0; cpu < IdSet::kLimit; ++cpu) {
      if ((mask[cpu / kBits] >> (cpu % kBits) & 1) != 0) {
        allowed.insert(cpu);
      }
    }
  }
  return allowed;
}

IdSet allowed_cpus(const char* root) noexcept {
  std::optional<IdSet> allowed = allowed_from_status(root, "Cpus_allowed_list:");
  if (!allowed || allowed->empty()) {
    allowed = allowed_from_kernel();
  }
  if (allowed->empty()) {
    allowed->insert(0);
  }
  return *allowed;
}

// Those of `nodes` that have memory and are in this process's cpuset; all of them where neither is told.
IdSet memory_nodes(const char* root, const IdSet& nodes) noexcept {
  const IdSet has_memory = read_list(root, "/sys/devices/system/node/has_memory").value_or(nodes);
  const IdSet allowed = allowed_from_status(root, "Mems_allowed_list:").value_or(nodes);
  IdSet both;
  for (std::uint32_t node = nodes.next(0); node != IdSet::kNone; node = nodes.next(node + 1)) {
    if (has_memory.contains(node) && allowed.contains(node)) {
      both.insert(node);
    }
  }
  return both.empty() ? nodes : both;
}

std::uint32_t possible_limit(const char* root) noexcept {
  const std::optional<IdSet> possible = read_list(root, "/sys/devices/system/cpu/possible");
  if (possible && !possible->empty()) {
    return possible->end();
  }
  const long configured = ::sysconf(_SC_NPROCESSORS_CONF);
  return static_cast<std::uint32_t>(std::clamp(configured, 1L, long{IdSet::kLimit}));
}

}  // namespace

Topology read_topology(const char* root) noexcept {
  Topology topology;
  topology.allowed_cpus = allowed_cpus(root);
  // A container may show a filtered /sys: whatever this process may run on is possible too.
  topology.cpu_limit = std::max(possible_limit(root), topology.allowed_cpus.end());
  topology.node_of_cpu.fill(static_cast<std::int16_t>(kAnyNode.value));

  const std::optional<IdSet> nodes = read_list(root, "/sys/devices/system/node/online");
  if (!nodes || nodes->empty()) {
    topology.nodes.insert(0);
    topology.memory_nodes = topology.nodes;
    std::fill_n(topology.node_of_cpu.begin(), topology.cpu_limit, std::int16_t{0});
    return topology;
  }
  topology.nodes = *nodes;
  topology.memory_nodes = memory_nodes(root, *nodes);
  for (std::uint32_t node = nodes->next(0); node != IdSet::kNone; node = nodes->next(node + 1)) {
    char file[64];
    std::snprintf(file, sizeof file, "/sys/devices/system/node/node%u/cpulist", node);
    const IdSet cpus = read_list(root, file).value_or(IdSet{});
    for (std::uint32_t cpu = cpus.next(0); cpu != IdSet::kNone; cpu = cpus.next(cpu + 1)) {
      topology.node_of_cpu[cpu] = static_cast<std::int16_t>(node);
    }
  }
  return topology;
}

std::uint32_t kernel_cpu_limit() noexcept {
  // The system call says how many bytes of mask the kernel has; the C library's wrapper hides that.
  static const std::uint32_t limit = [] {
    unsigned long mask[IdSet::kLimit / (CHAR_BIT * sizeof(unsigned long))] = {};
    const long bytes = ::syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
    return bytes > 0 ? static_cast<std::uint32_t>(bytes) * CHAR_BIT : IdSet::kLimit;
  }();
  return limit;
}

const Topology& topology() noexcept {
  static const Topology instance = read_topology();
  return instance;
}

}  // namespace weir
