// SPDX-License-Identifier: MIT
// Housekeeping: who earns capacity, who loses it, what is merged; and that what lists may hold and the
// depot may keep stays under the cap at every moment.
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/zones.hpp"
#include "weir/percpu/cached_zone.hpp"

namespace weir {
namespace {

using test::free_all;
using test::OnCpu;
using test::take_all;
using test::TestZone;

constexpr std::uint64_t kFrames = 16384;

// What all lists that run may hold, in frames.
std::uint64_t ceilings(const CachedZone& zone) {
  std::uint64_t frames = 0;
  for (CpuId cpu = zone.lists().next_started(0); cpu != kNoCpu;
       cpu = zone.lists().next_started(cpu.value + 1)) {
    for (unsigned list = 0; list < kListOrders; ++list) {
      frames += std::uint64_t{zone.lists().capacity(cpu, list)} << order_of_list(list).value;
    }
  }
  return frames;
}

void expect_within_cap(CachedZone& zone) {
  const std::uint64_t depot = std::uint64_t{zone.depot().capacity()} * zone.lists().cluster();
  ASSERT_LE(ceilings(zone) + depot, zone.limits().total);
  const CachedZone::Census census = zone.census();
  ASSERT_LE(census.lists + census.depot, zone.limits().total);
}

// So many pages out and back again, one by one.
void up_and_down(CachedZone& zone, std::size_t n) {
  std::vector<PageIndex> pages(n);
  for (PageIndex& page : pages) {
    page = zone.alloc(Order{0}, {});
  }
  free_all(zone, pages);
}

struct TickTest : testing::Test {
  void SetUp() override {
    WEIR_NEEDS_LISTS;
    WEIR_NEEDS_CPUS(2);
  }
};

TEST_F(TickTest, AListThatRanDryAndOverEarnsACluster) {
  const OnCpu cpu(0);
  TestZone zone(kFrames);
  ASSERT_EQ(zone->lists().capacity(CpuId{0}, 0), 128U);
  const std::uint32_t most = zone->limits().high_max;
  ASSERT_GE(most, 256U);
  for (std::uint32_t capacity = 192; capacity <= most; capacity += 64) {
    up_and_down(*zone, 1000);
    EXPECT_LE(zone->lists().cached(0), capacity - 64);
    zone->tick();
    EXPECT_EQ(zone->lists().capacity(CpuId{0}, 0), capacity);
    EXPECT_EQ(zone->lists().capacity(CpuId{1}, 0), 128U);
    // The list takes it over on its own CPU.
    up_and_down(*zone, 1000);
    EXPECT_GT(zone->lists().blocks_on(CpuId{0}, 0), capacity - 64);
  }
  up_and_down(*zone, 1000);
  zone->tick();
  EXPECT_EQ(zone->lists().capacity(CpuId{0}, 0), most);
  // And now the whole of it goes up and down without help from the depot.
  const std::uint64_t before = zone->percpu_counters().refills;
  for (int i = 0; i < 10; ++i) {
    up_and_down(*zone, most - 64);
  }
  EXPECT_EQ(zone->percpu_counters().refills, before);
}

TEST_F(TickTest, AListThatOnlyRanDryOrOnlyOverEarnsNothing) {
  TestZone zone(kFrames);
  std::vector<PageIndex> pages;
  for (int round = 0; round < 5; ++round) {
    {
      const OnCpu cpu(0);
      for (int i = 0; i < 500; ++i) {
        pages.push_back(zone->alloc(Order{0}, {}));
      }
    }
    {
      const OnCpu cpu(1);
      free_all(*zone, pages);
    }
    pages.clear();
    zone->tick();
    EXPECT_EQ(zone->lists().capacity(CpuId{0}, 0), 128U);
    EXPECT_EQ(zone->lists().capacity(CpuId{1}, 0), 128U);
  }
}

TEST_F(TickTest, AListThatRunsOneWayLosesWhatItEarned) {
  const OnCpu cpu(0);
  TestZone zone(kFrames);
  for (int i = 0; i < 2; ++i) {
    up_and_down(*zone, 1000);
    zone->tick();
  }
  ASSERT_EQ(zone->lists().capacity(CpuId{0}, 0), 256U);
  std::vector<PageIndex> pages(2000);
  ASSERT_EQ(zone->alloc_bulk(pages.data(), 2000, {}), 2000U);
  zone->tick();  // dry only
  EXPECT_EQ(zone->lists().capacity(CpuId{0}, 0), 128U);
  free_all(*zone, pages);
  EXPECT_LE(zone->lists().blocks_on(CpuId{0}, 0), 128U);
  EXPECT_EQ(zone->census().out(), 0U);
  zone->tick();  // over only
  EXPECT_EQ(zone->lists().capacity(CpuId{0}, 0), 128U);
}

TEST_F(TickTest, TrafficThatStaysInsideTheListChangesNothing) {
  const OnCpu cpu(0);
  TestZone zone(kFrames);
  up_and_down(*zone, 30);
  zone->tick();
  for (int i = 0; i < 10; ++i) {
    up_and_down(*zone, 30);
    const std::uint64_t cached = zone->lists().cached(0);
    zone->tick();
    EXPECT_EQ(zone->lists().cached(0), cached);
    EXPECT_EQ(zone->lists().capacity(CpuId{0}, 0), 128U);
  }
}

TEST_F(TickTest, AnIdleListIsEmptiedAndOthersAreNot) {
  TestZone zone(kFrames);
  for (const std::uint32_t number : {0U, 1U}) {
    const OnCpu cpu(number);
    up_and_down(*zone, 100);
  }
  zone->tick();
  EXPECT_GT(zone->lists().cached(0), 0U);
  {
    const OnCpu cpu(1);
    up_and_down(*zone, 5);
  }
  zone->tick();
  EXPECT_EQ(zone->lists().cached(0), 0U);
  EXPECT_GT(zone->lists().cached(1), 0U);
  // It serves again at once.
  const OnCpu cpu(0);
  up_and_down(*zone, 10);
  EXPECT_GT(zone->lists().cached(0), 0U);
  EXPECT_EQ(zone->census().out(), 0U);
}

TEST_F(TickTest, AnIdleListLosesWhatItEarned) {
  TestZone zone(kFrames);
  {
    const OnCpu cpu(0);
    for (int i = 0; i < 2; ++i) {
      up_and_down(*zone, 1000);
      zone->tick();
    }
  }
  ASSERT_EQ(zone->lists().capacity(CpuId{0}, 0), 256U);
  zone->tick();
  zone->tick();
  EXPECT_EQ(zone->lists().capacity(CpuId{0}, 0), 128U);
  EXPECT_EQ(zone->lists().cached(0), 0U);
}

// Somebody who takes and gives large pages alone is not idle.
TEST_F(TickTest, AListOfAHigherOrderThatIsUsedIsNotEmptied) {
  const OnCpu cpu(0);
  TestZone zone(kFrames);
  for (int i = 0; i < 5; ++i) {
    for (int pair = 0; pair < 100; ++pair) {
      zone->free(zone->alloc(Order{3}, {}), Order{3});
    }
    ASSERT_EQ(zone->lists().blocks_on(CpuId{0}, 3), 8U);
    zone->tick();
    EXPECT_EQ(zone->lists().blocks_on(CpuId{0}, 3), 8U) << "tick " << i;
  }
}

// ---- the cap -------------------------------------------------------------------------------------

TEST_F(TickTest, CeilingsAndDepotStayUnderTheCapAtEveryMoment) {
  for (const std::uint64_t cap : {4U, 100U, 600U, 1700U, 3100U, 3200U, 3500U, 1'000'000U}) {
    SCOPED_TRACE(cap);
    Options options;
    options.cached = PageCount{cap};
    TestZone zone(kFrames, 2, options);
    ASSERT_LE(zone->limits().total, cap);
    std::mt19937 random(static_cast<unsigned>(cap));
    std::vector<PageIndex> live;
    std::uint64_t most = 0;
    for (int step = 0; step < 600; ++step) {
      const OnCpu cpu(random() % 2);
      const std::size_t n = random() % 1500;
      if (live.size() > 6000 || random() % 2 == 0) {
        for (std::size_t i = 0; i < n && !live.empty(); ++i) {
          zone->free(live.back(), Order{0});
          live.pop_back();
        }
      } else {
        for (std::size_t i = 0; i < n; ++i) {
          live.push_back(zone->alloc(Order{0}, {}));
        }
      }
      expect_within_cap(*zone);
      if (random() % 2 == 0) {
        zone->tick();
        expect_within_cap(*zone);
      }
      most = std::max(most, ceilings(*zone));
      if (HasFatalFailure()) {
        free_all(*zone, live);
        return;
      }
    }
    EXPECT_GE(most, 2 * zone->lists().frames_at_start());  // both CPUs have lists
    free_all(*zone, live);
    EXPECT_EQ(zone->census().out(), 0U);
  }
}

TEST_F(TickTest, WhatAListEarnsIsNeverAnotherCpusStart) {
  for (const bool deferred : {false, true}) {
    Options options;
    options.merge = deferred ? Merge::deferred : Merge::immediate;
    // Lists of two CPUs and the depot, of four clusters, as they start; nothing beyond.
    options.cached = PageCount{2 * 1536 + 4 * 64};
    TestZone zone(kFrames, 2, options);
    for (const std::uint32_t number : {0U, 1U}) {
      const OnCpu cpu(number);
      for (int i = 0; i < 8; ++i) {
        up_and_down(*zone, 600);
        zone->tick();
        expect_within_cap(*zone);
      }
      EXPECT_TRUE(zone->lists().is_started(CpuId{number}));
      EXPECT_EQ(zone->lists().capacity(CpuId{number}, 0), zone->limits().high_max);
    }
    EXPECT_EQ(zone->limits().high_max, 128U);
  }
}

// ---- the depot -----------------------------------------------------------------------------------

struct DepotTick : TickTest {
  static Options options() {
    Options options;
    options.depot = PageCount{16 * 64};
    return options;
  }
  // n clusters go into the depot by bulks that pass the list, which is full.
  static void give_clusters(CachedZone& zone, std::uint32_t n) {
    std::vector<PageIndex> pages(64);
    std::vector<std::vector<PageIndex>> batches;
    for (std::uint32_t i = 0; i < n + 2; ++i) {
      ASSERT_EQ(zone.alloc_bulk(pages.data(), 64, {}), 64U);
      batches.push_back(pages);
    }
    ASSERT_EQ(zone.drain_all().code, Errc::ok);
    for (int i = 0; i < 2; ++i) {
      free_all(zone, batches.back());
      batches.pop_back();
    }
    for (const std::vector<PageIndex>& batch : batches) {
      zone.free_bulk(batch.data(), 64);
    }
    ASSERT_EQ(zone.depot().full_clusters(), n);
  }
  // So many clusters out and back in.
  static void use_clusters(CachedZone& zone, std::uint32_t n) {
    std::vector<ClusterId> taken;
    for (std::uint32_t i = 0; i < n; ++i) {
      taken.push_back(zone.depot().take_full(0));
      ASSERT_NE(taken.back(), kNoCluster);
    }
    for (const ClusterId id : taken) {
      ASSERT_TRUE(zone.depot().give_full(id, 0));
    }
  }
};

TEST_F(DepotTick, ClustersThatLayThereForAWholeTickAreMerged) {
  const OnCpu cpu(0);
  TestZone zone(kFrames, 2, options());
  give_clusters(*zone, 6);
  zone->tick();  // they came since the last tick
  EXPECT_EQ(zone->depot().full_clusters(), 6U);
  const std::uint64_t merged = zone->zone().counters().clusters_merged.get();
  const std::uint64_t engine = zone->zone().free_pages();
  use_clusters(*zone, 2);  // four were not wanted
  zone->tick();
  EXPECT_EQ(zone->depot().full_clusters(), 2U);
  EXPECT_EQ(zone->zone().counters().clusters_merged.get(), merged + 4);
  EXPECT_GE(zone->zone().free_pages(), engine + 4 * 64);
  EXPECT_EQ(zone->depot().empty_bodies() + 2, zone->depot().bodies());
  EXPECT_EQ(zone->census().out(), 0U);
}

TEST_F(DepotTick, TheOldestAreMergedAndTheNewestStay) {
  const OnCpu cpu(0);
  TestZone zone(kFrames, 2, options());
  give_clusters(*zone, 5);
  zone->tick();
  // The newest, that are used.
  const ClusterId newest = zone->depot().take_full(0);
  const PageIndex hot = zone->depot().body(newest).frames[0];
  ASSERT_TRUE(zone->depot().give_full(newest, 0));
  zone->tick();
  ASSERT_EQ(zone->depot().full_clusters(), 1U);
  const ClusterId left = zone->depot().take_full(0);
  EXPECT_EQ(zone->depot().body(left).frames[0], hot);
  ASSERT_TRUE(zone->depot().give_full(left, 0));
}

TEST_F(DepotTick, WhatATickLeftThereIsMergedByTheNextIfNobodyWantedIt) {
  const OnCpu cpu(0);
  TestZone zone(kFrames, 2, options());
  give_clusters(*zone, 6);
  zone->tick();
  use_clusters(*zone, 2);
  zone->tick();
  ASSERT_EQ(zone->depot().full_clusters(), 2U);
  zone->tick();
  EXPECT_EQ(zone->depot().full_clusters(), 0U);
}

TEST_F(DepotTick, InADepotOfSeveralShardsTheOldestOfEachAreMerged) {
  if (!kTestHooks) {
    GTEST_SKIP() << "needs fake CPU ids";
  }
  TestZone zone(65536, 16, options());
  ASSERT_EQ(zone->lists().cluster(), 64U);
  ASSERT_EQ(zone->depot().shards(), 2U);
  std::vector<PageIndex> pages(64);
  std::vector<std::vector<PageIndex>> cold;
  std::vector<std::vector<PageIndex>> hot;
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(zone->alloc_bulk(pages.data(), 64, {}), 64U);
    cold.push_back(pages);
  }
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(zone->alloc_bulk(pages.data(), 64, {}), 64U);
    hot.push_back(pages);
  }
  // Straight into the depot, as carriers do it.
  const auto give = [&](const std::vector<PageIndex>& batch, std::uint32_t shard) {
    const ClusterId id = zone->depot().take_empty(shard);
    ASSERT_NE(id, kNoCluster);
    std::copy(batch.begin(), batch.end(), zone->depot().body(id).frames);
    ASSERT_TRUE(zone->depot().give_full(id, shard));
  };
  for (const std::vector<PageIndex>& batch : cold) {
    give(batch, 0);
  }
  for (const std::vector<PageIndex>& batch : hot) {
    give(batch, 1);
  }
  zone->tick();
  ASSERT_EQ(zone->depot().full_clusters(), 7U);
  // A flow on CPUs 8 to 15 uses what is in their shard.
  std::vector<ClusterId> taken;
  for (int i = 0; i < 3; ++i) {
    taken.push_back(zone->depot().take_full(1));
  }
  for (const ClusterId id : taken) {
    ASSERT_TRUE(zone->depot().give_full(id, 1));
  }
  zone->tick();
  EXPECT_EQ(zone->depot().full_clusters(), 3U);
  std::set<PageIndex> left;
  taken.clear();
  for (ClusterId id = zone->depot().take_full(1); id != kNoCluster;
       id = zone->depot().take_full(1)) {
    left.insert(zone->depot().body(id).frames[0]);
    taken.push_back(id);
  }
  for (const ClusterId id : taken) {
    ASSERT_TRUE(zone->depot().give_full(id, 1));
  }
  for (const std::vector<PageIndex>& batch : hot) {
    EXPECT_TRUE(left.contains(batch.front())) << "a cluster that was in use has been merged";
  }
}

