// SPDX-License-Identifier: MIT
// Flows from CPU to CPU through the depot: once it is warm a steady flow never takes the zone's lock;
// what the depot must not keep it does not keep, and no part of a cluster is ever lost.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/side_table.hpp"
#include "tests/support/zones.hpp"
#include "weir/base/failpoint.hpp"
#include "weir/percpu/cached_zone.hpp"

namespace weir {
namespace {

using test::free_all;
using test::OnCpu;
using test::Pinned;
using test::SideTable;
using test::TestZone;

constexpr std::uint64_t kFrames = 16384;

std::uint64_t holds(CachedZone& zone) { return zone.zone().counters().lock_acquisitions.get(); }

void expect_whole(CachedZone& zone) {
  EXPECT_EQ(zone.drain_all().code, Errc::ok);
  const CachedZone::Census census = zone.census();
  EXPECT_EQ(census.engine, census.managed);
  EXPECT_EQ(zone.zone().audit(), census.managed);
  EXPECT_EQ(zone.depot().empty_bodies(), zone.depot().bodies());
}

void expect_depot_adds_up(CachedZone& zone) {
  const Depot& depot = zone.depot();
  ASSERT_EQ(depot.full_clusters() + depot.partial_clusters() + depot.empty_bodies(),
            depot.bodies());
  ASSERT_LE(depot.full_clusters(), depot.capacity());
}

// A place for one batch: what CPU 0 took and CPU 1 has not given back yet.
class Slot {
 public:
  void put(const std::vector<PageIndex>& batch) {
    while (full_.load(std::memory_order_acquire)) {
      std::this_thread::yield();
    }
    batch_ = batch;
    full_.store(true, std::memory_order_release);
  }
  std::vector<PageIndex> get() {
    while (!full_.load(std::memory_order_acquire)) {
      std::this_thread::yield();
    }
    std::vector<PageIndex> batch = std::move(batch_);
    full_.store(false, std::memory_order_release);
    return batch;
  }

