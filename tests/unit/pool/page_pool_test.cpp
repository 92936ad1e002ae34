// SPDX-License-Identifier: MIT
// Page pools against their contracts: where a page comes from, where it goes, what is counted, and
// how a pool ends.
#include "weir/pool/page_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "weir/base/failpoint.hpp"
#include "weir/os/clock.hpp"

namespace weir {
namespace {

std::uint64_t frames_out(PageAllocator& pages) { return pages.zone().census().out(); }

// What f does, done by a thread that owns no pool.
template <class F>
void elsewhere(F&& f) {
  std::thread{std::forward<F>(f)}.join();
}

std::vector<Page*> get_many(PagePool& pool, std::size_t n) {
  std::vector<Page*> got(n);
  EXPECT_EQ(pool.get_bulk(got), n);
  return got;
}

std::vector<PoolInfo> pools_now() {
  std::vector<PoolInfo> all(pool_list({}) + 8);
  all.resize(std::min(pool_list(all), all.size()));
  return all;
}

class PagePoolTest : public testing::Test {
 protected:
  void TearDown() override {
    failpoints::reset();
    g_pool_pause.store(nullptr);
    EXPECT_EQ(pool_list({}), 0U) << "a pool did not come to its end";
    EXPECT_EQ(frames_out(pages), 0U);
  }

  PageAllocator pages{{.capacity = 16_MiB}};
};
using PagePoolDeathTest = PagePoolTest;

static_assert(!std::is_copy_constructible_v<PoolRef> && !std::is_copy_assignable_v<PoolRef>);
static_assert(std::is_nothrow_move_constructible_v<PoolRef>);
static_assert(!std::is_copy_constructible_v<PagePool> && !std::is_move_constructible_v<PagePool>);

// ---- options -------------------------------------------------------------------------------------

TEST_F(PagePoolTest, ClampsARingThatIsTooLargeAndSaysSo) {
  PagePool pool{pages, {.ring = 1U << 20}};
  EXPECT_EQ(pool.effective().ring, kPoolRingMax);
  EXPECT_EQ(pool.info().ring_capacity, kPoolRingMax);
  EXPECT_TRUE(pool.get());
}

TEST_F(PagePoolTest, TakesAnyRingUpToTheLimitAsItIs) {
  for (const std::uint32_t ring : {0U, 1U, 1000U, kPoolRingMax}) {
    const PagePool pool{pages, {.ring = ring}};
    EXPECT_EQ(pool.effective().ring, ring);
    EXPECT_EQ(pool.info().ring_capacity, ring);
  }
}

TEST_F(PagePoolTest, RefusesZeroedPagesWhichItCouldNotDeliver) {
  EXPECT_THROW((PagePool{pages, {.flags = AllocFlags::zero}}), std::invalid_argument);
  EXPECT_THROW((PagePool{pages, {.flags = AllocFlags::zero | AllocFlags::no_wait}}),
               std::invalid_argument);
}

TEST_F(PagePoolTest, RefusesMorePoolsThanThereAreIdsAndRecovers) {
  std::vector<std::unique_ptr<PagePool>> all;
  for (std::uint32_t i = 0; i < kMaxPools; ++i) {
    all.push_back(std::make_unique<PagePool>(pages, PoolOptions{.ring = 0}));
  }
  EXPECT_THROW((PagePool{pages}), std::system_error);
  EXPECT_EQ(pool_list({}), kMaxPools);
  all.erase(all.begin() + 17);
  const PagePool again{pages};
  EXPECT_EQ(again.info().id, 17U);
}

TEST_F(PagePoolTest, CostsNothingBeforeTheFirstGet) {
  const PagePool pool{pages};
  EXPECT_EQ(frames_out(pages), 0U);
  EXPECT_EQ(pool.in_flight(), 0U);
}

// ---- get -----------------------------------------------------------------------------------------

TEST_F(PagePoolTest, FillsItsCacheInBulk) {
  PagePool pool{pages};
  const PoolRef first = pool.get();
  ASSERT_TRUE(first);
  EXPECT_EQ(frames_out(pages), kPoolRefillPages);
  const PoolInfo info = pool.info();
  EXPECT_EQ(info.in_flight, kPoolRefillPages);
  EXPECT_EQ(info.cached, kPoolRefillPages - 1);
  EXPECT_EQ(info.outstanding(), 1U);
  EXPECT_EQ(info.counters.refills, 1U);
  EXPECT_EQ(info.counters.from_allocator, kPoolRefillPages);
  EXPECT_EQ(info.counters.from_cache, 1U);
}

TEST_F(PagePoolTest, GivesTheHottestPageFirst) {
  PagePool pool{pages};
  Page* a = pool.get_page();
  Page* b = pool.get_page();
  ASSERT_NE(a, b);
  PagePool::put(a);
  PagePool::put(b);
  EXPECT_EQ(pool.get_page(), b);
  EXPECT_EQ(pool.get_page(), a);
  PagePool::put(a);
  PagePool::put(b);
}

TEST_F(PagePoolTest, ASinglePageCirclesWithoutTheAllocator) {
  PagePool pool{pages};
  for (int i = 0; i < 10'000; ++i) {
    const PoolRef page = pool.get();
    ASSERT_TRUE(page);
  }
  EXPECT_EQ(pool.info().counters.from_allocator, kPoolRefillPages);
}

TEST_F(PagePoolTest, GetsInBulkFromTheStartAcrossRefills) {
  PagePool pool{pages};
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64},
                              std::size_t{65}, std::size_t{300}}) {
    std::vector<Page*> got(n + 1, nullptr);
    EXPECT_EQ(pool.get_bulk(std::span(got).first(n)), n);
    EXPECT_EQ(got[n], nullptr);
    got.pop_back();
    EXPECT_EQ(std::set<Page*>(got.begin(), got.end()).size(), n);
    EXPECT_EQ(std::count(got.begin(), got.end(), nullptr), 0);
    EXPECT_EQ(pool.info().outstanding(), n);
    PagePool::put_bulk(got);
  }
}

