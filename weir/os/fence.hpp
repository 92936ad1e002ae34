// SPDX-License-Identifier: MIT
// os/fence.hpp — the fence that ends the restartable sections running on other CPUs. Calls
// membarrier(2) with its rseq command; owns the count of fences. Never waits for a thread: an
// interrupt ends a section also where its thread spins for ever. Allocates nothing.
//
// The kernel copies the registration of a process at fork: a forked child may fence at once. It
// forgets it at execve, with everything else.
#pragma once

#include <cstdint>

#include "weir/base/hot.hpp"
#include "weir/base/result.hpp"
#include "weir/base/types.hpp"

namespace weir::fence {

// Registers this process for the command and tries one fence; the error has the errno of the
// refusal. May be called again. Takes milliseconds in a process that has several threads already
// (the kernel waits for each CPU). Keeps errno.
[[nodiscard]] WEIR_COLD Error enable() noexcept;

// When it returns without error, every section of this process that was running anywhere when it was
// called has been restarted or has committed, and sections that start later see what this thread
// wrote before. A full barrier for the caller. Where the kernel refuses the command (a filter was
// installed since), the calling thread runs on every CPU once instead, with its affinity as before
// afterwards: tens of microseconds a CPU, longer beside real-time threads. A system error when it may
// not do that either: then nothing is known of any section. Async-signal-safe, keeps errno.
[[nodiscard]] WEIR_COLD Error all() noexcept;

// The same for the sections on one CPU, without disturbing the others. Where the kernel cannot single
// out a CPU it is all().
[[nodiscard]] WEIR_COLD Error cpu(CpuId cpu) noexcept;

// Whether a refused fence may be replaced by visits.
void visits_for_test(bool allowed) noexcept;

// Fences that succeeded in this process (a forked child goes on counting from its parent's number).
[[nodiscard]] std::uint64_t count() noexcept;

}  // namespace weir::fence
