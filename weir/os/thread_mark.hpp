// SPDX-License-Identifier: MIT
// os/thread_mark.hpp — "this thread is inside a section that holds a lock of weir". A signal
// handler on the same thread asks thread_is_marked() and, if so, stays away from every lock: the
// section it interrupted can only go on after the handler returns. Calls base/atomic.
// Async-signal-safe; says nothing about other threads.
#pragma once

#include <cstdint>

#include "weir/base/atomic.hpp"
#include "weir/base/hot.hpp"

namespace weir {

// How many marked sections the thread is inside. Written and read by its own thread only, whose
// handlers may come in between: volatile is all it needs. (As an atomic it would be accessed through
// a pointer, and where that is checked for null, GCC tests flags that ld does not keep when it turns
// initial-exec into local-exec.) Initial-exec and constant-initialised: reading it in a handler never
// allocates thread-local storage.
extern constinit thread_local volatile std::uint32_t t_marked_sections
    [[gnu::tls_model("initial-exec"), gnu::visibility("default")]];

[[nodiscard]] WEIR_HOT bool thread_is_marked() noexcept { return t_marked_sections != 0; }

// A value that no other live thread has, the same in every part of the program.
[[nodiscard]] WEIR_HOT std::uintptr_t thread_token() noexcept {
  return reinterpret_cast<std::uintptr_t>(&t_marked_sections);
}

// Declare one before the LockGuard it covers: the mark must stand before the lock is taken and
// stay until the lock is free again.
class [[nodiscard]] ThreadMark {
 public:
  WEIR_HOT ThreadMark() noexcept { enter(); }
  WEIR_HOT ~ThreadMark() { leave(); }
  ThreadMark(const ThreadMark&) = delete;
  ThreadMark& operator=(const ThreadMark&) = delete;

  // For a section that begins and ends in different functions (the handlers around fork).
  WEIR_HOT static void enter() noexcept {
    t_marked_sections = t_marked_sections + 1;
    signal_fence();  // a handler that interrupts what follows sees the mark
  }
  WEIR_HOT static void leave() noexcept {
    signal_fence();  // a handler that sees no mark interrupts nothing above
    t_marked_sections = t_marked_sections - 1;
  }
};

}  // namespace weir
