// SPDX-License-Identifier: MIT
// os/cpu_id.hpp — which CPU runs this thread now. Calls glibc's rseq area (one load) or
// sched_getcpu(3). The answer may be stale at once: users of it stay correct with any answer.
#pragma once

#include <sys/rseq.h>

#include <cstddef>
#include <cstdint>

#include "weir/base/config.hpp"
#include "weir/base/hot.hpp"
#include "weir/base/types.hpp"

namespace weir {

// Test hook: the next answers of current_cpu() on this thread; -1 = the truth. Hook builds only.
inline thread_local std::int32_t t_fake_cpu = -1;

// Without an rseq registration: asks the kernel; kNoCpu when it does not know.
[[nodiscard]] WEIR_COLD CpuId current_cpu_slow() noexcept;

// About 0.4 ns with rseq, 3 ns without (vDSO), async-signal-safe.
[[nodiscard]] WEIR_HOT CpuId current_cpu() noexcept {
  if constexpr (kTestHooks) {
    if (t_fake_cpu >= 0) {
      return {static_cast<std::uint32_t>(t_fake_cpu)};
    }
  }
  // The kernel rewrites cpu_id at every return to user space after a move: a volatile load.
  const auto* area = static_cast<const std::byte*>(__builtin_thread_pointer()) + __rseq_offset;
  const auto* cpu_id =
      reinterpret_cast<const volatile std::int32_t*>(area + offsetof(struct rseq, cpu_id));
  const std::int32_t cpu = *cpu_id;
  if (cpu >= 0) [[likely]] {
    return {static_cast<std::uint32_t>(cpu)};
  }
  return current_cpu_slow();
}

}  // namespace weir
