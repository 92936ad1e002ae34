// SPDX-License-Identifier: MIT
// A limit is exact to the frame however frames are asked for and wherever others lie; its watches are told
// the truth; the reserve is reached by emergencies alone; watermarks stand where the kernel's stand.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/support/zones.hpp"
#include "weir/base/failpoint.hpp"
#include "weir/os/thread_mark.hpp"
#include "weir/page/page_allocator.hpp"

namespace weir {
namespace {

using test::OnCpu;

constexpr std::size_t kLimit = 1000;

Options limited(std::uint64_t limit, std::uint64_t soft = 0, std::uint64_t reserve = 0) {
  return {.capacity = 16_MiB,
          .reserve = PageCount{reserve},
          .limit = PageCount{limit},
          .soft_limit = PageCount{soft}};
}

std::uint64_t live(PageAllocator& pages) { return pages.zone().census().out(); }

// As many as can be had, one by one.
std::vector<PageRef> take_all(PageAllocator& pages, AllocFlags flags = AllocFlags::none) {
  std::vector<PageRef> taken;
  while (PageRef page = pages.alloc(Order{0}, flags)) {
    taken.push_back(std::move(page));
  }
  return taken;
}

// Writes down what it is told.
struct Book {
  std::vector<LimitEvent> events;
  LimitWatch watch{[](void* book, const LimitEvent& event) noexcept {
                     static_cast<Book*>(book)->events.push_back(event);
                   },
                   this};

