// SPDX-License-Identifier: MIT
#include "weir/base/failpoint.hpp"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace weir {
namespace {

class FailpointTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!kTestHooks) GTEST_SKIP() << "built without test hooks";
    failpoints::reset();
  }
  void TearDown() override { failpoints::reset(); }

  // "..x." : one letter a hit, x where it failed.
  static std::string picture(Failpoint point, int hits) {
    std::string picture;
    for (int i = 0; i < hits; ++i) {
      picture += fails(point) ? 'x' : '.';
    }
    return picture;
  }
};

TEST_F(FailpointTest, NothingFailsUnlessAsked) {
  EXPECT_EQ(picture(Failpoint::memory_map, 5), ".....");
  EXPECT_EQ(failpoints::hits(Failpoint::memory_map), 5U);
}

TEST_F(FailpointTest, TheKthHitFailsAndNoOther) {
  failpoints::arm(Failpoint::memory_map, 3);
  EXPECT_EQ(picture(Failpoint::memory_map, 6), "..x...");
}

TEST_F(FailpointTest, AFailureCanLastForACount) {
  failpoints::arm(Failpoint::memory_map, 2, 3);
  EXPECT_EQ(picture(Failpoint::memory_map, 7), ".xxx...");
}

TEST_F(FailpointTest, ArmingCountsFromNow) {
  EXPECT_EQ(picture(Failpoint::memory_map, 4), "....");
  failpoints::arm(Failpoint::memory_map, 1);
  EXPECT_EQ(picture(Failpoint::memory_map, 3), "x..");
}

TEST_F(FailpointTest, AlwaysMeansEveryHitUntilReset) {
  failpoints::fail_always(Failpoint::zone_take);
  EXPECT_EQ(picture(Failpoint::zone_take, 100), std::string(100, 'x'));
  failpoints::reset();
  EXPECT_EQ(picture(Failpoint::zone_take, 3), "...");
  EXPECT_EQ(failpoints::hits(Failpoint::zone_take), 3U);
}

TEST_F(FailpointTest, PointsAreIndependent) {
  failpoints::fail_always(Failpoint::list_busy);
  EXPECT_EQ(picture(Failpoint::list_push, 3), "...");
  EXPECT_EQ(failpoints::hits(Failpoint::list_busy), 0U);
}

TEST_F(FailpointTest, ExactlyOneOfManyThreadsMeetsTheKthHit) {
  failpoints::arm(Failpoint::pool_ring, 1000);
  Atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        if (fails(Failpoint::pool_ring)) failures.fetch_add(1, memory_order_relaxed);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures.load(memory_order_relaxed), 1);
}

TEST(Failpoint, IsTheConstantFalseWithoutTestHooks) {
  if (kTestHooks) GTEST_SKIP() << "built with test hooks";
  failpoints::fail_always(Failpoint::memory_map);
  EXPECT_FALSE(fails(Failpoint::memory_map));
  EXPECT_EQ(failpoints::hits(Failpoint::memory_map), 0U);
  failpoints::reset();
}

}  // namespace
}  // namespace weir
