// SPDX-License-Identifier: MIT
#include "weir/base/bits.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace weir {
namespace {

static_assert(is_power_of_two(1U) && is_power_of_two(std::uint64_t{1} << 63));
static_assert(!is_power_of_two(0U) && !is_power_of_two(12U));
static_assert(align_up(4097U, 4096U) == 8192U && align_up(4096U, 4096U) == 4096U);
static_assert(div_round_up(UINT64_MAX, std::uint64_t{2}) == std::uint64_t{1} << 63);

TEST(Bits, AlignDownAndUpMeetExactlyAtMultiples) {
  for (std::uint64_t align = 1; align <= 64; align *= 2) {
    for (std::uint64_t value = 0; value < 300; ++value) {
      const std::uint64_t down = align_down(value, align);
      const std::uint64_t up = align_up(value, align);
      EXPECT_EQ(down, value / align * align);
      EXPECT_EQ(up, (value + align - 1) / align * align);
      EXPECT_EQ(is_aligned(value, align), down == up);
    }
  }
}

TEST(Bits, AlignUpWrapsToZeroWhereAddOverflowsSaysSo) {
  EXPECT_EQ(align_up(UINT64_MAX, std::uint64_t{4096}), 0U);
  EXPECT_TRUE(add_overflows(UINT64_MAX, std::uint64_t{4095}));
  EXPECT_TRUE(add_overflows(UINT64_MAX, std::uint64_t{1}));
  EXPECT_FALSE(add_overflows(UINT64_MAX, std::uint64_t{0}));
  EXPECT_FALSE(add_overflows(UINT64_MAX - 1, std::uint64_t{1}));
}

TEST(Bits, AddOverflowsIsRightForTypesThatPromoteToInt) {
  EXPECT_TRUE(add_overflows<std::uint8_t>(255, 1));
  EXPECT_FALSE(add_overflows<std::uint8_t>(254, 1));
  EXPECT_TRUE(add_overflows<std::uint16_t>(65535, 65535));
}

TEST(Bits, PowerFloorAndLogarithmAgree) {
  EXPECT_EQ(pow2_floor(std::uint64_t{0}), 0U);
  for (std::uint64_t value = 1; value < 5000; ++value) {
    const std::uint64_t floor = pow2_floor(value);
    EXPECT_LE(floor, value);
    EXPECT_GT(floor * 2, value);
    EXPECT_EQ(std::uint64_t{1} << log2_floor(value), floor);
  }
  EXPECT_EQ(log2_floor(UINT64_MAX), 63U);
  EXPECT_EQ(pow2_floor(UINT64_MAX), std::uint64_t{1} << 63);
}

TEST(Bits, DivisionRoundsUpWithoutOverflow) {
  EXPECT_EQ(div_round_up(0U, 7U), 0U);
  EXPECT_EQ(div_round_up(7U, 7U), 1U);
  EXPECT_EQ(div_round_up(8U, 7U), 2U);
  EXPECT_EQ(div_round_up(UINT32_MAX, UINT32_MAX), 1U);
  EXPECT_EQ(div_round_up(UINT32_MAX, 1U), UINT32_MAX);
}

TEST(Bits, SquareRootIsTheLargestWhoseSquareFits) {
  for (std::uint64_t value = 0; value < 100000; ++value) {
    const std::uint64_t root = isqrt(value);
    ASSERT_LE(root * root, value);
    ASSERT_GT((root + 1) * (root + 1), value);
  }
  EXPECT_EQ(isqrt(UINT64_MAX), 0xffff'ffffU);
  EXPECT_EQ(isqrt((std::uint64_t{1} << 62) - 1), (std::uint64_t{1} << 31) - 1);
  EXPECT_EQ(isqrt(std::uint64_t{1} << 62), std::uint64_t{1} << 31);
}

}  // namespace
}  // namespace weir
