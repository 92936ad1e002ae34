// SPDX-License-Identifier: MIT
// When memory runs out: a refusal means that nothing suitable was free anywhere, whoever holds it on
// whichever list, and the lists run again when enough is free, a millisecond later at the earliest.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/interrupt.hpp"
#include "tests/support/side_table.hpp"
#include "tests/support/zones.hpp"
#include "weir/percpu/cached_zone.hpp"

namespace weir {
namespace {

using test::free_all;
using test::OnCpu;
using test::SideTable;
using test::take_all;
using test::TestZone;

TEST(Shortage, AnExhaustedZoneFindsTheFramesOnOtherLists) {
  WEIR_NEEDS_LISTS;
  WEIR_NEEDS_CPUS(2);
  TestZone zone(4096);
  {
    const OnCpu cpu(1);
    for (const unsigned order : {0U, 1U, 2U, 3U}) {
      zone->free(zone->alloc(Order{order}, {}), Order{order});
    }
    EXPECT_GE(zone->lists().cached(1), 4 * 64U);
  }
  const OnCpu cpu(0);
  const std::vector<PageIndex> pages = take_all(*zone);
  EXPECT_EQ(pages.size(), 4096U);
  EXPECT_TRUE(zone->in_shortage());
  EXPECT_EQ(zone->census().lists, 0U);
  EXPECT_GE(zone->zone().counters().shortages.get(), 1U);
  EXPECT_EQ(zone->zone().counters().refusals.get(), 1U);
  free_all(*zone, pages);
}

TEST(Shortage, AskingAgainAtExhaustionStopsNothingAgain) {
  const OnCpu cpu(0);
  TestZone zone(4096);
  const std::vector<PageIndex> pages = take_all(*zone);
  const std::uint64_t shortages = zone->zone().counters().shortages.get();
  const std::uint64_t refusals = zone->zone().counters().refusals.get();
  const std::uint64_t holds = zone->zone().counters().lock_acquisitions.get();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(zone->alloc(Order{0}, {}), kNoPage);
  }
  EXPECT_EQ(zone->zone().counters().shortages.get(), shortages);
  EXPECT_EQ(zone->zone().counters().refusals.get(), refusals + 100);
  EXPECT_LE(zone->zone().counters().lock_acquisitions.get(), holds + 200);
  free_all(*zone, pages);
}

TEST(Shortage, ALargeRequestMergesWhatLiesSinglyOnTheListsOfFourCpus) {
  WEIR_NEEDS_LISTS;
  if (!kTestHooks) {
    GTEST_SKIP() << "needs fake CPU ids";
  }
  Options options;
  options.high = PageCount{kListCapacityMax};  // all of it fits on the lists
  TestZone zone(1024, 4, options);
  std::vector<std::vector<PageIndex>> taken(4);
  for (int i = 0; i < 1024; ++i) {
    const OnCpu cpu(i % 4);
    taken[static_cast<std::size_t>(i % 4)].push_back(zone->alloc(Order{0}, {}));
  }
  for (std::uint32_t number = 0; number < 4; ++number) {
    const OnCpu cpu((number + 1) % 4);
    free_all(*zone, taken[number]);
  }
  const CachedZone::Census census = zone->census();
  EXPECT_GT(census.lists, 1024U * 3 / 4);
  EXPECT_EQ(zone->zone().free_blocks(kMaxOrder), 0U);
  const OnCpu cpu(2);
  const PageIndex all = zone->alloc(kMaxOrder, {});
  EXPECT_EQ(all, zone.first());
  EXPECT_EQ(zone->alloc(Order{0}, {}), kNoPage);
  test::outlast_shortage();
  zone->free(all, kMaxOrder);
  EXPECT_FALSE(zone->in_shortage());
}

TEST(Shortage, ALargeRequestThatCannotBeMetStopsTheListsForAWhileOnly) {
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  TestZone zone(4096);
  std::vector<PageIndex> pages = take_all(*zone);
  test::outlast_shortage();
  // Every second frame: half of the zone is free, in single frames.
  std::vector<PageIndex> kept;
  for (const PageIndex page : pages) {
    if (page.value % 2 == 0) {
      zone->free(page, Order{0});
    } else {
      kept.push_back(page);
    }
  }
  ASSERT_FALSE(zone->in_shortage());
  EXPECT_EQ(zone->alloc(Order{1}, {}), kNoPage);
  EXPECT_EQ(zone->alloc(kMaxOrder, {}), kNoPage);
  test::outlast_shortage();
  zone->free(zone->alloc(Order{0}, {}), Order{0});
  EXPECT_FALSE(zone->in_shortage());
  const std::uint64_t pops = zone->percpu_counters().pops;
  const PageIndex a = zone->alloc(Order{0}, {});
  const PageIndex b = zone->alloc(Order{0}, {});
  EXPECT_GT(zone->percpu_counters().pops, pops);
  zone->free(a, Order{0});
  zone->free(b, Order{0});
  free_all(*zone, kept);
}

TEST(Shortage, EndsWhenEnoughIsFreeAndThenListsServeAgain) {
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  TestZone zone(4096);  // low watermark 160, an eighth 512
  std::vector<PageIndex> pages = take_all(*zone);
  ASSERT_TRUE(zone->in_shortage());
  test::outlast_shortage();
  const std::uint64_t pushes = zone->percpu_counters().pushes;
  for (int i = 0; i < 159; ++i) {
    zone->free(pages.back(), Order{0});
    pages.pop_back();
  }
  EXPECT_TRUE(zone->in_shortage());
  EXPECT_EQ(zone->zone().free_pages(), 159U);  // every free reaches the engine
  EXPECT_EQ(zone->percpu_counters().pushes, pushes);
  zone->free(pages.back(), Order{0});
  pages.pop_back();
  EXPECT_FALSE(zone->in_shortage());
  zone->free(pages.back(), Order{0});
  pages.pop_back();
  EXPECT_EQ(zone->percpu_counters().pushes, pushes + 1);
  const std::uint64_t pops = zone->percpu_counters().pops;
  pages.push_back(zone->alloc(Order{0}, {}));
  EXPECT_EQ(zone->percpu_counters().pops, pops + 1);
  free_all(*zone, pages);
}

TEST(Shortage, LastsAMillisecondHoweverMuchIsFree) {
  const OnCpu cpu(0);
  TestZone zone(4096);
  const std::vector<PageIndex> pages = take_all(*zone);
  ASSERT_TRUE(zone->in_shortage());
  const auto start = std::chrono::steady_clock::now();
  free_all(*zone, pages);
  std::uint64_t rounds = 0;
  while (zone->in_shortage()) {
    zone->free(zone->alloc(Order{0}, {}), Order{0});
    ++rounds;
    ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  }
  // It was entered a little before `start`; a busy machine may have slept over the end of it.
  if (rounds != 0) {
    EXPECT_GT(std::chrono::steady_clock::now() - start, std::chrono::microseconds(500));
  }
  EXPECT_EQ(zone->zone().counters().shortages.get(), 1U);
}

TEST(Shortage, EndsAfterABulkOfFreesToo) {
  const OnCpu cpu(0);
  TestZone zone(4096);
  const std::vector<PageIndex> pages = take_all(*zone);
  ASSERT_TRUE(zone->in_shortage());
  test::outlast_shortage();
  zone->free_bulk(pages.data(), pages.size());
  EXPECT_FALSE(zone->in_shortage());
  const CachedZone::Census census = zone->census();
  EXPECT_EQ(census.lists + census.depot > 0, list_mode().form != ListForm::off);
}

TEST(Shortage, ARequestThatMayNotWaitLeavesTheListsOfOthersAlone) {
  WEIR_NEEDS_LISTS;
  WEIR_NEEDS_CPUS(2);
  TestZone zone(4096);
  {
    const OnCpu cpu(1);
    zone->free(zone->alloc(Order{0}, {}), Order{0});
    ASSERT_EQ(zone->lists().cached(1), 64U);
  }
  const OnCpu cpu(0);
  std::vector<PageIndex> pages = take_all(*zone, Order{0}, {.no_wait = true});
  EXPECT_EQ(pages.size(), 4096U - 64);
  EXPECT_EQ(zone->alloc(Order{2}, {.no_wait = true}), kNoPage);
  EXPECT_FALSE(zone->in_shortage());
  EXPECT_EQ(zone->lists().cached(1), 64U);
  EXPECT_EQ(zone->zone().counters().shortages.get(), 0U);
  EXPECT_EQ(zone->zone().counters().refusals.get(), 2U);
  // Its own list and the engine serve it.
  zone->free(pages.back(), Order{0});
  EXPECT_EQ(zone->alloc(Order{0}, {.no_wait = true}), pages.back());
  zone->free_to_engine(pages.back(), Order{0});
  EXPECT_EQ(zone->alloc(Order{0}, {.no_wait = true}), pages.back());
  free_all(*zone, pages);
}

// ---- the reserve ---------------------------------------------------------------------------------

TEST(Reserve, OrdinaryRequestsStopAtIt) {
  const OnCpu cpu(0);
  Options options;
  options.reserve = PageCount{100};
  TestZone zone(4096, 2, options);
  const std::vector<PageIndex> pages = take_all(*zone);
  EXPECT_EQ(pages.size(), 3996U);
  EXPECT_EQ(zone->alloc(Order{3}, {}), kNoPage);
  std::vector<PageIndex> bulk(200);
  EXPECT_EQ(zone->alloc_bulk(bulk.data(), 200, {}), 0U);
  const std::vector<PageIndex> reserved = take_all(*zone, Order{0}, {.reserve = true});
  EXPECT_EQ(reserved.size(), 100U);
  free_all(*zone, pages);
  free_all(*zone, reserved);
}

TEST(Reserve, ARequestWithTheRightDoesNotOpenItToOthers) {
  const OnCpu cpu(0);
  Options options;
  options.reserve = PageCount{1000};
  for (const unsigned order : {0U, 2U}) {
    TestZone zone(4096, 2, options);
    // Ten more than the reserve are free, and nobody was refused yet: the lists run.
    std::vector<PageIndex> pages(4096 - 1010);
    ASSERT_EQ(zone->alloc_bulk(pages.data(), pages.size(), {}), pages.size());
    ASSERT_EQ(zone->drain_all().code, Errc::ok);
    ASSERT_FALSE(zone->in_shortage());
    const PageIndex reserved = zone->alloc(Order{order}, {.reserve = true});
    ASSERT_TRUE(is_page(reserved));
    // A refill for one with the right does not serve those without.
    const std::vector<PageIndex> ordinary = take_all(*zone, Order{order});
    EXPECT_EQ(ordinary.size(), order == 0 ? 9U : 1U);
    // Nor does it, once it is back, lie where those without are not asked for a right.
    const std::uint64_t in_engine = zone->zone().free_pages();
    zone->free_to_engine(reserved, Order{order});
    EXPECT_EQ(zone->zone().free_pages(), in_engine + frames_in(Order{order}));
    free_all(*zone, ordinary, Order{order});
    free_all(*zone, pages);
  }
}

TEST(Reserve, BulkWithTheRightTakesItAll) {
  const OnCpu cpu(0);
  Options options;
  options.reserve = PageCount{500};
  TestZone zone(4096, 2, options);
  std::vector<PageIndex> pages(5000);
  EXPECT_EQ(zone->alloc_bulk(pages.data(), 5000, {}), 3596U);
  EXPECT_EQ(zone->alloc_bulk(pages.data() + 3596, 1000, {.reserve = true}), 500U);
  zone->free_bulk(pages.data(), 4096);
}

// ---- many threads at the edge --------------------------------------------------------------------

// Each of n threads asks for at most its share of the zone, and counts a page as its own until its
// free has returned. So at every moment of every request a frame is free: no refusal is legal, wherever
// that frame is just being carried.
struct Edge {
  unsigned threads;
  std::uint64_t share;
  bool bulk;
  bool drain;
};

void never_refused(const Edge& edge, bool pretended) {
  const std::uint64_t frames = edge.threads * edge.share;
  TestZone zone(frames);
  SideTable table(zone.first(), frames);
  std::atomic<std::uint64_t> refused{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  std::latch together(edge.threads);
  for (unsigned t = 0; t < edge.threads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      together.arrive_and_wait();
      std::vector<PageIndex> mine;
      std::vector<PageIndex> buffer(edge.share);
      for (int step = 0; step < 20'000; ++step) {
        if (pretended && step % 16 == 0) {
          t_fake_cpu = static_cast<std::int32_t>(random() % 2);
        }
        if (random() % 64 == 0) {
          ::sched_yield();  // two CPUs, many threads: they are to meet in the middle of things
        }
        const std::uint64_t room = edge.share - mine.size();
        if (edge.bulk && random() % 4 == 0) {
          const std::size_t wanted = room == 0 ? 0 : random() % (room + 1);
          const std::size_t got = zone->alloc_bulk(buffer.data(), wanted, {});
          refused.fetch_add(wanted - got);
          for (std::size_t i = 0; i < got; ++i) {
            table.took(buffer[i], Order{0});
            mine.push_back(buffer[i]);
          }
        } else if (edge.bulk && random() % 4 == 0) {
          const std::size_t n = random() % (mine.size() + 1);
          for (std::size_t i = 0; i < n; ++i) {
            buffer[i] = mine.back();
            mine.pop_back();
            table.gave(buffer[i], Order{0});
          }
          zone->free_bulk(buffer.data(), n);
        } else if (room != 0 && (mine.empty() || random() % 3 != 0)) {
          const PageIndex page = zone->alloc(Order{0}, {});
          if (is_page(page)) {
            table.took(page, Order{0});
            mine.push_back(page);
          } else {
            refused.fetch_add(1);
          }
        } else {
          std::swap(mine[random() % mine.size()], mine.back());
          table.gave(mine.back(), Order{0});
          zone->free(mine.back(), Order{0});
          mine.pop_back();
        }
      }
      for (const PageIndex page : mine) {
        table.gave(page, Order{0});
        zone->free(page, Order{0});
      }
      t_fake_cpu = -1;
    });
  }
  std::thread drainer([&] {
    while (edge.drain && !stop.load(std::memory_order_relaxed)) {
      static_cast<void>(zone->drain_all());
    }
  });
  for (std::thread& thread : threads) {
    thread.join();
  }
  stop.store(true);
  drainer.join();
  EXPECT_EQ(refused.load(), 0U);
  EXPECT_EQ(table.violations(), 0U) << table.report();
  EXPECT_EQ(zone->drain_all().code, Errc::ok);
  EXPECT_EQ(zone->zone().audit(), frames);
}

