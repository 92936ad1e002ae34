// SPDX-License-Identifier: MIT
// Owners of caches are asked before anybody is refused, in order, and each of them may do what it was
// promised: free, allocate, take its time, register others, remove itself.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/zones.hpp"
#include "weir/base/failpoint.hpp"
#include "weir/os/thread_mark.hpp"
#include "weir/page/page_allocator.hpp"

namespace weir {
namespace {

using test::OnCpu;

constexpr std::size_t kFrames = 4096;
const Options kSmall{.capacity = 16_MiB};

// A cache of single frames that gives at most `most` a time, and writes down what it is asked.
struct Stock {
  struct Question {
    std::uint64_t needed;
    Order order;
  };
  std::vector<Page*> pages;
  std::size_t most = SIZE_MAX;
  std::vector<Question> asked;
  Reclaimer reclaimer{[](void* self, PageCount needed, Order order) noexcept {
                        return static_cast<Stock*>(self)->give(needed, order);
                      },
                      this};

  Stock(PageAllocator& from, std::size_t n) : pages(n) {
    EXPECT_TRUE(n == 0 || from.alloc_exactly(pages));
    from.add_reclaimer(reclaimer);
  }
  ~Stock() {
    reclaimer.remove();
    free_bulk(pages);
  }
  Stock(const Stock&) = delete;
  Stock& operator=(const Stock&) = delete;

