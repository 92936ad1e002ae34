// SPDX-License-Identifier: MIT
// lab/harness/interrupt.hpp — Ctrl-C ends the work after the current round; a second one ends the
// program at once. Calls sigaction(2). One guard at a time.
#pragma once

#include <csignal>

namespace weir::lab {

class InterruptGuard {
 public:
  InterruptGuard();   // SIGINT and SIGTERM ask from now on
  ~InterruptGuard();  // as it was before
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction old_int_ {};
  struct sigaction old_term_ {};
};

// Since the guard was made; false without one.
[[nodiscard]] bool interrupted() noexcept;

}  // namespace weir::lab
