// SPDX-License-Identifier: MIT
#include "weir/percpu/cached_zone.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/picture.hpp"
#include "tests/support/side_table.hpp"
#include "tests/support/zones.hpp"
#include "weir/base/failpoint.hpp"

namespace weir {
namespace {

using test::free_all;
using test::OnCpu;
using test::SideTable;
using test::take_all;
using test::TestZone;

constexpr std::uint64_t kFrames = 16384;  // 64 MiB: clusters of 64, high 128 with two lists

std::uint64_t holds(CachedZone& zone) { return zone.zone().counters().lock_acquisitions.get(); }

void expect_whole(CachedZone& zone) {
  EXPECT_EQ(zone.drain_all().code, Errc::ok);
  const CachedZone::Census census = zone.census();
  EXPECT_EQ(census.engine, census.managed);
  EXPECT_EQ(census.lists + census.depot, 0U);
  EXPECT_EQ(zone.zone().audit(), census.managed);
}

TEST(CachedZone, ARefillMovesOneClusterAndServesAscending) {
  WEIR_NEEDS_THE_ZONE_LOCK;
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  TestZone zone(kFrames);
  std::vector<PageIndex> pages;
  for (std::uint32_t i = 0; i < 64; ++i) {
    pages.push_back(zone->alloc(Order{0}, {}));
    EXPECT_EQ(pages.back(), advance(zone.first(), i));
  }
  EXPECT_EQ(holds(*zone), 1U);
  EXPECT_EQ(zone->percpu_counters().refills, 1U);
  EXPECT_EQ(zone->percpu_counters().refilled, 63U);  // one went to the caller
  EXPECT_EQ(zone->lists().cached(0), 0U);
  pages.push_back(zone->alloc(Order{0}, {}));
  EXPECT_EQ(holds(*zone), 2U);
  EXPECT_EQ(zone->lists().cached(0), 63U);
  EXPECT_EQ(zone->zone().counters().lock_most_frames.get(), 64U);
  free_all(*zone, pages);
}

TEST(CachedZone, ListsServeTheirOrdersAndTheEngineTheOthers) {
  WEIR_NEEDS_THE_ZONE_LOCK;
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  TestZone zone(kFrames);
  for (unsigned order = 0; order <= kMaxOrderValue; ++order) {
    SCOPED_TRACE(order);
    const bool listed = order <= 3 || order == 9;
    PageIndex page = zone->alloc(Order{order}, {});
    ASSERT_TRUE(is_page(page));
    EXPECT_EQ(page.value % frames_in(Order{order}), 0U);
    EXPECT_EQ(order_of(page_at(page)), Order{order});
    const std::uint64_t free_before = zone->zone().free_pages();
    const std::uint64_t holds_before = holds(*zone);
    zone->free(page, Order{order});
    EXPECT_EQ(zone->zone().free_pages(), free_before + (listed ? 0 : frames_in(Order{order})));
    EXPECT_EQ(holds(*zone), holds_before + (listed ? 0 : 1));
    page = zone->alloc(Order{order}, {});
    EXPECT_EQ(holds(*zone), holds_before + (listed ? 0 : 2));
    zone->free(page, Order{order});
  }
  expect_whole(*zone);
}

TEST(CachedZone, LastInFirstOut) {
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  TestZone zone(kFrames);
  for (const unsigned order : {0U, 1U, 2U, 3U, 9U}) {
    const PageIndex a = zone->alloc(Order{order}, {});
    const PageIndex b = zone->alloc(Order{order}, {});
    zone->free(a, Order{order});
    zone->free(b, Order{order});
    EXPECT_EQ(zone->alloc(Order{order}, {}), b);
    EXPECT_EQ(zone->alloc(Order{order}, {}), a);
    zone->free(a, Order{order});
    zone->free(b, Order{order});
  }
}

TEST(CachedZone, AFullListSpillsOneClusterOfTheOldest) {
  WEIR_NEEDS_THE_ZONE_LOCK;
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  for (const Merge merge : {Merge::deferred, Merge::immediate}) {
    Options options;
    options.merge = merge;
    TestZone zone(kFrames, 2, options);
    const std::uint32_t high = zone->lists().capacity(0);
    ASSERT_EQ(high, 128U);
    std::vector<PageIndex> pages;
    for (std::uint32_t i = 0; i < 256; ++i) {
      pages.push_back(zone->alloc(Order{0}, {}));
    }
    EXPECT_EQ(zone->lists().cached(0), 0U);
    for (std::uint32_t i = 0; i < high; ++i) {
      zone->free(pages[i], Order{0});
    }
    const std::uint64_t before = holds(*zone);
    EXPECT_EQ(zone->lists().cached(0), high);
    zone->free(pages[high], Order{0});
    EXPECT_EQ(zone->lists().cached(0), high - 64 + 1);
    EXPECT_EQ(zone->percpu_counters().spilled, 64U);
    const bool kept = merge == Merge::deferred;
    // The oldest, pages 0..63, went to the depot, or they are free in the engine.
    EXPECT_EQ(holds(*zone), before + (kept ? 0 : 1));
    EXPECT_EQ(zone->depot().full_clusters(), kept ? 1U : 0U);
    EXPECT_EQ(zone->percpu_counters().clusters_given, kept ? 1U : 0U);
    for (std::uint32_t i = 0; i <= high; ++i) {
      const std::uint64_t at = pages[i].value - zone.first().value;
      EXPECT_EQ(test::picture(*zone)[at], i < 64 && !kept ? '.' : '#') << i;
    }
    if (kept) {
      const ClusterId id = zone->depot().take_full(0);
      const PageIndex* frames = zone->depot().body(id).frames;
      EXPECT_EQ(std::vector<PageIndex>(frames, frames + 64),
                std::vector<PageIndex>(pages.begin(), pages.begin() + 64));
      ASSERT_TRUE(zone->depot().give_full(id, 0));
    }
    // Then the next half cluster of gets and puts needs no lock, nor does filling up again.
    const std::uint64_t after = holds(*zone);
    for (int i = 0; i < 32; ++i) {
      zone->free(pages[high + 1 + static_cast<std::uint32_t>(i)], Order{0});
    }
    std::vector<PageIndex> again;
    for (int i = 0; i < 96; ++i) {
      again.push_back(zone->alloc(Order{0}, {}));
    }
    free_all(*zone, again);
    EXPECT_EQ(holds(*zone), after);
    for (std::uint32_t i = high + 33; i < 256; ++i) {
      zone->free(pages[i], Order{0});
    }
    expect_whole(*zone);
  }
}

TEST(CachedZone, SteadyTrafficOnOneCpuTakesNoZoneLock) {
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  TestZone zone(kFrames);
  for (const unsigned order : {0U, 1U, 2U, 3U, 9U}) {
    std::vector<PageIndex> pages(order == 0 ? 32 : 1);
    for (PageIndex& page : pages) {
      page = zone->alloc(Order{order}, {});
    }
    free_all(*zone, pages, Order{order});
    const std::uint64_t before = holds(*zone);
    for (int i = 0; i < 10'000; ++i) {
      for (PageIndex& page : pages) {
        page = zone->alloc(Order{order}, {});
        ASSERT_TRUE(is_page(page));
      }
      free_all(*zone, pages, Order{order});
    }
    EXPECT_EQ(holds(*zone), before) << order;
  }
}

TEST(CachedZone, AStreamOfFreesOfHigherOrderStaysWithinTheList) {
  const OnCpu cpu(0);
  TestZone zone(kFrames);
  for (const unsigned order : {1U, 2U, 3U, 9U}) {
    const std::vector<PageIndex> pages = take_all(*zone, Order{order});
    EXPECT_EQ(pages.size(), kFrames >> order);
    test::outlast_shortage();
    const unsigned list = kListOfOrder[order];
    for (const PageIndex page : pages) {
      zone->free(page, Order{order});
      ASSERT_LE(zone->lists().cached(0), std::uint64_t{zone->lists().capacity(list)} << order);
    }
    EXPECT_FALSE(zone->in_shortage());
    expect_whole(*zone);
  }
}

TEST(CachedZone, NoListHoldsMoreThanItsCapacityInARandomRun) {
  WEIR_NEEDS_CPUS(2);
  for (const std::uint64_t frames : {32U, 1024U, 4096U}) {
    TestZone zone(frames);
    SideTable table(zone.first(), frames);
    std::uint64_t most = 0;
    for (unsigned list = 0; list < kListOrders; ++list) {
      most += std::uint64_t{zone->lists().capacity(list)} << order_of_list(list).value;
    }
    std::mt19937 random(static_cast<unsigned>(frames));
    std::vector<std::pair<PageIndex, Order>> live;
    for (int step = 0; step < 20'000; ++step) {
      const OnCpu cpu(step / 100 % 2);
      const bool taking = (random() % 16 < 10) == (step / 500 % 2 == 0);
      if (taking || live.empty()) {
        const Order order{static_cast<unsigned>(random() % 4 == 0 ? random() % 4 : 0)};
        const PageIndex page = zone->alloc(order, {});
        if (is_page(page)) {
          ASSERT_TRUE(table.took(page, order)) << table.report();
          live.emplace_back(page, order);
        } else if (order == Order{0}) {
          ASSERT_EQ(table.live_frames(), frames);  // refused only when nothing is free
        }
      } else {
        std::swap(live[random() % live.size()], live.back());
        ASSERT_TRUE(table.gave(live.back().first, live.back().second));
        zone->free(live.back().first, live.back().second);
        live.pop_back();
      }
      for (std::uint32_t list = 0; list < 2; ++list) {
        ASSERT_LE(zone->lists().cached(list), most);
      }
      const CachedZone::Census census = zone->census();
      ASSERT_EQ(census.out(), table.live_frames()) << step;
    }
    for (const auto& [page, order] : live) {
      zone->free(page, order);
    }
    expect_whole(*zone);
  }
}

// ---- one CPU takes, another gives ----------------------------------------------------------------

TEST(CachedZone, CrossingCpusCostsNoHoldOnceTheDepotKnowsTheFlow) {
  WEIR_NEEDS_THE_ZONE_LOCK;
  WEIR_NEEDS_LISTS;
  WEIR_NEEDS_CPUS(2);
  for (const bool kept : {true, false}) {
    Options options;
    options.merge = kept ? Merge::deferred : Merge::immediate;
    TestZone zone(kFrames, 2, options);
    constexpr std::uint64_t kPages = 20'000;
    std::vector<PageIndex> batch;
    std::uint64_t before = 0;
    PercpuCounterValues counted;
    for (std::uint64_t moved = 0; moved < 2 * kPages;) {
      {
        const OnCpu cpu(0);
        for (int i = 0; i < 40; ++i) {
          batch.push_back(zone->alloc(Order{0}, {}));
        }
      }
      const OnCpu cpu(1);
      moved += batch.size();
      free_all(*zone, batch);
      batch.clear();
      ASSERT_LE(zone->lists().cached(1), zone->lists().capacity(0));
      ASSERT_LE(zone->depot().full_clusters(), zone->depot().capacity());
      if (moved == kPages) {  // warm
        before = holds(*zone);
        counted = zone->percpu_counters();
      }
    }
    if (kept) {
      EXPECT_EQ(holds(*zone), before);
      const PercpuCounterValues now = zone->percpu_counters();
      EXPECT_NEAR(static_cast<double>(now.clusters_taken - counted.clusters_taken), kPages / 64.0,
                  1);
      EXPECT_NEAR(static_cast<double>(now.clusters_given - counted.clusters_given), kPages / 64.0,
                  1);
    } else {
      EXPECT_LE(holds(*zone) - before, 2 * kPages / 64 + 4);
      EXPECT_GE(holds(*zone) - before, 2 * kPages / 64 - 4);
      EXPECT_EQ(zone->depot().frames(), 0U);
      EXPECT_EQ(zone->percpu_counters().clusters_given, 0U);
    }
    expect_whole(*zone);
    EXPECT_EQ(zone->zone().free_blocks(kMaxOrder), kFrames / kMaxBlockFrames);
  }
}

// The packets in flight vary by more than the depot may keep: the engine evens that out.
TEST(CachedZone, TwoThreadsCrossingCostTwoHoldsAClusterAtMost) {
  WEIR_NEEDS_LISTS;
  WEIR_NEEDS_CPUS(2);
  TestZone zone(kFrames);
  SideTable table(zone.first(), kFrames);
  constexpr std::uint64_t kPages = 300'000;
  constexpr std::uint64_t kSlots = 1024;
  std::vector<std::atomic<std::uint32_t>> slots(kSlots);  // a ring from taker to giver
  for (auto& slot : slots) {
    slot.store(kNoPage.value);
  }
  const std::uint64_t before = holds(*zone);
  std::thread taker([&] {
    const OnCpu cpu(0);
    for (std::uint64_t i = 0; i < kPages; ++i) {
      const PageIndex page = zone->alloc(Order{0}, {});
      table.took(page, Order{0});
      auto& slot = slots[i % kSlots];
      while (slot.load(std::memory_order_relaxed) != kNoPage.value) {
        std::this_thread::yield();
      }
      slot.store(page.value, std::memory_order_release);
    }
  });
  std::thread giver([&] {
    const OnCpu cpu(1);
    for (std::uint64_t i = 0; i < kPages; ++i) {
      auto& slot = slots[i % kSlots];
      std::uint32_t page = kNoPage.value;
      while ((page = slot.load(std::memory_order_acquire)) == kNoPage.value) {
        std::this_thread::yield();
      }
      slot.store(kNoPage.value, std::memory_order_relaxed);
      table.gave({page}, Order{0});
      zone->free({page}, Order{0});
    }
  });
  taker.join();
  giver.join();
  EXPECT_EQ(table.violations(), 0U) << table.report();
  EXPECT_FALSE(zone->in_shortage());
  EXPECT_LE(holds(*zone) - before, 2 * kPages / 64 + 16);
  EXPECT_LE(zone->zone().counters().lock_most_frames.get(), 64U);
  EXPECT_LE(zone->lists().cached(1), zone->lists().capacity(0));
  expect_whole(*zone);
  EXPECT_EQ(zone->zone().free_blocks(kMaxOrder), kFrames / kMaxBlockFrames);
}

TEST(CachedZone, AThreadThatOnlyFreesKeepsNoMoreThanItsList) {
  WEIR_NEEDS_CPUS(2);
  TestZone zone(kFrames);
  std::vector<PageIndex> pages;
  for (int round = 0; round < 20; ++round) {
    {
      const OnCpu cpu(0);
      for (int i = 0; i < 1000; ++i) {
        pages.push_back(zone->alloc(Order{0}, {}));
      }
    }
    std::thread giver([&] {
      const OnCpu cpu(1);
      free_all(*zone, pages);
    });
    giver.join();
    pages.clear();
    EXPECT_LE(zone->census().lists, 2 * zone->lists().capacity(0));
    EXPECT_LE(zone->census().depot, zone->limits().total);
  }
}

// ---- bulk ----------------------------------------------------------------------------------------

TEST(CachedZone, BulkOfAClusterGoesByTheList) {
  WEIR_NEEDS_THE_ZONE_LOCK;
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  TestZone zone(kFrames);
  PageIndex pages[64];
  ASSERT_EQ(zone->alloc_bulk(pages, 64, {}), 64U);
  EXPECT_EQ(holds(*zone), 1U);
  EXPECT_EQ(zone->percpu_counters().pops, 0U);
  EXPECT_EQ(zone->lists().cached(0), 0U);
  for (std::uint32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(pages[i], advance(zone.first(), i));
  }
  zone->free_bulk(pages, 64);
  // On the list as it is, or as a cluster of the depot.
  const CachedZone::Census census = zone->census();
  EXPECT_EQ(census.lists + census.depot, 64U);
  const std::uint64_t before = holds(*zone);
  for (int round = 0; round < 1000; ++round) {
    ASSERT_EQ(zone->alloc_bulk(pages, 64, {}), 64U);
    zone->free_bulk(pages, 64);
  }
  EXPECT_EQ(holds(*zone), before);
}

TEST(CachedZone, BulkOfAnyLengthIsWholeAndDistinct) {
  const OnCpu cpu(0);
  TestZone zone(kFrames);
  SideTable table(zone.first(), kFrames);
  std::vector<PageIndex> pages(10'000);
  for (const std::size_t n : {0U, 1U, 2U, 63U, 64U, 65U, 127U, 128U, 129U, 159U, 160U, 161U, 200U,
                              1000U, 4095U, 4096U, 4097U, 10'000U}) {
    SCOPED_TRACE(n);
    ASSERT_EQ(zone->alloc_bulk(pages.data(), n, {}), n);
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_TRUE(table.took(pages[i], Order{0})) << table.report();
    }
    EXPECT_EQ(zone->census().out(), n);
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_TRUE(table.gave(pages[i], Order{0}));
    }
    const std::uint64_t before = holds(*zone);
    zone->free_bulk(pages.data(), n);
    if (list_mode().form != ListForm::off) {
      EXPECT_LE(holds(*zone) - before, n / 64 + 1);
    }
    EXPECT_EQ(zone->census().out(), 0U);
    EXPECT_LE(zone->lists().cached(0), zone->lists().capacity(0));
  }
  EXPECT_LE(zone->zone().counters().lock_most_frames.get(), 64U);
  expect_whole(*zone);
}

TEST(CachedZone, ABulkIntoAListWithLittleRoomReadsOnlyItsOwnPages) {
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  TestZone zone(kFrames);
  std::vector<PageIndex> pages(400);
  ASSERT_EQ(zone->alloc_bulk(pages.data(), 400, {}), 400U);
  ASSERT_EQ(zone->drain_all().code, Errc::ok);
  // 126 fit beside two more; the bulk of 10 finds room for two, spills 64 and has eight left.
  zone->free_bulk(pages.data(), 63);
  zone->free_bulk(pages.data() + 63, 63);
  ASSERT_EQ(zone->lists().cached(0), 126U);
  zone->free_bulk(pages.data() + 126, 10);
  EXPECT_EQ(zone->census().out(), 400U - 136);
  EXPECT_EQ(zone->lists().cached(0), 136U - 64);
  EXPECT_EQ(zone->depot().frames(), 64U);
  zone->free_bulk(pages.data() + 136, 400 - 136);
  expect_whole(*zone);
}

TEST(CachedZone, ABulkThatFailsHalfWayKeepsNothingDouble) {
  WEIR_NEEDS_LISTS;
  if (!kTestHooks) {
    GTEST_SKIP() << "needs failpoints";
  }
  const OnCpu cpu(0);
  TestZone zone(kFrames);
  // Five pages in the list, nothing else to be had but one cluster and eleven singles.
  PageIndex first = zone->alloc(Order{0}, {});
  std::vector<PageIndex> warm(58);
  ASSERT_EQ(zone->alloc_bulk(warm.data(), 58, {}), 58U);
  ASSERT_EQ(zone->lists().cached(0), 5U);
  SideTable table(zone.first(), kFrames);
  std::vector<PageIndex> got(256);
  failpoints::arm(Failpoint::zone_take_cluster, 2, UINT64_MAX / 2);
  failpoints::arm(Failpoint::zone_take, 12, UINT64_MAX / 2);
  const std::size_t n = zone->alloc_bulk(got.data(), 256, {});
  failpoints::reset();
  EXPECT_EQ(n, 5U + 64 + 11);
  for (std::size_t i = 0; i < n; ++i) {
    EXPECT_TRUE(table.took(got[i], Order{0})) << table.report();
  }
  EXPECT_EQ(zone->census().out(), n + 59);
  zone->free(first, Order{0});
  zone->free_bulk(warm.data(), 58);
  zone->free_bulk(got.data(), n);
  expect_whole(*zone);
}

TEST(CachedZone, BulkTakesTheLastPagesWhereverTheyAre) {
  WEIR_NEEDS_CPUS(2);
  TestZone zone(1024);
  std::vector<PageIndex> pages(2000);
  {
    const OnCpu cpu(1);
    ASSERT_EQ(zone->alloc_bulk(pages.data(), 100, {}), 100U);
    zone->free_bulk(pages.data(), 100);
  }
  const OnCpu cpu(0);
  EXPECT_EQ(zone->alloc_bulk(pages.data(), 2000, {}), 1024U);
  EXPECT_EQ(zone->alloc_bulk(pages.data() + 1024, 1, {}), 0U);
  const std::set<PageIndex> distinct(pages.begin(), pages.begin() + 1024);
  EXPECT_EQ(distinct.size(), 1024U);
  zone->free_bulk(pages.data(), 1024);
  expect_whole(*zone);
}

// ---- other ways of running -----------------------------------------------------------------------

TEST(CachedZone, WithoutListsEveryCallGoesToTheEngine) {
  const OnCpu cpu(0);
  Options options;
  options.lists = false;
  TestZone zone(1024, 2, options);
  EXPECT_EQ(zone->lists().capacity(0), 0U);
  const std::vector<PageIndex> pages = take_all(*zone);
  EXPECT_EQ(pages.size(), 1024U);
  free_all(*zone, pages);
  EXPECT_EQ(zone->census().lists, 0U);
  EXPECT_EQ(zone->zone().free_pages(), 1024U);
  EXPECT_EQ(zone->percpu_counters().pushes + zone->percpu_counters().refills, 0U);
  PageIndex bulk[100];
  EXPECT_EQ(zone->alloc_bulk(bulk, 100, {}), 100U);
  zone->free_bulk(bulk, 100);
  EXPECT_EQ(zone->zone().free_blocks(kMaxOrder), 1U);
}

TEST(CachedZone, HighIsWhatWasAskedWithinItsBounds) {
  WEIR_NEEDS_LISTS;
  Options options;
  options.high = PageCount{200};
  TestZone asked(kFrames, 2, options);
  EXPECT_EQ(asked->lists().capacity(0), 200U);
  options.high = PageCount{1};
  TestZone least(kFrames, 2, options);
  EXPECT_EQ(least->lists().capacity(0), 128U);
  options.high = PageCount{1'000'000};
  TestZone most(kFrames, 2, options);
  EXPECT_EQ(most->lists().capacity(0), kListCapacityMax);
}

TEST(CachedZone, FreedSinglesMayGoStraightToTheEngine) {
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  Options options;
  options.free_order0 = FreeOrder0::engine;
  TestZone zone(kFrames, 2, options);
  const PageIndex page = zone->alloc(Order{0}, {});
  EXPECT_EQ(zone->lists().cached(0), 63U);  // allocation is cached all the same
  zone->free(page, Order{0});
  EXPECT_EQ(zone->lists().cached(0), 63U);
  EXPECT_EQ(zone->zone().free_pages(), kFrames - 63);
  PageIndex pages[100];
  ASSERT_EQ(zone->alloc_bulk(pages, 100, {}), 100U);
  const std::uint64_t in_list = zone->lists().cached(0);
  zone->free_bulk(pages, 100);
  EXPECT_EQ(zone->lists().cached(0), in_list);
  const PageIndex run = zone->alloc(Order{2}, {});
  const std::uint64_t before = holds(*zone);
  zone->free(run, Order{2});  // only singles are meant
  EXPECT_EQ(holds(*zone), before);
  expect_whole(*zone);
}

TEST(CachedZone, BusyListsChangeNothingThatCanBeSeen) {
  if (!kTestHooks) {
    GTEST_SKIP() << "needs failpoints";
  }
  const OnCpu cpu(0);
  for (const Failpoint point : {Failpoint::list_busy, Failpoint::list_push}) {
    for (const bool always : {true, false}) {
      TestZone zone(4096);
      SideTable table(zone.first(), 4096);
      std::mt19937 random(7);
      std::vector<std::pair<PageIndex, Order>> live;
      std::vector<PageIndex> buffer(300);
      if (always) {
        failpoints::fail_always(point);
      }
      for (int step = 0; step < 3000; ++step) {
        if (!always) {
          failpoints::arm(point, 1 + random() % 5, 1 + random() % 2);
        }
        if ((random() % 16 < 9) == (step / 300 % 2 == 0) || live.empty()) {
          if (random() % 8 == 0) {
            const std::size_t n = zone->alloc_bulk(buffer.data(), random() % 300, {});
            for (std::size_t i = 0; i < n; ++i) {
              ASSERT_TRUE(table.took(buffer[i], Order{0})) << table.report();
              live.emplace_back(buffer[i], Order{0});
            }
          } else {
            const Order order{static_cast<unsigned>(random() % 4)};
            const PageIndex page = zone->alloc(order, {});
            if (is_page(page)) {
              ASSERT_TRUE(table.took(page, order)) << table.report();
              live.emplace_back(page, order);
            }
          }
        } else if (random() % 8 == 0) {
          std::size_t n = 0;
          while (!live.empty() && live.back().second == Order{0} && n < 300) {
            ASSERT_TRUE(table.gave(live.back().first, Order{0}));
            buffer[n++] = live.back().first;
            live.pop_back();
          }
          zone->free_bulk(buffer.data(), n);
        } else {
          ASSERT_TRUE(table.gave(live.back().first, live.back().second));
          zone->free(live.back().first, live.back().second);
          live.pop_back();
        }
        if (step % 16 == 0) {
          ASSERT_EQ(zone->census().out(), table.live_frames()) << "step " << step;
        }
      }
      failpoints::reset();
      for (const auto& [page, order] : live) {
        zone->free(page, order);
      }
      expect_whole(*zone);
      EXPECT_EQ(zone->zone().free_blocks(kMaxOrder), 4U);
    }
  }
}

TEST(CachedZone, EveryFrameCanBeHadWithEveryListBusy) {
  if (!kTestHooks) {
    GTEST_SKIP() << "needs failpoints";
  }
  const OnCpu cpu(0);
  TestZone zone(1024);
  const PageIndex one = zone->alloc(Order{0}, {});  // the rest of its cluster lies in the list
  failpoints::fail_always(Failpoint::list_busy);
  const std::vector<PageIndex> pages = take_all(*zone);
  failpoints::reset();
  EXPECT_EQ(pages.size(), 1023U);
  zone->free(one, Order{0});
  free_all(*zone, pages);
  expect_whole(*zone);
}

TEST(CachedZone, CpusWithoutAListAreServedByTheEngine) {
  if (!kTestHooks) {
    GTEST_SKIP() << "needs fake CPU ids";
  }
  TestZone zone(4096, 176);  // four CPUs with sparse numbers, sized by the highest
  SideTable table(zone.first(), 4096);
  std::vector<PageIndex> pages;
  for (int round = 0; round < 200; ++round) {
    for (const std::uint32_t number : {0U, 2U, 150U, 175U, 176U, 4000U, 0x7fff'ffffU}) {
      const OnCpu cpu(number);
      const PageIndex page = zone->alloc(Order{0}, {});
      ASSERT_TRUE(is_page(page));
      ASSERT_TRUE(table.took(page, Order{0})) << table.report();
      pages.push_back(page);
    }
  }
  EXPECT_EQ(zone->census().out(), pages.size());
  for (const std::uint32_t number : {175U, 9000U}) {
    const OnCpu cpu(number);
    for (int i = 0; i < 700; ++i) {
      ASSERT_TRUE(table.gave(pages.back(), Order{0}));
      zone->free(pages.back(), Order{0});
      pages.pop_back();
    }
  }
  EXPECT_LE(zone->lists().cached(175), zone->lists().capacity(0));
  expect_whole(*zone);
}

TEST(CachedZone, FollowsAThreadThatIsMovedToAnotherCpu) {
  WEIR_NEEDS_CPUS(2);
  TestZone zone(kFrames);
  std::vector<PageIndex> pages;
  for (int i = 0; i < 300; ++i) {
    const OnCpu cpu(i % 2);
    pages.push_back(zone->alloc(Order{0}, {}));
  }
  for (int i = 0; i < 300; ++i) {
    const OnCpu cpu((i + 1) % 2);
    zone->free(pages[static_cast<std::size_t>(i)], Order{0});
  }
  expect_whole(*zone);
}

// ---- small zones ---------------------------------------------------------------------------------

TEST(CachedZone, TheLastOf32FramesGoToWhoeverAsks) {
  WEIR_NEEDS_CPUS(2);
  TestZone zone(32);
  EXPECT_EQ(zone->lists().cluster(), 1U);
  std::vector<PageIndex> pages;
  {
    const OnCpu cpu(0);
    pages.push_back(zone->alloc(Order{0}, {}));
    ASSERT_TRUE(is_page(pages.back()));
  }
  const OnCpu cpu(1);
  for (int i = 0; i < 31; ++i) {
    pages.push_back(zone->alloc(Order{0}, {}));
    ASSERT_TRUE(is_page(pages.back())) << i;
  }
  EXPECT_EQ(zone->alloc(Order{0}, {}), kNoPage);
  free_all(*zone, pages);
  expect_whole(*zone);
  EXPECT_EQ(zone->zone().free_blocks(Order{5}), 1U);
}

TEST(CachedZone, OneAndThreeFramesAreZonesToo) {
  const OnCpu cpu(0);
  for (const std::uint64_t frames : {1U, 2U, 3U, 7U, 8U}) {
    TestZone zone(frames);
    for (int round = 0; round < 3; ++round) {
      const std::vector<PageIndex> pages = take_all(*zone);
      EXPECT_EQ(pages.size(), frames);
      free_all(*zone, pages);
    }
    expect_whole(*zone);
  }
}

TEST(CachedZone, MoreCpusThanFrames) {
  if (!kTestHooks) {
    GTEST_SKIP() << "needs fake CPU ids";
  }
  constexpr std::uint32_t kCpus = 64;
  TestZone zone(16, kCpus);
  SideTable table(zone.first(), 16);
  for (int round = 0; round < 5; ++round) {
    std::vector<std::vector<PageIndex>> taken(kCpus);
    std::vector<std::thread> threads;
    for (std::uint32_t number = 0; number < kCpus; ++number) {
      threads.emplace_back([&, number] {
        const OnCpu cpu(number);
        taken[number] = take_all(*zone);
        for (const PageIndex page : taken[number]) {
          table.took(page, Order{0});
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(table.violations(), 0U) << table.report();
    EXPECT_EQ(table.live_frames(), 16U);
    for (std::uint32_t number = 0; number < kCpus; ++number) {
      const OnCpu cpu(kCpus - 1 - number);
      for (const PageIndex page : taken[number]) {
        table.gave(page, Order{0});
        zone->free(page, Order{0});
      }
    }
    const PageIndex whole = zone->alloc(Order{4}, {});
    EXPECT_EQ(whole, zone.first());
    zone->free(whole, Order{4});
  }
}

// ---- drain ---------------------------------------------------------------------------------------

TEST(CachedZone, DrainEmptiesOneCpuAndDrainAllEvery) {
  WEIR_NEEDS_LISTS;
  WEIR_NEEDS_CPUS(2);
  TestZone zone(kFrames);
  for (std::uint32_t number = 0; number < 2; ++number) {
    const OnCpu cpu(number);
    for (const unsigned order : {0U, 2U, 9U}) {
      zone->free(zone->alloc(Order{order}, {}), Order{order});
    }
    EXPECT_GT(zone->lists().cached(number), 0U);
  }
  EXPECT_EQ(zone->drain(CpuId{1}).code, Errc::ok);
  EXPECT_EQ(zone->lists().cached(1), 0U);
  EXPECT_GT(zone->lists().cached(0), 0U);
  EXPECT_EQ(zone->drain_all().code, Errc::ok);
  EXPECT_EQ(zone->lists().cached(0), 0U);
  EXPECT_EQ(zone->zone().free_blocks(kMaxOrder), kFrames / kMaxBlockFrames);
  EXPECT_EQ(zone->zone().counters().drains.get(), 2U);
  EXPECT_EQ(zone->percpu_counters().drained, 2 * (64 + 64 + 512U));
  EXPECT_FALSE(zone->in_shortage());
}

TEST(CachedZone, DrainRefusesACpuThatDoesNotExist) {
  TestZone zone(kFrames);
  EXPECT_EQ(zone->drain(CpuId{2}).code, Errc::too_large);
  EXPECT_EQ(zone->drain(kNoCpu).code, Errc::too_large);
  EXPECT_EQ(zone->drain(CpuId{1}).code, Errc::ok);  // that never ran is no error
}

TEST(CachedZone, DrainMovesOneClusterUnderAHold) {
  WEIR_NEEDS_THE_ZONE_LOCK;
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  Options options;
  options.high = PageCount{kListCapacityMax};
  TestZone zone(kFrames, 2, options);
  std::vector<PageIndex> pages(kListCapacityMax);
  ASSERT_EQ(zone->alloc_bulk(pages.data(), pages.size(), {}), pages.size());
  ASSERT_EQ(zone->drain_all().code, Errc::ok);
  free_all(*zone, pages);
  ASSERT_EQ(zone->lists().cached(0), kListCapacityMax);
  const std::uint64_t before = holds(*zone);
  EXPECT_EQ(zone->drain(CpuId{0}).code, Errc::ok);
  EXPECT_EQ(holds(*zone) - before, kListCapacityMax / 64);
  EXPECT_EQ(zone->zone().counters().lock_most_frames.get(), 64U);
  expect_whole(*zone);
}

TEST(CachedZone, DrainAllEmptiesTheDepotAndDrainOfOneCpuDoesNot) {
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  TestZone zone(kFrames);
  std::vector<PageIndex> pages(400);
  ASSERT_EQ(zone->alloc_bulk(pages.data(), 400, {}), 400U);
  free_all(*zone, pages);
  const std::uint32_t clusters = zone->depot().full_clusters();
  ASSERT_GT(clusters, 0U);
  EXPECT_EQ(zone->drain(CpuId{0}).code, Errc::ok);
  EXPECT_EQ(zone->depot().full_clusters(), clusters);
  EXPECT_EQ(zone->drain_all().code, Errc::ok);
  EXPECT_TRUE(zone->depot().empty());
  EXPECT_EQ(zone->zone().counters().clusters_merged.get(), clusters);
  EXPECT_EQ(zone->depot().empty_bodies(), zone->depot().bodies());
  expect_whole(*zone);
}

TEST(CachedZone, DrainNeedsNoHelpFromAThreadThatSpinsInUserCode) {
  WEIR_NEEDS_LISTS;
  WEIR_NEEDS_CPUS(2);
  TestZone zone(kFrames);
  std::atomic<int> step{0};
  std::thread spinner([&] {
    const OnCpu cpu(1);
    std::vector<PageIndex> pages;
    for (int i = 0; i < 32; ++i) {
      pages.push_back(zone->alloc(Order{0}, {}));
    }
    free_all(*zone, pages);
    step.store(1);
    while (step.load(std::memory_order_relaxed) != 2) {
      cpu_pause();
    }
    const PageIndex page = zone->alloc(Order{0}, {});
    EXPECT_TRUE(is_page(page));
    zone->free(page, Order{0});
  });
  while (step.load() != 1) {
    std::this_thread::yield();
  }
  EXPECT_GT(zone->lists().cached(1), 0U);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(zone->drain_all().code, Errc::ok);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  EXPECT_EQ(zone->lists().cached(1), 0U);
  EXPECT_EQ(zone->zone().exact_free_pages(), kFrames);
  step.store(2);
  spinner.join();
  expect_whole(*zone);
}

TEST(CachedZone, ReadersCountAndAuditWhileOthersRunOutOfMemory) {
  WEIR_NEEDS_THE_ZONE_LOCK;  // the other engine is audited at rest
  TestZone zone(512);
  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;
  for (std::uint32_t number = 0; number < 2; ++number) {
    workers.emplace_back([&] {
      for (int round = 0; round < 100; ++round) {
        const std::vector<PageIndex> pages = take_all(*zone);
        std::vector<PageIndex> bulk(100);
        bulk.resize(zone->alloc_bulk(bulk.data(), bulk.size(), {}));
        free_all(*zone, pages);
        zone->free_bulk(bulk.data(), bulk.size());
      }
    });
  }
  std::thread reader([&] {
    std::uint64_t pops = 0;
    while (!stop.load(std::memory_order_relaxed)) {
      const CachedZone::Census census = zone->census();
      EXPECT_LE(census.out(), 512U);
      EXPECT_LE(census.engine, 512U);
      EXPECT_LE(zone->zone().audit(), 512U);
      EXPECT_LE(zone->zone().free_blocks(Order{0}), 512U);
      const std::uint64_t now = zone->percpu_counters().pops;
      EXPECT_GE(now, pops);
      pops = now;
    }
  });
  for (std::thread& worker : workers) {
    worker.join();
  }
  stop.store(true);
  reader.join();
  EXPECT_EQ(zone->census().out(), 0U);
  expect_whole(*zone);
}

TEST(CachedZone, ListsAreMeasuredByTheCpusThatAreUsable) {
  WEIR_NEEDS_LISTS;
  // 64 CPUs may appear, two of them are ours.
  const auto sizes = [](std::uint32_t lists, std::uint32_t cpus) {
    PageLists measured;
    EXPECT_FALSE(measured.open(lists, list_sizes(PageCount{kFrames}, cpus, 160), true).failed());
    const std::array<std::uint32_t, 3> result{measured.count(), measured.cluster(),
                                              measured.capacity(2)};
    measured.close();
    return result;
  };
  EXPECT_EQ(sizes(64, 2), (std::array<std::uint32_t, 3>{64, 64, 32}));
  EXPECT_EQ(sizes(64, 64), (std::array<std::uint32_t, 3>{64, 16, 0}));
}

TEST(CachedZone, DrainingWhileOthersWorkLosesNothing) {
  TestZone zone(4096);
  SideTable table(zone.first(), 4096);
  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;
  for (std::uint32_t number = 0; number < 2; ++number) {
    workers.emplace_back([&, number] {
      std::mt19937 random(number);
      std::vector<std::pair<PageIndex, Order>> live;
      for (int step = 0; step < 30'000; ++step) {
        if (live.size() < random() % 100) {
          const Order order{static_cast<unsigned>(random() % 8 == 0 ? random() % 4 : 0)};
          const PageIndex page = zone->alloc(order, {});
          if (is_page(page)) {
            table.took(page, order);
            live.emplace_back(page, order);
          }
        } else if (!live.empty()) {
          table.gave(live.back().first, live.back().second);
          zone->free(live.back().first, live.back().second);
          live.pop_back();
        }
      }
      for (const auto& [page, order] : live) {
        table.gave(page, order);
        zone->free(page, order);
      }
    });
  }
  std::thread drainer([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      EXPECT_EQ(zone->drain_all().code, Errc::ok);
    }
  });
  for (std::thread& worker : workers) {
    worker.join();
  }
  stop.store(true);
  drainer.join();
  EXPECT_EQ(table.violations(), 0U) << table.report();
  EXPECT_EQ(table.live_frames(), 0U);
  EXPECT_LE(zone->zone().counters().lock_most_frames.get(), 64U);
  expect_whole(*zone);
}

}  // namespace
}  // namespace weir
