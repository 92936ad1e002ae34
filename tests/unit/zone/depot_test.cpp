// SPDX-License-Identifier: MIT
#include "weir/zone/depot.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

namespace weir {
namespace {

static_assert(sizeof(Cluster) == 4 * kCacheLine && alignof(Cluster) == kCacheLine);

class DepotTest : public testing::Test {
 protected:
  void open(std::uint32_t bodies, std::uint32_t capacity, std::uint32_t shards = 1,
            std::uint32_t cluster_frames = kClusterFrames) {
    ASSERT_FALSE(depot.open(bodies, capacity, shards, cluster_frames).failed());
  }
  // A full cluster out of an empty body; kNoCluster when the depot does not take it.
  ClusterId fill(std::uint32_t shard) {
    const ClusterId id = depot.take_empty(shard);
    if (id != kNoCluster && !depot.give_full(id, shard)) {
      depot.give_empty(id, shard);
      return kNoCluster;
    }
    return id;
  }

  Depot depot;
};

TEST(StackHead, KeepsNumberDepthAndTagApart) {
  constexpr StackHead kEmpty;
  static_assert(kEmpty.top() == kNoCluster && kEmpty.depth() == 0 && kEmpty.tag() == 0);
  constexpr ClusterId kLast{Depot::kMaxBodies - 1};
  constexpr StackHead kFull = StackHead::make(kLast, Depot::kMaxBodies, 77);
  static_assert(kFull.top() == kLast && kFull.depth() == Depot::kMaxBodies && kFull.tag() == 77);
  constexpr StackHead kPushed = kEmpty.pushed({0}).pushed({5});
  static_assert(kPushed.top() == ClusterId{5} && kPushed.depth() == 2 && kPushed.tag() == 2);
  constexpr StackHead kPopped = kPushed.popped({0}).popped(kNoCluster);
  static_assert(kPopped.top() == kNoCluster && kPopped.depth() == 0 && kPopped.tag() == 4);
  EXPECT_NE(kPopped.word, kEmpty.word);
}

TEST(StackHead, ATagAtItsEndStartsAgainWithoutTouchingTheRest) {
  constexpr std::uint64_t kLastTag = (std::uint64_t{1} << 36) - 1;
  constexpr StackHead kHead = StackHead::make({9}, 3, kLastTag);
  static_assert(kHead.tag() == kLastTag);
  constexpr StackHead kNext = kHead.pushed({4});
  static_assert(kNext.tag() == 0 && kNext.top() == ClusterId{4} && kNext.depth() == 4);
  EXPECT_EQ(kHead.popped({2}).word, StackHead::make({2}, 2, 0).word);
}

TEST_F(DepotTest, TheNewestFullClusterLeavesFirst) {
  open(4, 4);
  const ClusterId first = fill(0);
  const ClusterId second = fill(0);
  const ClusterId third = fill(0);
  EXPECT_EQ(depot.take_full(0), third);
  EXPECT_EQ(depot.take_full(0), second);
  EXPECT_TRUE(depot.give_full(third, 0));
  EXPECT_EQ(depot.take_full(0), third);
  EXPECT_EQ(depot.take_full(0), first);
  EXPECT_EQ(depot.take_full(0), kNoCluster);
}

TEST_F(DepotTest, EveryBodyIsHandedOutOnceUntilNoneIsLeft) {
  open(100, 0, 3);
  std::set<std::uint16_t> seen;
  for (std::uint32_t i = 0; i < 100; ++i) {
    const ClusterId id = depot.take_empty(i % 3);
    ASSERT_LT(id.value, 100U);
    EXPECT_TRUE(seen.insert(id.value).second);
    EXPECT_EQ(depot.empty_bodies(), 99 - i);
  }
  for (std::uint32_t shard = 0; shard < 3; ++shard) {
    EXPECT_EQ(depot.take_empty(shard), kNoCluster);
  }
  depot.give_empty({42}, 1);
  EXPECT_EQ(depot.take_empty(2), ClusterId{42});
}

TEST_F(DepotTest, AFullClusterBeyondTheCapacityStaysWithItsGiver) {
  open(8, 2);
  EXPECT_NE(fill(0), kNoCluster);
  EXPECT_NE(fill(0), kNoCluster);
  const ClusterId refused = depot.take_empty(0);
  EXPECT_FALSE(depot.give_full(refused, 0));
  EXPECT_EQ(depot.full_clusters(), 2U);
  EXPECT_EQ(depot.empty_bodies(), 5U);
  ASSERT_NE(depot.take_full(0), kNoCluster);
  EXPECT_TRUE(depot.give_full(refused, 0));
}

TEST_F(DepotTest, TheCapacityCountsTheFullClustersOfAllShards) {
  open(8, 3, 4);
  EXPECT_NE(fill(0), kNoCluster);
  EXPECT_NE(fill(1), kNoCluster);
  EXPECT_NE(fill(3), kNoCluster);
  for (std::uint32_t shard = 0; shard < 4; ++shard) {
    EXPECT_EQ(fill(shard), kNoCluster);
  }
  EXPECT_EQ(depot.full_clusters(), 3U);
  EXPECT_EQ(depot.empty_bodies(), 5U);
}

TEST_F(DepotTest, ANewCapacityHoldsForLaterGives) {
  open(8, 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(fill(0), kNoCluster);
  }
  depot.set_capacity(1);
  EXPECT_EQ(depot.capacity(), 1U);
  EXPECT_EQ(depot.full_clusters(), 3U);
  EXPECT_EQ(fill(0), kNoCluster);
  depot.set_capacity(4);
  EXPECT_NE(fill(0), kNoCluster);
  EXPECT_EQ(fill(0), kNoCluster);
  depot.set_capacity(1000);
  EXPECT_EQ(depot.capacity(), 8U);  // there are no more bodies
}

TEST_F(DepotTest, ATakeGoesRoundFromItsOwnShard) {
  open(8, 8, 4);
  const ClusterId in_one = fill(1);
  const ClusterId in_three = fill(3);
  EXPECT_EQ(depot.take_full(2), in_three);
  EXPECT_EQ(depot.take_full(2), in_one);
  EXPECT_EQ(depot.take_full(2), kNoCluster);
  depot.give_partial(in_one, 1, 1);
  depot.give_partial(in_three, 3, 3);
  std::uint32_t n = 0;
  EXPECT_EQ(depot.take_partial(2, n), in_three);
  EXPECT_EQ(n, 3U);
  EXPECT_EQ(depot.take_partial(2, n), in_one);
  EXPECT_EQ(n, 1U);
  depot.give_partial(in_one, 1, 1);
  depot.give_partial(in_three, 3, 0);
  EXPECT_EQ(depot.take_partial(0, n), in_three);  // the own one first
  EXPECT_EQ(depot.take_partial(0, n), in_one);
}

TEST_F(DepotTest, APartialClusterKeepsItsNumberAndItsFrames) {
  open(4, 0);
  const ClusterId a = depot.take_empty(0);
  const ClusterId b = depot.take_empty(0);
  depot.body(a).frames[0] = {7};
  depot.body(b).frames[62] = {8};
  depot.give_partial(a, 1, 0);
  depot.give_partial(b, 63, 0);
  EXPECT_EQ(depot.partial_clusters(), 2U);
  EXPECT_EQ(depot.frames(), 64U);
  EXPECT_FALSE(depot.empty());
  std::uint32_t n = 99;
  EXPECT_EQ(depot.take_partial(0, n), b);
  EXPECT_EQ(n, 63U);
  EXPECT_EQ(depot.body(b).frames[62], PageIndex{8});
  EXPECT_EQ(depot.frames(), 1U);
  EXPECT_EQ(depot.take_partial(0, n), a);
  EXPECT_EQ(n, 1U);
  EXPECT_EQ(depot.body(a).frames[0], PageIndex{7});
  EXPECT_EQ(depot.take_partial(0, n), kNoCluster);
  EXPECT_EQ(n, 0U);
  EXPECT_EQ(depot.frames(), 0U);
  EXPECT_TRUE(depot.empty());
}

TEST_F(DepotTest, FramesAreThoseOfFullAndPartialClusters) {
  open(6, 6, 2, 16);
  EXPECT_TRUE(depot.empty());
  EXPECT_NE(fill(0), kNoCluster);
  EXPECT_NE(fill(1), kNoCluster);
  depot.give_partial(depot.take_empty(0), 5, 1);
  EXPECT_EQ(depot.frames(), 2U * 16 + 5);
  EXPECT_EQ(depot.cluster_frames(), 16U);
  EXPECT_EQ(depot.full_clusters() + depot.partial_clusters() + depot.empty_bodies(),
            depot.bodies());
}

TEST_F(DepotTest, BodiesDoNotOverlap) {
  open(50, 50);
  std::vector<ClusterId> taken;
  for (ClusterId id = depot.take_empty(0); id != kNoCluster; id = depot.take_empty(0)) {
    for (PageIndex& frame : depot.body(id).frames) {
      EXPECT_EQ(frame.value, 0U);  // untouched so far
      frame.value = id.value + 1000U;
    }
    taken.push_back(id);
  }
  EXPECT_EQ(taken.size(), 50U);
  for (const ClusterId id : taken) {
    for (const PageIndex frame : depot.body(id).frames) {
      EXPECT_EQ(frame.value, id.value + 1000U);
    }
  }
}

TEST_F(DepotTest, LowWaterIsWhatNobodyTouched) {
  open(10, 10);
  EXPECT_EQ(depot.exchange_low_water(), 0U);
  for (int i = 0; i < 5; ++i) {
    EXPECT_NE(fill(0), kNoCluster);
  }
  EXPECT_EQ(depot.exchange_low_water(), 0U);  // there were none when it was asked last
  EXPECT_EQ(depot.exchange_low_water(), 5U);
  const ClusterId a = depot.take_full(0);
  const ClusterId b = depot.take_full(0);
  EXPECT_TRUE(depot.give_full(a, 0));
  EXPECT_TRUE(depot.give_full(b, 0));
  EXPECT_NE(fill(0), kNoCluster);
  EXPECT_EQ(depot.exchange_low_water(), 3U);
  EXPECT_EQ(depot.exchange_low_water(), 6U);
}

TEST_F(DepotTest, LowWaterCountsThefts) {
  open(10, 10, 2);
  for (int i = 0; i < 4; ++i) {
    EXPECT_NE(fill(1), kNoCluster);
  }
  EXPECT_EQ(depot.exchange_low_water(), 0U);
  EXPECT_TRUE(depot.give_full(depot.take_full(0), 0));
  EXPECT_EQ(depot.exchange_low_water(), 3U);
}

TEST_F(DepotTest, StaysRightWhenTheTagsStartAgain) {
  open(6, 6, 2);
  EXPECT_NE(fill(0), kNoCluster);
  depot.give_partial(depot.take_empty(1), 2, 1);
  depot.set_tags_for_test((std::uint64_t{1} << 36) - 2);
  for (int i = 0; i < 6; ++i) {
    const ClusterId a = fill(0);
    EXPECT_EQ(depot.take_full(0), a);
    depot.give_empty(a, 0);
    std::uint32_t n = 0;
    const ClusterId b = depot.take_partial(1, n);
    EXPECT_EQ(n, 2U);
    depot.give_partial(b, n, 1);
  }
  EXPECT_EQ(depot.full_clusters(), 1U);
  EXPECT_EQ(depot.partial_clusters(), 1U);
  EXPECT_EQ(depot.empty_bodies(), 4U);
}

TEST_F(DepotTest, HasNoBodiesBeforeItIsOpenedAndAfterItIsClosed) {
  EXPECT_EQ(depot.take_full(0), kNoCluster);
  EXPECT_EQ(depot.take_empty(0), kNoCluster);
  EXPECT_TRUE(depot.empty());
  open(4, 4, 2);
  EXPECT_NE(fill(0), kNoCluster);
  depot.give_partial(depot.take_empty(1), 3, 1);
  depot.close();
  depot.close();
  EXPECT_EQ(depot.take_full(0), kNoCluster);
  EXPECT_EQ(depot.take_empty(1), kNoCluster);
  EXPECT_EQ(depot.bodies(), 0U);
  EXPECT_EQ(depot.frames(), 0U);
  open(7, 5, 3);
  EXPECT_EQ(depot.empty_bodies(), 7U);
  EXPECT_EQ(depot.full_clusters(), 0U);
  EXPECT_EQ(depot.capacity(), 5U);
  EXPECT_EQ(depot.frames(), 0U);
  EXPECT_EQ(depot.exchange_low_water(), 0U);
}

TEST_F(DepotTest, RefusesSizesThatMakeNoSense) {
  EXPECT_EQ(depot.open(0, 1, 1, 64).code, Errc::zero_size);
  EXPECT_EQ(depot.open(1, 1, 0, 64).code, Errc::zero_size);
  EXPECT_EQ(depot.open(1, 1, 1, 0).code, Errc::zero_size);
  EXPECT_EQ(depot.open(1, 1, Depot::kMaxShards + 1, 64).code, Errc::too_large);
  EXPECT_EQ(depot.open(1, 1, 1, kClusterFrames + 1).code, Errc::too_large);
  EXPECT_EQ(depot.bodies(), 0U);
  open(1, 0, Depot::kMaxShards, 1);
  EXPECT_EQ(depot.open(1, 1, 1, 64).code, Errc::in_use);
  EXPECT_EQ(depot.shards(), Depot::kMaxShards);
}

TEST_F(DepotTest, MoreBodiesThanNumbersBecomeAsManyAsThereAreNumbers) {
  open(0xffff'ffff, 0xffff'ffff, 5);
  EXPECT_EQ(depot.bodies(), Depot::kMaxBodies);
  EXPECT_EQ(depot.capacity(), Depot::kMaxBodies);
  std::uint32_t n = 0;
  while (fill(2) != kNoCluster) {
    ++n;
  }
  EXPECT_EQ(n, Depot::kMaxBodies);
  EXPECT_EQ(depot.full_clusters(), Depot::kMaxBodies);
  EXPECT_EQ(depot.frames(), std::uint64_t{Depot::kMaxBodies} * kClusterFrames);
  while (depot.take_full(3) != kNoCluster) {
    --n;
  }
  EXPECT_EQ(n, 0U);
}

TEST_F(DepotTest, MoreShardsThanBodiesStillHandOutEveryBody) {
  open(2, 2, 8);
  EXPECT_NE(fill(7), kNoCluster);
  EXPECT_NE(fill(5), kNoCluster);
  EXPECT_EQ(fill(0), kNoCluster);
  EXPECT_NE(depot.take_full(6), kNoCluster);
  EXPECT_NE(depot.take_full(6), kNoCluster);
}

}  // namespace
}  // namespace weir
