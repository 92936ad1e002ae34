// SPDX-License-Identifier: MIT
// arch/cpu.hpp — words of the processor: pause, prefetch, cycle counter. Calls base only.
#pragma once

#include <cstdint>

#include "weir/base/hot.hpp"

namespace weir {

// Tells the core that this is a spin loop.
WEIR_HOT void cpu_pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// A cheap, monotonic (per core; in practice per machine) tick for measuring short holds.
// About 10 ns on x86-64.
[[nodiscard]] WEIR_HOT std::uint64_t cycle_counter() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  std::uint64_t ticks = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return 0;
#endif
}

// Ticks of cycle_counter() in a second where the processor says so itself; 0 = must be measured.
[[nodiscard]] inline std::uint64_t cycle_counter_frequency() noexcept {
#if defined(__aarch64__)
  std::uint64_t hertz = 0;
  asm("mrs %0, cntfrq_el0" : "=r"(hertz));
  return hertz;
#else
  return 0;
#endif
}

// Asks for the line as its only owner: the write that follows does not wait for a second transfer.
WEIR_HOT void prefetch_for_write(const void* address) noexcept {
#if defined(__x86_64__)
  // Compilers make a plain prefetch of the builtin, for the sake of processors that lack this one; those
  // of 64 bits run it, the oldest as a no-op.
  asm volatile("prefetchw (%0)" ::"r"(address));
#else
  __builtin_prefetch(address, 1, 3);
#endif
}

WEIR_HOT void prefetch_for_read(const void* address) noexcept { __builtin_prefetch(address, 0, 3); }

}  // namespace weir
