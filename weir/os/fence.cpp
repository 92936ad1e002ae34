// SPDX-License-Identifier: MIT
#include "weir/os/fence.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "weir/base/atomic.hpp"

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

}  // namespace

Error enable() noexcept {
  if (const int why = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0)) {
    const bool unknown = why == ENOSYS || why == EINVAL;
    return {unknown ? Errc::unsupported : Errc::system, "membarrier", why};
  }
  return all();
}

Error all() noexcept { return outcome(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, 0, 0)); }

Error cpu(CpuId cpu) noexcept {
  const int why = membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, MEMBARRIER_CMD_FLAG_CPU,
                             static_cast<int>(cpu.value));
  return why == EINVAL ? all() : outcome(why);
}

std::uint64_t count() noexcept { return g_count.load(memory_order_relaxed); }

}  // namespace weir::fence
