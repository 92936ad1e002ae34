// SPDX-License-Identifier: MIT
// Merging put off: BuddyMerge::skip and ::clusters, in the buddy engine and under its lock. What the
// eager engine would have is the model: after merge_some() or merge_all() nothing may tell them apart.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>
#include <vector>

#include "tests/support/picture.hpp"
#include "tests/unit/zone/engine_range.hpp"
#include "weir/base/check.hpp"
#include "weir/zone/locked_engine.hpp"

namespace weir {
namespace {

using test::EngineRange;
using Cluster = std::array<PageIndex, kClusterFrames>;

struct Put : EngineRange {
  explicit Put(BuddyMerge merge, std::uint64_t frames, std::uint64_t offset = 0)
      : EngineRange(frames, offset), engine(merge) {
    engine.adopt(first(), frames);
  }
  std::vector<PageIndex> take_all() {
    std::vector<PageIndex> pages;
    for (PageIndex page = engine.take(Order{0}); page != kNoPage; page = engine.take(Order{0})) {
      pages.push_back(page);
    }
    return pages;
  }
  BuddyEngine engine;
};

std::array<std::uint64_t, kOrderCount> free_blocks(const BuddyEngine& engine) {
  std::array<std::uint64_t, kOrderCount> blocks{};
  for (unsigned order = 0; order < kOrderCount; ++order) {
    blocks[order] = engine.free_blocks(Order{order});
  }
  return blocks;
}

class Unmerged : public testing::TestWithParam<BuddyMerge> {};
INSTANTIATE_TEST_SUITE_P(Policies, Unmerged,
                         testing::Values(BuddyMerge::skip, BuddyMerge::clusters),
                         [](const testing::TestParamInfo<BuddyMerge>& merge) {
                           return merge.param == BuddyMerge::skip ? "Skip" : "Clusters";
                         });

TEST_P(Unmerged, SingleFramesThatComeBackLookAtNoBuddyAndAreTakenAgainFirst) {
  Put put(GetParam(), 8);
  const std::vector<PageIndex> pages = put.take_all();
  ASSERT_EQ(pages.size(), 8U);
  for (const PageIndex page : pages) {
    put.engine.give(page, Order{0});
  }
  EXPECT_EQ(put.engine.unmerged(), 8U);
  EXPECT_EQ(put.engine.merges(), 0U);
  EXPECT_EQ(put.engine.free_blocks(Order{0}), 8U);
  EXPECT_EQ(put.engine.free_pages(), 8U);
  EXPECT_EQ(put.engine.audit(), 8U);
  EXPECT_EQ(put.engine.take(Order{0}), pages.back());
  put.engine.give(pages.back(), Order{0});
}

TEST_P(Unmerged, MergingTakesTheOldestAndNoMoreThanIsAsked) {
  Put put(GetParam(), 8);
  const std::vector<PageIndex> pages = put.take_all();
  for (const PageIndex page : pages) {
    put.engine.give(page, Order{0});
  }
  put.engine.merge_some(2);  // the two that were given first are buddies
  EXPECT_EQ(put.engine.unmerged(), 6U);
  EXPECT_EQ(put.engine.free_blocks(Order{1}), 1U);
  EXPECT_EQ(put.engine.audit(), 8U);
  put.engine.merge_some(100);
  EXPECT_EQ(put.engine.unmerged(), 0U);
  EXPECT_EQ(put.engine.free_blocks(Order{3}), 1U);
  EXPECT_EQ(test::blocks(put.first(), 8), "3-------");
}

TEST_P(Unmerged, LargerBlocksMergeAtOnceAndLeaveAloneWhatWaits) {
  Put put(GetParam(), 4);
  const std::vector<PageIndex> pages = put.take_all();
  put.engine.give(put.frame(0), Order{0});
  put.engine.give(put.frame(1), Order{0});
  put.engine.merge_some(2);
  put.engine.give(put.frame(2), Order{0});
  put.engine.give(put.frame(3), Order{0});
  const PageIndex pair = put.engine.take(Order{1});
  ASSERT_EQ(pair, put.frame(0));
  put.engine.give(pair, Order{1});
  EXPECT_EQ(put.engine.free_blocks(Order{1}), 1U);
  EXPECT_EQ(put.engine.free_blocks(Order{0}), 2U);
  put.engine.merge_some(1);
  put.engine.merge_some(1);
  EXPECT_EQ(put.engine.free_blocks(Order{2}), 1U);
}

TEST_P(Unmerged, AfterMergingNothingTellsItFromAnEngineThatMergedAtOnce) {
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    constexpr std::uint64_t kFrames = 3000;
    Put put(GetParam(), kFrames, 5);
    Put eager(BuddyMerge::eager, kFrames, 5);
    std::mt19937_64 random(seed);
    // The same frames are out of both: places within the range, by order.
    std::vector<std::pair<std::uint64_t, Order>> out;
    for (std::uint64_t at = 0; at < kFrames; ++at) {
      ASSERT_NE(put.engine.take(Order{0}), kNoPage);
      ASSERT_NE(eager.engine.take(Order{0}), kNoPage);
      out.emplace_back(at, Order{0});
    }
    for (int round = 0; round < 20; ++round) {
      std::shuffle(out.begin(), out.end(), random);
      const std::size_t keep = random() % (out.size() + 1);
      while (out.size() > keep) {
        // Sometimes a cluster at once, as lists give it.
        if (put.engine.keeps_clusters() && out.size() >= keep + kClusterFrames &&
            random() % 4 == 0) {
          Cluster cluster;
          for (PageIndex& page : cluster) {
            page = put.frame(out.back().first);
            eager.engine.give(eager.frame(out.back().first), Order{0});
            out.pop_back();
          }
          put.engine.give_cluster(BuddyEngine::pack(cluster.data()));
          continue;
        }
        put.engine.give(put.frame(out.back().first), out.back().second);
        eager.engine.give(eager.frame(out.back().first), out.back().second);
        out.pop_back();
      }
      ASSERT_EQ(put.engine.audit(), eager.engine.audit());
      put.engine.merge_some(kFrames);
      ASSERT_EQ(put.engine.unmerged(), 0U);
      ASSERT_EQ(free_blocks(put.engine), free_blocks(eager.engine));
      ASSERT_EQ(put.engine.audit(), eager.engine.audit());
      // All out again, so that both know the same frames.
      const std::size_t inside = static_cast<std::size_t>(put.engine.free_pages());
      for (std::size_t i = 0; i < inside; ++i) {
        const PageIndex page = put.engine.take(Order{0});
        ASSERT_NE(page, kNoPage);
        out.emplace_back(page.value - put.first().value, Order{0});
      }
      while (eager.engine.take(Order{0}) != kNoPage) {
      }
      ASSERT_EQ(eager.engine.free_pages(), 0U);
    }
  }
}

// ---- whole clusters ------------------------------------------------------------------------------

TEST(UnmergedClusters, AClusterComesBackAsItWentAndTouchesOneDescriptor) {
  Put put(BuddyMerge::clusters, 256);
  std::vector<PageIndex> pages = put.take_all();
  std::shuffle(pages.begin(), pages.end(), std::mt19937{7});
  const std::uint64_t given = put.engine.touched_giving();
  const std::uint64_t taken = put.engine.touched_taking();
  Cluster first;
  Cluster second;
  std::copy_n(pages.begin(), kClusterFrames, first.begin());
  std::copy_n(pages.begin() + kClusterFrames, kClusterFrames, second.begin());
  put.engine.give_cluster(BuddyEngine::pack(first.data()));
  put.engine.give_cluster(BuddyEngine::pack(second.data()));
  EXPECT_EQ(put.engine.touched_giving() - given, 2U);
  EXPECT_EQ(put.engine.unmerged(), 2 * kClusterFrames);
  EXPECT_EQ(put.engine.audit(), 2 * kClusterFrames);
  Cluster out;
  BuddyEngine::unpack(put.engine.take_cluster(), out.data());
  EXPECT_EQ(out, second);
  BuddyEngine::unpack(put.engine.take_cluster(), out.data());
  EXPECT_EQ(out, first);
  EXPECT_EQ(put.engine.touched_taking() - taken, 2U);
  EXPECT_EQ(put.engine.take_cluster(), kNoPage);
  EXPECT_EQ(put.engine.audit(), 0U);
}

TEST(UnmergedClusters, SingleFramesAreTakenOutOfAClusterWhenNothingElseWaits) {
  Put put(BuddyMerge::clusters, kClusterFrames);
  const std::vector<PageIndex> pages = put.take_all();
  put.engine.give_cluster(BuddyEngine::pack(pages.data()));
  EXPECT_EQ(put.engine.take(Order{0}), pages.front());
  EXPECT_EQ(put.engine.unmerged(), kClusterFrames - 1);
  EXPECT_EQ(put.engine.audit(), kClusterFrames - 1);
  put.engine.give(pages.front(), Order{0});
  put.engine.merge_some(kClusterFrames);
  EXPECT_EQ(put.engine.free_blocks(Order{6}), 1U);
}

TEST(UnmergedClustersDeathTest, WhatIsGivenTwiceIsReported) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Put put(BuddyMerge::clusters, kClusterFrames);
  std::vector<PageIndex> pages = put.take_all();
  EXPECT_DEATH(
      {
        put.engine.give(pages[5], Order{0});
        static_cast<void>(BuddyEngine::pack(pages.data()));
      },
      "double free: page [0-9]+ is already free .*not merged");
  EXPECT_DEATH(
      {
        pages[9] = pages[8];
        static_cast<void>(BuddyEngine::pack(pages.data()));
      },
      "double free");
  put.engine.give_cluster(BuddyEngine::pack(pages.data()));
  EXPECT_DEATH(put.engine.give(pages[3], Order{0}), "double free");
  EXPECT_DEATH(
      {
        page_at(pages[3])->state.store(FrameState::kTaken);
        static_cast<void>(put.engine.audit());
      },
      "BuddyEngine I5");
}

