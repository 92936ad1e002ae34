// SPDX-License-Identifier: MIT
#include "weir/os/fence.hpp"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "weir/base/atomic.hpp"
#include "weir/base/failpoint.hpp"

namespace weir::fence {
namespace {

Atomic<std::uint64_t> g_count{0};

// 0 or the errno of the refusal; the caller's errno is kept.
int membarrier(int command, unsigned flags, int cpu) noexcept {
  const int saved = errno;
  const long result = ::syscall(SYS_membarrier, command, flags, cpu);
  const int why = result == 0 ? 0 : errno;
  errno = saved;
  return why;
}

Error outcome(int why) noexcept {
  if (why != 0) {
    return {Errc::system, "membarrier", why};
  }
  g_count.fetch_add(1, memory_order_relaxed);
  return kOk;
}

Atomic<bool> g_may_visit{true};

// This thread runs on each of the CPUs once. What ran there has been preempted, which ends its section,
// and goes on after it, which makes it see what this thread wrote. A CPU that the kernel does not let it
// run on (offline, not in this control group's set) runs no thread of this process either.
bool visit(std::uint32_t from, std::uint32_t to) noexcept {
  const int saved = errno;
  cpu_set_t before;
  if (!g_may_visit.load(memory_order_relaxed) ||
      ::sched_getaffinity(0, sizeof(before), &before) != 0) {  // also where there are more CPUs
    errno = saved;
    return false;
  }
  bool visited = true;
  for (std::uint32_t cpu = from; visited && cpu <= to && cpu < CPU_SETSIZE; ++cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    visited = ::sched_setaffinity(0, sizeof(one), &one) == 0 || errno == EINVAL;
  }
  const bool restored = ::sched_setaffinity(0, sizeof(before), &before) == 0;
  errno = saved;
  return visited && restored;
}

Error fence_or_visit(int why, std::uint32_t from, std::uint32_t to) noexcept {
  return outcome(why != 0 && visit(from, to) ? 0 : why);
}

}  // namespace

void visits_for_test(bool allowed) noexcept { g_may_visit.store(allowed, memory_order_relaxed); }

Error enable() noexcept {
  if (const int why = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0)) {
    const bool unknown = why == ENOSYS || why == EINVAL;
    return {unknown ? Errc::unsupported : Errc::system, "membarrier", why};
  }
  return outcome(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, 0, 0));
}

Error all() noexcept {
  if (fails(Failpoint::fence)) {
    return outcome(EPERM);
  }
  const int why = membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, 0, 0);
  return fence_or_visit(why, 0, CPU_SETSIZE - 1);
}

Error cpu(CpuId cpu) noexcept {
  if (fails(Failpoint::fence)) {
    return outcome(EPERM);
  }
  const int why = membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, MEMBARRIER_CMD_FLAG_CPU,
                             static_cast<int>(cpu.value));
  return why == EINVAL ? all() : fence_or_visit(why, cpu.value, cpu.value);
}

std::uint64_t count() noexcept { return g_count.load(memory_order_relaxed); }

}  // namespace weir::fence
