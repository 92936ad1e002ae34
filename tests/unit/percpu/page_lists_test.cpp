// SPDX-License-Identifier: MIT
#include "weir/percpu/page_lists.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/zones.hpp"
#include "weir/base/failpoint.hpp"

namespace weir {
namespace {

using test::OnCpu;

constexpr PageCount kZone = whole_pages(1_GiB);  // only a number here: lists know no zone
constexpr std::uint32_t kHigh = 128;

struct Lists : PageLists {
  explicit Lists(std::uint32_t lists = 2, std::uint32_t high = kHigh, PageCount managed = kZone,
                 bool push_order0 = true, bool run = true) {
    if (open(managed, lists, high, push_order0).failed() || (run && !start())) {
      throw std::runtime_error("lists do not open");
    }
  }
  ~Lists() { close(); }
};

std::vector<PageIndex> numbers(std::uint32_t from, std::uint32_t n) {
  std::vector<PageIndex> pages;
  for (std::uint32_t i = 0; i < n; ++i) {
    pages.push_back({from + i});
  }
  return pages;
}

std::vector<PageIndex> content_of(const Hand& hand) {
  return {hand.frames + hand.begin, hand.frames + hand.end};
}

void fill(Hand& hand, std::uint32_t from, std::uint32_t n, Order order = Order{0}) {
  hand.order = order;
  hand.begin = 0;
  hand.end = n;
  for (std::uint32_t i = 0; i < n; ++i) {
    hand.frames[i] = {from + i};
  }
}

void push_all(PageLists& lists, unsigned list, std::uint32_t from, std::uint32_t n) {
  for (std::uint32_t i = 0; i < n; ++i) {
    ASSERT_TRUE(lists.push(list, {from + i})) << i;
  }
}

TEST(PageLists, OrdersZeroToThreeAndThePageblockHaveALists) {
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

TEST(PageLists, LastInFirstOut) {
  const OnCpu cpu(0);
  Lists lists;
  EXPECT_EQ(lists.pop(0), kNoPage);
  for (unsigned list = 0; list < kListOrders; ++list) {
    push_all(lists, list, 100 * list, 3);
  }
  for (unsigned list = 0; list < kListOrders; ++list) {
    EXPECT_EQ(lists.pop(list), PageIndex{100 * list + 2});
    EXPECT_EQ(lists.pop(list), PageIndex{100 * list + 1});
    EXPECT_TRUE(lists.push(list, {7}));
    EXPECT_EQ(lists.pop(list), PageIndex{7});
    EXPECT_EQ(lists.pop(list), PageIndex{100 * list});
    EXPECT_EQ(lists.pop(list), kNoPage);
  }
}

TEST(PageLists, RefusesWhenFullAndTakesAgainAfterAPop) {
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

TEST(PageLists, AnOrderWithoutAListIsEmptyAndFull) {
  const OnCpu cpu(0);
  Lists lists;
  EXPECT_EQ(lists.capacity(kNoList), 0U);
  EXPECT_EQ(lists.pop(kNoList), kNoPage);
  EXPECT_FALSE(lists.push(kNoList, {1}));
  EXPECT_EQ(lists.pop(kNoList), kNoPage);
}

TEST(PageLists, EachCpuHasItsOwn) {
  WEIR_NEEDS_CPUS(2);
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

TEST(PageLists, ACpuWithoutABlockIsEmptyAndFullForEver) {
  if (!kTestHooks) {
    GTEST_SKIP() << "needs fake CPU ids";
  }
  Lists lists;
  for (const std::uint32_t number : {2U, 3U, 150U, 8191U, 0x7fff'ffffU}) {
    const OnCpu cpu(number);
    EXPECT_FALSE(lists.push(0, {1}));
    EXPECT_EQ(lists.pop(0), kNoPage);
    PageIndex page{5};
    EXPECT_EQ(lists.push_batch(&page, 1), 0U);
    EXPECT_EQ(lists.pop_batch(&page, 1), 0U);
    Hand hand;
    fill(hand, 0, 3);
    lists.refill_from(hand, 0);
    EXPECT_EQ(hand.size(), 3U);
    hand.clear();
    lists.spill_into(hand, 0, 64);
    EXPECT_TRUE(hand.empty());
  }
}

TEST(PageLists, BatchesAreMovedInOrder) {
  const OnCpu cpu(0);
  Lists lists;
  const std::vector<PageIndex> in = numbers(0, 200);
  EXPECT_EQ(lists.push_batch(in.data(), 0), 0U);
  EXPECT_EQ(lists.push_batch(in.data(), 100), 100U);
  EXPECT_EQ(lists.push_batch(in.data() + 100, 100), kHigh - 100);  // what fits
  EXPECT_EQ(lists.push_batch(in.data(), 1), 0U);
  std::vector<PageIndex> out(200, kNoPage);
  EXPECT_EQ(lists.pop_batch(out.data(), 0), 0U);
  EXPECT_EQ(lists.pop_batch(out.data(), 28), 28U);
  EXPECT_EQ(out[0], PageIndex{127});  // the hottest first
  EXPECT_EQ(out[27], PageIndex{100});
  EXPECT_EQ(lists.pop_batch(out.data(), 200), 100U);
  EXPECT_EQ(out[0], PageIndex{99});
  EXPECT_EQ(out[99], PageIndex{0});
  EXPECT_EQ(lists.pop_batch(out.data(), 1), 0U);
}

TEST(PageLists, SpillTakesTheOldestAndOnlyFromAFullList) {
  const OnCpu cpu(0);
  Lists lists;
  push_all(lists, 0, 0, kHigh - 1);
  Hand hand;
  lists.spill_into(hand, 0, 64);
  EXPECT_TRUE(hand.empty());
  push_all(lists, 0, kHigh - 1, 1);
  lists.spill_into(hand, 0, 64);
  EXPECT_EQ(content_of(hand), numbers(0, 64));
  EXPECT_EQ(Order{hand.order}, Order{0});
  EXPECT_EQ(lists.cached(0), kHigh - 64);
  push_all(lists, 0, 500, 64);  // room for exactly what left
  EXPECT_FALSE(lists.push(0, {1}));
  EXPECT_EQ(lists.pop(0), PageIndex{563});
  hand.clear();
  EXPECT_TRUE(lists.push(0, {563}));
  lists.spill_into(hand, 0, 64);
  EXPECT_EQ(content_of(hand), numbers(64, 64));
}

TEST(PageLists, RefillPutsTheTopOfTheHandOnTop) {
  const OnCpu cpu(0);
  Lists lists;
  Hand hand;
  fill(hand, 10, 40);
  lists.refill_from(hand, 0);
  EXPECT_TRUE(hand.empty());
  EXPECT_EQ(lists.pop(0), PageIndex{49});
  fill(hand, 100, 64);
  lists.refill_from(hand, 0);
  ASSERT_TRUE(hand.empty());
  fill(hand, 200, 64);
  lists.refill_from(hand, 0);  // 39 + 64 are inside: 25 fit
  EXPECT_EQ(content_of(hand), numbers(225, 39));
  EXPECT_EQ(lists.pop(0), PageIndex{224});
}

TEST(PageLists, AListThatUsersMayNotPushToIsStillRefilledAndPopped) {
  const OnCpu cpu(0);
  Lists lists(2, kHigh, kZone, /*push_order0=*/false);
  EXPECT_FALSE(lists.push(0, {1}));
  PageIndex page{1};
  EXPECT_EQ(lists.push_batch(&page, 1), 0U);
  Hand hand;
  fill(hand, 0, 64);
  lists.refill_from(hand, 0);
  EXPECT_TRUE(hand.empty());
  EXPECT_FALSE(lists.push(0, {1}));
  EXPECT_EQ(lists.pop(0), PageIndex{63});
  EXPECT_TRUE(lists.push(1, {1}));  // single frames only
}

TEST(PageLists, HarvestTakesEverythingClusterByClusterOldestFirst) {
  WEIR_NEEDS_CPUS(2);
  Lists lists;
  {
    const OnCpu cpu(1);
    push_all(lists, 0, 0, 100);
    push_all(lists, 2, 1000, 20);
    push_all(lists, 4, 2000, 1);
  }
  EXPECT_EQ(lists.cached(1), 100U + 80 + 512);
  const OnCpu cpu(0);
  std::vector<std::pair<unsigned, std::size_t>> steps;
  for (;;) {
    Hand hand;
    ASSERT_TRUE(lists.harvest(1, false, hand));
    if (hand.empty()) {
      break;
    }
    if (steps.empty()) {
      EXPECT_EQ(content_of(hand), numbers(0, 64));
    }
    EXPECT_TRUE(Order{hand.order} == kPageblockOrder || hand.frame_count() <= kClusterFrames);
    steps.emplace_back(Order{hand.order}.value, hand.size());
  }
  const std::vector<std::pair<unsigned, std::size_t>> expected{
      {0, 64}, {0, 36}, {2, 16}, {2, 4}, {9, 1}};
  EXPECT_EQ(steps, expected);
  EXPECT_EQ(lists.cached(1), 0U);
}

TEST(PageLists, AListRunsOnAfterAHarvestThatDoesNotStopIt) {
  const OnCpu cpu(0);
  Lists lists;
  push_all(lists, 0, 0, kHigh);
  Hand hand;
  ASSERT_TRUE(lists.harvest(0, false, hand));
  push_all(lists, 0, 1000, 64);
  EXPECT_FALSE(lists.push(0, {1}));
  EXPECT_EQ(lists.pop(0), PageIndex{1063});
}

// Everything that puts pages into a list.
void expect_takes_nothing(PageLists& lists, unsigned list) {
  EXPECT_FALSE(lists.push(list, {1}));
  PageIndex page{1};
  EXPECT_EQ(lists.push_batch(&page, 1), 0U);
  Hand hand;
  fill(hand, 0, 2, order_of_list(list));
  lists.refill_from(hand, list);
  EXPECT_EQ(hand.size(), 2U);
}

TEST(PageLists, AStoppedListTakesNothingAndGivesWhatItStillHas) {
  const OnCpu cpu(0);
  Lists lists;
  push_all(lists, 0, 0, 100);
  push_all(lists, 3, 1000, 3);
  Hand hand;
  ASSERT_TRUE(lists.harvest(0, true, hand));
  EXPECT_EQ(hand.size(), 64U);
  expect_takes_nothing(lists, 0);
  expect_takes_nothing(lists, 3);
  EXPECT_EQ(lists.pop(0), PageIndex{99});
  EXPECT_EQ(lists.pop(3), PageIndex{1002});
  hand.clear();
  ASSERT_TRUE(lists.harvest(0, true, hand));
  EXPECT_EQ(content_of(hand), numbers(64, 35));
  hand.clear();
  ASSERT_TRUE(lists.harvest(0, true, hand));
  EXPECT_EQ(hand.size(), 2U);
  hand.clear();
  ASSERT_TRUE(lists.harvest(0, true, hand));
  EXPECT_TRUE(hand.empty());
  for (unsigned list = 0; list < kListOrders; ++list) {
    expect_takes_nothing(lists, list);
    EXPECT_EQ(lists.pop(list), kNoPage);
  }
  ASSERT_TRUE(lists.start());
  push_all(lists, 0, 0, kHigh);
  EXPECT_FALSE(lists.push(0, {1}));
}

TEST(PageLists, ASpillDoesNotStartAListThatIsBeingStopped) {
  const OnCpu cpu(0);
  Lists lists;
  push_all(lists, 0, 0, kHigh);
  Hand harvested;
  ASSERT_TRUE(lists.harvest(0, true, harvested));
  ASSERT_EQ(harvested.size(), 64U);
  // A thread that found the list full a moment ago comes to make room.
  Hand hand;
  lists.spill_into(hand, 0, 32);
  expect_takes_nothing(lists, 0);
  // Wherever the pages are, there are as many as before.
  EXPECT_EQ(lists.cached(0) + hand.size() + harvested.size(), kHigh);
}

TEST(PageLists, AListIsStoppedUntilItIsStarted) {
  const OnCpu cpu(0);
  Lists lists(2, kHigh, kZone, true, /*run=*/false);
  for (unsigned list = 0; list < kListOrders; ++list) {
    expect_takes_nothing(lists, list);
  }
}

TEST(PageLists, ListsOfCapacityZeroAreEmptyAndFull) {
  const OnCpu cpu(0);
  Lists lists(2, 0);
  for (unsigned list = 0; list <= kListOrders; ++list) {
    EXPECT_EQ(lists.capacity(list), 0U);
    EXPECT_FALSE(lists.push(list, {1}));
    EXPECT_EQ(lists.pop(list), kNoPage);
  }
  Hand hand;
  EXPECT_TRUE(lists.harvest(1, true, hand));
  EXPECT_TRUE(hand.empty());
}

TEST(PageLists, ABusyListIsTold) {
  if (!kTestHooks) {
    GTEST_SKIP() << "needs failpoints";
  }
  const OnCpu cpu(0);
  Lists lists;
  push_all(lists, 0, 0, 10);
  failpoints::fail_always(Failpoint::list_busy);
  EXPECT_EQ(lists.pop(0), kBusyPage);
  EXPECT_FALSE(is_page(kBusyPage));
  EXPECT_FALSE(lists.push(0, {1}));
  PageIndex page{1};
  EXPECT_EQ(lists.pop_batch(&page, 1), 0U);
  EXPECT_EQ(lists.push_batch(&page, 1), 0U);
  Hand hand;
  fill(hand, 0, 2);
  lists.refill_from(hand, 0);
  EXPECT_EQ(hand.size(), 2U);
  failpoints::reset();
  EXPECT_EQ(lists.cached(0), 10U);
  EXPECT_EQ(lists.pop(0), PageIndex{9});
}

TEST(PageLists, CountersSayWhatMoved) {
  const OnCpu cpu(0);
  Lists lists;
  Hand hand;
  fill(hand, 0, 64);
  lists.refill_from(hand, 0);
  push_all(lists, 0, 100, 64);
  lists.spill_into(hand, 0, 64);
  static_cast<void>(lists.pop(0));
  static_cast<void>(lists.pop(3));  // found nothing
  PageIndex out[10];
  static_cast<void>(lists.pop_batch(out, 10));
  static_cast<void>(lists.push_batch(out, 4));
  hand.clear();
  ASSERT_TRUE(lists.harvest(0, false, hand));
  const PercpuCounterValues counters = lists.counters(0);
  EXPECT_EQ(counters.refills, 1U);
  EXPECT_EQ(counters.refilled, 64U);
  EXPECT_EQ(counters.pushes, 68U);
  EXPECT_EQ(counters.pops, 11U);
  EXPECT_EQ(counters.spills, 1U);
  EXPECT_EQ(counters.spilled, 64U);
  EXPECT_EQ(counters.drained, hand.size());
  EXPECT_EQ(lists.counters(1).pushes, 0U);
}

TEST(PageLists, NeverHoldsMoreThanItsCapacityAndLosesNothingInARandomRun) {
  const OnCpu cpu(0);
  for (const std::uint32_t high : {2U, 3U, 5U, 127U, 128U, 129U, 4096U}) {
    // In a zone for whole clusters, or for clusters of one frame.
    const PageCount managed = high < 128 ? PageCount{32} : kZone;
    Lists lists(2, high, managed);
    SCOPED_TRACE(testing::Message() << "high " << high);
    std::mt19937 random(high);
    std::deque<PageIndex> model;  // oldest first
    std::uint32_t next = 0;
    std::vector<PageIndex> buffer(5000);
    for (int step = 0; step < 20'000; ++step) {
      switch (random() % 7) {
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
          const auto n = static_cast<std::uint32_t>(random() % (high + 3));
          for (std::uint32_t i = 0; i < n; ++i) {
            buffer[i] = {next + i};
          }
          const auto room = static_cast<std::uint32_t>(high - model.size());
          const std::uint32_t put = lists.push_batch(buffer.data(), n);
          ASSERT_EQ(put, std::min(n, room));
          for (std::uint32_t i = 0; i < put; ++i) {
            model.push_back({next++});
          }
          break;
        }
        case 3: {
          const auto n = static_cast<std::uint32_t>(random() % (high + 3));
          const std::uint32_t got = lists.pop_batch(buffer.data(), n);
          ASSERT_EQ(got, std::min<std::size_t>(n, model.size()));
          for (std::uint32_t i = 0; i < got; ++i) {
            ASSERT_EQ(buffer[i], model.back());
            model.pop_back();
          }
          break;
        }
        case 4: {
          const bool full = model.size() == high;
          Hand hand;
          lists.spill_into(hand, 0, lists.cluster());
          ASSERT_EQ(hand.size(), full ? lists.cluster() : 0);
          for (const PageIndex page : content_of(hand)) {
            ASSERT_EQ(page, model.front());
            model.pop_front();
          }
          break;
        }
        case 5: {
          Hand hand;
          fill(hand, next, 1 + static_cast<std::uint32_t>(random() % kClusterFrames));
          const std::uint32_t before = hand.size();
          lists.refill_from(hand, 0);
          ASSERT_EQ(before - hand.size(), std::min<std::size_t>(before, high - model.size()));
          for (std::uint32_t i = 0; i < before - hand.size(); ++i) {
            model.push_back({next++});
          }
          break;
        }
        default: {
          Hand hand;
          const bool stop = random() % 2 == 0;
          ASSERT_TRUE(lists.harvest(0, stop, hand));
          ASSERT_EQ(hand.size(), std::min<std::size_t>(model.size(), lists.cluster()));
          for (const PageIndex page : content_of(hand)) {
            ASSERT_EQ(page, model.front());
            model.pop_front();
          }
          if (stop) {
            ASSERT_FALSE(lists.push(0, {1}));
            // Started only when it is empty, as the zone does.
            for (hand.clear(); lists.harvest(0, true, hand) && !hand.empty(); hand.clear()) {
              for (std::size_t i = hand.size(); i != 0; --i) {
                model.pop_front();
              }
            }
            ASSERT_TRUE(model.empty());
            ASSERT_TRUE(lists.start());
          }
        }
      }
      ASSERT_EQ(lists.cached(0), model.size());
      ASSERT_LE(model.size(), high);
    }
  }
}

// A drainer and an owner on one list: each page is seen by exactly one of them.
TEST(PageLists, ADrainerAndAnOwnerShareNothing) {
  Lists lists;
  constexpr std::uint32_t kPages = 20'000;
  std::vector<std::uint8_t> seen(kPages, 0);  // written by whoever got the page
  std::atomic<bool> done{false};
  std::thread owner([&] {
    const OnCpu cpu(0);
    for (std::uint32_t i = 0; i < kPages;) {
      if (lists.push(0, {i})) {
        ++i;
      }
      if (i % 3 == 0) {
        const PageIndex page = lists.pop(0);
        if (is_page(page)) {
          ++seen[page.value];
        }
      }
    }
    done.store(true, std::memory_order_release);
  });
  for (bool last = false; !last;) {
    last = done.load(std::memory_order_acquire);
    Hand hand;
    do {
      hand.clear();
      ASSERT_TRUE(lists.harvest(0, false, hand));
      for (const PageIndex page : content_of(hand)) {
        ++seen[page.value];
      }
    } while (last && !hand.empty());
  }
  owner.join();
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), kPages);
}

}  // namespace
}  // namespace weir
