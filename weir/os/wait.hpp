// SPDX-License-Identifier: MIT
// os/wait.hpp — one step of waiting for another thread. Calls arch/cpu, sched_yield(2).
#pragma once

#include <sched.h>

#include <cstdint>

#include "weir/arch/cpu.hpp"

namespace weir {

// Waiting for another thread's few hundred instructions, unless it lost its CPU. spin: steps before.
inline void wait_a_little(std::uint32_t spin) noexcept {
  if (spin < 64) {
    cpu_pause();
  } else {
    ::sched_yield();
  }
}

}  // namespace weir