TEST_F(PagePoolTest, WritesOverWhateverWasInTheBulkArray) {
  PagePool pool{pages};
  std::array<Page*, 4> got;
  got.fill(reinterpret_cast<Page*>(std::uintptr_t{0x1000}));
  EXPECT_EQ(pool.get_bulk(got), 4U);
  PagePool::put_bulk(got);
  EXPECT_EQ(pool.info().outstanding(), 0U);
}

TEST_F(PagePoolTest, SaysHowManyItGotWhenTheZoneRunsOut) {
  PagePool pool{pages};
  std::vector<Page*> got(pages.effective().managed.value + 100, nullptr);
  EXPECT_EQ(pool.get_bulk(got), pages.effective().managed.value);
  EXPECT_TRUE(pool.get().empty());
  EXPECT_EQ(pool.get_bulk(got), 0U);
  EXPECT_EQ(pool.info().counters.no_page, 3U);
  EXPECT_EQ(pool.in_flight(), pages.effective().managed.value);
  got.resize(pages.effective().managed.value);
  PagePool::put(got.back());
  got.pop_back();
  EXPECT_TRUE(pool.get());
  PagePool::put_bulk(got);
  EXPECT_EQ(pool.info().outstanding(), 0U);
}

TEST_F(PagePoolTest, AFailedRefillLeavesNothingBehind) {
  if constexpr (!kTestHooks) {
    GTEST_SKIP() << "needs failpoints";
  }
  PagePool pool{pages};
  for (const Failpoint point : {Failpoint::zone_take, Failpoint::zone_take_cluster}) {
    EXPECT_FALSE(pages.drain_all().failed());
    failpoints::fail_always(point);
    std::vector<Page*> got(100, nullptr);
    const std::size_t n = pool.get_bulk(got);
    failpoints::reset();
    got.resize(n);
    EXPECT_EQ(pool.info().outstanding(), n);
    EXPECT_EQ(std::set<Page*>(got.begin(), got.end()).size(), n);
    PagePool::put_bulk(got);
    const std::vector<Page*> more = get_many(pool, 100);
    EXPECT_EQ(std::set<Page*>(more.begin(), more.end()).size(), 100U);
    PagePool::put_bulk(more);
    pool.drain();
  }
}

TEST_F(PagePoolTest, AnotherThreadIsServedByTheAllocator) {
  PagePool pool{pages};
  PoolRef mine = pool.get();
  const std::uint32_t cached = pool.info().cached;
  PoolRef theirs;
  std::array<Page*, 100> bulk{};
  elsewhere([&] {
    theirs = pool.get();
    EXPECT_EQ(pool.get_bulk(bulk), bulk.size());
    EXPECT_EQ(pool.get_bulk({}), 0U);
  });
  ASSERT_TRUE(theirs);
  const PoolInfo info = pool.info();
  EXPECT_EQ(info.cached, cached);
  EXPECT_EQ(info.counters.elsewhere, 101U);
  EXPECT_EQ(info.outstanding(), 102U);
  theirs.reset();  // by the owner: home into the cache
  EXPECT_EQ(pool.info().cached, cached + 1);
  PagePool::put_bulk(bulk);
  EXPECT_EQ(pool.info().outstanding(), 1U);
}

TEST_F(PagePoolTest, APageOfTheReserveIsServedLastAndNeverRecycled) {
  PageAllocator small{{.capacity = 2_MiB, .reserve = PageCount{32}}};
  {
    std::vector<PageRef> rest;
    while (PageRef page = small.alloc()) {
      rest.push_back(std::move(page));
    }
    PagePool without{small};
    EXPECT_TRUE(without.get().empty());
    PagePool pool{small, {.flags = AllocFlags::emergency}};
    PoolRef page = pool.get();
    ASSERT_TRUE(page);
    EXPECT_EQ(pool.in_flight(), 1U);  // one, not a cache full
    page.reset();
    EXPECT_EQ(pool.in_flight(), 0U);
    EXPECT_EQ(pool.info().counters.left_pool, 1U);
    // The same through the ring's side and in bulk.
    Page* other = pool.get_page();
    elsewhere([&] { PagePool::put_bulk(std::span(&other, 1)); });
    EXPECT_EQ(pool.in_flight(), 0U);
    EXPECT_EQ(pool.info().counters.left_pool, 2U);
    // And every other way home.
    std::uint64_t left = 2;
    const auto each = [&](auto&& give) {
      Page* page_of_reserve = pool.get_page();
      EXPECT_TRUE(is_emergency(page_of_reserve));
      give(page_of_reserve);
      EXPECT_FALSE(is_emergency(page_of_reserve));
      EXPECT_EQ(pool.in_flight(), 0U);
      EXPECT_EQ(pool.info().counters.left_pool, ++left);
      EXPECT_EQ(small.zone().census().lists, 0U);
    };
    each([](Page* one) { PagePool::put(one); });
    each([](Page* one) { PagePool::put_bulk(std::span(&one, 1)); });
    each([](Page* one) { unref(one); });
    each([](Page* one) { free_at(address_of(one) + 77); });
    each([](Page* one) { free_bulk(std::span<Page* const>(&one, 1)); });
    each([](Page* one) {
      ASSERT_TRUE(ref(one));
      unref(one);
      elsewhere([one] { unref(one); });
    });
    rest.clear();
    EXPECT_TRUE(pool.get());
    EXPECT_EQ(pool.in_flight(), kPoolRefillPages);
  }
  EXPECT_EQ(frames_out(small), 0U);
}

// ---- reclaim -------------------------------------------------------------------------------------

// What is left of an allocator for one who asks no reclaimer.
std::vector<PageRef> take_rest(PageAllocator& pages) {
  std::vector<PageRef> taken;
  while (PageRef page = pages.alloc(Order{0}, AllocFlags::no_reclaim)) {
    taken.push_back(std::move(page));
  }
  return taken;
}

