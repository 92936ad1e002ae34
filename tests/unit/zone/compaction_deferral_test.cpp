// SPDX-License-Identifier: MIT
#include "weir/zone/compaction_deferral.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace weir {
namespace {

// How many runs are left out before the next one.
std::uint32_t left_out(CompactionDeferral& deferral, Order order) {
  std::uint32_t n = 0;
  while (deferral.leaves_out(order)) {
    ++n;
  }
  return n;
}

TEST(CompactionDeferral, EveryFailureDoublesHowManyAreLeftOutUpTo64) {
  CompactionDeferral deferral;
  EXPECT_EQ(left_out(deferral, Order{9}), 0U);
  for (const std::uint32_t limit : {2U, 4U, 8U, 16U, 32U, 64U, 64U, 64U}) {
    deferral.failed(Order{9});
    EXPECT_EQ(left_out(deferral, Order{9}), limit - 1);
    EXPECT_EQ(left_out(deferral, Order{9}), 0U) << "once it is worth a try, it stays so";
  }
}

TEST(CompactionDeferral, SmallerOrdersThanTheOneThatFailedAreTried) {
  CompactionDeferral deferral;
  deferral.failed(Order{5});
  EXPECT_FALSE(deferral.leaves_out(Order{4}));
  EXPECT_TRUE(deferral.leaves_out(Order{6}));
  deferral.failed(Order{3});
  EXPECT_TRUE(deferral.leaves_out(Order{4}));
}

TEST(CompactionDeferral, ASuccessEndsItForItsOrderAndLargerOnes) {
  CompactionDeferral deferral;
  deferral.failed(Order{5});
  deferral.failed(Order{5});
  deferral.succeeded(Order{4});
  EXPECT_TRUE(deferral.leaves_out(Order{5})) << "a smaller one says nothing about it";
  deferral.succeeded(Order{5});
  EXPECT_FALSE(deferral.leaves_out(Order{5}));
  EXPECT_FALSE(deferral.leaves_out(Order{10}));
}

}  // namespace
}  // namespace weir
