// SPDX-License-Identifier: MIT
// percpu/slab.hpp — the memory of one CPU's lists. Calls base, arch (the layout that assembly uses),
// percpu/twin_lock.
//
//   CpuBlock | rings | counters, lock | list 0 (order 0) | 1 | 2 | 3 | 4 (pageblocks) | 5 (none) |
//
//   one list is a ring of pointers to descriptors:
//
//        floor            top         ceil
//          v               v           v
//     . . |x|x|x|x|x|x|x|x| . . . . . . |          x = pages, oldest at floor, hottest below top
//
//     pop     fails if top <= floor      takes ring[--top]
//     push    fails if top >= ceil       writes ring[top++]
//     spill   floor, ceil and limit move up: the oldest leave
//     stop    the bounds are exchanged for kStoppedBounds; what they were is kept in `saved`
//
// A block of zeros is a block nobody has started: its lists are empty and full. Blocks are address
// space until their CPU first comes by, then one frame each. List 5 belongs to orders that have no list and is never started.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "weir/arch/rseq_abi.hpp"
#include "weir/base/atomic.hpp"
#include "weir/base/config.hpp"
#include "weir/base/counter.hpp"
#include "weir/base/types.hpp"
#include "weir/percpu/twin_lock.hpp"

namespace weir {

struct Page;

inline constexpr unsigned kNoList = kListOrders;  // index of the dead list

// Order -> list.
inline constexpr std::array<std::uint8_t, kOrderCount> kListOfOrder = [] {
  std::array<std::uint8_t, kOrderCount> lists{};
  for (unsigned order = 0; order < kOrderCount; ++order) {
    lists[order] = static_cast<std::uint8_t>(order < kSmallListOrders ? order : kNoList);
  }
  lists[kPageblockOrderValue] = kSmallListOrders;
  return lists;
}();
[[nodiscard]] constexpr Order order_of_list(unsigned list) noexcept {
  return Order{list < kSmallListOrders ? list : kPageblockOrderValue};
}

// Places of the rings: what sections are made for. The dead list borrows a ring it never uses.
template <unsigned kList>
struct ListPlaceOf;
template <>
struct ListPlaceOf<0> : arch::ListPlace<3584, 1536, 256> {};
template <>
struct ListPlaceOf<1> : arch::ListPlace<3648, 0, 64> {};
template <>
struct ListPlaceOf<2> : arch::ListPlace<3712, 512, 32> {};
template <>
struct ListPlaceOf<3> : arch::ListPlace<3776, 768, 16> {};
template <>
struct ListPlaceOf<4> : arch::ListPlace<3840, 896, 8> {};
template <>
struct ListPlaceOf<5> : arch::ListPlace<3904, 960, 8> {};

// What C++ needs to know of a list at run time.
inline constexpr std::array<std::uint32_t, kListOrders + 1> kRingPlaces = {
    ListPlaceOf<0>::kSize, ListPlaceOf<1>::kSize, ListPlaceOf<2>::kSize,
    ListPlaceOf<3>::kSize, ListPlaceOf<4>::kSize, ListPlaceOf<5>::kSize};
inline constexpr std::array<std::uint32_t, kListOrders + 1> kRingAt = {
    ListPlaceOf<0>::kRing, ListPlaceOf<1>::kRing, ListPlaceOf<2>::kRing,
    ListPlaceOf<3>::kRing, ListPlaceOf<4>::kRing, ListPlaceOf<5>::kRing};

// A list's bounds as a value.
struct Bounds {
  std::uint64_t word = 0;