// ---- under the lock --------------------------------------------------------------------------------

struct Locked : EngineRange {
  explicit Locked(BuddyMerge merge, std::uint64_t frames) : EngineRange(frames) {
    engine.open(merge);
    EXPECT_FALSE(engine.adopt(first(), PageCount{frames}).failed());
  }
  // All frames out and back in clusters of shuffled frames: nothing is merged.
  void scatter() {
    std::vector<PageIndex> pages(frames());
    for (std::size_t at = 0; at < pages.size(); at += kClusterFrames) {
      ASSERT_EQ(engine.take_many(Order{0}, &pages[at], kClusterFrames, 0, 0), kClusterFrames);
    }
    std::shuffle(pages.begin(), pages.end(), std::mt19937{11});
    for (std::size_t at = 0; at < pages.size(); at += kClusterFrames) {
      engine.give_many(Order{0}, &pages[at], kClusterFrames);
    }
  }
  ZoneCounters counters;
  LockedEngine engine{counters};
};

TEST_P(Unmerged, ARequestForALargeBlockMergesUntilThereIsOneAClusterUnderEachHold) {
  Locked locked(GetParam(), 2048);
  locked.scatter();
  EXPECT_EQ(locked.engine.free_blocks(Order{0}), 2048U);
  const std::uint64_t holds = locked.counters.lock_acquisitions.get();
  const PageIndex page = locked.engine.take(kMaxOrder, 0, 0);
  EXPECT_NE(page, kNoPage);
  const std::uint64_t steps = locked.counters.lock_acquisitions.get() - holds;
  EXPECT_GT(steps, 1024U / kClusterFrames);
  EXPECT_LE(steps, 2048U / kClusterFrames + 1);
  EXPECT_LE(locked.counters.lock_most_frames.get(), std::uint64_t{1} << kMaxOrderValue);
  locked.engine.give(page, kMaxOrder);
  EXPECT_EQ(locked.engine.audit(), 2048U);
}