  explicit Book(PageAllocator& pages) { pages.add_limit_watch(watch); }
  [[nodiscard]] bool last_is(LimitKind which, std::uint64_t used, std::uint64_t asked) const {
    return !events.empty() && events.back().which == which && events.back().used == used &&
           events.back().asked == asked;
  }
};

// ---- the hard limit ------------------------------------------------------------------------------

TEST(HardLimit, OneByOneExactlySoManyCanBeHad) {
  const OnCpu cpu(0);
  PageAllocator pages{limited(kLimit)};
  std::vector<PageRef> taken = take_all(pages);
  EXPECT_EQ(taken.size(), kLimit);
  // What others might have had is not on any list.
  EXPECT_EQ(live(pages), kLimit);
  taken.pop_back();
  EXPECT_TRUE(pages.alloc());
  EXPECT_EQ(pages.zone().zone().counters().limit_refusals.get(), 1U);
  EXPECT_EQ(pages.zone().zone().counters().refusals.get(), 1U);
}

TEST(HardLimit, CountsTheFramesOfEveryOrder) {
  const OnCpu cpu(0);
  for (unsigned order = 0; order <= 7; ++order) {
    SCOPED_TRACE(order);
    PageAllocator pages{limited(kLimit)};
    std::vector<PageRef> taken;
    while (PageRef page = pages.alloc(Order{order})) {
      taken.push_back(std::move(page));
    }
    EXPECT_EQ(taken.size(), kLimit >> order);
    // The rest in single frames.
    EXPECT_EQ(take_all(pages).size(), kLimit - (taken.size() << order));
  }
}

TEST(HardLimit, ServesARequestThatJustFitsAndNoneThatIsAFrameLarger) {
  const OnCpu cpu(0);
  PageAllocator pages{limited(kLimit)};
  std::vector<Page*> most(kLimit - 7);
  ASSERT_TRUE(pages.alloc_exactly(most));
  EXPECT_FALSE(pages.alloc(Order{3}));
  unref(most.back());
  most.pop_back();
  PageRef run = pages.alloc(Order{3});
  EXPECT_TRUE(run);
  EXPECT_FALSE(pages.alloc());
  run.reset();
  std::vector<Page*> nine(9);
  EXPECT_FALSE(pages.alloc_exactly(nine));
  EXPECT_EQ(live(pages), most.size());
  EXPECT_TRUE(pages.alloc_exactly(std::span(nine).first(8)));
  free_bulk(std::span<Page* const>(nine).first(8));
  free_bulk(most);
}

TEST(HardLimit, CutsBulksOfEveryFormToWhatIsLeft) {
  const OnCpu cpu(0);
  PageAllocator pages{limited(kLimit)};
  for (const std::size_t left : {0U, 1U, 50U, 63U, 64U, 65U, 130U}) {
    SCOPED_TRACE(left);
    std::vector<Page*> most(kLimit - left);
    ASSERT_TRUE(pages.alloc_exactly(most));
    std::vector<Page*> out(200);
    EXPECT_EQ(pages.alloc_burst(out), left);
    free_burst(std::span<Page* const>(out).first(left));
    std::vector<PageRef> refs(200);
    EXPECT_EQ(pages.alloc_bulk(std::span(refs)), left);
    refs.clear();
    PageList list;
    EXPECT_EQ(pages.alloc_bulk(list, 200), left);
    EXPECT_EQ(live(pages), kLimit);
    while (!list.empty()) {
      unref(list.pop());
    }
    free_bulk(most);
  }
}

TEST(HardLimit, FindsWhatLiesOnTheListsOfOthersAndInTheDepot) {
  WEIR_NEEDS_LISTS;
  WEIR_NEEDS_CPUS(2);
  PageAllocator pages{limited(kLimit)};
  {
    const OnCpu cpu(1);
    std::vector<Page*> some(600);
    ASSERT_EQ(pages.alloc_burst(some), 600U);
    free_burst(some);
    ASSERT_NE(pages.zone().census().lists + pages.zone().census().depot, 0U);
  }
  const OnCpu cpu(0);
  EXPECT_EQ(take_all(pages).size(), kLimit);
}

TEST(HardLimit, HoldsForSeveralThreadsWithOrdersAndBulks) {
  PageAllocator pages{limited(kLimit)};
  std::atomic<std::uint64_t> held{0};  // counted after it was got, and until it is given back
  std::atomic<std::uint64_t> most{0};
  std::atomic<std::uint64_t> refused{0};
  const auto got = [&](std::uint64_t frames) {
    const std::uint64_t now = held.fetch_add(frames) + frames;
    std::uint64_t seen = most.load();
    while (now > seen && !most.compare_exchange_weak(seen, now)) {
    }
  };
  std::latch together(4);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      std::vector<Page*> mine;
      together.arrive_and_wait();
      for (int step = 0; step < 20'000; ++step) {
        const unsigned what = random() % 8;
        if (what < 3) {
          const Order order{what == 0 ? static_cast<unsigned>(random() % 5) : 0};
          if (Page* page = pages.alloc_page(order)) {
            got(frames_in(order));
            mine.push_back(page);
          } else {
            refused.fetch_add(1, std::memory_order_relaxed);
          }
        } else if (what < 5) {
          std::vector<Page*> some(1 + random() % 100);
          std::size_t n = 0;
          if (what == 3) {
            n = pages.alloc_burst(some);
          } else if (pages.alloc_exactly(some)) {
            n = some.size();
          }
          got(n);
          refused.fetch_add(n < some.size() ? 1 : 0, std::memory_order_relaxed);
          mine.insert(mine.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(n));
        } else {
          for (std::size_t n = std::min<std::size_t>(mine.size(), random() % 60); n != 0; --n) {
            std::swap(mine[random() % mine.size()], mine.back());
            held.fetch_sub(frames_in(order_of(mine.back())));
            unref(mine.back());
            mine.pop_back();
          }
        }
      }
      for (Page* page : mine) {
        held.fetch_sub(frames_in(order_of(page)));
        unref(page);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_LE(most.load(), kLimit);
  EXPECT_GT(most.load(), kLimit * 9 / 10);  // else nothing was tried
  EXPECT_NE(refused.load(), 0U);
  EXPECT_EQ(take_all(pages).size(), kLimit);
}

// Each of n threads wants at most its share of the limit, so no refusal is legal.
TEST(HardLimit, RefusesNobodyWhoStaysWithinIt) {
  for (const bool bulk : {false, true}) {
    SCOPED_TRACE(bulk);
    constexpr std::uint64_t kThreads = 3;
    constexpr std::uint64_t kShare = 200;
    PageAllocator pages{limited(kThreads * kShare)};
    std::atomic<std::uint64_t> refused{0};
    std::latch together(kThreads);
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(t);
        std::vector<Page*> mine;
        together.arrive_and_wait();
        for (int step = 0; step < 10'000; ++step) {
          std::vector<Page*> some(1 + (bulk ? random() % 80 : 0));
          if (mine.size() + some.size() <= kShare && random() % 3 != 0) {
            const std::size_t n = pages.alloc_burst(some);
            refused.fetch_add(some.size() - n);
            mine.insert(mine.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(n));
          } else if (!mine.empty()) {
            const std::size_t n = std::min(mine.size(), some.size());
            free_burst(std::span<Page* const>(mine).last(n));
            mine.resize(mine.size() - n);
          }
        }
        free_bulk(mine);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(refused.load(), 0U);
  }
}

TEST(HardLimit, ComesDownOnWhatListsHold) {
  const OnCpu cpu(0);
  PageAllocator pages{{.capacity = 16_MiB}};
  std::vector<Page*> some(500);
  ASSERT_EQ(pages.alloc_burst(some), 500U);
  free_burst(std::span<Page* const>(some).subspan(10));
  some.resize(10);
  ASSERT_EQ(pages.set_limits(PageCount{50}, {}).code, Errc::ok);
  EXPECT_EQ(take_all(pages).size(), 40U);
  // Below what is in use.
  std::vector<PageRef> more = take_all(pages);
  ASSERT_EQ(more.size(), 40U);
  ASSERT_EQ(pages.set_limits(PageCount{30}, {}).code, Errc::ok);
  EXPECT_FALSE(pages.alloc());
  more.resize(20);
  EXPECT_FALSE(pages.alloc());
  more.resize(19);
  EXPECT_TRUE(pages.alloc());
  // And up again.
  ASSERT_EQ(pages.set_limits(PageCount{2000}, {}).code, Errc::ok);
  EXPECT_EQ(take_all(pages).size(), 2000U - 29);
  ASSERT_EQ(pages.set_limits({}, {}).code, Errc::ok);
  EXPECT_EQ(take_all(pages).size(), 4096U - 29);
  free_bulk(some);
}

TEST(HardLimit, ComesDownWhileOthersAreAtWork) {
  PageAllocator pages{{.capacity = 16_MiB}};
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> held{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      std::vector<Page*> mine;
      while (!stop.load(std::memory_order_relaxed)) {
        std::vector<Page*> some(1 + random() % 100);
        if (random() % 2 != 0) {
          const std::size_t n = pages.alloc_burst(some);
          held.fetch_add(n);
          mine.insert(mine.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(n));
        } else {
          const std::size_t n = std::min(mine.size(), some.size());
          held.fetch_sub(n);
          free_burst(std::span<Page* const>(mine).last(n));
          mine.resize(mine.size() - n);
        }
      }
      held.fetch_sub(mine.size());
      free_bulk(mine);
    });
  }
  for (int round = 0; round < 200; ++round) {
    const std::uint64_t limit = round % 2 == 0 ? 300 : 3000;
    ASSERT_EQ(pages.set_limits(PageCount{limit}, {}).code, Errc::ok);
    // What was counted a moment later was got before, and is given back without being counted.
    const std::uint64_t at_start = held.load();
    for (int look = 0; look < 50; ++look) {
      ASSERT_LE(held.load(), std::max(limit, at_start) + 300);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
  stop.store(true);
  for (std::thread& thread : threads) {
    thread.join();
  }
  ASSERT_EQ(pages.set_limits(PageCount{kLimit}, {}).code, Errc::ok);
  EXPECT_EQ(take_all(pages).size(), kLimit);
}

TEST(HardLimit, MustBeLargerThanTheReserve) {
  EXPECT_THROW(PageAllocator{limited(100, 0, 100)}, std::invalid_argument);
  PageAllocator pages{limited(0, 0, 100)};
  EXPECT_EQ(pages.set_limits(PageCount{100}, {}).code, Errc::bad_option);
  EXPECT_EQ(pages.zone_state().limit, 0U);
  const ThreadMark mark;
  EXPECT_EQ(pages.set_limits(PageCount{101}, {}).code, Errc::would_block);
}

TEST(HardLimit, IsAsBeforeWhenTheKernelRefusesTheFence) {
  if (!kTestHooks) {
    GTEST_SKIP() << "needs failpoints";
  }
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  PageAllocator pages{limited(kLimit, 700)};
  failpoints::fail_always(Failpoint::fence);
  const Error error = pages.set_limits(PageCount{10}, {});
  failpoints::reset();
  if (error.failed()) {  // a list in its locked form needs no fence
    EXPECT_EQ(pages.zone_state().limit, kLimit);
    EXPECT_EQ(pages.zone_state().soft_limit, 700U);
    EXPECT_EQ(take_all(pages).size(), kLimit);
  }
}

TEST(HardLimit, EndsAShortageWhenEnoughOfItIsFree) {
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  PageAllocator pages{limited(kLimit)};
  std::vector<PageRef> taken = take_all(pages);
  EXPECT_TRUE(pages.zone_state().in_shortage);
  test::outlast_shortage();
  taken.resize(kLimit - kLimit / 8 + 1);
  EXPECT_TRUE(pages.zone_state().in_shortage);
  taken.resize(kLimit - kLimit / 8 - 1);
  EXPECT_FALSE(pages.zone_state().in_shortage);
}

// ---- its watch -----------------------------------------------------------------------------------

TEST(LimitWatches, AreToldOfEachRefusalByTheHardLimitAndOfNothingElse) {
  const OnCpu cpu(0);
  PageAllocator pages{limited(kLimit)};
  Book book{pages};
  std::vector<Page*> most(kLimit - 3);
  ASSERT_TRUE(pages.alloc_exactly(most));
  EXPECT_FALSE(pages.alloc(Order{3}));
  ASSERT_EQ(book.events.size(), 1U);
  EXPECT_TRUE(book.last_is(LimitKind::hard, kLimit - 3, 8));
  std::vector<Page*> some(4);
  EXPECT_FALSE(pages.alloc_exactly(some));
  ASSERT_EQ(book.events.size(), 2U);
  EXPECT_TRUE(book.last_is(LimitKind::hard, kLimit - 3, 4));
  std::vector<Page*> burst(100);
  EXPECT_EQ(pages.alloc_burst(burst), 3U);
  ASSERT_EQ(book.events.size(), 3U);
  EXPECT_TRUE(book.last_is(LimitKind::hard, kLimit, 97));
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_FALSE(pages.alloc());
    ASSERT_EQ(book.events.size(), 4 + i);
    EXPECT_TRUE(book.last_is(LimitKind::hard, kLimit, 1));
  }
  EXPECT_FALSE(pages.alloc(Order{0}, AllocFlags::no_reclaim));
  {
    const ThreadMark mark;  // as in a signal handler
    EXPECT_FALSE(pages.alloc());
  }
  EXPECT_EQ(book.events.size(), 8U);
  EXPECT_FALSE(pages.alloc(Order{0}, AllocFlags::no_wait));
  EXPECT_EQ(book.events.size(), 9U);
  book.watch.remove();
  EXPECT_FALSE(pages.alloc());
  EXPECT_EQ(book.events.size(), 9U);
  free_bulk(most);
  free_bulk(std::span<Page* const>(burst).first(3));
  // Fragmentation is no limit, and no reserve is.
  PageAllocator other{limited(4096, 0, 4000)};
  Book none{other};
  const std::vector<PageRef> ordinary = take_all(other);
  EXPECT_EQ(ordinary.size(), 96U);
  EXPECT_EQ(none.events.size(), 0U);
}

TEST(LimitWatches, AreToldOfTheSoftLimitWhenItIsCrossedAndNotAFrameBefore) {
  const OnCpu cpu(0);
  PageAllocator pages{limited(0, 500)};
  Book book{pages};
  std::vector<PageRef> taken;
  for (int round = 1; round <= 3; ++round) {
    const auto rounds = static_cast<std::size_t>(round);
    while (taken.size() < 500) {
      taken.push_back(pages.alloc());
      ASSERT_EQ(book.events.size(), rounds - 1) << taken.size();
    }
    taken.push_back(pages.alloc());
    ASSERT_EQ(book.events.size(), rounds);
    EXPECT_TRUE(book.last_is(LimitKind::soft, 500, 1));
    // Above it nothing is told.
    while (taken.size() < 1500) {
      taken.push_back(pages.alloc());
    }
    EXPECT_EQ(book.events.size(), rounds);
    taken.clear();
  }
  EXPECT_EQ(pages.zone().zone().counters().soft_crossings.get(), 3U);
}

TEST(LimitWatches, SeeTheSoftLimitCrossedByLargerRequests) {
  const OnCpu cpu(0);
  PageAllocator pages{limited(0, 500)};
  Book book{pages};
  std::vector<Page*> many(600);
  ASSERT_TRUE(pages.alloc_exactly(many));
  EXPECT_EQ(book.events.size(), 1U);
  EXPECT_TRUE(book.last_is(LimitKind::soft, 0, 600));
  free_burst(many);
  EXPECT_EQ(pages.drain_all().code, Errc::ok);
  ASSERT_EQ(pages.alloc_burst(many), 600U);
  EXPECT_EQ(book.events.size(), 2U);
  EXPECT_TRUE(book.last_is(LimitKind::soft, 500, 1));
  free_burst(many);
  EXPECT_EQ(pages.drain_all().code, Errc::ok);
  std::vector<Page*> most(495);
  ASSERT_TRUE(pages.alloc_exactly(most));
  EXPECT_EQ(book.events.size(), 2U);
  EXPECT_TRUE(pages.alloc(Order{3}));
  EXPECT_EQ(book.events.size(), 3U);
  EXPECT_TRUE(book.last_is(LimitKind::soft, 495, 8));
  free_bulk(most);
}

TEST(LimitWatches, ASoftLimitSetBelowWhatIsInUseCountsAsCrossed) {
  const OnCpu cpu(0);
  PageAllocator pages{{.capacity = 16_MiB}};
  Book book{pages};
  std::vector<Page*> some(100);
  ASSERT_EQ(pages.alloc_burst(some), 100U);
  ASSERT_EQ(pages.set_limits({}, PageCount{99}).code, Errc::ok);
  EXPECT_TRUE(pages.alloc());
  EXPECT_EQ(book.events.size(), 0U);
  ASSERT_EQ(pages.set_limits({}, PageCount{100}).code, Errc::ok);
  EXPECT_TRUE(pages.alloc());
  EXPECT_TRUE(book.last_is(LimitKind::soft, 100, 1));
  free_bulk(some);
}

TEST(LimitWatches, HearAsManyCrossingsAsThereWereFromManyThreads) {
  PageAllocator pages{limited(0, 300)};
  std::atomic<std::uint64_t> told{0};
  LimitWatch watch{[](void* count, const LimitEvent& event) noexcept {
                     EXPECT_EQ(event.which, LimitKind::soft);
                     EXPECT_LE(event.used, 300U);
                     EXPECT_GT(event.used + event.asked, 300U);
                     static_cast<std::atomic<std::uint64_t>*>(count)->fetch_add(1);
                   },
                   &told};
  pages.add_limit_watch(watch);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&pages, t] {
      std::mt19937 random(t);
      for (int step = 0; step < 300; ++step) {
        std::vector<Page*> some(random() % 400);
        const std::size_t n = pages.alloc_burst(some);
        free_burst(std::span<Page* const>(some).first(n));
        if (random() % 4 == 0) {
          static_cast<void>(pages.drain_all());
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(told.load(), pages.zone().zone().counters().soft_crossings.get());
  EXPECT_NE(told.load(), 0U);
}

TEST(LimitWatches, MayAllocateRaiseTheLimitAndRemoveThemselves) {
  const OnCpu cpu(0);
  PageAllocator pages{limited(kLimit)};
  struct Context {
    PageAllocator& pages;
    LimitWatch* watch = nullptr;
    PageRef page{};
    int calls = 0;
  } context{pages};
  LimitWatch watch{[](void* raw, const LimitEvent&) noexcept {
                     Context& in = *static_cast<Context*>(raw);
                     ++in.calls;
                     EXPECT_FALSE(in.pages.alloc());  // tells nobody
                     EXPECT_EQ(in.pages.set_limits(PageCount{kLimit + 10}, {}).code, Errc::ok);
                     in.page = in.pages.alloc();
                     in.watch->remove();
                   },
                   &context};
  context.watch = &watch;
  pages.add_limit_watch(watch);
  std::vector<PageRef> taken = take_all(pages);
  EXPECT_EQ(taken.size(), kLimit);
  EXPECT_EQ(context.calls, 1);
  EXPECT_TRUE(context.page);
  EXPECT_FALSE(watch.registered());
  EXPECT_EQ(take_all(pages).size(), 9U);
  EXPECT_EQ(context.calls, 1);
}

// ---- the reserve ---------------------------------------------------------------------------------

TEST(EmergencyReserve, IsReachedByEmergenciesAloneAndEveryPageOfItSaysSo) {
  const OnCpu cpu(0);
  for (const std::uint64_t limit : {std::uint64_t{0}, std::uint64_t{kLimit}}) {
    SCOPED_TRACE(limit);
    PageAllocator pages{limited(limit, 0, 100)};
    const std::size_t all = limit != 0 ? limit : 4096;
    Book book{pages};
    std::vector<PageRef> ordinary = take_all(pages);
    EXPECT_EQ(ordinary.size(), all - 100);
    EXPECT_EQ(book.events.size(), 0U);  // it was the reserve, not the limit
    std::vector<Page*> some(101);
    EXPECT_FALSE(pages.alloc_exactly(std::span(some).first(1)));
    EXPECT_EQ(pages.alloc_burst(some), 0U);
    EXPECT_FALSE(pages.alloc(Order{2}));
    const std::vector<PageRef> emergency = take_all(pages, AllocFlags::emergency);
    EXPECT_EQ(emergency.size(), 100U);
    EXPECT_EQ(book.events.size(), limit != 0 ? 1U : 0U);
    for (const PageRef& page : ordinary) {
      ASSERT_FALSE(page.is_emergency());
    }
    for (const PageRef& page : emergency) {
      ASSERT_TRUE(page.is_emergency());
    }
  }
}

TEST(EmergencyReserve, OnlyWhatLiesBelowItIsMarkedInBulkToo) {
  const OnCpu cpu(0);
  PageAllocator pages{limited(0, 0, 100)};
  std::vector<Page*> most(4096 - 130);
  ASSERT_TRUE(pages.alloc_exactly(most));
  const auto marked = [](std::span<Page* const> some) {
    return std::count_if(some.begin(), some.end(), [](Page* page) { return is_emergency(page); });
  };
  // 30 are for everybody.
  std::vector<Page*> some(70);
  ASSERT_EQ(pages.alloc_burst(some, AllocFlags::emergency), 70U);
  EXPECT_EQ(marked(some), 40);
  free_bulk(some);
  ASSERT_TRUE(pages.alloc_exactly(some, AllocFlags::emergency));
  EXPECT_EQ(marked(some), 40);
  free_bulk(some);
  PageList list;
  ASSERT_EQ(pages.alloc_bulk(list, 70, AllocFlags::emergency | AllocFlags::exact), 70U);
  std::vector<Page*> listed;
  while (!list.empty()) {
    listed.push_back(list.pop());
  }
  EXPECT_EQ(marked(listed), 40);
  free_bulk(listed);
  // Given back, they are the reserve again, and no list has them.
  const std::vector<PageRef> ordinary = take_all(pages);
  EXPECT_EQ(ordinary.size(), 30U);
  for (const PageRef& page : ordinary) {
    EXPECT_FALSE(page.is_emergency());
  }
  free_bulk(most);
}

TEST(EmergencyReserve, APageOfItGoesPastListsThatRun) {
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  PageAllocator pages{limited(0, 0, 1000)};
  std::vector<Page*> most(4096 - 1010);
  ASSERT_TRUE(pages.alloc_exactly(most));
  std::vector<PageRef> some;
  while (some.size() < 20) {
    some.push_back(pages.alloc(Order{0}, AllocFlags::emergency));
    ASSERT_EQ(some.back().is_emergency(), some.size() > 10);
  }
  ASSERT_FALSE(pages.zone_state().in_shortage);
  some.resize(10);
  EXPECT_EQ(pages.zone().census().engine, 1000U);
  EXPECT_EQ(pages.zone().census().lists, 0U);
  some.clear();
  EXPECT_EQ(pages.zone().census().lists, 10U);  // these are ordinary ones
  free_bulk(most);
}

// ---- all or nothing ------------------------------------------------------------------------------

TEST(Exact, FillsAllHolesOrNone) {
  const OnCpu cpu(0);
  PageAllocator pages{limited(300)};
  std::vector<PageRef> slots(300);
  for (std::size_t i = 0; i < 300; i += 3) {
    slots[i] = pages.alloc();
  }
  std::vector<PageRef> one(1);
  one[0] = pages.alloc();
  // 199 are left for 200 holes.
  EXPECT_EQ(pages.alloc_bulk(std::span(slots), AllocFlags::exact), 1U);
  EXPECT_EQ(live(pages), 101U);
  EXPECT_EQ(pages.alloc_bulk(std::span(slots).first(3), AllocFlags::exact), 3U);
  slots[1].reset();
  slots[2].reset();
  one.clear();
  std::vector<Page*> before;
  for (const PageRef& slot : slots) {
    before.push_back(slot.get());
  }
  EXPECT_EQ(pages.alloc_bulk(std::span(slots), AllocFlags::exact | AllocFlags::zero), 300U);
  EXPECT_EQ(live(pages), 300U);
  std::vector<Page*> after;
  for (std::size_t i = 0; i < 300; ++i) {
    ASSERT_TRUE(slots[i]);
    EXPECT_TRUE(before[i] == nullptr || before[i] == slots[i].get());
    EXPECT_TRUE(before[i] != nullptr ||
                std::all_of(slots[i].data(), slots[i].data() + kFrameBytes,
                            [](std::byte byte) { return byte == std::byte{0}; }));
    after.push_back(slots[i].get());
  }
  std::sort(after.begin(), after.end());
  EXPECT_EQ(std::adjacent_find(after.begin(), after.end()), after.end());
  slots.clear();
  // The other forms.
  std::vector<Page*> out(301);
  EXPECT_EQ(pages.alloc_burst(out, AllocFlags::exact), 0U);
  PageList list;
  EXPECT_EQ(pages.alloc_bulk(list, 301, AllocFlags::exact), 0U);
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(live(pages), 0U);
  EXPECT_EQ(pages.alloc_bulk(list, 200, AllocFlags::exact), 200U);
  EXPECT_EQ(pages.alloc_burst(std::span(out).first(100), AllocFlags::exact), 100U);
  EXPECT_EQ(live(pages), 300U);
  free_burst(std::span<Page* const>(out).first(100));
  while (!list.empty()) {
    unref(list.pop());
  }
}

// ---- watermarks ----------------------------------------------------------------------------------

struct Marks {
  Bytes zone;
  std::uint64_t min, low, high;
};
constexpr Marks kMarks[] = {
    {16_MiB, 128, 160, 192},  {64_MiB, 256, 320, 384},   {128_MiB, 362, 452, 542},
    {256_MiB, 512, 640, 768}, {512_MiB, 724, 905, 1086}, {1_GiB, 1024, 1286, 1548},
};

TEST(ZoneStates, MarksAreThoseOfTheKernelForLargeZonesToo) {
  for (const Marks& marks : {Marks{16_GiB, 4096, 8290, 12484}, Marks{64_GiB, 8192, 24969, 41746}}) {
    const Watermarks of = watermarks_of(whole_pages(marks.zone));
    ZoneState state;
    state.min = of.min.value;
    state.low = of.low.value;
    state.high = of.high.value;
    EXPECT_EQ(state.mark_of(marks.high + 1), Mark::none);
    EXPECT_EQ(state.mark_of(marks.high), Mark::high);
    EXPECT_EQ(state.mark_of(marks.low + 1), Mark::high);
    EXPECT_EQ(state.mark_of(marks.low), Mark::low);
    EXPECT_EQ(state.mark_of(marks.min + 1), Mark::low);
    EXPECT_EQ(state.mark_of(marks.min), Mark::min);
  }
}

TEST(ZoneStates, TellTheMarkThatFreeFramesDoNotExceed) {
  const OnCpu cpu(0);
  for (const Marks& marks : kMarks) {
    SCOPED_TRACE(marks.zone.value >> 20);
    PageAllocator pages{{.capacity = marks.zone, .thp = ThpChoice::off}};
    ZoneState state = pages.zone_state();
    EXPECT_EQ(state.free, state.managed);
    EXPECT_EQ(state.min, marks.min);
    EXPECT_EQ(state.low, marks.low);
    EXPECT_EQ(state.high, marks.high);
    EXPECT_EQ(state.below, Mark::none);
    // Down to one above the first mark, then over one after the other.
    std::vector<Page*> most(state.managed - marks.high - 1);
    ASSERT_TRUE(pages.alloc_exactly(most));
    EXPECT_EQ(pages.zone_state().below, Mark::none);
    std::vector<Page*> last(marks.high + 1);
    std::size_t taken = 0;
    const auto down_to = [&](std::uint64_t free) {
      const std::size_t n = pages.zone_state().free - free;
      EXPECT_TRUE(pages.alloc_exactly(std::span(last).subspan(taken, n)));
      taken += n;
      EXPECT_EQ(pages.zone_state().free, free);
      EXPECT_EQ(pages.zone_state().used, state.managed - free);
      return pages.zone_state().below;
    };
    EXPECT_EQ(down_to(marks.high), Mark::high);
    EXPECT_EQ(down_to(marks.low + 1), Mark::high);
    EXPECT_EQ(down_to(marks.low), Mark::low);
    EXPECT_EQ(down_to(marks.min + 1), Mark::low);
    EXPECT_EQ(down_to(marks.min), Mark::min);
    EXPECT_EQ(down_to(0), Mark::min);
    free_bulk(most);
    free_bulk(last);
  }
}

TEST(ZoneStates, CountTheDepotAsFreeAndListsAsUsed) {
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  PageAllocator pages{{.capacity = 64_MiB}};
  std::vector<Page*> some(1000);
  ASSERT_EQ(pages.alloc_burst(some), 1000U);
  free_burst(some);
  const CachedZone::Census census = pages.zone().census();
  const ZoneState state = pages.zone_state();
  ASSERT_NE(census.depot, 0U);
  ASSERT_NE(census.lists, 0U);
  EXPECT_EQ(state.free, census.engine + census.depot);
  EXPECT_EQ(state.used, census.lists);
}

// A signal handler that interrupted a list is served by an engine without a lock, the reserve included.
TEST(Emergency, APageOfTheReserveBearsItsMarkAlsoInAHandler) {
  const OnCpu cpu(0);
  PageAllocator pages{{.capacity = 4_MiB, .reserve = PageCount{8}, .engine = EngineChoice::bitmap}};
  const std::vector<PageRef> taken = take_all(pages);
  const ThreadMark mark;  // as such a handler has it
  EXPECT_TRUE(pages.alloc().empty());
  const PageRef page = pages.alloc(Order{0}, AllocFlags::emergency);
  ASSERT_FALSE(page.empty());
  EXPECT_TRUE(page.is_emergency());
}

}  // namespace
}  // namespace weir