TEST_F(PagePoolTest, GivesUpItsRingBeforeAnybodyIsRefusedAndKeepsItsCache) {
  PagePool pool{pages};
  std::vector<Page*> got = get_many(pool, 300);
  elsewhere([&] { PagePool::put_bulk(got); });
  const PoolInfo before = pool.info();
  ASSERT_EQ(before.ring, 300U);
  std::vector<PageRef> taken = take_rest(pages);
  ASSERT_EQ(pool.info().ring, 300U);
  // From the owner's own thread, and from another.
  std::vector<Page*> some(100);
  EXPECT_EQ(pages.alloc_burst(some), 100U);
  EXPECT_EQ(pool.info().ring, 200U);
  EXPECT_EQ(pool.info().counters.left_pool, 100U);
  elsewhere([&] {
    std::vector<Page*> more(250);
    EXPECT_EQ(pages.alloc_burst(more), 200U);
    EXPECT_EQ(pool.info().ring, 0U);
    free_burst(std::span<Page* const>(more).first(200));
  });
  EXPECT_EQ(pool.info().cached, before.cached);
  EXPECT_EQ(pool.in_flight(), before.cached);
  free_burst(some);
}

TEST_F(PagePoolTest, GivesUpItsRingToAnotherPool) {
  PagePool pool{pages};
  std::vector<Page*> got = get_many(pool, 300);
  elsewhere([&] { PagePool::put_bulk(got); });
  std::vector<PageRef> taken = take_rest(pages);
  PagePool other{pages};
  EXPECT_TRUE(other.get());
  EXPECT_EQ(other.in_flight(), kPoolRefillPages);
  EXPECT_EQ(pool.info().ring, 300U - kPoolRefillPages);
}

TEST_F(PagePoolTest, KeepsItsRingWhenAskedTo) {
  PagePool pool{pages, {.reclaim = false}};
  std::vector<Page*> got = get_many(pool, 300);
  elsewhere([&] { PagePool::put_bulk(got); });
  std::vector<PageRef> taken = take_rest(pages);
  EXPECT_FALSE(pages.alloc());
  EXPECT_EQ(pool.info().ring, 300U);
}

TEST_F(PagePoolTest, ARingWhoseLockIsHeldIsNotWaitedFor) {
  PagePool pool{pages};
  std::vector<Page*> got = get_many(pool, 300);
  elsewhere([&] { PagePool::put_bulk(got); });
  std::vector<PageRef> taken = take_rest(pages);
  PoolBlock& block = pool_block(got[0]->owner);
  block.ring.lock().lock();  // as whatever a signal handler has interrupted
  EXPECT_FALSE(pages.alloc());
  block.ring.lock().unlock();
  EXPECT_TRUE(pages.alloc());
}

TEST_F(PagePoolTest, MayEndWhileOthersAskIt) {
  std::atomic<bool> stop{false};
  std::thread asker([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      std::vector<Page*> all(5000);
      const std::size_t n = pages.alloc_burst(all);
      free_burst(std::span<Page* const>(all).first(n));
    }
  });
  for (int round = 0; round < 100; ++round) {
    PagePool pool{pages};
    std::vector<Page*> got(100);
    const std::size_t n = pool.get_bulk(got);
    elsewhere([&] { PagePool::put_bulk(std::span<Page* const>(got).first(n)); });
  }
  stop.store(true);
  asker.join();
}

// ---- put -----------------------------------------------------------------------------------------

TEST_F(PagePoolTest, TheOwnerPutsIntoTheCacheAndOthersIntoTheRing) {
  PagePool pool{pages};
  PoolRef a = pool.get();
  PoolRef b = pool.get();
  const std::uint32_t cached = pool.info().cached;
  a.reset();
  EXPECT_EQ(pool.info().cached, cached + 1);
  elsewhere([&] { b.reset(); });
  EXPECT_EQ(pool.info().cached, cached + 1);
  EXPECT_EQ(pool.info().ring, 1U);
  EXPECT_EQ(pool.info().counters.to_cache, 1U);
  EXPECT_EQ(pool.info().counters.to_ring, 1U);
}

TEST_F(PagePoolTest, AnEmptyCacheIsFilledFromTheRingFirst) {
  PagePool pool{pages};
  const std::vector<Page*> all = get_many(pool, 2 * kPoolRefillPages);
  elsewhere([&] { PagePool::put_bulk(std::span(all).first(100)); });
  EXPECT_EQ(pool.info().ring, 100U);
  const std::vector<Page*> again = get_many(pool, 100);
  EXPECT_EQ(std::set<Page*>(again.begin(), again.end()),
            std::set<Page*>(all.begin(), all.begin() + 100));
  EXPECT_EQ(pool.info().counters.from_ring, 100U);
  EXPECT_EQ(pool.info().counters.from_allocator, 2 * kPoolRefillPages);
  PagePool::put_bulk(again);
  PagePool::put_bulk(std::span(all).subspan(100));
}

TEST_F(PagePoolTest, AFullCacheSpillsItsOldestIntoTheRing) {
  PagePool pool{pages};
  const std::vector<Page*> all = get_many(pool, 3 * kPoolRefillPages);
  ASSERT_EQ(pool.info().cached, 0U);
  for (Page* page : std::span(all).first(kPoolCachePages)) {
    PagePool::put(page);
  }
  EXPECT_EQ(pool.info().cached, kPoolCachePages);
  EXPECT_EQ(pool.info().ring, 0U);
  PagePool::put(all[kPoolCachePages]);
  EXPECT_EQ(pool.info().cached + pool.info().ring, kPoolCachePages + 1);
  EXPECT_EQ(pool.info().ring, kPoolCachePages / 2);
  EXPECT_EQ(pool.get_page(), all[kPoolCachePages]);  // the hottest stayed
  EXPECT_EQ(pool.get_page(), all[kPoolCachePages - 1]);
  PagePool::put(all[kPoolCachePages]);
  PagePool::put(all[kPoolCachePages - 1]);
  PagePool::put_bulk(std::span(all).subspan(kPoolCachePages + 1));
  EXPECT_EQ(pool.info().outstanding(), 0U);
  EXPECT_EQ(pool.info().counters.left_pool, 0U);
}

