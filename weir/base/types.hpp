// SPDX-License-Identifier: MIT
// base/types.hpp — the units weir speaks in. Calls base/config and base/bits only.
// A unit is a type; a conversion has a name; arithmetic that makes no sense does not compile.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

#include "weir/base/bits.hpp"
#include "weir/base/config.hpp"

namespace weir {

// Name of a frame, unique in the process. 32 bits reach 16 TiB.
struct PageIndex {
  std::uint32_t value;

  friend constexpr auto operator<=>(PageIndex, PageIndex) = default;
};
inline constexpr PageIndex kNoPage{0xffff'ffffU};

// A number of frames.
struct PageCount {
  std::uint64_t value = 0;

  friend constexpr auto operator<=>(PageCount, PageCount) = default;
  friend constexpr PageCount operator+(PageCount a, PageCount b) { return {a.value + b.value}; }
  friend constexpr PageCount operator-(PageCount a, PageCount b) { return {a.value - b.value}; }
  constexpr PageCount& operator+=(PageCount other) {
    value += other.value;
    return *this;
  }
  constexpr PageCount& operator-=(PageCount other) {
    value -= other.value;
    return *this;
  }
};

// log2 of a page's length in frames.
struct Order {
  unsigned value = 0;

  constexpr Order() = default;
  constexpr explicit Order(unsigned order) : value(order) {}
  friend constexpr auto operator<=>(Order, Order) = default;
};
inline constexpr Order kMaxOrder{kMaxOrderValue};
inline constexpr Order kPageblockOrder{kPageblockOrderValue};

// A length of memory.
struct Bytes {
  std::uint64_t value = 0;

  constexpr Bytes() = default;
  constexpr explicit Bytes(std::uint64_t bytes) : value(bytes) {}
  friend constexpr auto operator<=>(Bytes, Bytes) = default;
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return Bytes{a.value + b.value}; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return Bytes{a.value - b.value}; }
  friend constexpr Bytes operator*(Bytes a, std::uint64_t n) { return Bytes{a.value * n}; }
};
inline constexpr Bytes kKiB{std::uint64_t{1} << 10};
inline constexpr Bytes kMiB{std::uint64_t{1} << 20};
inline constexpr Bytes kGiB{std::uint64_t{1} << 30};

// An alignment in bytes; whoever takes one checks that it is a power of two.
struct Align {
  std::size_t value = 1;

  constexpr explicit Align(std::size_t align) : value(align) {}
};

// A processor as the kernel numbers it. Numbers may be sparse and need not be below the count.
struct CpuId {
  std::uint32_t value;

  friend constexpr auto operator<=>(CpuId, CpuId) = default;
};
inline constexpr CpuId kNoCpu{0xffff'ffffU};

// A NUMA node; any is "no preference".
struct NodeId {
  std::int32_t value = -1;

  friend constexpr auto operator<=>(NodeId, NodeId) = default;
};
inline constexpr NodeId kAnyNode{-1};

[[nodiscard]] constexpr PageCount pages(Order order) { return {std::uint64_t{1} << order.value}; }
[[nodiscard]] constexpr std::uint32_t frames_in(Order order) {
  return std::uint32_t{1} << order.value;
}
[[nodiscard]] constexpr Bytes bytes(PageCount count) { return Bytes{count.value << kFrameShift}; }
[[nodiscard]] constexpr Bytes bytes(Order order) { return bytes(pages(order)); }
// Whole frames in a length; the rest is cut off.
[[nodiscard]] constexpr PageCount whole_pages(Bytes length) {
  return {length.value >> kFrameShift};
}
static_assert(bytes(PageCount{2}) == Bytes{8192});
static_assert(bytes(kPageblockOrder) == kMiB * 2);

[[nodiscard]] constexpr PageIndex advance(PageIndex index, std::uint64_t frames) {
  return {static_cast<std::uint32_t>(index.value + frames)};
}
// The buddy of a block: the block it can merge with.
[[nodiscard]] constexpr PageIndex buddy_of(PageIndex index, Order order) {
  return {index.value ^ frames_in(order)};
}

inline namespace literals {
constexpr Bytes operator""_KiB(unsigned long long n) { return Bytes{n << 10}; }
constexpr Bytes operator""_MiB(unsigned long long n) { return Bytes{n << 20}; }
constexpr Bytes operator""_GiB(unsigned long long n) { return Bytes{n << 30}; }
}  // namespace literals

}  // namespace weir
