// SPDX-License-Identifier: MIT
#include "weir/os/system_info.hpp"

#include <dirent.h>
#include <linux/membarrier.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/rseq.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "weir/os/text_file.hpp"

// Younger than the oldest headers weir builds with; the numbers are kernel ABI.
#ifndef AT_RSEQ_FEATURE_SIZE
  #define AT_RSEQ_FEATURE_SIZE 27
#endif
#ifndef AF_XDP
  #define AF_XDP 44
#endif
#ifndef SYS_io_uring_setup
  #define SYS_io_uring_setup 425
#endif

namespace weir {
namespace {

std::string first_line(const std::string& path) {
  std::array<char, 256> line{};
  return read_first_line(path.c_str(), line) ? std::string(line.data()) : std::string();
}

// "always [madvise] never" -> "madvise"
std::string chosen(const std::string& choices) {
  const std::size_t open = choices.find('[');
  const std::size_t close = choices.find(']', open);
  return close == std::string::npos ? std::string() : choices.substr(open + 1, close - open - 1);
}

std::string cpu_model(const std::string& root) {
  TextFile cpuinfo((root + "/proc/cpuinfo").c_str());
  while (const auto line = cpuinfo.next_line()) {
    const std::size_t colon = line->find(": ");
    if (line->starts_with("model name") && colon != std::string_view::npos) {
      return std::string(line->substr(colon + 2));
    }
  }
  return "unknown";
}

std::uint64_t number_in(const std::string& path) {
  const std::string line = first_line(path);
  std::string_view text = line;
  return take_number(text).value_or(0);
}

std::vector<HugePagePool> huge_pools(const std::string& root) {
  const std::string folder = root + "/sys/kernel/mm/hugepages";
  std::vector<HugePagePool> pools;
  DIR* directory = ::opendir(folder.c_str());
  if (directory == nullptr) {
    return pools;
  }
  while (const dirent* entry = ::readdir(directory)) {
    std::string_view name = entry->d_name;
    constexpr std::string_view kPrefix = "hugepages-";
    if (!name.starts_with(kPrefix)) {
      continue;
    }
    name.remove_prefix(kPrefix.size());
    if (const auto kib = take_number(name); kib && name == "kB") {
      const std::string pool = folder + "/" + entry->d_name;
      pools.push_back(
          {kKiB * *kib, number_in(pool + "/nr_hugepages"), number_in(pool + "/free_hugepages")});
    }
  }
  ::closedir(directory);
  std::sort(pools.begin(), pools.end(),
            [](const auto& a, const auto& b) { return a.page_size < b.page_size; });
  return pools;
}

Capability transparent_huge(const std::string& mode) {
  if (mode == "always") return {true, "used wherever a mapping is large enough"};
  if (mode == "madvise") return {true, "used where asked for"};
  if (mode == "never") {
    return {false, "switched off; write madvise to /sys/kernel/mm/transparent_hugepage/enabled"};
  }
  return {false, "not in this kernel"};
}

Capability explicit_huge(const std::vector<HugePagePool>& pools) {
  if (pools.empty()) return {false, "not in this kernel"};
  for (const HugePagePool& pool : pools) {
    if (pool.free != 0) {
      return {true, std::to_string(pool.free) + " pages of " +
                        std::to_string(pool.page_size.value >> 20) + " MiB are free"};
    }
  }
  return {false, "none set aside or none free; write a number to /proc/sys/vm/nr_hugepages"};
}

Capability rseq() {
  if (__rseq_size != 0) {
    return {true, "registered by the C library for each thread"};
  }
  // An area that cannot be: a kernel that would register one says EINVAL, and none is registered.
  const int why = ::syscall(SYS_rseq, nullptr, 0, 0, 0) < 0 ? errno : 0;
  if (why == EINVAL) {
    return {true, "not registered by the C library, but rseq(2) is there"};
  }
  if (why == ENOSYS) {
    return {false, "not in this kernel"};
  }
  return {false, std::string("refused: ") + std::strerror(why)};
}

Capability membarrier_rseq() {
  const long commands = ::syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  if (commands < 0) {
    return {false, std::string("membarrier is refused: ") + std::strerror(errno)};
  }
  if ((commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ) == 0) {
    return {false, "this kernel's membarrier has no rseq command (5.10 has)"};
  }
  return {true, "supported"};
}

Capability memfd() {
  const int fd = ::memfd_create("weir-query", MFD_CLOEXEC);
  if (fd < 0) {
    return {false, std::string("refused: ") + std::strerror(errno)};
  }
  ::close(fd);
  return {true, "supported"};
}

Capability af_xdp() {
  const int fd = ::socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
  if (fd >= 0) {
    ::close(fd);
    return {true, "a socket can be opened"};
  }
  switch (errno) {
    case EAFNOSUPPORT:
      return {false, "not in this kernel (CONFIG_XDP_SOCKETS)"};
    case EPERM:
    case EACCES:
      return {false, "needs CAP_NET_RAW"};
    default:
      return {false, std::string("refused: ") + std::strerror(errno)};
  }
}

Capability io_uring() {
  // A null parameter block: a kernel that would make a ring says EFAULT, and none is made.
  const long result = ::syscall(SYS_io_uring_setup, 0, nullptr);
  const int why = result < 0 ? errno : 0;
  switch (why) {
    case EFAULT:
    case EINVAL:
      return {true, "supported"};
    case ENOSYS:
      return {false, "not in this kernel"};
    case EPERM:
    case EACCES:
      return {false, "forbidden here (kernel.io_uring_disabled or a sandbox)"};
    default:
      if (result >= 0) {
        ::close(static_cast<int>(result));
      }
      return {false, std::string("unexpected answer: ") + std::strerror(why)};
  }
}

std::optional<Bytes> limit_of(__rlimit_resource resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::nullopt;
  }
  return Bytes{limit.rlim_cur};
}

}  // namespace

SystemInfo system_info(const char* root) {
  const std::string prefix = root;
  SystemInfo info;
  utsname names{};
  if (::uname(&names) == 0) {
    info.kernel_release = names.release;
    info.architecture = names.machine;
  }
  info.cpu_model = cpu_model(prefix);
  const Topology machine = read_topology(root);
  info.cpus_allowed = machine.allowed_cpus.count();
  info.cpu_limit = machine.cpu_limit;
  info.numa_nodes = machine.nodes.count();

  const std::string thp = prefix + "/sys/kernel/mm/transparent_hugepage";
  info.thp_mode = chosen(first_line(thp + "/enabled"));
  info.thp_shmem_mode = chosen(first_line(thp + "/shmem_enabled"));
  info.transparent_huge = transparent_huge(info.thp_mode);
  info.huge_pools = huge_pools(prefix);
  info.explicit_huge = explicit_huge(info.huge_pools);

  info.rseq = rseq();
  info.rseq_size = __rseq_size;
  info.rseq_feature_size = static_cast<std::uint32_t>(::getauxval(AT_RSEQ_FEATURE_SIZE));
  info.membarrier_rseq = membarrier_rseq();
  info.memfd = memfd();
  info.af_xdp = af_xdp();
  info.io_uring = io_uring();
  info.memlock_limit = limit_of(RLIMIT_MEMLOCK);
  info.address_space_limit = limit_of(RLIMIT_AS);
  return info;
}

}  // namespace weir