TEST_F(PagePoolTest, TheOwnersSurplusGoesToTheAllocatorWhenCacheAndRingAreFull) {
  for (const bool bulk : {false, true}) {
    PagePool pool{pages, {.ring = 10}};
    const std::vector<Page*> all = get_many(pool, 3 * kPoolRefillPages);
    const std::uint64_t before = frames_out(pages);
    if (bulk) {
      PagePool::put_bulk(all);
    } else {
      std::for_each(all.begin(), all.end(), PagePool::put);
    }
    const PoolInfo info = pool.info();
    EXPECT_EQ(info.cached, kPoolCachePages);
    EXPECT_EQ(info.ring, 10U);
    EXPECT_EQ(info.counters.ring_full, all.size() - kPoolCachePages - 10);
    EXPECT_EQ(before - frames_out(pages), info.counters.ring_full);
    EXPECT_EQ(info.outstanding(), 0U);
  }
}

TEST_F(PagePoolTest, AFullRingGivesExactlyTheSurplusToTheAllocator) {
  constexpr std::uint32_t kRing = 50;
  for (const std::uint32_t surplus : {1U, 7U, 100U}) {
    for (const bool bulk : {false, true}) {
      PagePool pool{pages, {.ring = kRing}};
      const std::vector<Page*> all = get_many(pool, kRing + surplus);
      const std::uint64_t before = frames_out(pages);
      elsewhere([&] {
        if (bulk) {
          PagePool::put_bulk(all);
        } else {
          std::for_each(all.begin(), all.end(), PagePool::put);
        }
      });
      const PoolInfo info = pool.info();
      EXPECT_EQ(info.ring, kRing);
      EXPECT_EQ(info.counters.to_ring, kRing);
      EXPECT_EQ(info.counters.ring_full, surplus);
      EXPECT_EQ(info.counters.left_pool, surplus);
      EXPECT_EQ(before - frames_out(pages), surplus);
      EXPECT_EQ(info.outstanding(), 0U);
    }
  }
}

TEST_F(PagePoolTest, WithoutARingOnlyTheOwnerRecycles) {
  PagePool pool{pages, {.ring = 0}};
  PoolRef a = pool.get();
  PoolRef b = pool.get();
  const std::uint64_t before = frames_out(pages);
  elsewhere([&] { a.reset(); });
  EXPECT_EQ(frames_out(pages), before - 1);
  b.reset();
  EXPECT_EQ(frames_out(pages), before - 1);
}

TEST_F(PagePoolTest, ARingFoundFullByChanceLosesNothing) {
  if constexpr (!kTestHooks) {
    GTEST_SKIP() << "needs failpoints";
  }
  PagePool pool{pages};
  for (std::uint64_t k = 1; k <= 5; ++k) {
    const std::vector<Page*> all = get_many(pool, 5);
    failpoints::arm(Failpoint::pool_ring, k);
    elsewhere([&] { std::for_each(all.begin(), all.end(), PagePool::put); });
    failpoints::reset();
    EXPECT_EQ(pool.info().outstanding(), 0U);
    EXPECT_EQ(pool.info().counters.ring_full, k);
  }
}

TEST_F(PagePoolTest, NothingIsPutByPuttingNothing) {
  PagePool::put(nullptr);
  PagePool::put_bulk({});
  std::array<Page*, 3> none{};
  PagePool::put_bulk(none);
  PoolRef empty;
  empty.reset();
  EXPECT_TRUE(empty.share().empty());
}

TEST_F(PagePoolTest, PagesOfOthersGoToTheirOwners) {
  PagePool a{pages};
  PagePool b{pages};
  Page* of_a = a.get_page();
  Page* of_b = b.get_page();
  Page* of_none = pages.alloc_page();
  Page* large = pages.alloc_page(Order{2});
  const std::uint64_t before = frames_out(pages);
  PagePool::put(of_none);
  PagePool::put(large);
  EXPECT_EQ(frames_out(pages), before - 5);
  PagePool::put(of_b);
  EXPECT_EQ(a.info().outstanding(), 1U);
  EXPECT_EQ(b.info().outstanding(), 0U);
  PagePool::put(of_a);
  EXPECT_EQ(a.info().outstanding(), 0U);
}

TEST_F(PagePoolTest, APageIsJudgedByItsFlagAndNotByWhatLiesInItsOwnerField) {
  PagePool pool{pages};
  Page* ours = pool.get_page();
  Page* plain = pages.alloc_page();
  plain->owner = ours->owner;  // a user may write there, or it is left from an earlier life
  const std::uint64_t in_flight = pool.in_flight();
  const std::uint64_t before = frames_out(pages);
  PagePool::put(plain);
  EXPECT_EQ(frames_out(pages), before - 1);
  EXPECT_EQ(pool.in_flight(), in_flight);
  PagePool::put(ours);
}

TEST_F(PagePoolTest, ABulkOfAllKindsSendsEachPageHome) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random{seed};
  for (const bool by_owner : {true, false}) {
    std::array<std::unique_ptr<PagePool>, 3> pools;
    std::vector<Page*> all;
    std::vector<PageRef> shared;
    for (auto& pool : pools) {
      pool = std::make_unique<PagePool>(pages, PoolOptions{.ring = 64});
      const std::vector<Page*> some = get_many(*pool, 60);
      all.insert(all.end(), some.begin(), some.end());
      ASSERT_TRUE(ref(some[0]));
      shared.emplace_back(some[0]);
    }
    for (int i = 0; i < 40; ++i) {
      all.push_back(pages.alloc_page());
      all.push_back(nullptr);
    }
    all.push_back(pages.alloc_page(Order{3}));
    std::shuffle(all.begin(), all.end(), random);
    if (by_owner) {
      PagePool::put_bulk(all);
    } else {
      elsewhere([&] { PagePool::put_bulk(all); });
    }
    std::uint64_t of_pools = 0;
    for (auto& pool : pools) {
      EXPECT_EQ(pool->info().outstanding(), 1U);
      EXPECT_EQ(pool->info().ring, by_owner ? 0U : 59U);
      of_pools += pool->in_flight();
    }
    EXPECT_EQ(frames_out(pages), of_pools);
    shared.clear();
    for (auto& pool : pools) {
      EXPECT_EQ(pool->info().outstanding(), 0U);
    }
  }
}

