// SPDX-License-Identifier: MIT
// arch/rseq_abi.hpp — the numbers that assembly and C++ share: offsets in the kernel's struct rseq
// and in a CPU's block. os/rseq_area.cpp and percpu/slab.hpp pin them to their structures. Calls
// nothing.
//
//   a block is kBlockBytes for each CPU; block of CPU c = blocks + (c << kBlockShift)
//
//   0      rings of lists 1 to 4
//   1024   counters, the lock of the locked form, carriers
//   1536   ring of list 0: 256 pointers
//   3584   heads of the lists, one line each:   | word 8 | bounds 8 | ... what drainers keep |
//
// The heads stand where few users write in a page: processors compare the low twelve bits of a load
// with those of stores under way, and the first lines of a packet are written just before or after a
// pop. With the heads at offset 0 a flow of single pages across CPUs cost twice as much.
//
//   word   = pops so far << 16 | top            changed by pop and push: one store each
//   bounds = limit << 32 | ceil << 16 | floor   changed by spills and drainers
//
// top, floor, ceil and limit are positions from 0 to twice the ring's size; a position's place in the
// ring is its low bits. They never wrap: a spill that moves the floor beyond the ring's size takes
// the size off all four, in one 16-byte store.
//
//   pop    fails when top <= floor     push   fails when top >= ceil     refill fails beyond limit
//   kStoppedBounds is a floor above and a ceil below every top: empty and full at once, for the same
//   two comparisons. So are all zeros, as long as top is 0: a block nobody has started.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir::arch {

// struct rseq (linux/rseq.h).
inline constexpr int kAreaCpuId = 4;  // int32; negative while the thread is not registered
inline constexpr int kAreaRseqCs = 8;

inline constexpr unsigned kBlockShift = 12;
inline constexpr std::size_t kBlockBytes = std::size_t{1} << kBlockShift;

inline constexpr int kHeadBytes = 64;
inline constexpr int kHeadWord = 0;
inline constexpr int kHeadBounds = 8;
inline constexpr int kBoundsFloor = kHeadBounds + 0;
inline constexpr int kBoundsCeil = kHeadBounds + 2;
inline constexpr int kBoundsLimit = kHeadBounds + 4;

// Pop adds this to the word: one pop more, one position less.
inline constexpr int kPopStep = (1 << 16) - 1;

inline constexpr std::uint64_t kStoppedBounds = 0xffff;
// Adds n to floor, ceil and limit.
inline constexpr std::uint64_t kAllBounds = 0x0001'0001'0001;

// Where a list's head and ring stand in a block, and how many places the ring has.
template <int kHeadAt, int kRingAt, int kPlaces>
struct ListPlace {
  static constexpr int kHead = kHeadAt;
  static constexpr int kRing = kRingAt;
  static constexpr int kSize = kPlaces;
  static_assert((kPlaces & (kPlaces - 1)) == 0, "a place is the low bits of a position");
  static_assert(2 * kPlaces < 0xffff, "positions stay below the floor of a stopped list");
};

}  // namespace weir::arch
