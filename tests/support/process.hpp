// SPDX-License-Identifier: MIT
// support/process.hpp — looks at this process from outside (mappings, files) and runs a body in a
// child process, where limits may be set and crashes are seen. Calls fork, /proc.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <string>

namespace weir::test {

// Sanitizers map terabytes and keep freed memory: tests of limits and of leaks by counting skip.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
  #if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
  #else
inline constexpr bool kSanitized = false;
  #endif
#else
inline constexpr bool kSanitized = false;
#endif

// Under a user-mode emulator (qemu-aarch64): limits, madvise and smaps are not the real ones there,
// a program cannot start itself again, and the emulator has a last word when one is killed.
[[nodiscard]] bool emulated();

// Lines of /proc/self/maps: one more or less tells of a leaked or lost mapping. The first call warms
// up what the reading itself maps.
[[nodiscard]] std::size_t mapping_count();
// Open file descriptors.
[[nodiscard]] std::size_t file_count();
// The VmFlags line of smaps for the mapping that holds this address; empty if there is none.
[[nodiscard]] std::string vm_flags(const void* address);
// Whether the address is in any mapping, and that mapping's permissions ("rw-p").
[[nodiscard]] std::string permissions(const void* address);

// Runs the body in a forked child and returns its exit status as the shell would say it: the value
// the body returned (0..255), or 128 + signal. The body must not use gtest assertions: it returns a
// number for each thing that can go wrong.
[[nodiscard]] int run_in_child(const std::function<int()>& body);
// The same for a body that may hang: SIGALRM ends it (142) after a minute.
[[nodiscard]] int run_in_child_or_hang(const std::function<int()>& body);

// Waits until the thread sleeps in the kernel ("S" in /proc/self/task/<tid>/stat); false after ten
// seconds.
[[nodiscard]] bool wait_until_asleep(pid_t thread);
// CPU time that a thread of this process has used, in nanoseconds.
[[nodiscard]] unsigned long long thread_cpu_ns(pid_t thread);

}  // namespace weir::test
