// SPDX-License-Identifier: MIT
#include "weir/percpu/capacity.hpp"

#include <gtest/gtest.h>

#include <array>

namespace weir {
namespace {

struct Worked {
  Bytes zone;
  std::uint32_t batch;
  std::uint64_t high_min, high_max;
};

// Worked out by hand from the kernel's formulas for 16 CPUs.
constexpr std::uint64_t kCpus = 16;
constexpr Worked kWorked[] = {
    {16_MiB, 1, 10, 32},      {64_MiB, 3, 20, 128},       {128_MiB, 7, 28, 256},
    {256_MiB, 15, 60, 512},   {512_MiB, 31, 124, 1024},   {1_GiB, 63, 252, 2048},
    {16_GiB, 63, 518, 32768}, {64_GiB, 63, 1560, 131072},
};

TEST(Capacity, BatchAndHighAreTheKernelsForEightSizes) {
  for (const Worked& worked : kWorked) {
    SCOPED_TRACE(worked.zone.value >> 20);
    const PageCount managed = whole_pages(worked.zone);
    EXPECT_EQ(pcp_batch(managed), worked.batch);
    EXPECT_EQ(pcp_high_min(managed, kCpus), worked.high_min);
    EXPECT_EQ(pcp_high_max(managed, kCpus), worked.high_max);
  }
}

TEST(Capacity, BatchIsOneLessThanAPowerOfTwoAndAtMost63) {
  EXPECT_EQ(pcp_batch(PageCount{1}), 1U);
  for (std::uint64_t frames = 1; frames <= kMaxFrames; frames = frames * 3 / 2 + 1) {
    const std::uint32_t batch = pcp_batch(PageCount{frames});
    EXPECT_TRUE(is_power_of_two(batch + 1)) << frames;
    EXPECT_LE(batch, 63U);
  }
}

TEST(Capacity, AClusterIsSmallerInZonesThatAreTooSmallForWholeOnes) {
  EXPECT_EQ(cluster_frames(PageCount{16}, 64), 1U);
  EXPECT_EQ(cluster_frames(PageCount{32}, 2), 1U);
  EXPECT_EQ(cluster_frames(PageCount{63}, 2), 1U);
  EXPECT_EQ(cluster_frames(PageCount{64}, 2), 2U);
  EXPECT_EQ(cluster_frames(PageCount{1}, 1), 1U);
  EXPECT_EQ(cluster_frames(PageCount{1024}, 1), 64U);
  EXPECT_EQ(cluster_frames(PageCount{1023}, 1), 32U);
  EXPECT_EQ(cluster_frames(PageCount{64 * 64}, 4), 64U);  // what 64 x 64 frames are for four CPUs
  EXPECT_EQ(cluster_frames(PageCount{64 * 64 - 1}, 4), 32U);
  EXPECT_EQ(cluster_frames(PageCount{kMaxFrames}, 1), 64U);
}

TEST(Capacity, AListStartsWithWhatIsAskedButAtLeastTwoClustersAndNeverMoreThanTheRing) {
  const PageCount gib = whole_pages(1_GiB);
  EXPECT_EQ(list_high(gib, 2, 0), 128U);
  EXPECT_EQ(list_high(gib, 16, 0), 128U);
  EXPECT_EQ(list_high(gib, 2, 200), 200U);
  EXPECT_EQ(list_high(gib, 2, 1), 128U);
  EXPECT_EQ(list_high(gib, 2, 127), 128U);
  EXPECT_EQ(list_high(gib, 2, UINT64_MAX), kListCapacityMax);
  EXPECT_EQ(list_high(PageCount{32}, 2, 1), 2U);
  for (std::uint64_t frames = 1; frames <= kMaxFrames; frames = frames * 2 + 1) {
    for (const std::uint64_t lists : {1, 2, 7, 64, 384, 1024}) {
      for (const std::uint64_t asked : {0, 3, 200, 10'000}) {
        const std::uint32_t high = list_high(PageCount{frames}, lists, asked);
        EXPECT_GE(high, 2 * cluster_frames(PageCount{frames}, lists));
        EXPECT_LE(high, kListCapacityMax);
        EXPECT_TRUE(asked == 0 || high >= std::min<std::uint64_t>(asked, kListCapacityMax));
      }
    }
  }
}

TEST(Capacity, MissesEarnAListNoMoreThanTheKernelsMostNorTheRing) {
  EXPECT_EQ(list_high_max(whole_pages(16_MiB), 2, 128), 256U);             // 4096 / 8 / 2
  EXPECT_EQ(list_high_max(whole_pages(16_MiB), 16, 128), 128U);            // the start is the most
  EXPECT_EQ(list_high_max(whole_pages(1_GiB), 2, 128), kListCapacityMax);  // the ring
  EXPECT_EQ(list_high_max(whole_pages(1_GiB), 2, kListCapacityMax), kListCapacityMax);
  EXPECT_EQ(list_high_max(whole_pages(1_GiB), 384, 128), 252U);  // four of the kernel's batches
  for (std::uint64_t frames = 1; frames <= kMaxFrames; frames = frames * 2 + 1) {
    for (const std::uint64_t lists : {1, 2, 64, 384}) {
      const std::uint32_t high = list_high(PageCount{frames}, lists, 0);
      const std::uint32_t most = list_high_max(PageCount{frames}, lists, high);
      EXPECT_GE(most, high);
      EXPECT_LE(most, kListCapacityMax);
    }
  }
}

TEST(Capacity, AMoveIsAClusterOfFramesInWholeBlocks) {
  EXPECT_EQ(blocks_per_move(0, 64), 64U);
  EXPECT_EQ(blocks_per_move(1, 64), 32U);
  EXPECT_EQ(blocks_per_move(3, 64), 8U);
  EXPECT_EQ(blocks_per_move(9, 64), 1U);
  EXPECT_EQ(blocks_per_move(3, 1), 1U);
  for (unsigned order = 0; order <= kMaxOrderValue; ++order) {
    for (std::uint32_t cluster = 1; cluster <= kClusterFrames; cluster *= 2) {
      const std::uint32_t blocks = blocks_per_move(order, cluster);
      EXPECT_TRUE(blocks == 1 || blocks << order <= kClusterFrames);
    }
  }
}

TEST(Capacity, HigherOrdersGetAQuarterOfHighAndPageblocksAnEighthOfTheZone) {
  const PageCount gib = whole_pages(1_GiB);
  EXPECT_EQ(list_capacity(0, gib, 2, 1024), 1024U);
  EXPECT_EQ(list_capacity(1, gib, 2, 1024), 128U);  // 256 frames
  EXPECT_EQ(list_capacity(2, gib, 2, 1024), 64U);
  EXPECT_EQ(list_capacity(3, gib, 2, 1024), 32U);
  EXPECT_EQ(list_capacity(1, gib, 2, 128), 64U);  // never less than two moves
  EXPECT_EQ(list_capacity(3, gib, 2, 128), 16U);
  EXPECT_EQ(list_capacity(9, gib, 2, 1024), 2U);  // two at most
  EXPECT_EQ(list_capacity(9, gib, 64, 1024), 1U);
  EXPECT_EQ(list_capacity(9, whole_pages(64_MiB), 2, 160), 2U);
  EXPECT_EQ(list_capacity(9, whole_pages(16_MiB), 2, 128), 0U);
  for (unsigned order = 1; order <= 3; ++order) {
    EXPECT_EQ(list_capacity(order, PageCount{1023}, 1, 128), 0U);  // no whole clusters there
  }
}

// ---- what lies outside the engine at most --------------------------------------------------------

std::uint64_t share_of_a_cpu(PageCount managed, std::uint64_t lists, std::uint32_t high) {
  std::uint64_t frames = 0;
  for (const unsigned order : {0U, 1U, 2U, 3U, kPageblockOrderValue}) {
    frames += std::uint64_t{list_capacity(order, managed, lists, high)} << order;
  }
  return frames;
}

TEST(Capacity, LimitsOfAnOrdinaryZone) {
  const PageCount managed = whole_pages(64_MiB);  // 16384
  const CacheLimits limits = cache_limits(managed, 2, true, true, 0, 0, kMaxFrames);
  EXPECT_EQ(limits.high, 128U);
  EXPECT_EQ(limits.high_max, kListCapacityMax);
  EXPECT_EQ(limits.depot_clusters, 4U);  // two a list
  // Singles 128, orders 1 to 3 128 each, two pageblocks.
  EXPECT_EQ(share_of_a_cpu(managed, 2, 128), 4 * 128U + 1024);
  EXPECT_EQ(limits.total, 2 * (4 * 128U + 1024) + 2 * 4 * 64);
}

TEST(Capacity, TheDepotOfALargeZoneIsItsShare) {
  const PageCount managed = whole_pages(16_GiB);
  EXPECT_EQ(cache_limits(managed, 2, true, true, 0, 0, kMaxFrames).depot_clusters,
            managed.value / 1000 / 64);
  // Of many lists two clusters each.
  EXPECT_EQ(cache_limits(managed, 64, true, true, 0, 0, kMaxFrames).depot_clusters, 128U);
  EXPECT_EQ(
      cache_limits(managed, 2, true, true, 0, 0, kMaxFrames, kDepotShareLockFree).depot_clusters,
      managed.value / kDepotShareLockFree / kClusterFrames);
  EXPECT_EQ(cache_limits(managed, 2, true, true, 0, 6400, kMaxFrames).depot_clusters, 100U);
  // The words of the depot have room for so many.
  EXPECT_EQ(cache_limits({kMaxFrames}, 2, true, true, 0, kMaxFrames, kMaxFrames).depot_clusters,
            kDepotClustersMax);
}

// What Effective says, asked for again, is what it says.
void expect_reproduced(PageCount managed, std::uint64_t lists, bool deferred, std::uint64_t high,
                       std::uint64_t depot, std::uint64_t cached) {
  SCOPED_TRACE(testing::Message() << managed.value << " frames, " << lists << " lists, deferred "
                                  << deferred << ", high " << high << ", depot " << depot
                                  << ", cached " << cached);
  const CacheLimits limits = cache_limits(managed, lists, true, deferred, high, depot, cached);
  const std::uint64_t depot_frames = std::uint64_t{limits.depot_clusters} * limits.sizes.cluster;
  const CacheLimits again =
      cache_limits(managed, lists, true, deferred, limits.high, depot_frames, limits.total);
  EXPECT_EQ(again.high, limits.high);
  EXPECT_EQ(again.sizes.blocks, limits.sizes.blocks);
  EXPECT_EQ(again.sizes.cluster, limits.sizes.cluster);
  EXPECT_EQ(again.high_max, limits.high_max);
  EXPECT_EQ(again.depot_clusters, limits.depot_clusters);
  EXPECT_EQ(again.total, limits.total);
}

TEST(Capacity, LimitsReadBackReproduceThemselves) {
  for (const std::uint64_t frames : {1, 33, 1024, 65536, 1 << 22}) {
    for (const std::uint64_t lists : {1, 2, 64}) {
      for (const std::uint64_t high : {0U, 200U}) {
        for (const std::uint64_t depot : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1000},
                                          kMaxFrames, std::uint64_t{1} << 63, UINT64_MAX}) {
          for (const std::uint64_t cached :
               {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{150}, std::uint64_t{601},
                std::uint64_t{3000}, std::uint64_t{33'000}, kMaxFrames, UINT64_MAX}) {
            expect_reproduced(PageCount{frames}, lists, true, high, depot, cached);
            expect_reproduced(PageCount{frames}, lists, false, high, depot, cached);
          }
        }
      }
    }
  }
}

TEST(Capacity, ADepotThatIsAskedForHasAClusterAtLeastAndAtMostWhatItsWordsHold) {
  const PageCount managed = whole_pages(256_MiB);
  const std::uint64_t lists = 2 * share_of_a_cpu(managed, 2, 128);
  EXPECT_EQ(cache_limits(managed, 2, true, true, 0, 1, kMaxFrames).depot_clusters, 1U);
  EXPECT_EQ(cache_limits(managed, 2, true, true, 0, 127, kMaxFrames).depot_clusters, 1U);
  for (const std::uint64_t depot :
       {kMaxFrames, std::uint64_t{1} << 58, std::uint64_t{1} << 63, UINT64_MAX}) {
    const CacheLimits limits = cache_limits(managed, 2, true, true, 0, depot, UINT64_MAX);
    EXPECT_EQ(limits.depot_clusters, kDepotClustersMax) << depot;
    EXPECT_EQ(limits.total, lists + 2 * std::uint64_t{kDepotClustersMax} * 64) << depot;
  }
}

TEST(Capacity, WithoutListsOrWithACapOfZeroNothingIsCached) {
  for (const bool on : {false, true}) {
    const CacheLimits limits =
        cache_limits(whole_pages(1_GiB), 2, on, true, 200, 5000, on ? 0 : kMaxFrames);
    EXPECT_EQ(limits.high, 0U);
    EXPECT_EQ(limits.high_max, 0U);
    EXPECT_EQ(limits.depot_clusters, 0U);
    EXPECT_EQ(limits.total, 0U);
  }
}

TEST(Capacity, WithMergingAtOnceThereIsNoDepot) {
  const CacheLimits limits =
      cache_limits(whole_pages(1_GiB), 2, true, false, 0, 10'000, kMaxFrames);
  EXPECT_EQ(limits.depot_clusters, 0U);
  EXPECT_EQ(limits.high, 128U);
  EXPECT_EQ(limits.total, 2 * share_of_a_cpu(whole_pages(1_GiB), 2, 128));
}

TEST(Capacity, ASmallCapGoesToTheListsFirst) {
  const PageCount managed = whole_pages(64_MiB);
  const std::uint64_t lists = 2 * share_of_a_cpu(managed, 2, 128);
  for (const std::uint64_t cap : {lists, lists + 63}) {
    const CacheLimits limits = cache_limits(managed, 2, true, true, 0, 0, cap);
    EXPECT_EQ(limits.total, cap);
    EXPECT_EQ(limits.depot_clusters, 0U) << cap;
  }
  EXPECT_EQ(cache_limits(managed, 2, true, true, 0, 0, lists + 64).depot_clusters, 1U);
  EXPECT_EQ(cache_limits(managed, 2, true, true, 0, 0, lists + 3 * 64).depot_clusters, 3U);
}

struct Fitted {
  std::uint64_t cap, high;  // asked
  std::uint32_t cluster;
  std::array<std::uint32_t, kListOrders> blocks;
  std::uint32_t depot_clusters;
  std::uint64_t total;
};

// Two CPUs in 256 MiB: 128 single pages, 128 frames of each order to 3 and two pageblocks are 1536
// frames a CPU.
constexpr Fitted kFitted[] = {
    {3072, 0, 64, {128, 64, 32, 16, 2}, 0, 3072},
    {3071, 0, 64, {128, 64, 32, 16, 0}, 4, 1536},  // no pageblocks
    {1024, 0, 64, {128, 64, 32, 16, 0}, 0, 1024},
    {1023, 0, 64, {128, 0, 0, 0, 0}, 4, 768},  // single pages alone
    {1167, 200, 64, {200, 0, 0, 0, 0}, 4, 912},
    {400, 200, 64, {200, 0, 0, 0, 0}, 0, 400},
    {399, 200, 64, {199, 0, 0, 0, 0}, 0, 399},  // fewer than asked for
    {256, 0, 64, {128, 0, 0, 0, 0}, 0, 256},
    {255, 0, 32, {64, 0, 0, 0, 0}, 3, 255},  // smaller clusters
    {100, 0, 16, {32, 0, 0, 0, 0}, 2, 100},
    {7, 0, 1, {2, 0, 0, 0, 0}, 3, 7},
    {4, 0, 1, {2, 0, 0, 0, 0}, 0, 4},
    {3, 0, 64, {0, 0, 0, 0, 0}, 0, 0},  // no lists
    {1, 200, 64, {0, 0, 0, 0, 0}, 0, 0},
};

TEST(Capacity, UnderASmallCapListsLoseFirstWhatIsMissedLeast) {
  for (const Fitted& fitted : kFitted) {
    SCOPED_TRACE(testing::Message() << "cap " << fitted.cap << ", high " << fitted.high);
    const CacheLimits limits =
        cache_limits(whole_pages(256_MiB), 2, true, true, fitted.high, 0, fitted.cap);
    EXPECT_EQ(limits.sizes.cluster, fitted.cluster);
    EXPECT_EQ(limits.sizes.blocks, fitted.blocks);
    EXPECT_EQ(limits.high, fitted.blocks[0]);
    EXPECT_EQ(limits.depot_clusters, fitted.depot_clusters);
    EXPECT_EQ(limits.total, fitted.total);
  }
}

TEST(Capacity, AListIsPromisedNoMoreThanItCanEarnUnderTheCap) {
  const PageCount managed = whole_pages(64_MiB);
  const std::uint64_t lists = 2 * share_of_a_cpu(managed, 2, 128);
  for (const std::uint64_t more : {0U, 63U, 4 * 64U, 4 * 64 + 70U}) {
    const CacheLimits limits = cache_limits(managed, 2, true, true, 0, 0, lists + more);
    EXPECT_EQ(limits.high_max, 128 + (more / 64 - limits.depot_clusters) * 64) << more;
  }
  EXPECT_EQ(cache_limits(managed, 2, true, true, 0, 0, lists + 8 * 64).high_max, kListCapacityMax);
}

TEST(Capacity, TinyZonesAndManyCpusHaveLimitsThatFit) {
  for (const std::uint64_t frames : {1, 31, 32, 64, 1024, 4096, 1 << 20}) {
    for (const std::uint64_t lists : {1, 2, 8, 64, 384}) {
      SCOPED_TRACE(testing::Message() << frames << " frames, " << lists << " lists");
      const PageCount managed{frames};
      for (const std::uint64_t cap : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{100},
                                      std::uint64_t{1000}, std::uint64_t{100'000}, kMaxFrames}) {
        const CacheLimits limits = cache_limits(managed, lists, true, true, 0, 0, cap);
        EXPECT_LE(limits.total, cap);
        EXPECT_EQ(limits.high, cap / lists < 2 ? 0 : 2 * limits.sizes.cluster);
        EXPECT_GE(limits.high_max, limits.high);
        for (unsigned list = 0; list < kListOrders; ++list) {
          EXPECT_LE(limits.sizes.blocks[list], kRingPlaces[list]);
        }
        EXPECT_LE(limits.sizes.cluster, cluster_frames(managed, lists));
        // The lists of all CPUs as they start, and the depot, fit under the cap.
        EXPECT_LE(limits.sizes.frames() * lists +
                      limits.depot_clusters * std::uint64_t{limits.sizes.cluster},
                  limits.total);
      }
    }
  }
  const CacheLimits tiny = cache_limits(PageCount{32}, 2, true, true, 0, 0, kMaxFrames);
  EXPECT_EQ(tiny.high, 2U);
  EXPECT_EQ(tiny.depot_clusters, 4U);
  const CacheLimits many = cache_limits(whole_pages(1_GiB), 384, true, true, 0, 0, kMaxFrames);
  EXPECT_EQ(many.high, 64U);  // clusters of 32
  EXPECT_EQ(many.depot_clusters, 768U);
}

}  // namespace
}  // namespace weir
