// SPDX-License-Identifier: MIT
#include "lab/harness/control.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace weir::lab {
namespace {

// A dependent multiplication takes at least a cycle; were the loop optimised away, it would not.
TEST(Control, AStepTakesTime) {
  double least = 1e9;
  for (int i = 0; i < 10; ++i) {
    least = std::min(least, control_step_ns());
  }
  EXPECT_GT(least, 0.1);
  EXPECT_LT(least, 1000);
}

}  // namespace
}  // namespace weir::lab