// On the CPUs as they come, and, where a test can, on pretended ones.
void never_refused(const Edge& edge) {
  never_refused(edge, false);
  if (kTestHooks) {
    never_refused(edge, true);
  }
}

TEST(Shortage, NoRequestIsRefusedWhileAFrameIsFreeSomewhere) {
  never_refused({.threads = 8, .share = 4, .bulk = false, .drain = false});
  never_refused({.threads = 4, .share = 64, .bulk = false, .drain = false});
  never_refused({.threads = 3, .share = 700, .bulk = false, .drain = false});
}

TEST(Shortage, NoRequestIsRefusedWhileAFrameIsFreeSomewhereInBulk) {
  never_refused({.threads = 8, .share = 4, .bulk = true, .drain = false});
  never_refused({.threads = 4, .share = 64, .bulk = true, .drain = false});
  never_refused({.threads = 3, .share = 700, .bulk = true, .drain = false});
}

TEST(Shortage, NoRequestIsRefusedWhileAFrameIsFreeSomewhereAndAnotherDrains) {
  never_refused({.threads = 4, .share = 32, .bulk = false, .drain = true});
  never_refused({.threads = 3, .share = 300, .bulk = true, .drain = true});
}

TEST(Shortage, OneFrameThatComesBackGoesToWhoeverWaitsForIt) {
  TestZone zone(64);
  std::vector<PageIndex> pages = take_all(*zone);
  ASSERT_EQ(pages.size(), 64U);
  std::atomic<int> asking{0};
  std::atomic<int> served{0};
  std::vector<std::thread> waiters;
  std::atomic<std::uint32_t> got[3];
  for (int t = 0; t < 3; ++t) {
    got[t].store(kNoPage.value);
    waiters.emplace_back([&, t] {
      PageIndex page = kNoPage;
      while (!is_page(page = zone->alloc(Order{0}, {}))) {
        asking.fetch_add(1, std::memory_order_relaxed);
      }
      got[t].store(page.value);
      served.fetch_add(1);
    });
  }
  const auto start = std::chrono::steady_clock::now();
  for (int round = 1; round <= 3; ++round) {
    // All of them have been refused, again and again.
    const int before = asking.load();
    while (asking.load() < before + 300) {
      std::this_thread::yield();
    }
    EXPECT_EQ(served.load(), round - 1);
    zone->free(pages.back(), Order{0});
    pages.pop_back();
    while (served.load() < round) {
      std::this_thread::yield();
    }
  }
  for (std::thread& waiter : waiters) {
    waiter.join();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  for (const auto& page : got) {
    zone->free({page.load()}, Order{0});
  }
  free_all(*zone, pages);
}

TEST(Shortage, AnIdleOrDeadOwnerIsNoHindrance) {
  for (const bool dead : {false, true}) {
    TestZone zone(2048);
    std::atomic<int> step{0};
    std::vector<PageIndex> pages;
    std::thread owner([&] {
      const OnCpu cpu(0);
      pages = take_all(*zone);
      // Some lie on its own list.
      for (int i = 0; i < 600; ++i) {
        zone->free(pages.back(), Order{0});
        pages.pop_back();
      }
      step.store(1);
      while (!dead && step.load() != 3) {
        std::this_thread::yield();
      }
    });
    while (step.load() != 1) {
      std::this_thread::yield();
    }
    if (dead) {
      owner.join();
    }
    std::thread giver([&] { free_all(*zone, pages); });
    giver.join();
    std::vector<PageIndex> again;
    std::thread taker([&] { again = take_all(*zone); });
    taker.join();
    EXPECT_EQ(again.size(), 2048U);
    step.store(3);
    if (!dead) {
      owner.join();
    }
    free_all(*zone, again);
  }
}

// ---- frames in a hand ----------------------------------------------------------------------------

// A thread that stands still with frames in its hand: stopped by a signal in the middle of a refill.
TEST(Shortage, ARequestWaitsForFramesInAHandUnlessItMayNot) {
  WEIR_NEEDS_LISTS;
  if (!test::kCanInterrupt || !test::lists_can_be_stepped()) {
    GTEST_SKIP() << "no single steps here";
  }
  TestZone zone(4096, 1, {.engine = EngineChoice::buddy});  // whose holds tell that a request asks
  const std::uint64_t refills = zone->percpu_counters().refills;
  std::atomic<int> step{0};
  PageIndex of_carrier = kNoPage;
  std::thread carrier([&] {
    const OnCpu cpu(0);
    bool stood = false;
    test::interrupt_each([&] { of_carrier = zone->alloc(Order{0}, {}); },
                         [&] {
                           // Filled, no lock held, nothing on the list yet.
                           const bool carries = t_marked_sections == 1 &&
                                                zone->zone().free_pages() == 4096 - 64 &&
                                                !test::list_held(*zone) &&
                                                zone->percpu_counters().refills == refills;
                           if (carries && !stood) {
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
  EXPECT_EQ(zone->census().out(), 64U);  // as if a user had them
  std::vector<PageIndex> pages;
  {
    const OnCpu cpu(0);  // moved to another CPU it would leave pages on the list of this one
    pages = take_all(*zone, Order{0}, {.no_wait = true});
  }
  EXPECT_EQ(pages.size(), 4096U - 64);
  EXPECT_EQ(zone->alloc(Order{0}, {.no_wait = true}), kNoPage);

  std::atomic<int> served{0};
  PageIndex waited_for = kNoPage;
  const std::uint64_t before = zone->zone().counters().lock_acquisitions.get();
  std::thread waiter([&] {
    waited_for = zone->alloc(Order{0}, {});
    served.store(1);
  });
  // It asks again and again.
  while (zone->zone().counters().lock_acquisitions.get() < before + 100 && served.load() == 0) {
    std::this_thread::yield();
  }
  EXPECT_EQ(served.load(), 0);
  step.store(2);
  waiter.join();
  carrier.join();
  EXPECT_TRUE(is_page(waited_for));
  EXPECT_TRUE(is_page(of_carrier));
  EXPECT_NE(waited_for, of_carrier);
  pages.push_back(waited_for);
  pages.push_back(of_carrier);
  free_all(*zone, pages);
}

// A drainer has taken the depot's last cluster and not yet given it to the engine, whose lock is held from
// outside: engine and depot have nothing, and a request that looks there must know that it has to wait.
TEST(Shortage, AClusterThatADrainerCarriesFromTheDepotIsNotOverlooked) {
  WEIR_NEEDS_LISTS;
  WEIR_NEEDS_THE_ZONE_LOCK;
  const OnCpu cpu(0);
  TestZone zone(4096);
  std::vector<PageIndex> pages = take_all(*zone);
  ASSERT_EQ(pages.size(), 4096U);
  ASSERT_TRUE(zone->in_shortage());
  const Atomic<std::uint32_t>& carriers = zone->lists().common_block().carriers;
  EXPECT_EQ(carriers.load(), 0U);
  const ClusterId id = zone->depot().take_empty(0);
  ASSERT_NE(id, kNoCluster);
  for (int i = 0; i < 64; ++i) {
    zone->depot().body(id).frames[i] = pages.back();
    pages.pop_back();
  }
  ASSERT_TRUE(zone->depot().give_full(id, 0));
  zone->zone().lock_for_fork();
  std::thread drainer([&] { EXPECT_EQ(zone->drain_all().code, Errc::ok); });
  while (zone->depot().full_clusters() != 0) {
    std::this_thread::yield();
  }
  EXPECT_EQ(carriers.load(), 1U);
  EXPECT_EQ(zone->zone().free_pages(), 0U);
  zone->zone().unlock_after_fork();
  drainer.join();
  EXPECT_EQ(carriers.load(), 0U);
  EXPECT_EQ(zone->zone().free_pages(), 64U);
  free_all(*zone, pages);
}

// Requests that were served after a search are no refusals.
TEST(Shortage, CountsARequestAsRefusedOnlyWhenItIs) {
  WEIR_NEEDS_LISTS;
  WEIR_NEEDS_CPUS(2);
  TestZone zone(1024);
  {
    const OnCpu cpu(1);
    zone->free(zone->alloc(Order{0}, {}), Order{0});
  }
  const OnCpu cpu(0);
  std::vector<PageIndex> pages(1024);
  ASSERT_EQ(zone->alloc_bulk(pages.data(), 1024, {}), 1024U);
  EXPECT_EQ(zone->zone().counters().refusals.get(), 0U);
  EXPECT_EQ(zone->zone().counters().shortages.get(), 1U);
  zone->free_bulk(pages.data(), 1024);
}

}  // namespace
}  // namespace weir
