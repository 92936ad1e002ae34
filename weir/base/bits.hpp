// SPDX-License-Identifier: MIT
// base/bits.hpp — alignment and power-of-two arithmetic on unsigned integers. Calls nothing.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>

namespace weir {

template <std::unsigned_integral T>
[[nodiscard]] constexpr bool is_power_of_two(T value) noexcept {
  return std::has_single_bit(value);
}

// align must be a power of two.
template <std::unsigned_integral T>
[[nodiscard]] constexpr T align_down(T value, T align) noexcept {
  return value & ~(align - 1);
}

// align must be a power of two; the result wraps to 0 when it does not fit: see add_overflows().
template <std::unsigned_integral T>
[[nodiscard]] constexpr T align_up(T value, T align) noexcept {
  return (value + align - 1) & ~(align - 1);
}

template <std::unsigned_integral T>
[[nodiscard]] constexpr bool is_aligned(T value, T align) noexcept {
  return (value & (align - 1)) == 0;
}

// Largest power of two not above value; 0 for 0.
template <std::unsigned_integral T>
[[nodiscard]] constexpr T pow2_floor(T value) noexcept {
  return std::bit_floor(value);
}

// Floor of the base-2 logarithm; value must not be 0.
template <std::unsigned_integral T>
[[nodiscard]] constexpr unsigned log2_floor(T value) noexcept {
  return static_cast<unsigned>(std::bit_width(value)) - 1U;
}

template <std::unsigned_integral T>
[[nodiscard]] constexpr bool add_overflows(T a, T b) noexcept {
  return static_cast<T>(a + b) < a;
}

template <std::unsigned_integral T>
[[nodiscard]] constexpr T div_round_up(T value, T divisor) noexcept {
  return static_cast<T>(value / divisor + (value % divisor != 0 ? 1 : 0));
}

// Integer square root (floor), as the kernel's int_sqrt.
[[nodiscard]] constexpr std::uint64_t isqrt(std::uint64_t value) noexcept {
  std::uint64_t root = 0;
  for (std::uint64_t bit = std::uint64_t{1} << 31; bit != 0; bit >>= 1) {
    const std::uint64_t trial = root | bit;
    if (trial * trial <= value) {
      root = trial;
    }
  }
  return root;
}

}  // namespace weir
