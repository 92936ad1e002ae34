// SPDX-License-Identifier: MIT
#include "weir/os/cpu_id.hpp"

#include <sched.h>

#include <cerrno>

namespace weir {

CpuId current_cpu_slow() noexcept {
  const int saved = errno;  // current_cpu() may run in a signal handler
  const int cpu = ::sched_getcpu();
  errno = saved;
  return cpu >= 0 ? CpuId{static_cast<std::uint32_t>(cpu)} : kNoCpu;
}

}  // namespace weir