// ---- references ----------------------------------------------------------------------------------

TEST_F(PagePoolTest, APageComesHomeOnceWhicheverReferenceIsTheLast) {
  PagePool pool{pages};
  enum class Kind : int { pool_ref, page_ref, plain };
  std::array<Kind, 3> order{Kind::pool_ref, Kind::page_ref, Kind::plain};
  do {
    PoolRef first = pool.get();
    Page* page = first.get();
    ASSERT_TRUE(ref(page, 2));
    PageRef second{page};
    const std::uint64_t home = pool.info().cached;
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(pool.info().outstanding(), 1U);
      EXPECT_EQ(pool.info().cached, home);
      switch (order[i]) {
        case Kind::pool_ref:
          first.reset();
          break;
        case Kind::page_ref:
          second.reset();
          break;
        case Kind::plain:
          unref(page);
          break;
      }
    }
    EXPECT_EQ(pool.info().outstanding(), 0U);
    EXPECT_EQ(pool.info().cached, home + 1);
    EXPECT_EQ(page->word.load(), kSoleOwner | kPoolFlag);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(PagePoolTest, TwoHandlesOnOneHalfLeaveTheOtherHalfAlone) {
  PagePool pool{pages};
  PoolRef whole = pool.get();
  PoolRef x = whole.share();
  PoolRef y = whole.share();
  whole.reset();
  PageRef x2{nullptr};
  ASSERT_TRUE(ref(x.get()));
  x2 = PageRef{x.get()};
  x.reset();
  x2.reset();
  EXPECT_EQ(pool.info().outstanding(), 1U);
  EXPECT_EQ(ref_count(y.get()), 1U);
  std::memset(y.data(), 1, PoolRef::size().value);
  y.reset();
  EXPECT_EQ(pool.info().outstanding(), 0U);
}

TEST_F(PagePoolTest, AFreeByAddressTakesAPageHome) {
  PagePool pool{pages};
  const Page* page = pool.get_page();
  free_at(address_of(page) + 1234);
  EXPECT_EQ(pool.info().outstanding(), 0U);
}

TEST_F(PagePoolTest, FreeingInBulkByThePageLayerTakesPagesHome) {
  PagePool pool{pages};
  const std::vector<Page*> all = get_many(pool, 100);
  free_bulk(all);
  EXPECT_EQ(pool.info().outstanding(), 0U);
}

TEST_F(PagePoolTest, SharesUpToTheLimitOfTheCount) {
  PagePool pool{pages};
  PoolRef page = pool.get();
  ASSERT_TRUE(ref(page.get(), kMaxRefs - 1));
  EXPECT_TRUE(page.share().empty());
  unref_many(page.get(), kMaxRefs - 1);
  EXPECT_TRUE(page.share());
}

TEST_F(PagePoolTest, MovingPassesThePageOnOnce) {
  PagePool pool{pages};
  PoolRef a = pool.get();
  Page* page = a.get();
  PoolRef b{std::move(a)};
  EXPECT_TRUE(a.empty());  // NOLINT(bugprone-use-after-move): what a move leaves is the contract
  PoolRef& same = b;
  b = std::move(same);
  EXPECT_EQ(b.get(), page);
  PoolRef c = pool.get();
  c = std::move(b);
  EXPECT_EQ(c.get(), page);
  EXPECT_EQ(pool.info().outstanding(), 1U);
  EXPECT_EQ(c.detach(), page);
  EXPECT_TRUE(c.empty());
  PagePool::put(page);
}

// ---- wrong use -----------------------------------------------------------------------------------

TEST_F(PagePoolDeathTest, ASecondPutIsReportedAtOnceInCheckedBuilds) {
  if constexpr (!kCheckedDrops) {
    GTEST_SKIP() << "drops are verified in checked builds";
  }
  PagePool pool{pages};
  Page* page = pool.get_page();
  PagePool::put(page);
  EXPECT_DEATH(PagePool::put(page), "double free");
  EXPECT_DEATH(unref(page), "double free");
  EXPECT_DEATH(PagePool::put_bulk(std::span(&page, 1)), "double free");
  EXPECT_DEATH(PageRef{page}.reset(), "double free");
}

TEST_F(PagePoolDeathTest, ASecondPutIsReportedAtTheLatestWhenThePoolEnds) {
  EXPECT_DEATH(
      {
        PagePool pool{pages};
        Page* page = pool.get_page();
        PagePool::put(page);
        PagePool::put(page);
      },
      "double free");
}

TEST_F(PagePoolDeathTest, APutIntoAPoolThatIsGoneIsReported) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        PagePool pool{pages};
        Page* page = pool.get_page();
        page->owner -= kMaxPools;  // of the generation before
        elsewhere([&] { PagePool::put(page); });
      },
      "of a pool that is gone");
  EXPECT_DEATH(
      {
        PagePool pool{pages};
        Page* page = pool.get_page();
        page->owner = kMaxPools - 1;  // of a pool that never was
        PagePool::put(page);
      },
      "of a pool that is gone");
}

TEST_F(PagePoolTest, InFlightIsNeverNegativeWhateverIsPut) {
  PagePool a{pages};
  PagePool b{pages};
  for (int i = 0; i < 200; ++i) {
    elsewhere([&] {
      PagePool::put(a.get_page());
      PagePool::put(pages.alloc_page());
      PagePool::put(b.get_page());
    });
    for (const PoolInfo& info : pools_now()) {
      ASSERT_LE(info.in_flight, 1U << 20);
      ASSERT_LE(info.outstanding(), info.in_flight);
    }
  }
}