// ---- when there is nothing to keep ---------------------------------------------------------------

TEST(Tick, DoesNothingInAShortageAndEndsOneThatIsOver) {
  const OnCpu cpu(0);
  TestZone zone(4096);
  const std::vector<PageIndex> pages = take_all(*zone);
  ASSERT_TRUE(zone->in_shortage());
  zone->tick();
  EXPECT_TRUE(zone->in_shortage());
  free_all(*zone, pages);
  test::outlast_shortage();
  zone->tick();
  EXPECT_FALSE(zone->in_shortage());
  EXPECT_EQ(zone->census().out(), 0U);
}

TEST(Tick, WithoutListsThereIsNothingToDo) {
  Options options;
  options.lists = false;
  TestZone zone(4096, 2, options);
  up_and_down(*zone, 500);
  zone->tick();
  EXPECT_EQ(zone->zone().free_pages(), 4096U);
}

TEST(Tick, InsideAMarkedSectionItLetsBe) {
  const OnCpu cpu(0);
  TestZone zone(4096);
  up_and_down(*zone, 50);
  const std::uint64_t cached = zone->lists().cached(0);
  {
    const ThreadMark mark;
    for (int i = 0; i < 3; ++i) {
      zone->tick();
    }
  }
  EXPECT_EQ(zone->lists().cached(0), cached);
}

}  // namespace
}  // namespace weir
