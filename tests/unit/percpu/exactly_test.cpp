// SPDX-License-Identifier: MIT
// Requests of all or nothing, and that every frame of any zone can be had from any CPU.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/side_table.hpp"
#include "tests/support/zones.hpp"
#include "weir/base/bits.hpp"
#include "weir/percpu/cached_zone.hpp"

namespace weir {
namespace {

using test::free_all;
using test::OnCpu;
using test::SideTable;
using test::take_all;
using test::TestZone;

void expect_whole(CachedZone& zone) {
  EXPECT_EQ(zone.drain_all().code, Errc::ok);
  EXPECT_EQ(zone.census().engine, zone.census().managed);
  EXPECT_EQ(zone.zone().audit(), zone.census().managed);
}

TEST(Exactly, IsAllOrNothing) {
  const OnCpu cpu(0);
  TestZone zone(1024);
  SideTable table(zone.first(), 1024);
  std::vector<Page*> pages(2000);
  EXPECT_TRUE(zone->alloc_exactly(pages.data(), 0, {}));
  for (const std::size_t n : {1U, 2U, 63U, 64U, 65U, 500U, 1023U, 1024U}) {
    SCOPED_TRACE(n);
    ASSERT_TRUE(zone->alloc_exactly(pages.data(), n, {}));
    EXPECT_EQ(zone->census().out(), n);
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_TRUE(table.took(index_of(pages[i]), Order{0})) << table.report();
    }
    // One more than there is.
    std::vector<Page*> more(1025);
    EXPECT_FALSE(zone->alloc_exactly(more.data(), 1025 - n, {}));
    EXPECT_EQ(zone->census().out(), n);
    for (std::size_t i = 0; i < n; ++i) {
      table.gave(index_of(pages[i]), Order{0});
    }
    zone->free_bulk(pages.data(), n);
    EXPECT_EQ(zone->census().out(), 0U);
  }
  EXPECT_FALSE(zone->alloc_exactly(pages.data(), 1025, {}));
  EXPECT_EQ(zone->census().out(), 0U);
  expect_whole(*zone);
}

TEST(Exactly, FindsWhatLiesOnOtherListsAndInTheDepot) {
  WEIR_NEEDS_CPUS(2);
  TestZone zone(4096);
  std::vector<PageIndex> indexes(1000);
  {
    const OnCpu cpu(1);
    ASSERT_EQ(zone->alloc_bulk(indexes.data(), 1000, {}), 1000U);
    free_all(*zone, indexes);
  }
  const OnCpu cpu(0);
  std::vector<Page*> pages(4096);
  ASSERT_TRUE(zone->alloc_exactly(pages.data(), 4096, {}));
  const std::set<Page*> distinct(pages.begin(), pages.end());
  EXPECT_EQ(distinct.size(), 4096U);
  zone->free_bulk(pages.data(), 4096);
  expect_whole(*zone);
}

TEST(Exactly, KeepsToTheReserve) {
  const OnCpu cpu(0);
  Options options;
  options.reserve = PageCount{100};
  TestZone zone(1024, 2, options);
  std::vector<Page*> pages(1024);
  EXPECT_FALSE(zone->alloc_exactly(pages.data(), 925, {}));
  EXPECT_TRUE(zone->alloc_exactly(pages.data(), 924, {}));
  EXPECT_FALSE(zone->alloc_exactly(pages.data() + 924, 1, {}));
  EXPECT_TRUE(zone->alloc_exactly(pages.data() + 924, 100, {.reserve = true}));
  zone->free_bulk(pages.data(), 1024);
  expect_whole(*zone);
}

TEST(Exactly, WhoMayNotWaitIsRefusedWithoutHarm) {
  WEIR_NEEDS_LISTS;
  WEIR_NEEDS_CPUS(2);
  TestZone zone(1024);
  {
    const OnCpu cpu(1);
    zone->free(zone->alloc(Order{0}, {}), Order{0});
    ASSERT_GT(zone->lists().cached(1), 0U);
  }
  const OnCpu cpu(0);
  std::vector<Page*> pages(1024);
  EXPECT_FALSE(zone->alloc_exactly(pages.data(), 1024, {.no_wait = true}));
  EXPECT_FALSE(zone->in_shortage());
  EXPECT_EQ(zone->census().out(), 0U);
  EXPECT_TRUE(zone->alloc_exactly(pages.data(), 1024, {}));
  zone->free_bulk(pages.data(), 1024);
}

TEST(Exactly, InAHandlerInsideAMarkedSectionItTakesAllOrNothingToo) {
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  TestZone zone(4096);
  std::vector<PageIndex> indexes(100);
  ASSERT_EQ(zone->alloc_bulk(indexes.data(), 100, {}), 100U);
  free_all(*zone, indexes);
  ASSERT_GE(zone->lists().cached(0), 64U);
  std::vector<Page*> pages(4096);
  {
    const ThreadMark mark;
    EXPECT_FALSE(zone->alloc_exactly(pages.data(), 3000, {}));
    EXPECT_TRUE(zone->alloc_exactly(pages.data(), 30, {}));
  }
  EXPECT_EQ(zone->census().out(), 30U);
  zone->free_bulk(pages.data(), 30);
  expect_whole(*zone);
}

// A refusal is counted once; a request that was served after some looking is none.
TEST(Exactly, OnlyWhoIsRefusedIsCountedAsRefused) {
  WEIR_NEEDS_LISTS;
  WEIR_NEEDS_CPUS(2);
  TestZone zone(1024);
  {
    const OnCpu cpu(1);
    zone->free(zone->alloc(Order{0}, {}), Order{0});
    ASSERT_GT(zone->lists().cached(1), 0U);
  }
  const OnCpu cpu(0);
  std::vector<Page*> pages(1024);
  ASSERT_TRUE(zone->alloc_exactly(pages.data(), 1024, {}));
  EXPECT_EQ(zone->zone().counters().refusals.get(), 0U);
  EXPECT_FALSE(zone->alloc_exactly(pages.data(), 1, {}));
  EXPECT_EQ(zone->zone().counters().refusals.get(), 1U);
  zone->free_bulk(pages.data(), 1024);
}

// ---- several who ask at once ---------------------------------------------------------------------

// `threads` ask at the same time for n of 64 frames, round after round; at least `fit` must be served.
void ask_together(unsigned threads, std::size_t n, unsigned fit) {
  TestZone zone(64);
  SideTable table(zone.first(), 64);
  constexpr int kRounds = 4000;
  std::atomic<unsigned> served{0};
  std::atomic<int> starved{0};
  std::barrier together(static_cast<std::ptrdiff_t>(threads));
  std::vector<std::thread> askers;
  for (unsigned t = 0; t < threads; ++t) {
    askers.emplace_back([&, t] {
      std::vector<Page*> pages(n);
      for (int round = 0; round < kRounds; ++round) {
        together.arrive_and_wait();
        const bool got = zone->alloc_exactly(pages.data(), n, {});
        if (got) {
          served.fetch_add(1);
          for (const Page* page : pages) {
            table.took(index_of(page), Order{0});
          }
        }
        together.arrive_and_wait();
        if (t == 0 && served.exchange(0) < fit) {
          starved.fetch_add(1);
        }
        if (got) {
          for (const Page* page : pages) {
            table.gave(index_of(page), Order{0});
          }
          zone->free_bulk(pages.data(), n);
        }
      }
    });
  }
  for (std::thread& asker : askers) {
    asker.join();
  }
  EXPECT_EQ(starved.load(), 0) << threads << " threads, " << n << " frames each";
  EXPECT_EQ(table.violations(), 0U) << table.report();
  expect_whole(*zone);
}

TEST(Exactly, OfTwoWhoAskForMoreThanHalfOneIsServed) {
  ask_together(2, 40, 1);
  ask_together(2, 33, 1);
  ask_together(2, 64, 1);
}

TEST(Exactly, OfManyWhoAskAtOnceAsManyAreServedAsFit) {
  ask_together(3, 30, 2);
  ask_together(4, 20, 3);
  ask_together(4, 40, 1);
}

// Nobody waits for anybody here: requests begin and end at any time. Whoever is refused, was refused
// because of somebody who was served: at some moment of his request that one had pages, or was
// getting them.
TEST(Exactly, NobodyLosesToWhoIsRefusedHimself) {
  struct Event {
    std::uint64_t from;
    std::uint64_t to;  // of a refusal its end; of a success the end of its free
    bool served;
  };
  constexpr unsigned kThreads = 3;
  TestZone zone(64);
  std::atomic<std::uint64_t> clock{0};
  std::vector<std::vector<Event>> events(kThreads);
  std::vector<std::thread> askers;
  for (unsigned t = 0; t < kThreads; ++t) {
    askers.emplace_back([&, t] {
      std::mt19937 random(t);
      std::vector<Page*> pages(40);
      for (int round = 0; round < 20'000; ++round) {
        const std::uint64_t from = clock.fetch_add(1);
        const bool served = zone->alloc_exactly(pages.data(), 40, {});
        if (served) {
          if (random() % 4 == 0) {
            ::sched_yield();
          }
          zone->free_bulk(pages.data(), 40);
        }
        events[t].push_back({from, clock.fetch_add(1), served});
      }
    });
  }
  for (std::thread& asker : askers) {
    asker.join();
  }
  std::vector<Event> services;
  for (const std::vector<Event>& of_one : events) {
    std::copy_if(of_one.begin(), of_one.end(), std::back_inserter(services),
                 [](const Event& event) { return event.served; });
  }
  std::sort(services.begin(), services.end(),
            [](const Event& a, const Event& b) { return a.from < b.from; });
  // The latest end of all that began up to here.
  std::vector<std::uint64_t> ends;
  for (const Event& service : services) {
    ends.push_back(std::max(ends.empty() ? 0 : ends.back(), service.to));
  }
  std::uint64_t refusals = 0;
  std::uint64_t groundless = 0;
  for (const std::vector<Event>& of_one : events) {
    for (const Event& event : of_one) {
      if (event.served) {
        continue;
      }
      ++refusals;
      const auto after =
          std::partition_point(services.begin(), services.end(),
                               [&event](const Event& service) { return service.from < event.to; });
      const auto before = static_cast<std::size_t>(after - services.begin());
      groundless += before == 0 || ends[before - 1] < event.from ? 1 : 0;
    }
  }
  EXPECT_EQ(groundless, 0U) << "of " << refusals << " refusals, " << services.size() << " served";
  expect_whole(*zone);
}

// ---- every frame, from everywhere ----------------------------------------------------------------

TEST(Exactly, EveryFrameOfASmallZoneCanBeHadFromAnyCpu) {
  for (const std::uint64_t frames : {32U, 64U, 4096U}) {
    for (const std::uint32_t cpus : {1U, 2U, 3U, 8U}) {
      if (!OnCpu::can(cpus)) {
        continue;
      }
      SCOPED_TRACE(testing::Message() << frames << " frames, " << cpus << " CPUs");
      TestZone zone(frames, cpus);
      // Every CPU has something on its list, of each order, before anybody asks for all.
      const auto spread = [&] {
        test::outlast_shortage();
        for (std::uint32_t number = 0; number < cpus; ++number) {
          const OnCpu cpu(number);
          std::vector<PageIndex> some(frames / cpus / 2);
          some.resize(zone->alloc_bulk(some.data(), some.size(), {}));
          free_all(*zone, some);
          for (const unsigned order : {1U, 2U, 3U}) {
            const PageIndex page = zone->alloc(Order{order}, {});
            if (is_page(page)) {
              zone->free(page, Order{order});
            }
          }
        }
      };
      for (std::uint32_t number = 0; number < cpus; ++number) {
        spread();
        {
          const OnCpu cpu(number);
          const std::vector<PageIndex> pages = take_all(*zone);
          EXPECT_EQ(pages.size(), frames);
          free_all(*zone, pages);
        }
        spread();
        {
          const OnCpu cpu(number);
          std::vector<PageIndex> pages(frames + 1);
          EXPECT_EQ(zone->alloc_bulk(pages.data(), frames + 1, {}), frames);
          pages.resize(frames);
          EXPECT_EQ(std::set<PageIndex>(pages.begin(), pages.end()).size(), frames);
          zone->free_bulk(pages.data(), frames);
        }
        spread();
        {
          const OnCpu cpu(number);
          std::vector<Page*> pages(frames);
          EXPECT_TRUE(zone->alloc_exactly(pages.data(), frames, {}));
          zone->free_bulk(pages.data(), frames);
        }
        spread();
        {
          const OnCpu cpu(number);
          const Order whole{log2_floor(frames)};
          if (whole <= kMaxOrder) {
            const PageIndex page = zone->alloc(whole, {});
            EXPECT_TRUE(is_page(page));
            zone->free(page, whole);
          }
        }
      }
      expect_whole(*zone);
    }
  }
}

}  // namespace
}  // namespace weir