// ---- owners --------------------------------------------------------------------------------------

TEST_F(PagePoolTest, ThePoolMovesToAnotherThreadByAgreement) {
  PagePool pool{pages};
  Page* page = pool.get_page();
  const std::uint32_t cached = pool.info().cached;
  elsewhere([&] {
    pool.adopt_owner();
    PagePool::put(page);
    EXPECT_EQ(pool.info().cached, cached + 1);
    EXPECT_EQ(pool.get_page(), page);
  });
  PagePool::put(page);  // no longer ours: the ring
  EXPECT_EQ(pool.info().ring, 1U);
  pool.adopt_owner();
  EXPECT_TRUE(pool.get());
}

TEST_F(PagePoolTest, AnOwnerThatGivesThePoolUpIsLikeEverybodyElse) {
  PagePool pool{pages};
  Page* a = pool.get_page();
  Page* b = pool.get_page();
  pool.release_owner();
  pool.release_owner();  // again: nothing to give up
  PagePool::put(a);
  EXPECT_EQ(pool.info().ring, 1U);
  elsewhere([&] {
    const PoolRef page = pool.get();  // the next to get is the next owner
    EXPECT_TRUE(page);
    EXPECT_EQ(pool.info().counters.elsewhere, 0U);
  });
  PagePool::put(b);
  EXPECT_EQ(pool.info().ring, 2U);
}

TEST_F(PagePoolTest, ReEnablingAPoolAfterAFailedReplacementWorks) {
  PagePool old_pool{pages};
  Page* page = old_pool.get_page();
  old_pool.release_owner();
  { const PagePool replacement{pages}; }  // never used
  old_pool.adopt_owner();
  const std::uint32_t cached = old_pool.info().cached;
  PagePool::put(page);
  EXPECT_EQ(old_pool.info().cached, cached + 1);
}

TEST_F(PagePoolDeathTest, GivingUpAPoolOfAnotherThreadIsReported) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        PagePool pool{pages};
        static_cast<void>(pool.get());
        elsewhere([&] { pool.release_owner(); });
      },
      "a PagePool given up is used from a thread that does not own it");
}

TEST_F(PagePoolTest, DrainGivesCacheAndRingBackAndNothingElse) {
  PagePool pool{pages};
  const std::vector<Page*> all = get_many(pool, 200);
  elsewhere([&] {
    PagePool::put_bulk(std::span(all).first(100));
    pool.drain();  // not the owner: nothing happens
  });
  EXPECT_EQ(pool.info().ring, 100U);
  pool.drain();
  EXPECT_EQ(pool.in_flight(), 100U);
  EXPECT_EQ(pool.info().outstanding(), 100U);
  EXPECT_EQ(frames_out(pages), 100U);
  pool.drain();
  PagePool::put_bulk(std::span(all).subspan(100));
}

// ---- the end -------------------------------------------------------------------------------------

TEST_F(PagePoolTest, EndsAtOnceWhenAllPagesAreHome) {
  {
    PagePool pool{pages};
    const std::vector<Page*> all = get_many(pool, 200);
    PagePool::put_bulk(std::span(all).first(100));
    elsewhere([&] { PagePool::put_bulk(std::span(all).subspan(100)); });
    EXPECT_EQ(pool_list({}), 1U);
  }
  EXPECT_EQ(pool_list({}), 0U);
  EXPECT_EQ(frames_out(pages), 0U);
}

TEST_F(PagePoolTest, StaysVisibleUntilItsLastPageIsHome) {
  PoolRef a;
  PoolRef b;
  std::uint32_t id = 0;
  const std::uint64_t before = system_clock().now_ns();
  {
    PagePool pool{pages};
    id = pool.info().id;
    a = pool.get();
    b = pool.get();
    EXPECT_FALSE(pools_now().at(0).closed);
  }
  const std::uint64_t after = system_clock().now_ns();
  std::vector<PoolInfo> seen = pools_now();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_TRUE(seen[0].closed);
  EXPECT_EQ(seen[0].id, id);
  EXPECT_EQ(seen[0].in_flight, 2U);
  EXPECT_EQ(seen[0].cached, 0U);
  EXPECT_GE(seen[0].closed_at_ns, before);
  EXPECT_LE(seen[0].closed_at_ns, after);
  EXPECT_EQ(frames_out(pages), 2U);
  a.reset();
  EXPECT_EQ(pools_now().at(0).in_flight, 1U);
  elsewhere([&] { b.reset(); });
  EXPECT_EQ(pool_list({}), 0U);
  EXPECT_EQ(frames_out(pages), 0U);
}

TEST_F(PagePoolTest, ALatePutOfTheFormerOwnerGoesToTheAllocator) {
  std::vector<Page*> late;
  {
    PagePool pool{pages};
    late = get_many(pool, 100);
  }
  PagePool::put_bulk(std::span(late).first(50));
  EXPECT_EQ(frames_out(pages), 50U);
  EXPECT_EQ(pools_now().at(0).cached, 0U);
  for (Page* page : std::span(late).subspan(50)) {
    PagePool::put(page);
  }
}

TEST_F(PagePoolTest, AnIdIsGivenAgainOnlyAfterTheLastPageAndWithAnotherGeneration) {
  PoolRef out;
  PoolInfo first;
  {
    PagePool pool{pages};
    out = pool.get();
    first = pool.info();
  }
  {
    PagePool second{pages};
    EXPECT_NE(second.info().id, first.id);
    // Pages of both generations to come in one bulk.
    const std::array<Page*, 2> mixed{second.get_page(), out.detach()};
    elsewhere([&] { PagePool::put_bulk(mixed); });
    EXPECT_EQ(second.info().ring, 1U);
  }
  PagePool third{pages};
  EXPECT_EQ(third.info().id, first.id);
  EXPECT_GT(third.info().generation, first.generation);
  EXPECT_EQ(third.info().counters.from_allocator, 0U);
  EXPECT_FALSE(third.info().closed);
}

