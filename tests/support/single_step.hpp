// SPDX-License-Identifier: MIT
// support/single_step.hpp — runs a body one instruction at a time and shows where it is after each.
// By the processor's trap flag, so x86-64 only. One thread at a time.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <cstdint>
#include <functional>

#include "tests/support/interrupt.hpp"

namespace weir::test {

namespace single_step_detail {
inline const std::function<void(std::uintptr_t)>* g_visit = nullptr;
#if defined(__x86_64__)
inline void on_trap(int, siginfo_t*, void* context) {
  const auto* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  (*g_visit)(static_cast<std::uintptr_t>(registers[REG_RIP]));
}
#endif
}  // namespace single_step_detail

// visit(address of the next instruction) after each instruction of `body`, in a signal handler. A
// few instructions before and after the body are seen as well.
inline void step_through(const std::function<void()>& body,
                         const std::function<void(std::uintptr_t)>& visit) {
#if defined(__x86_64__)
  single_step_detail::g_visit = &visit;
  struct sigaction action {};
  struct sigaction before {};
  action.sa_sigaction = &single_step_detail::on_trap;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGTRAP, &action, &before);
  interrupt_detail::trap_on();
  body();
  interrupt_detail::trap_off();
  ::sigaction(SIGTRAP, &before, nullptr);
#else
  static_cast<void>(visit);
  body();
#endif
}

}  // namespace weir::test
