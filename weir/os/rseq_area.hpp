// SPDX-License-Identifier: MIT
// os/rseq_area.hpp — where the `struct rseq` lies that this thread's restartable sections use.
// Owns: one area a thread for processes in which the C library registers none, and the offset of
// the area in use. Calls rseq(2); never writes an area that it has handed to the kernel (sections
// write rseq_cs, the kernel everything else), never registers before list_mode() has decided.
//
// A thread's area dies with its stack, which the C library reuses only after the kernel has let go
// of the thread: nobody has to unregister. It must not die earlier: an object that contains this
// file or a section is never unmapped (linked with -z nodelete).
//
// Other libraries' areas are not used. Some export `__rseq_abi`, but an undefined weak thread-local
// symbol does not read as null, and dlsym() does not tell whether its offset is the same in every
// thread: where such a library was first, the lists are locked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weir/base/hot.hpp"

namespace weir {

// Whether this build contains restartable sections. ThreadSanitizer cannot see into them.
#if defined(__SANITIZE_THREAD__)
  #define WEIR_RSEQ_BUILD 0
#elif defined(__has_feature)
  #if __has_feature(thread_sanitizer)
    #define WEIR_RSEQ_BUILD 0
  #endif
#endif
#if !defined(WEIR_RSEQ_BUILD)
  #if defined(__x86_64__) && !defined(__ILP32__) && \
      !(defined(WEIR_LOCKED_LISTS) && WEIR_LOCKED_LISTS)
    #define WEIR_RSEQ_BUILD 1
  #else
    #define WEIR_RSEQ_BUILD 0
  #endif
#endif
inline constexpr bool kHasRseq = WEIR_RSEQ_BUILD != 0;
#undef WEIR_RSEQ_BUILD

// The kernel's struct rseq of 32 bytes, as a type of our own: the one in the system's headers grows.
struct alignas(32) RseqArea {
  std::uint32_t cpu_id_start = 0;
  std::int32_t cpu_id = -1;  // negative: not registered
  std::uint64_t rseq_cs = 0;
  std::uint32_t flags = 0;
  std::uint32_t node_id = 0;
  std::uint32_t mm_cid = 0;
  std::uint32_t unused = 0;
};
static_assert(sizeof(RseqArea) == 32);

// What precedes every abort handler; the same number for all who share an area (x86: ud1).
inline constexpr std::uint32_t kRseqSignature = 0x53053053;

// Written by the kernel and by the thread's own sections alone. Initial-exec and
// constant-initialised: a section or a signal handler that reaches for it never allocates.
extern constinit thread_local RseqArea t_rseq_area
    [[gnu::tls_model("initial-exec"), gnu::visibility("default")]];

namespace rseq_area {

// Thread pointer + this = the struct rseq that the sections use, the same for all threads: the C
// library's where it registers one, else t_rseq_area. Set by the first constructors of the program
// (priority 101) and constant from there on, which the declaration says: a loop over sections then
// keeps it in a register, worth a fifth of a pair. In modes other than rseq it stays, and sections
// are given lists that never run.
[[gnu::visibility("default")]] extern const std::ptrdiff_t g_offset asm("weir_rseq_area_offset");

// Whether bulk sections may use registers of 32 bytes: processor and system have AVX. Set and constant
// like g_offset.
[[gnu::visibility("default")]] extern const bool g_wide asm("weir_rseq_wide");

// The area in use, of the calling thread.
[[nodiscard]] WEIR_HOT volatile RseqArea& current() noexcept {
  return *reinterpret_cast<volatile RseqArea*>(static_cast<std::byte*>(__builtin_thread_pointer()) +
                                               g_offset);
}

// Whether the kernel keeps the area in use up to date for this thread. Async-signal-safe.
[[nodiscard]] bool thread_registered() noexcept;

// Slow path of a thread whose cpu_id is negative, in mode rseq: registers the own area if that is the
// one in use. False when that cannot be (refused by the kernel, another library's area is
// registered, or the C library's registration of this thread failed): the thread is counted and does
// not try again. False and not counted in other modes. Async-signal-safe, keeps errno.
[[nodiscard]] WEIR_COLD bool register_thread() noexcept;

// Threads that asked in vain, in this process.
[[nodiscard]] std::uint64_t refused_threads() noexcept;

// ---- for list_mode() alone -------------------------------------------------------------------------

enum class Registrar : std::uint8_t { none, c_library, weir };

// Whether the C library registers the threads of this process, and whether it did so for this one.
[[nodiscard]] bool c_library_registers() noexcept;
[[nodiscard]] bool c_library_registered_thread() noexcept;

// Registers and unregisters t_rseq_area of this thread; 0 or the errno of the refusal. Registering
// what is registered succeeds. Both keep errno.
[[nodiscard]] int register_own() noexcept;
int unregister_own() noexcept;

// Who registers the threads that come. Every call of a process names the same one.
void use_areas_of(Registrar registrar) noexcept;

}  // namespace rseq_area
}  // namespace weir
