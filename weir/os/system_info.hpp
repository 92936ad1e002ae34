// SPDX-License-Identifier: MIT
// os/system_info.hpp — what this machine and this kernel give, as a plain struct for people to read.
// Calls /proc, /sys and harmless queries; switches nothing on, keeps nothing open, creates nothing
// but a socket that is closed at once. Cold; allocates strings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weir/base/types.hpp"
#include "weir/os/topology.hpp"

namespace weir {

// A thing that is there or not, and one sentence about it: what it is like, or why it is missing and
// what would help.
struct Capability {
  bool available = false;
  std::string why;
};

struct HugePagePool {
  Bytes page_size;
  std::uint64_t total = 0;  // pages
  std::uint64_t free = 0;
};

struct SystemInfo {
  std::string kernel_release;  // "6.1.0-18-amd64"
  std::string architecture;    // "x86_64"
  std::string cpu_model;
  std::uint32_t cpus_allowed = 0;
  std::uint32_t cpu_limit = 0;  // highest possible CPU number + 1
  std::uint32_t numa_nodes = 0;

  std::string thp_mode;        // "always", "madvise", "never"; empty when the kernel has none
  std::string thp_shmem_mode;  // the same for memfd
  Capability transparent_huge;
  std::vector<HugePagePool> huge_pools;
  Capability explicit_huge;  // a free page in some pool

  Capability rseq;                      // the kernel has it, and who registers the threads
  std::uint32_t rseq_size = 0;          // bytes of the area that glibc registered
  std::uint32_t rseq_feature_size = 0;  // bytes that the kernel fills; 0 on a kernel before 6.3
  Capability membarrier_rseq;           // the fence that aborts rseq sections on other CPUs

  Capability memfd;
  Capability af_xdp;
  Capability io_uring;

  std::optional<Bytes> memlock_limit;  // none = unlimited
  std::optional<Bytes> address_space_limit;
};

// `root` is put before /proc and /sys: for tests, as in read_topology().
[[nodiscard]] SystemInfo system_info(const char* root = "");

}  // namespace weir
