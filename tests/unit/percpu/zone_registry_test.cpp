// SPDX-License-Identifier: MIT
#include "weir/percpu/zone_registry.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/address_space.hpp"
#include "tests/support/interrupt.hpp"
#include "tests/support/process.hpp"
#include "tests/support/zones.hpp"
#include "weir/backing/memfd_source.hpp"
#include "weir/base/failpoint.hpp"

namespace weir {
namespace {

using test::free_all;
using test::OnCpu;
using test::take_all;
using test::TestZone;

// The first zone makes the table of descriptors; what is counted below comes after it.
void warm_up() { const TestZone zone(8); }

TEST(ZoneRegistry, ZonesComeAndGo) {
  const std::uint32_t before = zone_registry::count();
  {
    TestZone one(64);
    TestZone two(1024);
    EXPECT_EQ(zone_registry::count(), before + 2);
    EXPECT_NE(one->id(), 0);
    EXPECT_NE(one->id(), two->id());
    EXPECT_EQ(zone_by_id(two->id()), &*two);
  }
  EXPECT_EQ(zone_registry::count(), before);
}

TEST(ZoneRegistry, EachPageLeadsToItsZone) {
  auto first = std::make_unique<TestZone>(3000U);
  TestZone second(2000);
  TestZone third(1);
  EXPECT_EQ(zone_registry::g_default.load(), &**first);
  const auto expect_home = [](TestZone& zone, std::uint64_t frames) {
    EXPECT_EQ(&zone_of(zone.first()), &*zone);
    EXPECT_EQ(&zone_of(advance(zone.first(), frames - 1)), &*zone);
  };
  expect_home(*first, 3000);
  expect_home(second, 2000);
  expect_home(third, 1);
  first.reset();
  // Another zone is the default now, and all is as before.
  EXPECT_NE(zone_registry::g_default.load(), nullptr);
  expect_home(second, 2000);
  expect_home(third, 1);
}

TEST(ZoneRegistry, TheRangeTestHoldsForTheFirstAndLastFrameOnly) {
  TestZone zone(1000);
  EXPECT_TRUE(zone->holds(zone.first()));
  EXPECT_TRUE(zone->holds(advance(zone.first(), 999)));
  EXPECT_FALSE(zone->holds(advance(zone.first(), 1000)));
  EXPECT_FALSE(zone->holds({zone.first().value - 1}));
  EXPECT_FALSE(zone->holds(kNoPage));
}

TEST(ZoneRegistry, ZonesOfSeveralThreadsDoNotTouchEachOther) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([] {
      TestZone zone(2048);
      for (int round = 0; round < 50; ++round) {
        const std::vector<PageIndex> pages = take_all(*zone);
        EXPECT_EQ(pages.size(), 2048U);
        free_all(*zone, pages);
      }
      EXPECT_EQ(zone->drain_all().code, Errc::ok);
      EXPECT_EQ(zone->zone().audit(), 2048U);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(ZoneRegistry, MoreZonesThanSlotsAreRefusedCleanly) {
  warm_up();
  const std::uint32_t before = zone_registry::count();
  std::vector<std::unique_ptr<TestZone>> zones;
  while (zone_registry::count() < kMaxZones - 1) {
    zones.push_back(std::make_unique<TestZone>(16));
  }
  EXPECT_FALSE(test::leaves_memory_mapped([] { EXPECT_THROW(TestZone(16), std::runtime_error); }));
  EXPECT_EQ(zone_registry::count(), kMaxZones - 1);
  zones.pop_back();
  const TestZone again(16);
  zones.clear();
  EXPECT_EQ(zone_registry::count(), before + 1);
}

TEST(ZoneRegistry, AFailureAtAnyStepOfOpeningLeavesNothingBehind) {
  if (!kTestHooks) {
    GTEST_SKIP() << "needs failpoints";
  }
  warm_up();
  const std::uint32_t before = zone_registry::count();
  int failed = 0;
  for (const Failpoint point : {Failpoint::memory_map, Failpoint::memory_commit,
                                Failpoint::frame_range, Failpoint::map_register}) {
    for (std::uint64_t k = 1;; ++k) {
      bool refused = false;
      bool reached = false;
      const auto open_one = [&] {
        failpoints::arm(point, k);
        refused = false;
        try {
          const TestZone zone(5000);
        } catch (const std::runtime_error&) {
          refused = true;
        }
        reached = failpoints::hits(point) >= k;
        failpoints::reset();
      };
      EXPECT_FALSE(test::leaves_memory_mapped(open_one)) << "step " << k;
      EXPECT_EQ(refused, reached);
      EXPECT_EQ(zone_registry::count(), before);
      failed += refused ? 1 : 0;
      if (!reached) {
        break;
      }
    }
  }
  EXPECT_GE(failed, 6);
}

TEST(ZoneRegistry, OpeningUndoesTheFirstPiecesWhenALaterOneCannotBeHad) {
  Result<std::byte*> base = system_memory().reserve(1_MiB, 4_MiB);
  ASSERT_TRUE(base);
  ASSERT_FALSE(system_memory().commit(*base, 1_MiB).failed());
  const auto piece = [&](std::uint64_t from, std::uint64_t frames) {
    Extent extent;
    extent.base = *base + from * kFrameBytes;
    extent.size = bytes(PageCount{frames});
    extent.source = SourceKind::borrowed;
    return extent;
  };
  const std::uint32_t before = zone_registry::count();
  // The last overlaps the first.
  const Result<CachedZone*> zone =
      zone_registry::open(nullptr, {piece(0, 10), piece(20, 10), piece(9, 3)}, {}, 2);
  ASSERT_FALSE(zone);
  EXPECT_EQ(zone.error().code, Errc::in_use);
  EXPECT_EQ(zone_registry::count(), before);
  for (std::uint64_t frame = 0; frame < 30; ++frame) {
    EXPECT_EQ(frame_table::find(*base + frame * kFrameBytes), kNoPage);
  }
  Result<CachedZone*> good = zone_registry::open(nullptr, {piece(0, 10), piece(20, 10)}, {}, 2);
  ASSERT_TRUE(good);
  EXPECT_EQ((*good)->zone().managed(), PageCount{20});
  EXPECT_EQ((*good)->retire(), 0U);
  system_memory().release(*base, 1_MiB);
}

// ---- the end of a zone ---------------------------------------------------------------------------

TEST(ZoneRegistry, AZoneWithPagesOutEndsWhenTheLastComesHome) {
  const std::uint32_t before = zone_registry::count();
  auto zone = std::make_unique<TestZone>(256U);
  CachedZone& cached = **zone;
  std::vector<PageIndex> pages;
  for (const unsigned order : {0U, 0U, 3U, 5U}) {
    pages.push_back(cached.alloc(Order{order}, {}));
  }
  std::byte* const memory = address_of(pages[0]);
  zone->abandon();
  zone.reset();
  EXPECT_EQ(zone_registry::count(), before + 1);
  std::thread([&] {
    cached.free(pages[3], Order{5});
    cached.free(pages[0], Order{0});
    cached.free(pages[2], Order{3});
  }).join();
  EXPECT_EQ(zone_registry::count(), before + 1);
  EXPECT_NE(frame_table::find(memory), kNoPage);
  *address_of(pages[1]) = std::byte{1};  // still usable
  cached.free_bulk(&pages[1], 1);
  EXPECT_EQ(zone_registry::count(), before);
  EXPECT_EQ(frame_table::find(memory), kNoPage);
  EXPECT_EQ(test::permissions(memory), "");
}

TEST(ZoneRegistry, ANewZoneInAnOldSlotBeginsWithNothing) {
  std::uint16_t id = 0;
  {
    TestZone zone(64);
    id = zone->id();
    const std::vector<PageIndex> pages = take_all(*zone);
    free_all(*zone, pages);
  }
  TestZone zone(64);
  ASSERT_EQ(zone->id(), id);
  const ZoneCounterValues counters = values_of(zone->zone().counters());
  EXPECT_EQ(counters.lock_acquisitions + counters.taken + counters.given + counters.splits, 0U);
  EXPECT_EQ(counters.refusals + counters.shortages + counters.drains, 0U);
  EXPECT_EQ(counters.lock_longest_hold + counters.lock_most_frames, 0U);
  EXPECT_EQ(zone->percpu_counters().pops, 0U);
  EXPECT_FALSE(zone->in_shortage());
}

// A signal handler must not close a zone while it has interrupted a locked section.
TEST(ZoneRegistry, AZoneWhoseLastPageAHandlerBroughtIsClosedByWhoeverOpensTheNext) {
  const std::uint32_t before = zone_registry::count();
  for (const unsigned order : {0U, 4U}) {
    auto zone = std::make_unique<TestZone>(256U);
    zone->abandon();
    CachedZone& cached = **zone;
    const PageIndex last = cached.alloc(Order{order}, {});
    zone.reset();
    {
      const ThreadMark mark;  // as the handler sees it
      cached.free(last, Order{order});
    }
    EXPECT_EQ(zone_registry::count(), before + 1);
    const TestZone next(256);
    EXPECT_EQ(zone_registry::count(), before + 1);
  }
  EXPECT_EQ(zone_registry::count(), before);
}

// A thread is just giving back its last page: it has made room in the full list and pushed the page,
// but still counts as one that carries pages, when the zone is retired. Its end is the zone's end.
TEST(ZoneRegistry, AZoneEndsWhenTheLastCarrierHasGone) {
  WEIR_NEEDS_LISTS;
  if (!test::kCanInterrupt || !test::lists_can_be_stepped()) {
    GTEST_SKIP() << "no single steps here";
  }
  const std::uint32_t before = zone_registry::count();
  auto zone = std::make_unique<TestZone>(4096U, 1U);
  zone->abandon();
  CachedZone& cached = **zone;
  std::vector<PageIndex> pages;
  const std::uint32_t high = cached.lists().capacity(0);
  {
    const OnCpu cpu(0);
    for (std::uint32_t i = 0; i <= high; ++i) {
      pages.push_back(cached.alloc(Order{0}, {}));
    }
    ASSERT_EQ(cached.drain_all().code, Errc::ok);
    for (std::uint32_t i = 0; i < high; ++i) {
      cached.free(pages[i], Order{0});
    }
    ASSERT_EQ(cached.lists().cached(0), high);
  }
  const std::uint64_t pushes = cached.percpu_counters().pushes;
  std::atomic<int> step{0};
  std::thread last([&] {
    const OnCpu cpu(0);
    bool stood = false;
    test::interrupt_each([&] { cached.free(pages[high], Order{0}); },
                         [&] {
                           if (!stood && t_marked_sections == 1 && !test::list_held(cached) &&
                               cached.percpu_counters().pushes == pushes + 1) {
                             stood = true;
                             step.store(1);
                             while (step.load() != 2) {
                               ::sched_yield();
                             }
                           }
                         });
    EXPECT_TRUE(stood);
    step.store(3);
  });
  while (step.load() != 1) {
    ASSERT_NE(step.load(), 3);
    std::this_thread::yield();
  }
  zone.reset();
  EXPECT_EQ(zone_registry::count(), before + 1);
  step.store(2);
  last.join();
  EXPECT_EQ(zone_registry::count(), before);
}

TEST(ZoneRegistry, AZoneEndsOnceWhoeverBringsTheLastPage) {
  const std::uint32_t before = zone_registry::count();
  for (int round = 0; round < 300; ++round) {
    auto zone = std::make_unique<TestZone>(512U);
    zone->abandon();
    CachedZone& cached = **zone;
    std::vector<PageIndex> pages(300);
    ASSERT_EQ(cached.alloc_bulk(pages.data(), 300, {}), 300U);
    std::latch together(3);
    std::thread one([&] {
      together.arrive_and_wait();
      for (std::size_t i = 0; i < 150; ++i) {
        cached.free(pages[i], Order{0});
      }
    });
    std::thread two([&] {
      together.arrive_and_wait();
      cached.free_bulk(pages.data() + 150, 150);
    });
    together.arrive_and_wait();
    zone.reset();
    // The slot is used again while the others may still be on their way out.
    const TestZone next(64 + static_cast<std::uint64_t>(round));
    one.join();
    two.join();
    ASSERT_EQ(zone_registry::count(), before + 1) << "round " << round;
  }
  EXPECT_EQ(zone_registry::count(), before);
}

}  // namespace
}  // namespace weir
