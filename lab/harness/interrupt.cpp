// SPDX-License-Identifier: MIT
// lab/harness/interrupt.cpp — the flag that Ctrl-C sets.
#include "lab/harness/interrupt.hpp"

namespace weir::lab {

namespace {

volatile std::sig_atomic_t g_interrupted = 0;

void on_signal(int) { g_interrupted = 1; }

}  // namespace

InterruptGuard::InterruptGuard() {
  g_interrupted = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  // SA_RESETHAND: the second signal finds the default action and kills.
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &old_int_);
  sigaction(SIGTERM, &action, &old_term_);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
  g_interrupted = 0;
}

bool interrupted() noexcept { return g_interrupted != 0; }

}  // namespace weir::lab