 private:
  std::atomic<bool> full_{false};
  std::vector<PageIndex> batch_;
};

struct Flow {
  bool bulk;  // whole batches in one call, or page by page
  std::size_t batch;
};

// Two threads, each on its CPU; at most three batches are under way.
void expect_no_hold(const Flow& flow) {
  SCOPED_TRACE(testing::Message() << (flow.bulk ? "bulk of " : "singles, batches of ")
                                  << flow.batch);
  Options options;
  options.depot = PageCount{32 * 64};
  TestZone zone(kFrames, 2, options);
  SideTable table(zone.first(), kFrames);
  constexpr std::size_t kWarm = 2000;
  constexpr std::size_t kBatches = 20'000;
  {
    // Enough outside the engine for the most that will ever be under way.
    const OnCpu cpu(1);
    std::vector<PageIndex> pages(1024);
    ASSERT_EQ(zone->alloc_bulk(pages.data(), 1024, {}), 1024U);
    zone->free_bulk(pages.data(), 1024);
  }
  Slot slot;
  std::uint64_t before = 0;
  PercpuCounterValues counted;
  std::thread taker([&] {
    const OnCpu cpu(0);
    std::vector<PageIndex> batch(flow.batch);
    for (std::size_t i = 0; i < kBatches; ++i) {
      if (flow.bulk) {
        batch.resize(zone->alloc_bulk(batch.data(), flow.batch, {}));
      } else {
        for (PageIndex& page : batch) {
          page = zone->alloc(Order{0}, {});
        }
      }
      for (const PageIndex page : batch) {
        table.took(page, Order{0});
      }
      slot.put(batch);
    }
  });
  std::thread giver([&] {
    const OnCpu cpu(1);
    for (std::size_t i = 0; i < kBatches; ++i) {
      const std::vector<PageIndex> batch = slot.get();
      for (const PageIndex page : batch) {
        table.gave(page, Order{0});
      }
      if (flow.bulk) {
        zone->free_bulk(batch.data(), batch.size());
      } else {
        free_all(*zone, batch);
      }
      if (i == kWarm) {
        before = holds(*zone);
        counted = zone->percpu_counters();
      }
    }
  });
  taker.join();
  giver.join();
  EXPECT_EQ(table.violations(), 0U) << table.report();
  EXPECT_EQ(holds(*zone), before);
  // All of it went through the depot, a cluster at a time.
  const PercpuCounterValues now = zone->percpu_counters();
  const double clusters = static_cast<double>((kBatches - kWarm) * flow.batch) / 64;
  EXPECT_NEAR(static_cast<double>(now.clusters_taken - counted.clusters_taken), clusters,
              clusters / 100 + 5);
  EXPECT_NEAR(static_cast<double>(now.clusters_given - counted.clusters_given), clusters,
              clusters / 100 + 5);
  EXPECT_FALSE(zone->in_shortage());
  expect_depot_adds_up(*zone);
  expect_whole(*zone);
}

struct FlowTest : testing::Test {
  void SetUp() override {
    WEIR_NEEDS_LISTS;
    WEIR_NEEDS_CPUS(2);
  }
};

TEST_F(FlowTest, ASteadyFlowInBulkTakesNoZoneLock) {
  expect_no_hold({.bulk = true, .batch = 64});
  expect_no_hold({.bulk = true, .batch = 16});
  expect_no_hold({.bulk = true, .batch = 100});
}

TEST_F(FlowTest, ASteadyFlowOneByOneTakesNoZoneLock) {
  expect_no_hold({.bulk = false, .batch = 64});
  expect_no_hold({.bulk = false, .batch = 8});
}

TEST_F(FlowTest, WithMergingAtOnceTheDepotStaysEmpty) {
  Options options;
  options.merge = Merge::immediate;
  TestZone zone(kFrames, 2, options);
  std::vector<PageIndex> pages(1000);
  for (int round = 0; round < 50; ++round) {
    {
      const OnCpu cpu(0);
      ASSERT_EQ(zone->alloc_bulk(pages.data(), 1000, {}), 1000U);
      ASSERT_TRUE(zone->depot().empty());
    }
    const OnCpu cpu(1);
    if (round % 2 == 0) {
      zone->free_bulk(pages.data(), 1000);
    } else {
      free_all(*zone, pages);
    }
    ASSERT_TRUE(zone->depot().empty());
    ASSERT_LE(zone->census().lists, 2 * zone->lists().capacity(0));
  }
  EXPECT_EQ(zone->percpu_counters().clusters_given + zone->percpu_counters().clusters_taken, 0U);
  expect_whole(*zone);
}

TEST_F(FlowTest, TheDepotKeepsNoMoreThanItMay) {
  Options options;
  options.depot = PageCount{5 * 64 + 63};
  TestZone zone(kFrames, 2, options);
  EXPECT_EQ(zone->depot().capacity(), 5U);
  std::vector<PageIndex> pages(4000);
  for (const bool bulk : {true, false}) {
    {
      const OnCpu cpu(0);
      ASSERT_EQ(zone->alloc_bulk(pages.data(), pages.size(), {}), pages.size());
    }
    const OnCpu cpu(1);
    if (bulk) {
      zone->free_bulk(pages.data(), pages.size());
    } else {
      free_all(*zone, pages);
    }
    EXPECT_EQ(zone->depot().full_clusters(), 5U);
    EXPECT_LE(zone->census().lists, 2 * zone->lists().capacity(0));
    expect_depot_adds_up(*zone);
  }
  expect_whole(*zone);
}

// The sum of what lists may hold and what the depot may keep is at most `cached`, whoever comes by.
TEST_F(FlowTest, UnderASmallCapEveryCpuHasSmallListsAndWithLessThanTwoFramesNone) {
  for (const std::uint64_t cap : {1U, 3U, 4U, 7U, 100U, 600U, 1600U, 3000U}) {
    SCOPED_TRACE(cap);
    Options options;
    options.cached = PageCount{cap};
    TestZone zone(kFrames, 2, options);
    std::vector<PageIndex> pages(500);
    for (int round = 0; round < 5; ++round) {
      for (const std::uint32_t number : {0U, 1U}) {
        const OnCpu cpu(number);
        ASSERT_EQ(zone->alloc_bulk(pages.data(), pages.size(), {}), pages.size());
        free_all(*zone, pages);
        const CachedZone::Census census = zone->census();
        EXPECT_LE(census.lists + census.depot, zone->limits().total);
      }
      zone->tick();
    }
    EXPECT_LE(zone->limits().total, cap);
    for (const std::uint32_t number : {0U, 1U}) {
      EXPECT_EQ(zone->lists().is_started(CpuId{number}), cap >= 4);
    }
    // What a list holds is taken from it, without the zone's lock.
    if (cap >= 4) {
      const OnCpu cpu(0);
      zone->free(zone->alloc(Order{0}, {}), Order{0});
      const std::uint64_t locked = zone->zone().counters().lock_acquisitions.get();
      for (int i = 0; i < 100; ++i) {
        zone->free(zone->alloc(Order{0}, {}), Order{0});
      }
      EXPECT_EQ(zone->zone().counters().lock_acquisitions.get(), locked);
    }
    expect_whole(*zone);
  }
}

// More CPUs come by than the zone was measured for.
TEST_F(FlowTest, TheCapHoldsWhenMoreCpusComeByThanWereCountedUpon) {
  if (!kTestHooks) {
    GTEST_SKIP() << "needs fake CPU ids";
  }
  TestZone zone(kFrames, 16, {}, /*cpus=*/2);
  std::uint64_t ceilings = 0;
  std::vector<PageIndex> pages(600);
  for (std::uint32_t number = 0; number < 16; ++number) {
    const OnCpu cpu(number);
    ASSERT_EQ(zone->alloc_bulk(pages.data(), pages.size(), {}), pages.size());
    free_all(*zone, pages);
    if (zone->lists().is_started(CpuId{number})) {
      ceilings += zone->lists().frames_at_start();
    }
  }
  EXPECT_GT(ceilings, 0U);
  EXPECT_LE(ceilings + std::uint64_t{zone->depot().capacity()} * zone->lists().cluster(),
            zone->limits().total);
  expect_whole(*zone);
}

// ---- partial clusters ----------------------------------------------------------------------------

TEST_F(FlowTest, APartOfAClusterThatFindsNoPlaceIsFoundAgain) {
  if (!kTestHooks) {
    GTEST_SKIP() << "needs failpoints";
  }
  const OnCpu cpu(0);
  TestZone zone(kFrames, 2, {.engine = EngineChoice::buddy});  // whose holds are counted below
  std::vector<PageIndex> pages(512);
  ASSERT_EQ(zone->alloc_bulk(pages.data(), 512, {}), 512U);
  zone->free_bulk(pages.data(), 512);
  ASSERT_EQ(zone->drain(CpuId{0}).code, Errc::ok);
  const std::uint32_t full = zone->depot().full_clusters();
  ASSERT_GT(full, 0U);
  // No refill reaches the list: the rest of the cluster stays in the depot.
  failpoints::fail_always(Failpoint::list_push);
  std::vector<PageIndex> taken;
  std::uint64_t before = holds(*zone);
  for (std::uint32_t i = 0; i < full * 64; ++i) {
    taken.push_back(zone->alloc(Order{0}, {}));
    ASSERT_TRUE(is_page(taken.back()));
    ASSERT_EQ(zone->depot().frames(), full * 64 - taken.size());
    ASSERT_EQ(zone->census().out(), taken.size());
  }
  EXPECT_EQ(holds(*zone) - before, taken.size());  // one for each census
  EXPECT_TRUE(zone->depot().empty());
  failpoints::reset();
  free_all(*zone, taken);
  expect_whole(*zone);
}

TEST_F(FlowTest, PartsOfClustersDoNotPileUpWhileThereIsOneToGoOnWith) {
  if (!kTestHooks) {
    GTEST_SKIP() << "needs failpoints";
  }
  const OnCpu cpu(0);
  TestZone zone(kFrames);
  std::vector<PageIndex> pages(512);
  ASSERT_EQ(zone->alloc_bulk(pages.data(), 512, {}), 512U);
  zone->free_bulk(pages.data(), 512);
  ASSERT_EQ(zone->drain(CpuId{0}).code, Errc::ok);
  ASSERT_GE(zone->depot().full_clusters(), 3U);
  failpoints::fail_always(Failpoint::list_push);
  const PageIndex one = zone->alloc(Order{0}, {});
  const PageIndex two = zone->alloc(Order{0}, {});
  failpoints::reset();
  EXPECT_EQ(zone->depot().partial_clusters(), 1U);
  zone->free(one, Order{0});
  zone->free(two, Order{0});
  expect_whole(*zone);
}

TEST_F(FlowTest, APartOfAClusterIsFoundByAnExhaustedZone) {
  if (!kTestHooks) {
    GTEST_SKIP() << "needs failpoints";
  }
  const OnCpu cpu(0);
  TestZone zone(1024);
  std::vector<PageIndex> pages(256);
  ASSERT_EQ(zone->alloc_bulk(pages.data(), 256, {}), 256U);
  free_all(*zone, pages);
  ASSERT_EQ(zone->drain(CpuId{0}).code, Errc::ok);
  failpoints::fail_always(Failpoint::list_push);
  std::vector<PageIndex> taken{zone->alloc(Order{0}, {})};
  failpoints::reset();
  ASSERT_EQ(zone->depot().partial_clusters(), 1U);
  const std::vector<PageIndex> rest = test::take_all(*zone);
  EXPECT_EQ(rest.size(), 1023U);
  EXPECT_TRUE(zone->depot().empty());
  free_all(*zone, rest);
  free_all(*zone, taken);
  expect_whole(*zone);
}

// ---- drains against everything -------------------------------------------------------------------

// Moves the threads of its list from CPU to CPU until it ends.
class Mover {
 public:
  explicit Mover(std::size_t threads) : ids_(threads) {
    thread_ = std::thread([this] {
      for (unsigned turn = 0; !stop_.load(); ++turn) {
        for (std::size_t t = 0; t < ids_.size(); ++t) {
          cpu_set_t one;
          CPU_ZERO(&one);
          CPU_SET((turn + t) % 2, &one);
          if (const pid_t id = ids_[t].load(); id != 0) {
            ::sched_setaffinity(id, sizeof one, &one);  // fails for one that has ended
          }
        }
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
  }
  ~Mover() {
    stop_.store(true);
    thread_.join();
  }
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;
  void here(std::size_t t) { ids_[t].store(::gettid()); }

 private:
  std::vector<std::atomic<pid_t>> ids_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Pairs, bulk of every length and passing on to each other, on two real CPUs with the threads moved
// about, while others drain, tick and ask for exact numbers.
TEST_F(FlowTest, DrainsOfAllAgainstPairsAndBulkOnTwoCpusEndBalanced) {
  WEIR_NEEDS_REAL_CPUS(2);
  for (const std::uint32_t frames : {2048U, 16384U}) {
    TestZone zone(frames);
    SideTable table(zone.first(), frames);
    std::atomic<bool> stop{false};
    constexpr std::size_t kThreads = 4;
    {
      Mover mover(kThreads);
      std::vector<std::thread> workers;
      for (std::size_t t = 0; t < kThreads; ++t) {
        workers.emplace_back([&, t] {
          mover.here(t);
          std::mt19937 random(static_cast<unsigned>(t));
          std::vector<std::pair<PageIndex, Order>> live;
          std::vector<Page*> bulk(200);
          const auto took = [&](PageIndex page, Order order) {
            table.took(page, order);
            live.emplace_back(page, order);
          };
          for (int step = 0; step < 60'000; ++step) {
            switch (random() % 8) {
              case 0: {
                const std::size_t n = random() % 3 == 0 ? 64 : random() % 200;
                const std::size_t got = zone->alloc_bulk(bulk.data(), n, {});
                for (std::size_t i = 0; i < got; ++i) {
                  took(index_of(bulk[i]), Order{0});
                }
                break;
              }
              case 1: {
                std::size_t n = 0;
                const std::size_t most = random() % 3 == 0 ? 64 : random() % 200;
                while (n < most && !live.empty() && live.back().second == Order{0}) {
                  table.gave(live.back().first, Order{0});
                  bulk[n++] = page_at(live.back().first);
                  live.pop_back();
                }
                zone->free_bulk(bulk.data(), n);
                break;
              }
              case 2: {
                const std::size_t n = 1 + random() % 100;
                if (zone->alloc_exactly(bulk.data(), n, {.no_wait = random() % 2 == 0})) {
                  for (std::size_t i = 0; i < n; ++i) {
                    took(index_of(bulk[i]), Order{0});
                  }
                }
                break;
              }
              default:
                if (live.size() < 300 && random() % 2 == 0) {
                  const Order order{static_cast<unsigned>(random() % 6 == 0 ? random() % 4 : 0)};
                  const PageIndex page = zone->alloc(order, {});
                  if (is_page(page)) {
                    took(page, order);
                  }
                } else if (!live.empty()) {
                  std::swap(live[random() % live.size()], live.back());
                  table.gave(live.back().first, live.back().second);
                  zone->free(live.back().first, live.back().second);
                  live.pop_back();
                }
            }
            while (live.size() > 500) {
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
        for (std::uint32_t i = 0; !stop.load(); ++i) {
          switch (i % 4) {
            case 0:
              EXPECT_EQ(zone->drain_all().code, Errc::ok);
              break;
            case 1:
              zone->tick();
              break;
            default:
              EXPECT_EQ(zone->drain(CpuId{i % 2}).code, Errc::ok);
          }
          std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
      });
      for (std::thread& worker : workers) {
        worker.join();
      }
      stop.store(true);
      drainer.join();
    }
    EXPECT_EQ(table.violations(), 0U) << table.report();
    EXPECT_EQ(table.live_frames(), 0U);
    EXPECT_EQ(zone->census().out(), 0U);
    expect_depot_adds_up(*zone);
    expect_whole(*zone);
    EXPECT_EQ(zone->zone().free_blocks(kMaxOrder), frames / kMaxBlockFrames);
  }
}

// Its thread never comes back to the library: the drain takes what its CPU has all the same.
TEST_F(FlowTest, ADrainNeedsNothingFromAThreadThatSpinsForEver) {
  WEIR_NEEDS_REAL_CPUS(2);
  TestZone zone(kFrames);
  std::atomic<int> step{0};
  std::thread spinner([&] {
    const Pinned cpu(1);
    std::vector<PageIndex> pages(100);
    EXPECT_EQ(zone->alloc_bulk(pages.data(), 100, {}), 100U);
    free_all(*zone, pages);
    step.store(1);
    while (step.load(std::memory_order_relaxed) != 2) {
    }
  });
  while (step.load() != 1) {
    std::this_thread::yield();
  }
  {
    const Pinned cpu(0);
    const std::uint64_t there = zone->lists().cached(1);
    EXPECT_GE(there, 64U);
    for (int i = 0; i < 100; ++i) {
      const auto start = std::chrono::steady_clock::now();
      ASSERT_EQ(zone->drain(CpuId{1}).code, Errc::ok);
      ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
      ASSERT_EQ(zone->lists().cached(1), 0U);
    }
    EXPECT_EQ(zone->percpu_counters().drained, there);
    EXPECT_EQ(zone->census().out(), 0U);
  }
  step.store(2);
  spinner.join();
  expect_whole(*zone);
}

}  // namespace
}  // namespace weir
