// SPDX-License-Identifier: MIT
// lab/harness/control.cpp — the control loop.
#include "lab/harness/control.hpp"

#include <chrono>

namespace weir::lab {

double control_step_ns() {
  constexpr std::uint64_t kSteps = 200'000;
  std::uint64_t x = 0x9e37'79b9'7f4a'7c15U;
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < kSteps; ++i) {
    x = x * 6'364'136'223'846'793'005U + 1'442'695'040'888'963'407U;
    asm volatile("" : "+r"(x));  // the chain is walked step by step, not folded
  }
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::nano>(end - start).count() /
         static_cast<double>(kSteps);
}

}  // namespace weir::lab
