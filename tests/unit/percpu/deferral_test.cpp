// SPDX-License-Identifier: MIT
// Merging put off, seen from outside: it costs no large block. When one is asked for what waits is
// merged; when little is free nothing waits; and a search that failed is not repeated all the time.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

#include "tests/support/zones.hpp"
#include "weir/percpu/cached_zone.hpp"

namespace weir {
namespace {

using test::free_all;
using test::OnCpu;
using test::outlast_shortage;
using test::take_all;
using test::TestZone;

ZoneCounterValues counters(CachedZone& zone) { return values_of(zone.zone().counters()); }

std::vector<PageIndex> part(const std::vector<PageIndex>& pages, std::size_t from, std::size_t n) {
  return {pages.begin() + static_cast<std::ptrdiff_t>(from),
          pages.begin() + static_cast<std::ptrdiff_t>(from + n)};
}

// All frames out, ascending, lists running: `spread` of them, every second one from the end on, are
// back in the engine.
std::vector<PageIndex> fragment(CachedZone& zone, std::size_t spread) {
  std::vector<PageIndex> pages = take_all(zone);
  std::sort(pages.begin(), pages.end());
  std::vector<PageIndex> kept;
  for (std::size_t i = pages.size(); i-- > 0;) {
    if (i % 2 == 1 && spread != 0) {
      --spread;
      zone.free(pages[i], Order{0});
    } else {
      kept.push_back(pages[i]);
    }
  }
  std::reverse(kept.begin(), kept.end());
  outlast_shortage();
  zone.free(kept.back(), Order{0});  // whoever gives next ends the shortage
  kept.pop_back();
  EXPECT_FALSE(zone.in_shortage());
  // If the shortage ended before, some are on the list and in the depot.
  EXPECT_EQ(zone.drain_all().code, Errc::ok);
  return kept;
}

TEST(Deferral, ALargeRequestMergesTheDepotAndStopsNothing) {
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  TestZone zone(16384, 2, {.depot = PageCount{1024}});
  std::vector<PageIndex> pages = fragment(*zone, 4096);
  // Two clusters for the list, the others for the depot.
  zone->free_bulk(pages.data(), 640);
  ASSERT_EQ(zone->depot().full_clusters(), 8U);
  const ZoneCounterValues before = counters(*zone);
  const PageIndex page = zone->alloc(Order{6}, {});
  ASSERT_TRUE(is_page(page));
  EXPECT_EQ(counters(*zone).shortages, before.shortages);
  EXPECT_EQ(counters(*zone).clusters_merged, before.clusters_merged + 8);
  EXPECT_TRUE(zone->depot().empty());
  EXPECT_GT(zone->census().lists, 0U);
  zone->free(page, Order{6});
  free_all(*zone, part(pages, 640, pages.size() - 640));
}

TEST(Deferral, ALargeRequestFindsWhatLiesOnListsAfterThat) {
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  TestZone zone(16384, 2);
  std::vector<PageIndex> pages = fragment(*zone, 4096);
  zone->free_bulk(pages.data(), 128);
  ASSERT_GE(zone->census().lists, 128U);
  const PageIndex page = zone->alloc(Order{5}, {});
  EXPECT_TRUE(is_page(page));
  zone->free(page, Order{5});
  free_all(*zone, part(pages, 128, pages.size() - 128));
}

// ---- little is free --------------------------------------------------------------------------------

TEST(LowWatermark, BelowItTheDepotIsMergedOnceAndAboveTheHighOneClustersWaitAgain) {
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  TestZone zone(65536, 2, {.depot = PageCount{1024}});
  const std::uint64_t low = zone->zone().watermarks().low.value;
  const std::uint64_t high = zone->zone().watermarks().high.value;
  ASSERT_EQ(low, 640U);
  ASSERT_GE(high, low + 128);  // so that a cluster comes back between the two
  std::vector<PageIndex> pages(65536);
  std::size_t out = 0;
  const auto take = [&] {
    ASSERT_EQ(zone->alloc_bulk(&pages[out], 64, {}), 64U);
    out += 64;
  };
  const auto give = [&] {
    out -= 64;
    zone->free_bulk(&pages[out], 64);
  };
  while (zone->free_pages() >= low + 64) {
    take();
  }
  // The last clusters come from a depot that has some.
  for (int i = 0; i < 6; ++i) {
    give();
  }
  EXPECT_GT(zone->depot().full_clusters(), 0U);
  EXPECT_EQ(counters(*zone).low_crossings, 0U);
  while (zone->free_pages() >= low) {
    take();
  }
  EXPECT_EQ(counters(*zone).low_crossings, 1U);
  EXPECT_TRUE(zone->depot().empty());
  // Up and down below the high watermark: what the lists give up merges, and nothing is drained.
  const std::uint64_t merged = counters(*zone).clusters_merged;
  for (int round = 0; round < 5; ++round) {
    while (zone->free_pages() + 64 <= high) {
      give();
      ASSERT_TRUE(zone->depot().empty());
    }
    while (zone->free_pages() >= low) {
      take();
    }
  }
  EXPECT_EQ(counters(*zone).low_crossings, 1U);
  EXPECT_EQ(counters(*zone).clusters_merged, merged);
  while (zone->depot().empty()) {
    ASSERT_GE(out, 64U);
    give();
  }
  EXPECT_GT(zone->free_pages(), high);
  while (zone->free_pages() >= low) {
    take();
  }
  EXPECT_EQ(counters(*zone).low_crossings, 2U);
  zone->free_bulk(pages.data(), out);
}

TEST(LowWatermark, AZoneThatIsHardlyMoreThanTheWatermarksStillPutsMergingOff) {
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  TestZone zone(256);
  ASSERT_GT(zone->zone().watermarks().low.value, 256U / 8);
  std::vector<PageIndex> pages;
  while (zone->free_pages() > 256 / 8) {  // below the low watermark at the end
    pages.push_back(zone->alloc(Order{0}, {}));
    ASSERT_TRUE(is_page(pages.back()));
  }
  ASSERT_LT(zone->free_pages(), zone->zone().watermarks().low.value);
  EXPECT_EQ(counters(*zone).low_crossings, 0U);
  while (zone->free_pages() >= 256 / 8) {
    pages.push_back(zone->alloc(Order{0}, {}));
    ASSERT_TRUE(is_page(pages.back()));
  }
  EXPECT_EQ(counters(*zone).low_crossings, 1U);
  free_all(*zone, pages);
}

// ---- a search that failed ----------------------------------------------------------------------------

TEST(DeferredSearch, ABlockThatWasNotFoundIsNotSearchedForAgainAtOnce) {
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  TestZone zone(4096);
  const std::vector<PageIndex> pages = fragment(*zone, 1024);
  const ZoneCounterValues before = counters(*zone);
  const auto start = std::chrono::steady_clock::now();
  constexpr int kRequests = 2000;
  for (int i = 0; i < kRequests; ++i) {
    ASSERT_FALSE(is_page(zone->alloc(Order{3}, {})));
    if (i % 10 == 0) {  // single frames go on, and end the shortage when it may end
      const PageIndex page = zone->alloc(Order{0}, {});
      ASSERT_TRUE(is_page(page));
      zone->free(page, Order{0});
    }
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  const ZoneCounterValues after = counters(*zone);
  EXPECT_EQ(after.refusals - before.refusals, kRequests);
  EXPECT_GT(after.deferred - before.deferred, 0U);
  // Searched for at 0, 1, 3, 7, 15 ... ms; frames of the loop that reach the engine allow some more.
  EXPECT_LT(static_cast<double>(kRequests) - static_cast<double>(after.deferred - before.deferred),
            kRequests / 4.0 + took.count());
  free_all(*zone, pages);
}

TEST(DeferredSearch, EachFurtherFailurePutsTheNextOffForLonger) {
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  TestZone zone(4096);
  const std::vector<PageIndex> pages = fragment(*zone, 1024);
  const ZoneCounterValues before = counters(*zone);
  const auto start = std::chrono::steady_clock::now();
  std::chrono::duration<double, std::milli> took{0};
  while (took.count() < 50) {
    ASSERT_FALSE(is_page(zone->alloc(Order{3}, {})));
    took = std::chrono::steady_clock::now() - start;
  }
  const ZoneCounterValues after = counters(*zone);
  const auto searches =
      static_cast<double>((after.refusals - before.refusals) - (after.deferred - before.deferred));
  EXPECT_GE(searches, 2);
  EXPECT_LT(searches, 8 + took.count() / 32);  // one a millisecond were 50
  free_all(*zone, pages);
}

TEST(DeferredSearch, EnoughFramesGivenToTheEngineEndIt) {
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  TestZone zone(4096);
  std::vector<PageIndex> pages = fragment(*zone, 1024);
  ASSERT_FALSE(is_page(zone->alloc(Order{3}, {})));
  ASSERT_TRUE(zone->in_shortage());
  // Back to the engine, for the lists stand still: the even ones between 16 odd ones that are free.
  std::vector<PageIndex> kept;
  std::size_t given = 0;
  for (const PageIndex page : pages) {
    if (page.value >= zone.first().value + 4096 - 64 && given < 24) {
      zone->free(page, Order{0});
      ++given;
    } else {
      kept.push_back(page);
    }
  }
  const PageIndex page = zone->alloc(Order{3}, {});
  EXPECT_TRUE(is_page(page));
  zone->free(page, Order{3});
  free_all(*zone, kept);
}

TEST(DeferredSearch, ADrainEndsIt) {
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  TestZone zone(4096);
  const std::vector<PageIndex> pages = fragment(*zone, 1024);
  ASSERT_FALSE(is_page(zone->alloc(Order{4}, {})));
  const ZoneCounterValues before = counters(*zone);
  ASSERT_EQ(zone->drain_all().code, Errc::ok);
  ASSERT_FALSE(is_page(zone->alloc(Order{4}, {})));
  EXPECT_EQ(counters(*zone).deferred, before.deferred);
  // Single frames and smaller blocks are no matter of it.
  const PageIndex single = zone->alloc(Order{0}, {});
  EXPECT_TRUE(is_page(single));
  zone->free(single, Order{0});
  free_all(*zone, pages);
}

// ---- no policy costs a large block -------------------------------------------------------------------

class MergePolicy : public testing::TestWithParam<Merge> {};
INSTANTIATE_TEST_SUITE_P(Policies, MergePolicy,
                         testing::Values(Merge::deferred, Merge::immediate, Merge::skip,
                                         Merge::clusters),
                         [](const testing::TestParamInfo<Merge>& merge) {
                           return choice_name(merge.param);
                         });

// All frames freed singly and in bulk, in random order, from both CPUs.
void scatter(CachedZone& zone) {
  std::vector<PageIndex> pages = take_all(zone);
  std::shuffle(pages.begin(), pages.end(), std::mt19937{5});
  outlast_shortage();
  for (std::size_t at = 0; at < pages.size(); at += 64) {
    const OnCpu cpu(at / 64 % 2);
    if (at % 192 == 0) {
      free_all(zone, part(pages, at, 64));
    } else {
      zone.free_bulk(&pages[at], 64);
    }
  }
}

TEST_P(MergePolicy, AfterADrainThereIsEveryLargestBlock) {
  WEIR_NEEDS_CPUS(2);
  TestZone zone(8192, 2, {.merge = GetParam()});
  scatter(*zone);
  ASSERT_EQ(zone->drain_all().code, Errc::ok);
  EXPECT_EQ(zone->zone().free_blocks(kMaxOrder), 8U);
}

TEST_P(MergePolicy, WithoutADrainARequestThatWouldFailMergesAll) {
  WEIR_NEEDS_CPUS(2);
  TestZone zone(8192, 2, {.merge = GetParam()});
  scatter(*zone);
  std::vector<PageIndex> pages = take_all(*zone, kMaxOrder);
  EXPECT_EQ(pages.size(), 8U);
  free_all(*zone, pages, kMaxOrder);
}

TEST_P(MergePolicy, AnIdleTickMergesWhatNobodyWants) {
  WEIR_NEEDS_CPUS(2);
  TestZone zone(8192, 2, {.merge = GetParam()});
  scatter(*zone);
  for (int i = 0; i < 4; ++i) {
    outlast_shortage();
    zone->tick();
  }
  EXPECT_EQ(zone->zone().free_blocks(kMaxOrder), 8U);
}

}  // namespace
}  // namespace weir
