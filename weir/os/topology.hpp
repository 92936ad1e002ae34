// SPDX-License-Identifier: MIT
// os/topology.hpp — which CPUs and NUMA nodes there are, and which of them this process may use.
// Calls os/text_file, sched_getaffinity(2), sysconf(3). Allocates nothing. Plain values: they do not
// follow later changes (hotplug, a new affinity).
#pragma once

#include <array>
#include <cstdint>

#include "weir/base/types.hpp"
#include "weir/os/id_set.hpp"

namespace weir {

struct Topology {
  // Highest CPU number that may ever appear, plus one: the length of a table with a place for each.
  std::uint32_t cpu_limit = 1;
  IdSet allowed_cpus;  // of this process when it was read; never empty
  IdSet nodes;         // with memory or CPUs; { 0 } on a machine without NUMA
  // Of these, the ones whose memory this process may use; never empty.
  IdSet memory_nodes;
  std::array<std::int16_t, IdSet::kLimit> node_of_cpu{};

  // kAnyNode for a CPU that no node names.
  [[nodiscard]] NodeId node_of(CpuId cpu) const noexcept {
    return cpu.value < node_of_cpu.size() ? NodeId{node_of_cpu[cpu.value]} : kAnyNode;
  }
};

// Reads <root>/sys/devices/system/{cpu,node} and <root>/proc/self/status; what is missing or
// malformed there is asked of the kernel by calls instead.
[[nodiscard]] Topology read_topology(const char* root = "") noexcept;

// This machine, read once at first use. Any thread.
[[nodiscard]] const Topology& topology() noexcept;

// One more than the largest CPU number this kernel can ever name, rounded up to 64; asked of the
// kernel itself, whatever /sys shows here.
[[nodiscard]] std::uint32_t kernel_cpu_limit() noexcept;

}  // namespace weir
