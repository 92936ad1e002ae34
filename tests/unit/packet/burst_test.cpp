// SPDX-License-Identifier: MIT
#include "weir/packet/burst.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace weir {
namespace {

using Item = std::unique_ptr<int>;

TEST(Burst, FillsBehindAndEmptiesInFront) {
  Burst<Item, 4> burst;
  EXPECT_TRUE(burst.empty());
  EXPECT_EQ(burst.room().size(), 4U);
  EXPECT_TRUE(burst.push(std::make_unique<int>(1)));
  burst.room()[0] = std::make_unique<int>(2);
  burst.room()[1] = std::make_unique<int>(3);
  burst.grow(2);
  EXPECT_EQ(burst.size(), 3U);
  EXPECT_EQ(*burst.packets()[0], 1);
  burst.packets()[0].reset();
  burst.drop_front(1);
  EXPECT_EQ(*burst.packets()[0], 2);
  EXPECT_EQ(burst.size(), 2U);
  EXPECT_EQ(burst.room().size(), 1U);  // the gap in front is no room until all is gone
  burst.drop_back(1);
  EXPECT_EQ(burst.size(), 1U);
  burst.drop_front(1);
  EXPECT_TRUE(burst.empty());
  EXPECT_EQ(burst.room().size(), 4U);
}

TEST(Burst, RefusesWhenFullAndKeepsTheCallersPacket) {
  Burst<Item, 1> burst;
  EXPECT_TRUE(burst.push(std::make_unique<int>(1)));
  EXPECT_TRUE(burst.full());
  Item mine = std::make_unique<int>(2);
  EXPECT_FALSE(burst.push(std::move(mine)));
  ASSERT_NE(mine, nullptr);  // NOLINT(bugprone-use-after-move): a refusal moves nothing
  EXPECT_EQ(*mine, 2);
}

TEST(Burst, NeverCountsMoreThanItHas) {
  Burst<Item, 4> burst;
  burst.grow(100);
  EXPECT_EQ(burst.size(), 4U);
  burst.drop_back(100);
  EXPECT_TRUE(burst.empty());
  burst.grow(3);
  burst.drop_front(100);
  EXPECT_TRUE(burst.empty());
  EXPECT_EQ(burst.room().size(), 4U);
}

}  // namespace
}  // namespace weir