TEST_F(PagePoolTest, ListsEveryPoolAndSaysHowManyThereAre) {
  const PagePool a{pages, {.ring = 1}};
  const PagePool b{pages, {.ring = 2}};
  const PagePool c{pages, {.ring = 3}};
  EXPECT_EQ(pool_list({}), 3U);
  std::array<PoolInfo, 2> two;
  EXPECT_EQ(pool_list(two), 3U);
  std::array<PoolInfo, 5> five;
  EXPECT_EQ(pool_list(five), 3U);
  EXPECT_EQ(five[0].ring_capacity + five[1].ring_capacity + five[2].ring_capacity, 6U);
  EXPECT_EQ(five[3].ring_capacity, 0U);
}

TEST(PagePoolLife, PagesOutliveThePoolAndTheAllocator) {
  auto pages = std::make_unique<PageAllocator>(Options{.capacity = 4_MiB});
  auto pool = std::make_unique<PagePool>(*pages);
  PoolRef page = pool->get();
  pool.reset();
  pages.reset();
  std::memset(page.data(), 0x77, PoolRef::size().value);
  EXPECT_EQ(pool_list({}), 1U);
  page.reset();
  EXPECT_EQ(pool_list({}), 0U);
}

// ---- two threads ---------------------------------------------------------------------------------

// A thread is held at a pause point until the test lets it go.
class PauseGate {
 public:
  static void install(PoolPause place) {
    place_ = place;
    arrived_ = false;
    open_ = false;
    g_pool_pause.store([](PoolPause at) noexcept {
      if (at == place_ && !arrived_.exchange(true)) {
        while (!open_.load()) {
          std::this_thread::yield();
        }
      }
    });
  }
  static void wait() {
    while (!arrived_.load()) {
      std::this_thread::yield();
    }
  }
  static void open() { open_ = true; }

 private:
  static inline std::atomic<PoolPause> place_;
  static inline std::atomic<bool> arrived_;
  static inline std::atomic<bool> open_;
};

TEST_F(PagePoolTest, AnEndWaitsForAPutThatIsInTheRing) {
  if constexpr (!kTestHooks) {
    GTEST_SKIP() << "needs pause points";
  }
  for (const bool bulk : {false, true}) {
    auto pool = std::make_unique<PagePool>(pages);
    const std::vector<Page*> all = get_many(*pool, bulk ? 20 : 1);
    PauseGate::install(PoolPause::ring_written);
    std::thread putter{[&] {
      if (bulk) {
        PagePool::put_bulk(all);
      } else {
        PagePool::put(all[0]);
      }
    }};
    PauseGate::wait();
    std::atomic<bool> ended{false};
    std::thread ender{[&] {
      pool.reset();
      ended = true;
    }};
    // The ender cannot get past the lock that the putter holds.
    for (int i = 0; i < 1000; ++i) {
      std::this_thread::yield();
      ASSERT_FALSE(ended.load());
    }
    PauseGate::open();
    putter.join();
    ender.join();
    g_pool_pause.store(nullptr);
    EXPECT_EQ(pool_list({}), 0U);
    EXPECT_EQ(frames_out(pages), 0U);
  }
}

TEST_F(PagePoolDeathTest, AnEndWhileTheOwnerIsInsideACallIsReported) {
  if constexpr (!kTestHooks || !kAudit) {
    GTEST_SKIP() << "needs pause points and checks";
  }
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        auto pool = std::make_unique<PagePool>(pages);
        Page* page = pool->get_page();
        PauseGate::install(PoolPause::owner_section);
        std::thread ender{[&] {
          PauseGate::wait();
          pool.reset();
        }};
        PagePool::put(page);
        ender.join();
      },
      "a PagePool whose owner is inside a call is used from a thread that does not own it");
}

// Pages on their way from one thread to another, in order.
class Belt {
 public:
  void put(std::vector<Page*> pages) {
    const std::lock_guard guard{mutex_};
    belt_.insert(belt_.end(), pages.begin(), pages.end());
  }
  std::vector<Page*> take(std::size_t most) {
    const std::lock_guard guard{mutex_};
    const std::size_t n = std::min(most, belt_.size());
    const auto end = belt_.begin() + static_cast<std::ptrdiff_t>(n);
    std::vector<Page*> some(belt_.begin(), end);
    belt_.erase(belt_.begin(), end);
    return some;
  }
  void close() {
    const std::lock_guard guard{mutex_};
    closed_ = true;
  }
  bool done() {
    const std::lock_guard guard{mutex_};
    return closed_ && belt_.empty();
  }

 private:
  std::mutex mutex_;
  std::deque<Page*> belt_;
  bool closed_ = false;
};

TEST_F(PagePoolTest, ReceivesOnOneThreadAndReleasesOnAnotherWithoutLossOrDouble) {
  constexpr std::uint64_t kPages = 150'000;
  for (const std::uint32_t ring : {32U, 1024U}) {
    PagePool pool{pages, {.ring = ring}};
    Belt belt;
    std::thread releaser{[&] {
      std::uint64_t seen = 0;
      while (!belt.done()) {
        const std::vector<Page*> some = belt.take(1 + seen % 90);
        for (Page* page : some) {
          // The stamp is this page's alone until it is put.
          std::uint64_t stamp = 0;
          std::memcpy(&stamp, address_of(page), sizeof stamp);
          ASSERT_EQ(stamp, seen++);
        }
        if (seen % 2 == 0) {
          PagePool::put_bulk(some);
        } else {
          std::for_each(some.begin(), some.end(), PagePool::put);
        }
        if (some.empty()) {
          std::this_thread::yield();
        }
      }
      EXPECT_EQ(seen, kPages);
    }};
    std::uint64_t sent = 0;
    while (sent < kPages) {
      std::vector<Page*> some(std::min<std::uint64_t>(1 + sent % 70, kPages - sent));
      some.resize(pool.get_bulk(some));
      for (Page* page : some) {
        std::memcpy(address_of(page), &sent, sizeof sent);
        ++sent;
      }
      if (some.empty()) {
        std::this_thread::yield();
      }
      belt.put(std::move(some));
    }
    belt.close();
    releaser.join();
    const PoolInfo info = pool.info();
    EXPECT_EQ(info.outstanding(), 0U);
    EXPECT_EQ(info.in_flight, frames_out(pages));
    EXPECT_EQ(info.counters.from_cache, kPages);
    EXPECT_EQ(info.counters.to_ring + info.counters.ring_full, kPages);
  }
}