  std::uint64_t give(PageCount needed, Order order) noexcept {
    asked.push_back({needed.value, order});
    std::uint64_t given = 0;
    while (given < needed.value && given < most && !pages.empty()) {
      unref(pages.back());
      pages.pop_back();
      ++given;
    }
    return given;
  }
};

// All that is left, by one who asks nobody.
std::vector<PageRef> take_rest(PageAllocator& pages) {
  std::vector<PageRef> taken;
  while (PageRef page = pages.alloc(Order{0}, AllocFlags::no_reclaim)) {
    taken.push_back(std::move(page));
  }
  return taken;
}

std::uint64_t refusals(PageAllocator& pages) {
  return pages.zone().zone().counters().refusals.get();
}

TEST(Reclaim, IsAskedBeforeARequestIsRefusedAndNotBefore) {
  const OnCpu cpu(0);
  PageAllocator pages{kSmall};
  Stock stock{pages, 3};
  std::vector<PageRef> taken = take_rest(pages);
  ASSERT_EQ(taken.size(), kFrames - 3);
  EXPECT_TRUE(stock.asked.empty());
  const std::uint64_t before = refusals(pages);
  for (std::size_t i = 1; i <= 3; ++i) {
    taken.push_back(pages.alloc());
    EXPECT_TRUE(taken.back());
    ASSERT_EQ(stock.asked.size(), i);
    EXPECT_EQ(stock.asked.back().needed, 1U);
    EXPECT_EQ(stock.asked.back().order, Order{0});
  }
  EXPECT_EQ(refusals(pages), before);
  EXPECT_FALSE(pages.alloc());
  EXPECT_EQ(stock.asked.size(), 4U);
  EXPECT_EQ(refusals(pages), before + 1);  // one request, however often it tried
  EXPECT_EQ(pages.zone().zone().counters().reclaims.get(), 4U);
  EXPECT_EQ(pages.zone().zone().counters().reclaimed.get(), 3U);
}

TEST(Reclaim, AsksInOrderUntilEnoughWasGivenAndEverybodyBeforeARefusal) {
  const OnCpu cpu(0);
  PageAllocator pages{kSmall};
  Stock empty{pages, 0};
  Stock few{pages, 10};
  Stock many{pages, 100};
  Stock never{pages, 50};
  std::vector<PageRef> taken = take_rest(pages);
  std::vector<Page*> out(60);
  ASSERT_EQ(pages.alloc_burst(out), 60U);
  ASSERT_EQ(empty.asked.size(), 1U);
  EXPECT_EQ(empty.asked[0].needed, 60U);
  ASSERT_EQ(few.asked.size(), 1U);
  EXPECT_EQ(few.asked[0].needed, 60U);
  ASSERT_EQ(many.asked.size(), 1U);
  EXPECT_EQ(many.asked[0].needed, 50U);
  EXPECT_TRUE(never.asked.empty());
  std::vector<Page*> more(200);
  EXPECT_EQ(pages.alloc_burst(more), 100U);  // 50 and 50
  // They gave something, so all are asked once more.
  EXPECT_EQ(empty.asked.size(), 3U);
  EXPECT_EQ(never.asked.size(), 2U);
  EXPECT_EQ(never.asked[0].needed, 150U);
  EXPECT_EQ(never.asked[1].needed, 100U);
  free_burst(out);
  free_burst(std::span<Page* const>(more).first(100));
}

TEST(Reclaim, SaysHowManyFramesAreMissingForEveryFormOfRequest) {
  const OnCpu cpu(0);
  PageAllocator pages{kSmall};
  Stock stock{pages, 0};
  std::vector<PageRef> taken = take_rest(pages);
  const auto asked = [&stock](std::uint64_t needed, Order order = Order{0}) {
    const bool as_said =
        stock.asked.size() == 1 && stock.asked[0].needed == needed && stock.asked[0].order == order;
    stock.asked.clear();
    return as_said;
  };
  EXPECT_FALSE(pages.alloc(Order{4}));
  EXPECT_TRUE(asked(16, Order{4}));
  std::vector<Page*> out(200);
  EXPECT_EQ(pages.alloc_burst(out), 0U);
  EXPECT_TRUE(asked(200));
  EXPECT_FALSE(pages.alloc_exactly(out));
  EXPECT_TRUE(asked(200));
  EXPECT_EQ(pages.alloc_burst(out, AllocFlags::exact), 0U);
  EXPECT_TRUE(asked(200));
  PageList list;
  EXPECT_EQ(pages.alloc_bulk(list, 200, AllocFlags::exact), 0U);
  EXPECT_TRUE(asked(200));
  EXPECT_EQ(pages.alloc_bulk(list, 50), 0U);
  EXPECT_TRUE(asked(50));
  std::vector<PageRef> slots(7);
  EXPECT_EQ(pages.alloc_bulk(std::span(slots)), 0U);
  EXPECT_TRUE(asked(7));
  // 30 are there for one who wants 50 or nothing.
  taken.resize(taken.size() - 30);
  EXPECT_FALSE(pages.alloc_exactly(std::span(out).first(50)));
  EXPECT_TRUE(asked(20));
}

TEST(Reclaim, WhatTheReserveLacksComesOnTop) {
  const OnCpu cpu(0);
  PageAllocator pages{{.capacity = 16_MiB, .reserve = PageCount{100}}};
  Stock stock{pages, 41};
  std::vector<PageRef> taken = take_rest(pages);
  std::vector<Page*> emergency(40);
  ASSERT_EQ(pages.alloc_burst(emergency, AllocFlags::emergency), 40U);
  EXPECT_EQ(stock.asked.size(), 0U);
  EXPECT_TRUE(pages.alloc());
  ASSERT_EQ(stock.asked.size(), 1U);
  EXPECT_EQ(stock.asked[0].needed, 41U);
  free_bulk(emergency);
}

TEST(Reclaim, LeavesThoseAloneWhoMayNotWaitOrAskedForThat) {
  const OnCpu cpu(0);
  PageAllocator pages{kSmall};
  Stock stock{pages, 10};
  std::vector<PageRef> taken = take_rest(pages);
  for (const AllocFlags flags :
       {AllocFlags::no_wait, AllocFlags::no_reclaim, AllocFlags::no_reclaim | AllocFlags::exact}) {
    EXPECT_FALSE(pages.alloc(Order{0}, flags));
    std::vector<Page*> some(5);
    EXPECT_EQ(pages.alloc_burst(some, flags), 0U);
    EXPECT_FALSE(pages.alloc_exactly(some, flags));
    std::vector<PageRef> slots(5);
    EXPECT_EQ(pages.alloc_bulk(std::span(slots), flags), 0U);
  }
  {
    const ThreadMark mark;  // as in a signal handler that interrupted weir
    EXPECT_FALSE(pages.alloc());
  }
  EXPECT_TRUE(stock.asked.empty());
  EXPECT_TRUE(pages.alloc(Order{0}, AllocFlags::emergency));
  EXPECT_EQ(stock.asked.size(), 1U);
}

TEST(Reclaim, WorksAtTheLimitAsAtTheEndOfMemory) {
  const OnCpu cpu(0);
  PageAllocator pages{{.capacity = 16_MiB, .limit = PageCount{1000}, .soft_limit = PageCount{500}}};
  Stock stock{pages, 100};
  std::vector<PageRef> taken = take_rest(pages);
  ASSERT_EQ(taken.size(), 900U);
  const std::uint64_t before = pages.zone().zone().counters().limit_refusals.get();
  std::vector<Page*> out(150);
  EXPECT_EQ(pages.alloc_burst(out), 100U);
  ASSERT_EQ(stock.asked.size(), 2U);
  EXPECT_EQ(stock.asked[0].needed, 150U);
  EXPECT_EQ(stock.asked[1].needed, 50U);
  EXPECT_EQ(pages.zone().zone().counters().limit_refusals.get(), before + 1);
  free_bulk(std::span<Page* const>(out).first(100));
}

TEST(Reclaim, TriesAgainAfterEachWhoGaveEnoughWithoutABlockComingOfIt) {
  const OnCpu cpu(0);
  PageAllocator pages{kSmall};
  std::vector<Page*> all(kFrames);
  ASSERT_TRUE(pages.alloc_exactly(all));
  std::sort(all.begin(), all.end());
  // Every second frame of the first 32, then the others of the first 16.
  Stock odd{pages, 0};
  Stock even{pages, 0};
  for (std::size_t i = 0; i < 32; ++i) {
    (i % 2 != 0 ? odd : even).pages.push_back(all[i]);
  }
  PageRef run = pages.alloc(Order{3});
  EXPECT_TRUE(run);
  EXPECT_EQ(odd.asked.size(), 1U);
  EXPECT_EQ(even.asked.size(), 1U);
  EXPECT_EQ(refusals(pages), 0U);
  free_bulk(std::span<Page* const>(all).subspan(32));
}

TEST(Reclaim, ACallbackMayAllocateAndIsNotAskedForItself) {
  const OnCpu cpu(0);
  PageAllocator pages{kSmall};
  struct Context {
    PageAllocator& pages;
    std::vector<PageRef> mine;
    int calls = 0;
  } context{pages, {}};
  Reclaimer reclaimer{[](void* raw, PageCount, Order) noexcept {
                        Context& in = *static_cast<Context*>(raw);
                        ++in.calls;
                        EXPECT_FALSE(in.pages.alloc());  // asks nobody
                        in.mine.resize(in.mine.size() - 2);
                        PageRef page = in.pages.alloc();
                        EXPECT_TRUE(page);
                        in.mine.push_back(std::move(page));
                        return std::uint64_t{1};
                      },
                      &context};
  for (int i = 0; i < 10; ++i) {
    context.mine.push_back(pages.alloc());
  }
  std::vector<PageRef> taken = take_rest(pages);
  pages.add_reclaimer(reclaimer);
  EXPECT_TRUE(pages.alloc());
  EXPECT_EQ(context.calls, 1);
  reclaimer.remove();
}

TEST(Reclaim, ACallbackMayRemoveItselfAndBeGoneAndOthersAreStillAsked) {
  const OnCpu cpu(0);
  PageAllocator pages{kSmall};
  struct Once {
    std::unique_ptr<Once>* owner = nullptr;
    int* calls = nullptr;
    Reclaimer reclaimer{[](void* self, PageCount, Order) noexcept {
                          Once& once = *static_cast<Once*>(self);
                          ++*once.calls;
                          once.owner->reset();  // and with it the node
                          return std::uint64_t{0};
                        },
                        this};
  };
  int calls = 0;
  std::unique_ptr<Once> once = std::make_unique<Once>();
  once->owner = &once;
  once->calls = &calls;
  pages.add_reclaimer(once->reclaimer);
  Stock after{pages, 5};
  std::vector<PageRef> taken = take_rest(pages);
  EXPECT_TRUE(pages.alloc());
  EXPECT_EQ(once, nullptr);
  EXPECT_EQ(after.asked.size(), 1U);
  taken.push_back(pages.alloc());
  EXPECT_EQ(calls, 1);
}

TEST(Reclaim, WhoRegistersDuringAWalkIsAskedInTheNext) {
  const OnCpu cpu(0);
  PageAllocator pages{kSmall};
  struct Context {
    PageAllocator& pages;
    std::vector<std::unique_ptr<Stock>> stocks;
  } context{pages, {}};
  Reclaimer breeder{[](void* raw, PageCount, Order) noexcept {
                      Context& in = *static_cast<Context*>(raw);
                      in.stocks.push_back(std::make_unique<Stock>(in.pages, 0));
                      return std::uint64_t{0};
                    },
                    &context};
  pages.add_reclaimer(breeder);
  std::vector<PageRef> taken = take_rest(pages);
  EXPECT_FALSE(pages.alloc());
  ASSERT_EQ(context.stocks.size(), 1U);
  EXPECT_TRUE(context.stocks[0]->asked.empty());
  EXPECT_FALSE(pages.alloc());
  ASSERT_EQ(context.stocks.size(), 2U);
  EXPECT_EQ(context.stocks[0]->asked.size(), 1U);
  EXPECT_TRUE(context.stocks[1]->asked.empty());
  breeder.remove();
}

TEST(Reclaim, KnowsItsOwnAllocatorAlone) {
  const OnCpu cpu(0);
  PageAllocator pages{kSmall};
  PageAllocator other{kSmall};
  Stock stock{other, 0};
  std::vector<PageRef> taken = take_rest(pages);
  EXPECT_FALSE(pages.alloc());
  EXPECT_TRUE(stock.asked.empty());
  // A node changes over.
  pages.add_reclaimer(stock.reclaimer);
  EXPECT_FALSE(pages.alloc());
  EXPECT_EQ(stock.asked.size(), 1U);
}

TEST(Reclaim, AnAllocatorThatEndsForgetsItsNodes) {
  Reclaimer reclaimer{[](void*, PageCount, Order) noexcept {
    ADD_FAILURE() << "asked by somebody else's request";
    return std::uint64_t{0};
  }};
  {
    PageAllocator pages{kSmall};
    pages.add_reclaimer(reclaimer);
    EXPECT_TRUE(reclaimer.registered());
  }
  EXPECT_FALSE(reclaimer.registered());
  PageAllocator next{kSmall};  // in the same slot
  std::vector<PageRef> taken = take_rest(next);
  EXPECT_FALSE(next.alloc());
}

// A callback that waits until the test lets it go on.
struct Slow {
  std::latch entered{1};
  std::atomic<bool> go{false};
  std::atomic<bool> left{false};
  Reclaimer reclaimer{[](void* self, PageCount, Order) noexcept {
                        Slow& slow = *static_cast<Slow*>(self);
                        slow.entered.count_down();
                        while (!slow.go.load()) {
                          std::this_thread::sleep_for(std::chrono::microseconds(100));
                        }
                        slow.left.store(true);
                        return std::uint64_t{0};
                      },
                      this};
};

TEST(Reclaim, RemovalReturnsWhenNoThreadIsInsideAnyMore) {
  PageAllocator pages{kSmall};
  Slow slow;
  pages.add_reclaimer(slow.reclaimer);
  std::vector<PageRef> taken = take_rest(pages);
  std::thread asker([&pages] { EXPECT_FALSE(pages.alloc()); });
  slow.entered.wait();
  std::atomic<bool> removed{false};
  std::thread remover([&] {
    slow.reclaimer.remove();
    EXPECT_TRUE(slow.left.load());
    removed.store(true);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(removed.load());
  // Nobody else is held up meanwhile.
  EXPECT_FALSE(pages.alloc(Order{0}, AllocFlags::no_reclaim));
  taken.pop_back();
  taken.push_back(pages.alloc());
  EXPECT_TRUE(taken.back());
  slow.go.store(true);
  asker.join();
  remover.join();
  EXPECT_TRUE(removed.load());
}

TEST(Reclaim, AForkedChildDoesNotWaitForCallbacksOfThreadsItDoesNotHave) {
  PageAllocator pages{kSmall};
  Slow slow;
  pages.add_reclaimer(slow.reclaimer);
  std::vector<PageRef> taken = take_rest(pages);
  std::thread asker([&pages] { EXPECT_FALSE(pages.alloc()); });
  slow.entered.wait();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(30);
    slow.reclaimer.remove();
    Stock stock{pages, 0};
    const bool refused = !pages.alloc();
    ::_exit(refused && stock.asked.size() == 1 ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  slow.go.store(true);
  asker.join();
  slow.reclaimer.remove();
}

TEST(Reclaim, OneThatSaysItGaveAndDidNotIsAskedSoOftenAndNoMore) {
  const OnCpu cpu(0);
  PageAllocator pages{kSmall};
  int calls = 0;
  Reclaimer liar{[](void* raw, PageCount needed, Order) noexcept {
                   ++*static_cast<int*>(raw);
                   return needed.value;
                 },
                 &calls};
  std::vector<PageRef> taken = take_rest(pages);
  const std::uint64_t before = refusals(pages);
  pages.add_reclaimer(liar);
  EXPECT_FALSE(pages.alloc());
  EXPECT_EQ(calls, 16);
  EXPECT_FALSE(pages.alloc(Order{1}));  // blocks: once
  EXPECT_EQ(calls, 17);
  EXPECT_EQ(refusals(pages), before + 2);
  liar.remove();
}

// As many frames as there are in all, many of them in a cache that others may ask for: whoever stays
// within the whole is served, at once or when those who carry frames to and fro have passed.
TEST(Reclaim, WhoeverStaysWithinTheWholeIsServedWhileOthersComeAndGo) {
  PageAllocator pages{kSmall};
  struct Shared {
    std::mutex mutex;
    std::vector<Page*> pages;
    Reclaimer reclaimer{[](void* self, PageCount needed, Order) noexcept {
                          Shared& shared = *static_cast<Shared*>(self);
                          const std::lock_guard guard{shared.mutex};
                          const std::size_t n =
                              std::min<std::size_t>(needed.value, shared.pages.size());
                          free_bulk(std::span<Page* const>(shared.pages).last(n));
                          shared.pages.resize(shared.pages.size() - n);
                          return std::uint64_t{n};
                        },
                        this};
  } shared;
  pages.add_reclaimer(shared.reclaimer);
  constexpr std::size_t kThreads = 3;
  constexpr std::size_t kShare = kFrames / kThreads;
  std::atomic<std::uint64_t> refused{0};
  std::atomic<std::uint64_t> late{0};  // calls after the removal
  std::atomic<bool> stop{false};
  std::latch together(kThreads);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      std::vector<Page*> mine;
      together.arrive_and_wait();
      for (int step = 0; step < 3'000; ++step) {
        std::vector<Page*> some(1 + random() % 200);
        if (mine.size() + some.size() <= kShare && random() % 3 != 0) {
          // A frame may be on its way from the cache to the list and back while both are looked at.
          std::size_t n = 0;
          for (int tries = 0; tries < 1000 && n < some.size(); ++tries) {
            n += pages.alloc_burst(std::span(some).subspan(n));
          }
          refused.fetch_add(some.size() - n);
          mine.insert(mine.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(n));
          continue;
        }
        // Not back to the allocator but into the cache, as a pool would.
        const std::lock_guard guard{shared.mutex};
        const std::size_t n = std::min(mine.size(), some.size());
        shared.pages.insert(shared.pages.end(), mine.end() - static_cast<std::ptrdiff_t>(n),
                            mine.end());
        mine.resize(mine.size() - n);
      }
      free_bulk(mine);
    });
  }
  std::thread guests([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      std::atomic<int> calls{0};
      Reclaimer guest{[](void* raw, PageCount, Order) noexcept {
                        static_cast<std::atomic<int>*>(raw)->fetch_add(1);
                        return std::uint64_t{0};
                      },
                      &calls};
      pages.add_reclaimer(guest);
      LimitWatch watch{[](void*, const LimitEvent&) noexcept {}};
      pages.add_limit_watch(watch);
      std::this_thread::yield();
      guest.remove();
      const int last = calls.exchange(-1);
      std::this_thread::yield();
      late.fetch_add(calls.load() == -1 && last >= 0 ? 0 : 1);
    }
  });
  for (std::thread& thread : threads) {
    thread.join();
  }
  stop.store(true);
  guests.join();
  EXPECT_EQ(refused.load(), 0U);
  EXPECT_EQ(late.load(), 0U);
  EXPECT_NE(pages.zone().zone().counters().reclaimed.get(), 0U);
  shared.reclaimer.remove();
  free_bulk(shared.pages);
  EXPECT_EQ(pages.drain_all().code, Errc::ok);
  EXPECT_EQ(pages.zone().census().engine, kFrames);
}

// Every way into the zone fails at its k-th visit: callbacks are asked, nothing is lost, nothing leaks.
TEST(Reclaim, SurvivesExhaustionAtEveryStep) {
  if (!kTestHooks) {
    GTEST_SKIP() << "needs failpoints";
  }
  const OnCpu cpu(0);
  PageAllocator pages{kSmall};
  std::uint64_t asked = 0;
  for (const Failpoint point :
       {Failpoint::zone_take, Failpoint::zone_take_high, Failpoint::zone_take_cluster}) {
    for (std::uint64_t k = 1; k <= 6; ++k) {
      SCOPED_TRACE(std::to_string(static_cast<int>(point)) + "/" + std::to_string(k));
      Stock stock{pages, 20};
      failpoints::arm(point, k, UINT64_MAX / 2);
      std::vector<PageRef> refs(70);
      const std::size_t filled = pages.alloc_bulk(std::span(refs));
      std::vector<Page*> some(70);
      const bool exactly = pages.alloc_exactly(some);
      PageRef run = pages.alloc(Order{3});
      PageRef one = pages.alloc();
      failpoints::reset();
      asked += stock.asked.size();
      EXPECT_LE(filled, 70U);
      if (exactly) {
        free_bulk(some);
      }
      refs.clear();
      run.reset();
      one.reset();
      EXPECT_EQ(pages.zone().census().out(), stock.pages.size());
    }
    EXPECT_EQ(pages.zone().census().out(), 0U);
  }
  EXPECT_NE(asked, 0U);
}

}  // namespace
}  // namespace weir
