// SPDX-License-Identifier: MIT
// support/interrupt.hpp — runs a body in a signal handler at an exact place of another body: after
// its k-th instruction, or after each. So a test can interrupt a call everywhere, one instruction
// after another, instead of hoping that a timer hits. By the processor's trap flag; x86-64 only. An
// instruction costs some microseconds.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <cstdint>
#include <functional>

namespace weir::test {

// Not under ThreadSanitizer: its runtime must not be entered twice.
#if !defined(__x86_64__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kCanInterrupt = false;
#elif defined(__has_feature)
  #if __has_feature(thread_sanitizer)
inline constexpr bool kCanInterrupt = false;
  #else
inline constexpr bool kCanInterrupt = true;
  #endif
#else
inline constexpr bool kCanInterrupt = true;
#endif

namespace interrupt_detail {

inline std::uint64_t g_steps = 0;  // instructions so far
inline std::uint64_t g_at = 0;     // the one after which the handler's body runs; 0 = each
inline const std::function<void()>* g_body = nullptr;

#if defined(__x86_64__)
inline constexpr greg_t kTrapFlag = 0x100;

inline void on_trap(int, siginfo_t*, void* context) {
  ++g_steps;
  if (g_steps == g_at) {
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
  }
  if (g_at == 0 || g_steps == g_at) {
    (*g_body)();
  }
}
// Below the red zone: the functions around may keep values there.
inline void trap_on() {
  asm volatile(
      "lea -128(%%rsp), %%rsp\n pushfq\n orq $0x100, (%%rsp)\n popfq\n lea 128(%%rsp), %%rsp" ::
          : "memory", "cc");
}
inline void trap_off() {
  asm volatile(
      "lea -128(%%rsp), %%rsp\n pushfq\n andq $~0x100, (%%rsp)\n popfq\n lea 128(%%rsp), %%rsp" ::
          : "memory", "cc");
}
#else
inline void trap_on() {}
inline void trap_off() {}
#endif

inline void run(std::uint64_t at, const std::function<void()>& body,
                const std::function<void()>& handler) {
  g_steps = 0;
  g_at = at;
  g_body = &handler;
#if defined(__x86_64__)
  struct sigaction action {};
  struct sigaction before {};
  action.sa_sigaction = &on_trap;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGTRAP, &action, &before);
  trap_on();
  body();
  trap_off();
  ::sigaction(SIGTRAP, &before, nullptr);
#else
  body();
#endif
}

}  // namespace interrupt_detail

// Runs `body`, interrupted after its k-th instruction (from 1) by `handler`. False when the body
// ended before; then the handler has not run. One thread at a time, as all here.
[[nodiscard]] inline bool interrupt_at(std::uint64_t k, const std::function<void()>& body,
                                       const std::function<void()>& handler) {
  interrupt_detail::run(k, body, handler);
  return interrupt_detail::g_steps == k;
}

// Runs `body`, interrupted after each instruction. Returns how many there were.
inline std::uint64_t interrupt_each(const std::function<void()>& body,
                                    const std::function<void()>& handler) {
  interrupt_detail::run(0, body, handler);
  return interrupt_detail::g_steps;
}

}  // namespace weir::test
