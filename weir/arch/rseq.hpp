// SPDX-License-Identifier: MIT
// arch/rseq.hpp — the restartable sections on a CPU's list, in pseudo-code; picks the assembly. Calls
// nothing. Pages are nameless words here: an entry is a pointer, or base + (index << 5).
//
// Every section works on the list of the CPU that runs it, and ends in one committing store. When the
// thread is preempted, moved, interrupted by a signal or fenced before that store, it begins again.
//
//   here         = blocks + (cpu_id << kBlockShift)          cpu_id -1, -2: lists that never start
//   pop()        word = W; top = low16(word)
//                if top <= floor: fail
//                entry = ring[(top - 1) mod size];           COMMIT W = word + 65535
//   push(e)      if top >= ceil: fail
//                ring[top mod size] = e;                     COMMIT W = word + 1
//   pop_many(n)  if top - n < floor: fail
//                out[0..n) = ring[top - n ...];              COMMIT W = word + n * 65535
//   push_many(n) if top + n > ceil: fail
//                ring[top ...] = in[0..n);                   COMMIT W = word + n
//   push_alike(n, h)   as push_many; fails also when an entry's first word is not h
//   refill(n)    as push_many against limit, from indexes; fails also where the places wrap
//   spill(n)     if stopped, or top < ceil, or top - floor < n, or wrap: fail
//                out[0..n) = indexes of ring[floor ...]
//                                                            COMMIT {W, bounds} = rebased {word,
//                                                            bounds + n each}
//   replace_bounds(old, new)   if bounds != old: fail;       COMMIT bounds = new
//
// The last argument of the bulk forms, wide: whether they may copy with the widest registers that the
// library knows of (rseq_area::g_wide); it changes nothing but the time.
//
// A drainer on any CPU exchanges bounds for kStoppedBounds and fences (os/fence.hpp). A section that
// read the old bounds has then committed or begins again; one that commits bounds may have overwritten
// the stop, so the drainer reads it back and repeats both until the stop stands. From there on the
// list is its own until it stores other bounds.
//
// Sections load W before they compare it with the bounds. A drainer that changed W must therefore
// fence once more before it starts the list: else a section could pair the old W with the new bounds.
#pragma once

#include "weir/arch/rseq_abi.hpp"

#if defined(__x86_64__) && !defined(__ILP32__)
  #include "weir/arch/rseq_x86_64.hpp"  // IWYU pragma: export
#else
  #include <cstddef>
  #include <cstdint>

// No assembly for this processor: every section fails, and nobody asks for one (kHasRseq).
namespace weir::arch::rseq {
template <class Place>
inline bool pop(std::byte*, std::ptrdiff_t, void*&) noexcept {
  return false;
}
template <class Place>
inline bool push(std::byte*, std::ptrdiff_t, void*) noexcept {
  return false;
}
template <class Place>
inline bool pop_many(std::byte*, std::ptrdiff_t, void**, std::uint32_t, bool) noexcept {
  return false;
}
template <class Place>
inline bool push_many(std::byte*, std::ptrdiff_t, void* const*, std::uint32_t, bool) noexcept {
  return false;
}
template <class Place>
inline bool push_alike(std::byte*, std::ptrdiff_t, void* const*, std::uint32_t, std::uint64_t,
                       bool) noexcept {
  return false;
}
template <class Place>
inline bool refill(std::byte*, std::ptrdiff_t, const std::uint32_t*, std::uint32_t, void*,
                   std::byte*&) noexcept {
  return false;
}
template <class Place>
inline bool spill(std::byte*, std::ptrdiff_t, std::uint32_t*, std::uint32_t, void*,
                  std::byte*&) noexcept {
  return false;
}
template <class Place>
inline bool replace_bounds(std::byte*, std::ptrdiff_t, std::uint64_t, std::uint64_t) noexcept {
  return false;
}
}  // namespace weir::arch::rseq
#endif