TEST_P(Unmerged, MergeAllLeavesWhatAnEagerEngineWouldHave) {
  Locked locked(GetParam(), 2048);
  locked.scatter();
  locked.engine.merge_all();
  EXPECT_EQ(locked.engine.free_blocks(kMaxOrder), 2U);
  EXPECT_EQ(locked.counters.lock_most_frames.get(), kClusterFrames);
  const std::uint64_t holds = locked.counters.lock_acquisitions.get();
  locked.engine.merge_all();  // nothing waits
  EXPECT_EQ(locked.counters.lock_acquisitions.get() - holds, 1U);
}

TEST_P(Unmerged, ARefusalIsTheTruthWhenAllIsMerged) {
  Locked locked(GetParam(), 128);
  locked.scatter();
  EXPECT_EQ(locked.engine.take(Order{6}, 65, 0), kNoPage);  // too much must stay: nothing is merged
  EXPECT_EQ(locked.engine.free_blocks(Order{0}), 128U);
  EXPECT_EQ(locked.engine.take(Order{8}, 0, 0), kNoPage);
  const PageIndex half = locked.engine.take(Order{6}, 0, 0);
  const PageIndex other = locked.engine.take(Order{6}, 0, 0);
  EXPECT_NE(half, kNoPage);
  EXPECT_NE(other, kNoPage);
  locked.engine.give(half, Order{6});
  locked.engine.give(other, Order{6});
}

TEST(UnmergedCosts, EachPolicyTouchesFewerDescriptorsUnderTheLock) {
  const auto flow = [](BuddyMerge merge) {
    Locked locked(merge, 4096);
    locked.scatter();  // so that buddies are strangers
    const std::uint64_t taking = locked.counters.descriptors_taking.get();
    const std::uint64_t giving = locked.counters.descriptors_giving.get();
    std::vector<PageIndex> pages(2048);
    for (int round = 0; round < 4; ++round) {
      for (std::size_t at = 0; at < pages.size(); at += kClusterFrames) {
        EXPECT_EQ(locked.engine.take_many(Order{0}, &pages[at], kClusterFrames, 0, 0),
                  kClusterFrames);
      }
      std::shuffle(pages.begin(), pages.end(), std::mt19937{3});
      for (std::size_t at = 0; at < pages.size(); at += kClusterFrames) {
        locked.engine.give_many(Order{0}, &pages[at], kClusterFrames);
      }
    }
    return std::pair{locked.counters.descriptors_taking.get() - taking,
                     locked.counters.descriptors_giving.get() - giving};
  };
  const auto [eager_taking, eager_giving] = flow(BuddyMerge::eager);
  const auto [skip_taking, skip_giving] = flow(BuddyMerge::skip);
  const auto [cluster_taking, cluster_giving] = flow(BuddyMerge::clusters);
  EXPECT_LT(skip_giving * 3, eager_giving * 2);
  EXPECT_EQ(cluster_taking, 4U * 2048 / kClusterFrames);
  EXPECT_EQ(cluster_giving, 4U * 2048 / kClusterFrames);
  EXPECT_GT(skip_taking, 4U * 2048);
}

}  // namespace
}  // namespace weir
