// SPDX-License-Identifier: MIT
#include "weir/percpu/page_lists.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/zones.hpp"
#include "weir/base/failpoint.hpp"

namespace weir {
namespace {

using test::OnCpu;
using test::Pinned;
using test::TestZone;

constexpr PageCount kZone = whole_pages(1_GiB);  // only a number here: lists know no zone
constexpr std::uint32_t kHigh = 128;

// Lists of numbers: pages that nobody looks at. The table must stand, so that index 0 is not null.
struct Lists : PageLists {
  explicit Lists(std::uint32_t lists = 2, std::uint32_t high = kHigh, PageCount managed = kZone,
                 bool push_order0 = true, bool run = true) {
    { const TestZone table(1); }
    ListSizes sizes = high == 0 ? ListSizes{} : list_sizes(managed, lists, high);
    sizes.blocks[0] = high;
    if (open(lists, sizes, push_order0).failed()) {
      throw std::runtime_error("lists do not open");
    }
    for (std::uint32_t cpu = 0; run && cpu < lists; ++cpu) {
      start(CpuId{cpu});
    }
  }
  ~Lists() { close(); }

  // The bulk forms by number.
  std::uint32_t put(const std::vector<PageIndex>& in) {
    std::vector<Page*> pages;
    for (const PageIndex page : in) {
      pages.push_back(page_at(page));
    }
    return push_batch(pages.data(), static_cast<std::uint32_t>(pages.size()));
  }
  // In ascending order of number.
  std::vector<PageIndex> get(std::uint32_t n) {
    std::vector<Page*> pages(n);
    pages.resize(pop_batch(pages.data(), n));
    std::vector<PageIndex> out;
    for (const Page* page : pages) {
      out.push_back(index_of(page));
    }
    std::sort(out.begin(), out.end());
    return out;
  }
  std::vector<PageIndex> spilled(unsigned list, std::uint32_t n) {
    std::vector<PageIndex> out(n);
    out.resize(spill(list, out.data(), n));
    return out;
  }
  // One step of a harvest; the CPU must be stopped.
  std::vector<PageIndex> harvested(std::uint32_t cpu, std::uint32_t n = kClusterFrames) {
    Order order;
    std::vector<PageIndex> out(n);
    out.resize(harvest(CpuId{cpu}, out.data(), n, order));
    return out;
  }
};

std::vector<PageIndex> numbers(std::uint32_t from, std::uint32_t n) {
  std::vector<PageIndex> pages;
  for (std::uint32_t i = 0; i < n; ++i) {
    pages.push_back({from + i});
  }
  return pages;
}

void push_all(PageLists& lists, unsigned list, std::uint32_t from, std::uint32_t n) {
  for (std::uint32_t i = 0; i < n; ++i) {
    ASSERT_TRUE(lists.push(list, {from + i})) << i;
  }
}

struct PageListsTest : testing::Test {
  void SetUp() override {
    WEIR_NEEDS_LISTS;
    WEIR_NEEDS_CPUS(2);
  }
};

TEST(PageListsLayout, OrdersZeroToThreeAndThePageblockHaveALists) {
  EXPECT_EQ(kListOfOrder[0], 0);
  EXPECT_EQ(kListOfOrder[3], 3);
  EXPECT_EQ(kListOfOrder[9], 4);
  for (const unsigned order : {4, 5, 6, 7, 8, 10}) {
    EXPECT_EQ(kListOfOrder[order], kNoList);
  }
  for (unsigned list = 0; list < kListOrders; ++list) {
    EXPECT_EQ(kListOfOrder[order_of_list(list).value], list);
  }
}

TEST_F(PageListsTest, LastInFirstOut) {
  const OnCpu cpu(0);
  Lists lists;
  EXPECT_EQ(lists.pop(0), kNoPage);
  for (unsigned list = 0; list < kListOrders; ++list) {
    push_all(lists, list, 100 * list, 2);
  }
  for (unsigned list = 0; list < kListOrders; ++list) {
    EXPECT_EQ(lists.pop(list), PageIndex{100 * list + 1});
    EXPECT_TRUE(lists.push(list, {7}));
    EXPECT_EQ(lists.pop(list), PageIndex{7});
    EXPECT_EQ(lists.pop(list), PageIndex{100 * list});
    EXPECT_EQ(lists.pop(list), kNoPage);
  }
}

TEST_F(PageListsTest, RefusesWhenFullAndTakesAgainAfterAPop) {
  const OnCpu cpu(0);
  Lists lists;
  for (unsigned list = 0; list < kListOrders; ++list) {
    push_all(lists, list, 1000, lists.capacity(list));
    EXPECT_FALSE(lists.push(list, {1}));
    EXPECT_EQ(lists.pop(list), PageIndex{1000 + lists.capacity(list) - 1});
    EXPECT_TRUE(lists.push(list, {2}));
    EXPECT_FALSE(lists.push(list, {3}));
    EXPECT_EQ(lists.pop(list), PageIndex{2});
  }
}

TEST_F(PageListsTest, AnOrderWithoutAListIsEmptyAndFull) {
  const OnCpu cpu(0);
  Lists lists;
  EXPECT_EQ(lists.capacity(kNoList), 0U);
  EXPECT_EQ(lists.pop(kNoList), kNoPage);
  EXPECT_FALSE(lists.push(kNoList, {1}));
  EXPECT_EQ(lists.pop(kNoList), kNoPage);
}

TEST_F(PageListsTest, EachCpuHasItsOwn) {
  Lists lists;
  {
    const OnCpu cpu(0);
    push_all(lists, 0, 10, 2);
  }
  {
    const OnCpu cpu(1);
    EXPECT_EQ(lists.pop(0), kNoPage);
    push_all(lists, 0, 20, 1);
  }
  EXPECT_EQ(lists.cached(0), 2U);
  EXPECT_EQ(lists.cached(1), 1U);
  const OnCpu cpu(0);
  EXPECT_EQ(lists.pop(0), PageIndex{11});
}

// Everything a user can do with a list, none of which it must do.
void expect_gives_and_takes_nothing(Lists& lists, unsigned list) {
  EXPECT_FALSE(lists.push(list, {1}));
  EXPECT_EQ(lists.pop(list), kNoPage);
  EXPECT_EQ(lists.pop_slow(list), nullptr);
  EXPECT_FALSE(lists.push_slow(list, page_at({1})));
  const std::vector<PageIndex> some = numbers(5, 3);
  EXPECT_EQ(lists.refill(list, some.data(), 3), 0U);
  EXPECT_TRUE(lists.spilled(list, 64).empty());
  if (list == 0) {
    EXPECT_EQ(lists.put(some), 0U);
    EXPECT_TRUE(lists.get(3).empty());
    Page* pages[2] = {page_at({1}), page_at({2})};
    EXPECT_FALSE(lists.push_exactly(pages, 2));
    EXPECT_FALSE(lists.pop_exactly(pages, 2));
  }
}

TEST_F(PageListsTest, ACpuWithoutABlockIsEmptyAndFullForEver) {
  if (!kTestHooks) {
    GTEST_SKIP() << "needs fake CPU ids";
  }
  Lists lists;
  for (const std::uint32_t number : {2U, 3U, 150U, 8191U, 0x7fff'ffffU}) {
    const OnCpu cpu(number);
    expect_gives_and_takes_nothing(lists, 0);
    expect_gives_and_takes_nothing(lists, 3);
    EXPECT_EQ(lists.cpu_here(), kNoCpu);
    EXPECT_TRUE(lists.started_here());  // there is nothing to start
  }
}

TEST_F(PageListsTest, BatchesTakeTheHottestAndWhatFits) {
  const OnCpu cpu(0);
  Lists lists;
  EXPECT_EQ(lists.put({}), 0U);
  EXPECT_EQ(lists.put(numbers(0, 50)), 50U);
  EXPECT_EQ(lists.put(numbers(50, 50)), 50U);
  EXPECT_EQ(lists.put(numbers(100, 64)), kHigh - 100);  // what fits
  EXPECT_EQ(lists.put(numbers(0, 1)), 0U);
  EXPECT_TRUE(lists.get(0).empty());
  EXPECT_EQ(lists.get(28), numbers(100, 28));
  EXPECT_EQ(lists.get(64), numbers(36, 64));
  EXPECT_EQ(lists.get(64), numbers(0, 36));
  EXPECT_TRUE(lists.get(1).empty());
}

TEST_F(PageListsTest, ABatchAcrossTheRingsEndIsWhole) {
  const OnCpu cpu(0);
  Lists lists;
  // Each round moves the floor up by 48, or to the ring's end: at some time a batch lies across it.
  push_all(lists, 0, 0, kHigh);
  std::uint32_t next = kHigh;
  std::uint32_t oldest = 0;
  for (int round = 0; round < 50; ++round) {
    const auto left = static_cast<std::uint32_t>(lists.spilled(0, 48).size());
    ASSERT_GT(left, 0U);
    oldest += left;
    ASSERT_EQ(lists.cached(0), next - oldest);
    ASSERT_EQ(lists.put(numbers(next, left)), left) << round;
    next += left;
    ASSERT_EQ(lists.get(60), numbers(next - 60, 60)) << round;
    ASSERT_EQ(lists.put(numbers(next - 60, 60)), 60U) << round;
    ASSERT_FALSE(lists.push(0, {1}));
  }
}

TEST_F(PageListsTest, SpillTakesTheOldestAndOnlyFromAFullList) {
  const OnCpu cpu(0);
  Lists lists;
  push_all(lists, 0, 0, kHigh - 1);
  EXPECT_TRUE(lists.spilled(0, 64).empty());
  push_all(lists, 0, kHigh - 1, 1);
  EXPECT_EQ(lists.spilled(0, 64), numbers(0, 64));
  EXPECT_EQ(lists.cached(0), kHigh - 64);
  push_all(lists, 0, 500, 64);  // room for exactly what left
  EXPECT_FALSE(lists.push(0, {1}));
  EXPECT_EQ(lists.pop(0), PageIndex{563});
  EXPECT_TRUE(lists.push(0, {563}));
  EXPECT_EQ(lists.spilled(0, 64), numbers(64, 64));
}

TEST_F(PageListsTest, RefillTakesFromTheEndAndLeavesTheEndOnTop) {
  const OnCpu cpu(0);
  Lists lists;
  const std::vector<PageIndex> first = numbers(10, 40);
  EXPECT_EQ(lists.refill(0, first.data(), 0), 0U);
  EXPECT_EQ(lists.refill(0, first.data(), 40), 40U);
  EXPECT_EQ(lists.pop(0), PageIndex{49});
  EXPECT_EQ(lists.pop(0), PageIndex{48});
  const std::vector<PageIndex> second = numbers(100, 64);
  EXPECT_EQ(lists.refill(0, second.data(), 64), 64U);
  const std::vector<PageIndex> third = numbers(200, 64);
  EXPECT_EQ(lists.refill(0, third.data(), 64), 26U);  // 38 + 64 are inside
  EXPECT_EQ(lists.cached(0), kHigh);
  // Those that did not go in are the first of them.
  EXPECT_EQ(lists.get(26), numbers(238, 26));
  EXPECT_EQ(lists.pop(0), PageIndex{163});
}

TEST_F(PageListsTest, AListThatUsersMayNotPushToIsStillRefilledAndPopped) {
  const OnCpu cpu(0);
  Lists lists(2, kHigh, kZone, /*push_order0=*/false);
  EXPECT_FALSE(lists.push(0, {1}));
  EXPECT_EQ(lists.put(numbers(1, 1)), 0U);
  const std::vector<PageIndex> pages = numbers(0, 64);
  EXPECT_EQ(lists.refill(0, pages.data(), 64), 64U);
  EXPECT_FALSE(lists.push(0, {1}));
  EXPECT_EQ(lists.pop(0), PageIndex{63});
  EXPECT_TRUE(lists.push(1, {1}));  // single frames only
}

// ---- stopping, taking, starting ------------------------------------------------------------------

TEST_F(PageListsTest, HarvestTakesEverythingClusterByClusterOldestFirst) {
  Lists lists;
  {
    const OnCpu cpu(1);
    push_all(lists, 0, 0, 100);
    push_all(lists, 2, 1000, 20);
    push_all(lists, 4, 2000, 1);
  }
  EXPECT_EQ(lists.cached(1), 100U + 80 + 512);
  const OnCpu cpu(0);
  ASSERT_FALSE(lists.stop(CpuId{1}).failed());
  EXPECT_EQ(lists.cached(1), 100U + 80 + 512);  // a stop takes nothing
  std::vector<std::pair<unsigned, std::size_t>> steps;
  for (;;) {
    PageIndex pages[kClusterFrames];
    Order order;
    const std::uint32_t n = lists.harvest(CpuId{1}, pages, kClusterFrames, order);
    if (n == 0) {
      break;
    }
    if (steps.empty()) {
      EXPECT_EQ(std::vector<PageIndex>(pages, pages + n), numbers(0, 64));
    }
    EXPECT_TRUE(order == kPageblockOrder || n * frames_in(order) <= kClusterFrames);
    steps.emplace_back(order.value, n);
  }
  const std::vector<std::pair<unsigned, std::size_t>> expected{
      {0, 64}, {0, 36}, {2, 16}, {2, 4}, {9, 1}};
  EXPECT_EQ(steps, expected);
  EXPECT_EQ(lists.cached(1), 0U);
}

TEST_F(PageListsTest, AStoppedListGivesAndTakesNothing) {
  const OnCpu cpu(0);
  Lists lists;
  push_all(lists, 0, 0, 100);
  push_all(lists, 3, 1000, 3);
  ASSERT_FALSE(lists.stop(CpuId{0}).failed());
  for (unsigned list = 0; list < kListOrders; ++list) {
    expect_gives_and_takes_nothing(lists, list);
  }
  EXPECT_EQ(lists.cached(0), 124U);
  EXPECT_EQ(lists.harvested(0), numbers(0, 64));
  ASSERT_FALSE(lists.stop(CpuId{0}).failed());  // twice is once
  EXPECT_EQ(lists.harvested(0), numbers(64, 36));
  EXPECT_EQ(lists.harvested(0), numbers(1000, 3));
  EXPECT_TRUE(lists.harvested(0).empty());
  for (unsigned list = 0; list < kListOrders; ++list) {
    expect_gives_and_takes_nothing(lists, list);
  }
  lists.start(CpuId{0});
  push_all(lists, 0, 0, kHigh);
  EXPECT_FALSE(lists.push(0, {1}));
}

TEST_F(PageListsTest, AListGoesOnWithWhatAHarvestLeftInIt) {
  const OnCpu cpu(0);
  Lists lists;
  push_all(lists, 0, 0, kHigh);
  ASSERT_FALSE(lists.stop(CpuId{0}).failed());
  EXPECT_EQ(lists.harvested(0), numbers(0, 64));
  lists.start(CpuId{0});
  push_all(lists, 0, 1000, 64);
  EXPECT_FALSE(lists.push(0, {1}));
  EXPECT_EQ(lists.pop(0), PageIndex{1063});
  EXPECT_EQ(lists.get(63), numbers(1000, 63));
  EXPECT_EQ(lists.pop(0), PageIndex{127});
}

TEST_F(PageListsTest, StopsOfOneCpuLeaveTheOthersRunning) {
  Lists lists;
  ASSERT_FALSE(lists.stop(CpuId{1}).failed());
  {
    const OnCpu cpu(0);
    push_all(lists, 0, 0, 5);
  }
  {
    const OnCpu cpu(1);
    expect_gives_and_takes_nothing(lists, 0);
  }
  ASSERT_FALSE(lists.stop_all().failed());
  {
    const OnCpu cpu(0);
    expect_gives_and_takes_nothing(lists, 0);
  }
  lists.start_all();
  for (const std::uint32_t number : {0U, 1U}) {
    const OnCpu cpu(number);
    push_all(lists, 0, 100 * number + 10, 5);
    EXPECT_EQ(lists.pop(0), PageIndex{100 * number + 14});
  }
  EXPECT_EQ(lists.cached(0), 9U);
}

TEST_F(PageListsTest, AListIsStoppedUntilItIsStarted) {
  const OnCpu cpu(0);
  Lists lists(2, kHigh, kZone, true, /*run=*/false);
  for (unsigned list = 0; list < kListOrders; ++list) {
    expect_gives_and_takes_nothing(lists, list);
  }
  EXPECT_FALSE(lists.started_here());
  EXPECT_FALSE(lists.is_started(CpuId{0}));
  EXPECT_EQ(lists.next_started(0), kNoCpu);
  // Drainers find nothing, and start nothing.
  EXPECT_FALSE(lists.stop_all().failed());
  EXPECT_TRUE(lists.harvested(0).empty());
  lists.start_all();
  expect_gives_and_takes_nothing(lists, 0);
  lists.start(CpuId{0});
  EXPECT_TRUE(lists.started_here());
  push_all(lists, 0, 0, kHigh);
}

TEST_F(PageListsTest, StartedCpusAreFoundWhereverTheyAre) {
  Lists lists(384, kHigh, whole_pages(64_GiB), true, /*run=*/false);
  for (const std::uint32_t cpu : {0U, 63U, 64U, 127U, 200U, 383U}) {
    lists.start(CpuId{cpu});
  }
  std::vector<std::uint32_t> found;
  for (CpuId cpu = lists.next_started(0); cpu != kNoCpu; cpu = lists.next_started(cpu.value + 1)) {
    found.push_back(cpu.value);
  }
  EXPECT_EQ(found, (std::vector<std::uint32_t>{0, 63, 64, 127, 200, 383}));
  EXPECT_EQ(lists.next_started(384), kNoCpu);
  EXPECT_FALSE(lists.is_started(CpuId{1}));
  EXPECT_FALSE(lists.is_started(CpuId{384}));
  EXPECT_FALSE(lists.is_started(kNoCpu));
}

TEST_F(PageListsTest, ListsOfCapacityZeroAreEmptyAndFull) {
  const OnCpu cpu(0);
  Lists lists(2, 0);
  for (unsigned list = 0; list <= kListOrders; ++list) {
    EXPECT_EQ(lists.capacity(list), 0U);
    EXPECT_FALSE(lists.push(list, {1}));
    EXPECT_EQ(lists.pop(list), kNoPage);
  }
  EXPECT_FALSE(lists.is_started(CpuId{1}));
  EXPECT_FALSE(lists.stop_all().failed());
  EXPECT_TRUE(lists.harvested(1).empty());
}

TEST(PageListsLayout, WithoutListsInTheProcessAZoneHasNone) {
  if (list_mode().form != ListForm::off) {
    GTEST_SKIP() << "for WEIR_LISTS=off";
  }
  const OnCpu cpu(0);
  Lists lists;
  for (unsigned list = 0; list <= kListOrders; ++list) {
    EXPECT_EQ(lists.capacity(list), 0U);
    EXPECT_FALSE(lists.push(list, {1}));
    EXPECT_EQ(lists.pop(list), kNoPage);
  }
  EXPECT_FALSE(lists.usable_here());
}

TEST_F(PageListsTest, ABusyListRefusesAndKeepsWhatItHas) {
  if (!kTestHooks) {
    GTEST_SKIP() << "needs failpoints";
  }
  const OnCpu cpu(0);
  Lists lists;
  push_all(lists, 0, 0, 10);
  failpoints::fail_always(Failpoint::list_busy);
  expect_gives_and_takes_nothing(lists, 0);
  failpoints::reset();
  EXPECT_EQ(lists.cached(0), 10U);
  EXPECT_EQ(lists.pop(0), PageIndex{9});
}

// ---- capacity ------------------------------------------------------------------------------------

TEST_F(PageListsTest, ANewCapacityCountsFromTheNextStart) {
  const OnCpu cpu(0);
  Lists lists;
  push_all(lists, 0, 0, kHigh);
  lists.set_capacity(CpuId{0}, 0, 192);
  EXPECT_EQ(lists.capacity(CpuId{0}, 0), 192U);
  EXPECT_EQ(lists.capacity(CpuId{1}, 0), kHigh);
  EXPECT_EQ(lists.capacity(0), kHigh);  // what a list starts with
  EXPECT_FALSE(lists.push(0, {1}));
  ASSERT_FALSE(lists.stop(CpuId{0}).failed());
  lists.start(CpuId{0});
  push_all(lists, 0, 200, 64);
  EXPECT_FALSE(lists.push(0, {1}));
  // Less than it holds: it takes nothing until it has fallen below, and loses nothing.
  lists.set_capacity(CpuId{0}, 0, 64);
  ASSERT_FALSE(lists.stop(CpuId{0}).failed());
  lists.start(CpuId{0});
  EXPECT_EQ(lists.cached(0), 192U);
  EXPECT_FALSE(lists.push(0, {1}));
  EXPECT_EQ(lists.get(64), numbers(200, 64));
  EXPECT_EQ(lists.get(64), numbers(64, 64));
  EXPECT_FALSE(lists.push(0, {1}));
  EXPECT_EQ(lists.pop(0), PageIndex{63});
  EXPECT_TRUE(lists.push(0, {63}));
  EXPECT_FALSE(lists.push(0, {1}));
}

TEST_F(PageListsTest, ARunningListTakesOverANewCapacityOnItsOwnCpu) {
  const OnCpu cpu(0);
  Lists lists;
  push_all(lists, 0, 0, kHigh);
  lists.set_capacity(CpuId{0}, 0, 256);
  lists.apply_capacity(0);
  push_all(lists, 0, kHigh, 128);
  EXPECT_FALSE(lists.push(0, {1}));
  EXPECT_EQ(lists.spilled(0, 64), numbers(0, 64));
  lists.set_capacity(CpuId{0}, 0, 64);
  lists.apply_capacity(0);
  EXPECT_FALSE(lists.push(0, {1}));
  EXPECT_EQ(lists.cached(0), 192U);
}

TEST_F(PageListsTest, AStoppedListDoesNotStartByTakingOverACapacity) {
  const OnCpu cpu(0);
  Lists lists;
  ASSERT_FALSE(lists.stop(CpuId{0}).failed());
  lists.set_capacity(CpuId{0}, 0, 256);
  lists.apply_capacity(0);
  expect_gives_and_takes_nothing(lists, 0);
  lists.start(CpuId{0});
  push_all(lists, 0, 0, 256);
}

TEST_F(PageListsTest, ACapacityNeverExceedsTheRing) {
  const OnCpu cpu(0);
  Lists lists(2, 1'000'000);
  EXPECT_EQ(lists.capacity(0), kListCapacityMax);
  lists.set_capacity(CpuId{0}, 0, 1'000'000);
  EXPECT_EQ(lists.capacity(CpuId{0}, 0), kListCapacityMax);
  push_all(lists, 0, 0, kListCapacityMax);
  EXPECT_FALSE(lists.push(0, {1}));
  EXPECT_EQ(lists.get(64), numbers(kListCapacityMax - 64, 64));
  for (unsigned list = 1; list < kListOrders; ++list) {
    EXPECT_LE(lists.capacity(list), kRingPlaces[list]);
  }
}

// ---- counters ------------------------------------------------------------------------------------

TEST_F(PageListsTest, CountersSayWhatMoved) {
  const OnCpu cpu(0);
  Lists lists;
  const std::vector<PageIndex> pages = numbers(0, 64);
  ASSERT_EQ(lists.refill(0, pages.data(), 64), 64U);
  push_all(lists, 0, 100, 64);
  ASSERT_EQ(lists.spilled(0, 64).size(), 64U);
  static_cast<void>(lists.pop(0));
  static_cast<void>(lists.pop(3));  // found nothing
  ASSERT_EQ(lists.get(10).size(), 10U);
  ASSERT_EQ(lists.put(numbers(0, 4)), 4U);
  ASSERT_FALSE(lists.stop(CpuId{0}).failed());
  const std::size_t drained = lists.harvested(0).size();
  EXPECT_EQ(drained, 57U);
  const PercpuCounterValues counters = lists.counters(0);
  EXPECT_EQ(counters.refills, 1U);
  EXPECT_EQ(counters.refilled, 64U);
  EXPECT_EQ(counters.pushes, 68U);
  EXPECT_EQ(counters.pops, 11U);
  EXPECT_EQ(counters.spills, 1U);
  EXPECT_EQ(counters.spilled, 64U);
  EXPECT_EQ(counters.drained, drained);
  EXPECT_EQ(lists.counters(1).pushes, 0U);
}

TEST_F(PageListsTest, CountersStayRightOverManyTurnsOfTheRing) {
  const OnCpu cpu(0);
  Lists lists;
  std::uint64_t pushes = 0;
  std::uint64_t pops = 0;
  std::uint64_t spilled = 0;
  std::uint64_t drained = 0;
  std::mt19937 random(3);
  for (int step = 0; step < 20'000; ++step) {
    if (lists.push(0, {1})) {
      ++pushes;
    } else {
      spilled += lists.spilled(0, 64).size();
    }
    if (random() % 3 == 0 && is_page(lists.pop(0))) {
      ++pops;
    }
    if (step % 500 == 0) {
      ASSERT_FALSE(lists.stop(CpuId{0}).failed());
      drained += lists.harvested(0).size();
      lists.start(CpuId{0});
    }
  }
  const PercpuCounterValues counters = lists.counters(0);
  EXPECT_EQ(counters.pushes, pushes);
  EXPECT_EQ(counters.pops, pops);
  EXPECT_EQ(counters.spilled, spilled);
  EXPECT_EQ(counters.drained, drained);
  EXPECT_EQ(lists.cached(0), pushes - pops - spilled - drained);
}

TEST_F(PageListsTest, NeverHoldsMoreThanItsCapacityAndLosesNothingInARandomRun) {
  const OnCpu cpu(0);
  for (const std::uint32_t high : {2U, 3U, 5U, 127U, 128U, 129U, 256U}) {
    // In a zone for whole clusters, or for clusters of one frame.
    const PageCount managed = high < 127 ? PageCount{32} : kZone;
    Lists lists(2, high, managed);
    SCOPED_TRACE(testing::Message() << "high " << high);
    const std::uint32_t cluster = lists.cluster();
    std::mt19937 random(high);
    std::deque<PageIndex> model;  // oldest first
    std::uint32_t next = 0;
    const auto oldest = [&model](std::size_t n) {
      std::vector<PageIndex> pages(model.begin(), model.begin() + static_cast<std::ptrdiff_t>(n));
      model.erase(model.begin(), model.begin() + static_cast<std::ptrdiff_t>(n));
      return pages;
    };
    for (int step = 0; step < 20'000; ++step) {
      const auto n = static_cast<std::uint32_t>(random() % (kClusterFrames + 1));
      switch (random() % 8) {
        case 0: {
          const bool room = model.size() < high;
          ASSERT_EQ(lists.push(0, {next}), room);
          if (room) {
            model.push_back({next++});
          }
          break;
        }
        case 1: {
          const PageIndex expected = model.empty() ? kNoPage : model.back();
          ASSERT_EQ(lists.pop(0), expected);
          if (!model.empty()) {
            model.pop_back();
          }
          break;
        }
        case 2: {
          const std::uint32_t put = lists.put(numbers(next, n));
          ASSERT_EQ(put, std::min<std::size_t>(n, high - model.size()));
          for (std::uint32_t i = 0; i < put; ++i) {
            model.push_back({next++});
          }
          break;
        }
        case 3: {
          const std::vector<PageIndex> got = lists.get(n);
          ASSERT_EQ(got.size(), std::min<std::size_t>(n, model.size()));
          for (std::size_t i = got.size(); i-- != 0;) {
            ASSERT_EQ(got[i], model.back());  // numbers grow from the oldest to the hottest
            model.pop_back();
          }
          break;
        }
        case 4: {
          const bool full = model.size() == high;
          const std::vector<PageIndex> got = lists.spilled(0, cluster);
          // Less than a cluster only at the ring's end.
          ASSERT_EQ(!got.empty(), full);
          ASSERT_LE(got.size(), cluster);
          ASSERT_EQ(got, oldest(got.size()));
          break;
        }
        case 5: {
          const std::vector<PageIndex> pages = numbers(next, n);
          const std::uint32_t taken = lists.refill(0, pages.data(), n);
          ASSERT_EQ(taken, std::min<std::size_t>(n, high - model.size()));
          // The last of them, whatever the order inside.
          std::vector<PageIndex> in = lists.get(taken);
          ASSERT_EQ(in, numbers(next + n - taken, taken));
          ASSERT_EQ(lists.put(in), taken);
          model.insert(model.end(), in.begin(), in.end());
          next += n;
          break;
        }
        case 6: {
          Page* pages[kClusterFrames];
          const std::uint32_t most = std::clamp<std::uint32_t>(n, 1, cluster);
          if (lists.pop_exactly(pages, most)) {
            ASSERT_GE(model.size(), most);
            for (std::uint32_t i = most; i-- != 0;) {
              ASSERT_EQ(index_of(pages[i]), model.back());  // the hottest last
              model.pop_back();
            }
            ASSERT_TRUE(lists.push_exactly(pages, most));
            for (std::uint32_t i = 0; i < most; ++i) {
              model.push_back(index_of(pages[i]));
            }
          }
          break;
        }
        default: {
          ASSERT_FALSE(lists.stop(CpuId{0}).failed());
          const std::vector<PageIndex> got = lists.harvested(0, 1 + n);
          ASSERT_EQ(got.size(), std::min<std::size_t>(model.size(), 1 + n));
          ASSERT_EQ(got, oldest(got.size()));
          ASSERT_FALSE(lists.push(0, {1}));
          lists.start(CpuId{0});
        }
      }
      ASSERT_EQ(lists.cached(0), model.size());
      ASSERT_LE(model.size(), high);
    }
  }
}

// ---- several threads -----------------------------------------------------------------------------

// Each of kPages pages is pushed once by some owner, and ends with exactly one of those who popped it
// or drained it.
struct Ledger {
  explicit Ledger(std::uint32_t pages) : seen(pages) {}
  void got(PageIndex page) { seen[page.value].fetch_add(1, std::memory_order_relaxed); }
  void expect_each_once() const {
    for (std::size_t i = 0; i < seen.size(); ++i) {
      ASSERT_EQ(seen[i].load(), 1U) << "page " << i;
    }
  }
  std::vector<std::atomic<std::uint32_t>> seen;
};

// Pushes the pages from `from` to `to`, singly, in batches and as refills, popping and spilling in
// between; keeps at it until all have found a place.
void work_through(Lists& lists, Ledger& ledger, std::uint32_t from, std::uint32_t to) {
  std::mt19937 random(from);
  while (from < to) {
    const std::uint32_t n = std::min<std::uint32_t>(to - from, 1 + random() % 64);
    switch (random() % 6) {
      case 0: {
        const std::vector<PageIndex> pages = numbers(from, n);
        const std::uint32_t put = lists.refill(0, pages.data(), n);
        // The last went in; the first are kept by the test.
        for (std::uint32_t i = 0; i < n - put; ++i) {
          ledger.got(pages[i]);
        }
        from += n;
        break;
      }
      case 1:
        from += lists.put(numbers(from, n));
        break;
      case 2:
        for (const PageIndex page : lists.get(n)) {
          ledger.got(page);
        }
        break;
      case 3: {
        for (const PageIndex page : lists.spilled(0, 64)) {
          ledger.got(page);
        }
        break;
      }
      case 4: {
        const PageIndex page = lists.pop(0);
        if (is_page(page)) {
          ledger.got(page);
        }
        break;
      }
      default:
        from += lists.push(0, {from}) ? 1 : 0;
    }
  }
}

void drain_into(Lists& lists, Ledger& ledger, std::uint32_t cpu) {
  ASSERT_FALSE(lists.stop(CpuId{cpu}).failed());
  for (std::vector<PageIndex> pages; !(pages = lists.harvested(cpu)).empty();) {
    for (const PageIndex page : pages) {
      ledger.got(page);
    }
  }
  lists.start(CpuId{cpu});
}

TEST_F(PageListsTest, ADrainerAndAnOwnerShareNothing) {
  Lists lists;
  constexpr std::uint32_t kPages = 200'000;
  Ledger ledger(kPages);
  std::atomic<bool> done{false};
  std::thread owner([&] {
    const OnCpu cpu(0);
    work_through(lists, ledger, 0, kPages);
    done.store(true);
  });
  for (bool last = false; !last;) {
    last = done.load();
    drain_into(lists, ledger, 0);
  }
  owner.join();
  ledger.expect_each_once();
}

// In the form of sections: two threads on each of two real CPUs, which preempt each other inside
// sections, and a drainer that stops one list, the other, or both.
TEST_F(PageListsTest, ThreadsOfOneCpuAndADrainerShareNothing) {
  WEIR_NEEDS_REAL_CPUS(2);
  Lists lists;
  constexpr std::uint32_t kPages = 100'000;
  Ledger ledger(4 * kPages);
  std::atomic<int> done{0};
  std::vector<std::thread> owners;
  for (std::uint32_t t = 0; t < 4; ++t) {
    owners.emplace_back([&, t] {
      const Pinned cpu(t % 2);
      work_through(lists, ledger, t * kPages, (t + 1) * kPages);
      done.fetch_add(1);
    });
  }
  for (bool last = false; !last;) {
    last = done.load() == 4;
    drain_into(lists, ledger, 0);
    drain_into(lists, ledger, 1);
    ASSERT_FALSE(lists.stop_all().failed());
    lists.start_all();
    std::this_thread::yield();
  }
  for (std::thread& owner : owners) {
    owner.join();
  }
  ledger.expect_each_once();
}

// The same where threads are moved from CPU to CPU all the time, in the middle of everything.
TEST_F(PageListsTest, ThreadsThatAreMovedAboutLoseNothing) {
  WEIR_NEEDS_REAL_CPUS(2);
  Lists lists;
  constexpr std::uint32_t kPages = 100'000;
  Ledger ledger(3 * kPages);
  std::atomic<int> done{0};
  std::vector<std::thread> owners;
  std::vector<std::atomic<pid_t>> ids(3);
  for (std::uint32_t t = 0; t < 3; ++t) {
    owners.emplace_back([&, t] {
      ids[t].store(::gettid());
      work_through(lists, ledger, t * kPages, (t + 1) * kPages);
      done.fetch_add(1);
    });
  }
  std::uint32_t turn = 0;
  for (bool last = false; !last; ++turn) {
    last = done.load() == 3;
    for (std::uint32_t t = 0; t < 3; ++t) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET((turn + t) % 2, &one);
      if (ids[t].load() != 0) {
        ::sched_setaffinity(ids[t].load(), sizeof one, &one);  // fails for one that has ended
      }
    }
    if (turn % 4 == 0 || last) {
      drain_into(lists, ledger, 0);
      drain_into(lists, ledger, 1);
    }
  }
  for (std::thread& owner : owners) {
    owner.join();
  }
  ledger.expect_each_once();
}

// ---- memory --------------------------------------------------------------------------------------

// Bytes of a range that are resident.
std::uint64_t resident(const std::byte* from, Bytes size) {
  std::vector<unsigned char> map(size.value / kFrameBytes);
  EXPECT_EQ(::mincore(const_cast<std::byte*>(from), size.value, map.data()), 0);
  std::uint64_t frames = 0;
  for (const unsigned char frame : map) {
    frames += frame & 1U;
  }
  return frames * kFrameBytes;
}

TEST_F(PageListsTest, MemoryGrowsWithTheCpusInUseNotWithThoseThatMayAppear) {
  for (const std::uint32_t count : {2U, 64U, 384U}) {
    SCOPED_TRACE(count);
    Lists lists(count, kHigh, whole_pages(64_GiB), true, /*run=*/false);
    EXPECT_GE(lists.reserved(), Bytes{count * arch::kBlockBytes});
    EXPECT_EQ(lists.touched(), Bytes{0});
    const std::byte* const memory =
        reinterpret_cast<const std::byte*>(&lists.block(0)) - 2 * arch::kBlockBytes;
    // What anybody's section may have looked at: nothing has been written.
    EXPECT_EQ(resident(memory, lists.reserved()), 0U);
    for (const std::uint32_t number : {0U, 1U}) {
      lists.start(CpuId{number});
      const OnCpu cpu(number);
      push_all(lists, 0, 0, kHigh);
      EXPECT_EQ(lists.spilled(0, 64).size(), 64U);
    }
    EXPECT_EQ(lists.touched(), Bytes{2 * arch::kBlockBytes});
    // In the locked form sections look at blocks of their own, which never hold anything.
    const std::uint64_t looked_at =
        kTestHooks || lists.blocks() == reinterpret_cast<const std::byte*>(&lists.block(0))
            ? 0
            : 2 * kFrameBytes;
    EXPECT_EQ(resident(memory, lists.reserved()), 2 * kFrameBytes + looked_at);
    // A drain of all looks at those that are in use alone.
    ASSERT_FALSE(lists.stop_all().failed());
    while (!lists.harvested(0).empty() || !lists.harvested(1).empty()) {
    }
    lists.start_all();
    EXPECT_EQ(resident(memory, lists.reserved()), 2 * kFrameBytes + looked_at);
  }
}

}  // namespace
}  // namespace weir