TEST_F(PagePoolTest, EndsWhileAnotherThreadReturnsItsPages) {
  for (int round = 0; round < 300; ++round) {
    auto pool = std::make_unique<PagePool>(pages, PoolOptions{.ring = 40});
    const std::vector<Page*> all = get_many(*pool, 100);
    std::atomic<bool> go{false};
    std::thread putter{[&] {
      while (!go.load()) {
        std::this_thread::yield();
      }
      if (round % 2 == 0) {
        std::for_each(all.begin(), all.end(), PagePool::put);
      } else {
        PagePool::put_bulk(std::span(all).first(30));
        PagePool::put_bulk(std::span(all).subspan(30));
      }
    }};
    go = true;
    pool.reset();
    // Its memory may be another pool's at once.
    const PagePool next{pages, {.ring = 8}};
    putter.join();
    ASSERT_EQ(pool_list({}), 1U);
    ASSERT_EQ(frames_out(pages), 0U);
  }
}

TEST_F(PagePoolTest, TwoThreadsDropTheLastTwoReferencesAtOnce) {
  PagePool pool{pages};
  for (int round = 0; round < 200; ++round) {
    const std::vector<Page*> all = get_many(pool, 100);
    for (Page* page : all) {
      ASSERT_TRUE(ref(page));
    }
    std::atomic<int> ready{0};
    const auto meet = [&] {
      ++ready;
      while (ready.load() != 2) {
        std::this_thread::yield();
      }
    };
    std::thread other{[&] {
      meet();
      std::for_each(all.begin(), all.end(), [](Page* page) { unref(page); });
    }};
    meet();
    if (round % 2 == 0) {
      PagePool::put_bulk(all);
    } else {
      std::for_each(all.begin(), all.end(), PagePool::put);
    }
    other.join();
    ASSERT_EQ(pool.info().outstanding(), 0U) << round;
  }
  EXPECT_EQ(pool.info().counters.left_pool, 0U);
}

TEST_F(PagePoolTest, CanBeLookedAtWhileItWorks) {
  std::atomic<bool> done{false};
  std::thread reader{[&] {
    std::array<PoolInfo, 4> infos;
    while (!done.load()) {
      const std::size_t n = pool_list(infos);
      for (const PoolInfo& info : std::span(infos).first(n)) {
        ASSERT_LE(info.in_flight, pages.effective().managed.value);
        ASSERT_LE(info.cached, kPoolCachePages);
        ASSERT_LE(info.ring, info.ring_capacity);
      }
    }
  }};
  std::mt19937 random{1};
  for (int round = 0; round < 20; ++round) {
    PagePool pool{pages, {.ring = 16}};
    std::thread putter;
    for (int i = 0; i < 100; ++i) {
      std::vector<Page*> some = get_many(pool, 1 + random() % 200);
      if (putter.joinable()) {
        putter.join();
      }
      putter = std::thread{[mine = std::move(some)] { PagePool::put_bulk(mine); }};
    }
    putter.join();
  }
  done = true;
  reader.join();
}

// ---- a random run against a side table -----------------------------------------------------------

TEST_F(PagePoolTest, KeepsEveryPageOnceInARandomRunOverSeveralPools) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random{seed};
  std::vector<std::unique_ptr<PagePool>> pools;
  std::vector<Page*> held;
  std::set<Page*> live;
  for (int step = 0; step < 40'000; ++step) {
    const unsigned what = random() % 100;
    if (pools.empty() || (what == 0 && pools.size() < 5)) {
      pools.push_back(std::make_unique<PagePool>(
          pages, PoolOptions{.ring = static_cast<std::uint32_t>(random() % 100)}));
    } else if (what == 1) {
      pools.erase(pools.begin() + static_cast<std::ptrdiff_t>(random() % pools.size()));
    } else if (what < 50) {
      std::vector<Page*> got(1 + random() % 20);
      got.resize(pools[random() % pools.size()]->get_bulk(got));
      for (Page* page : got) {
        ASSERT_TRUE(live.insert(page).second) << "handed out twice";
        held.push_back(page);
      }
    } else if (what == 50) {
      pools[random() % pools.size()]->drain();
    } else if (what == 51) {
      pools[random() % pools.size()]->release_owner();
    } else if (!held.empty()) {
      std::shuffle(held.end() - static_cast<std::ptrdiff_t>(std::min<std::size_t>(held.size(), 20)),
                   held.end(), random);
      const std::size_t n = 1 + random() % std::min<std::size_t>(held.size(), 20);
      const std::vector<Page*> some(held.end() - static_cast<std::ptrdiff_t>(n), held.end());
      held.resize(held.size() - n);
      for (Page* page : some) {
        live.erase(page);
      }
      if (what < 60) {
        elsewhere([&] { PagePool::put_bulk(some); });
      } else if (what < 80) {
        PagePool::put_bulk(some);
      } else {
        std::for_each(some.begin(), some.end(), [](Page* page) { unref(page); });
      }
    }
    if (step % 64 == 0) {
      std::uint64_t in_flight = 0;
      std::uint64_t outstanding = 0;
      for (const PoolInfo& info : pools_now()) {
        in_flight += info.in_flight;
        outstanding += info.outstanding();
      }
      ASSERT_EQ(outstanding, held.size());
      ASSERT_EQ(in_flight, frames_out(pages));
    }
  }
  PagePool::put_bulk(held);
  pools.clear();
}

}  // namespace
}  // namespace weir
