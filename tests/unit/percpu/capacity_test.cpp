// SPDX-License-Identifier: MIT
#include "weir/percpu/capacity.hpp"

#include <gtest/gtest.h>

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

TEST(Capacity, AListHoldsWhatIsAskedButAtLeastTwoClustersAndNeverMoreThanTheMost) {
  const PageCount gib = whole_pages(1_GiB);
  EXPECT_EQ(list_high(gib, 2, 0), 643U);  // low watermark / 2
  EXPECT_EQ(list_high(gib, 16, 0), 252U);
  EXPECT_EQ(list_high(gib, 2, 300), 300U);
  EXPECT_EQ(list_high(gib, 2, 1), 128U);
  EXPECT_EQ(list_high(gib, 2, 127), 128U);
  EXPECT_EQ(list_high(gib, 2, UINT64_MAX), kListCapacityMax);
  EXPECT_EQ(list_high(whole_pages(64_GiB), 1, 0), kListCapacityMax);
  EXPECT_EQ(list_high(PageCount{32}, 2, 1), 2U);
  for (std::uint64_t frames = 1; frames <= kMaxFrames; frames = frames * 2 + 1) {
    for (const std::uint64_t lists : {1, 2, 7, 64, 1024}) {
      const std::uint32_t high = list_high(PageCount{frames}, lists, 0);
      EXPECT_GE(high, 2 * cluster_frames(PageCount{frames}, lists));
      EXPECT_LE(high, kListCapacityMax);
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
  EXPECT_EQ(list_capacity(9, gib, 2, 1024), 4U);
  EXPECT_EQ(list_capacity(9, gib, 64, 1024), 1U);
  EXPECT_EQ(list_capacity(9, whole_pages(64_MiB), 2, 160), 2U);
  EXPECT_EQ(list_capacity(9, whole_pages(16_MiB), 2, 128), 0U);
  for (unsigned order = 1; order <= 3; ++order) {
    EXPECT_EQ(list_capacity(order, PageCount{1023}, 1, 128), 0U);  // no whole clusters there
  }
}

}  // namespace
}  // namespace weir