  [[nodiscard]] static constexpr Bounds make(std::uint32_t floor, std::uint32_t ceil,
                                             std::uint32_t limit) noexcept {
    return {std::uint64_t{limit} << 32 | std::uint64_t{ceil} << 16 | floor};
  }
  [[nodiscard]] constexpr std::uint32_t floor() const noexcept {
    return static_cast<std::uint16_t>(word);
  }
  [[nodiscard]] constexpr std::uint32_t ceil() const noexcept {
    return static_cast<std::uint16_t>(word >> 16);
  }
  [[nodiscard]] constexpr std::uint32_t limit() const noexcept {
    return static_cast<std::uint16_t>(word >> 32);
  }
  // Not started yet, or stopped.
  [[nodiscard]] constexpr bool running() const noexcept {
    return word != arch::kStoppedBounds && limit() != 0;
  }
  [[nodiscard]] constexpr Bounds moved_up(std::uint32_t n) const noexcept {
    return {word + n * arch::kAllBounds};
  }
  [[nodiscard]] constexpr Bounds moved_down(std::uint32_t n) const noexcept {
    return {word - n * arch::kAllBounds};
  }
};
inline constexpr Bounds kStopped{arch::kStoppedBounds};
static_assert(Bounds::make(3, 7, 9).moved_up(5).word == Bounds::make(8, 12, 14).word);

struct alignas(arch::kHeadBytes) ListHead {
  // Written by pop and push on this CPU; by a drainer while the list is stopped.
  alignas(16) Atomic<std::uint64_t> word{0};
  // Written by sections on this CPU and by the zone's drainer.
  Atomic<std::uint64_t> bounds{0};
  Atomic<std::uint64_t> saved{0};      // drainer's: the bounds that a stop replaced
  Atomic<std::uint32_t> capacity{0};   // blocks; what the list is started with. Tuner's.
  Atomic<std::uint32_t> misses{0};     // refills since the last tick; added to by slow paths
  Atomic<std::uint32_t> overflows{0};  // spills since the last tick; added to by slow paths
  Atomic<std::uint32_t> last_word{0};  // tuner's: low bits of the word at the last tick
  Atomic<std::int64_t> moved{0};       // blocks in by refills less blocks out by spills and drains

  [[nodiscard]] std::uint32_t top() const noexcept {
    return static_cast<std::uint16_t>(word.load(memory_order_relaxed));
  }
  [[nodiscard]] std::uint64_t pops() const noexcept {
    return word.load(memory_order_relaxed) >> 16;
  }
};
static_assert(sizeof(ListHead) == arch::kHeadBytes);
static_assert(offsetof(ListHead, word) == arch::kHeadWord);
static_assert(offsetof(ListHead, bounds) == arch::kHeadBounds);

struct alignas(arch::kBlockBytes) CpuBlock {
  std::byte small_rings[1024];
  TwinLock lock;                      // of the locked form
  Atomic<std::uint32_t> carriers{0};  // slow paths that may carry pages; see CachedZone
  bool fence_due = false;  // drainer's: a stopped list's word was written, sections do not know yet
  alignas(kCacheLine) PercpuCounters counters;  // added to by whoever runs here
  alignas(512) std::byte ring_0[2048];
  std::array<ListHead, kListOrders + 1> lists;

  [[nodiscard]] Page** ring(unsigned list) noexcept {
    return reinterpret_cast<Page**>(reinterpret_cast<std::byte*>(this) + kRingAt[list]);
  }
};
static_assert(kListCapacityMax == ListPlaceOf<0>::kSize);
static_assert(sizeof(CpuBlock) == arch::kBlockBytes);
static_assert(offsetof(CpuBlock, ring_0) == ListPlaceOf<0>::kRing);
static_assert(offsetof(CpuBlock, lists) == ListPlaceOf<0>::kHead);
static_assert(ListPlaceOf<5>::kHead == ListPlaceOf<0>::kHead + 5 * sizeof(ListHead));
static_assert(sizeof(CpuBlock::ring_0) == 8 * ListPlaceOf<0>::kSize);
static_assert(ListPlaceOf<1>::kRing == 0);
static_assert(ListPlaceOf<1>::kRing + 8 * ListPlaceOf<1>::kSize == ListPlaceOf<2>::kRing);
static_assert(ListPlaceOf<2>::kRing + 8 * ListPlaceOf<2>::kSize == ListPlaceOf<3>::kRing);
static_assert(ListPlaceOf<3>::kRing + 8 * ListPlaceOf<3>::kSize == ListPlaceOf<4>::kRing);
static_assert(ListPlaceOf<4>::kRing + 8 * ListPlaceOf<4>::kSize == ListPlaceOf<5>::kRing);
static_assert(ListPlaceOf<5>::kRing + 8 * ListPlaceOf<5>::kSize == sizeof(CpuBlock::small_rings));

}  // namespace weir
