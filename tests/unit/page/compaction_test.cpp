// SPDX-License-Identifier: MIT
// Movable pages and what carrying them together wins: large blocks where only single frames were free.
#include "weir/page/compaction.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/support/movable_store.hpp"
#include "weir/page/page_allocator.hpp"

namespace weir {
namespace {

using test::MovableStore;

constexpr Bytes kCapacity = 32_MiB;
constexpr std::uint64_t kBlocks = 16;

class Compaction : public testing::TestWithParam<EngineChoice> {
 protected:
  [[nodiscard]] static Options options() {
    Options options;
    options.capacity = kCapacity;
    options.engine = GetParam();
    return options;
  }
  // Every frame is a movable page, then each goes with this probability.
  void scatter(double share, unsigned seed = 1) {
    while (store.add()) {
    }
    std::mt19937 random(seed);
    std::bernoulli_distribution goes(share);
    for (std::size_t i = store.size(); i-- > 0;) {
      if (goes(random)) {
        store.drop(i);
      }
    }
    EXPECT_FALSE(pages.drain_all().failed());
  }
  // The same of another mover.
  std::vector<PageRef> scattered_of(PageMover& mover) {
    std::vector<PageRef> all;
    while (Page* const page = pages.alloc_movable(mover)) {
      all.emplace_back(page);
    }
    std::mt19937 random(5);
    std::shuffle(all.begin(), all.end(), random);
    all.resize(all.size() / 2);
    EXPECT_FALSE(pages.drain_all().failed());
    return all;
  }
  [[nodiscard]] std::uint64_t free() { return pages.zone().zone().free_pages(); }
  [[nodiscard]] std::uint64_t whole_blocks() {
    const Zone& zone = pages.zone().zone();
    return zone.free_blocks(kPageblockOrder) + 2 * zone.free_blocks(kMaxOrder);
  }
  void check_conservation() {
    std::uint64_t live = 0;
    for (std::size_t i = 0; i < store.size(); ++i) {
      live += frames_in(order_of(store.page(i)));
    }
    EXPECT_FALSE(pages.drain_all().failed());
    EXPECT_EQ(pages.zone().census().out(), live);
    EXPECT_EQ(pages.zone().zone().audit(), free());
    EXPECT_EQ(store.wrong(), 0U);
  }

  PageAllocator pages{options()};
  MovableStore store{pages};
};
INSTANTIATE_TEST_SUITE_P(Engines, Compaction,
                         testing::Values(EngineChoice::buddy, EngineChoice::bitmap),
                         [](const auto& engine) {
                           return engine.param == EngineChoice::buddy ? "Buddy" : "Bitmap";
                         });

TEST_P(Compaction, CarriesNothingOutOfAPinnedPageblock) {
  scatter(0.5);
  const Extent& extent = pages.effective().extent;
  Result<Pin> all = pages.pin({extent.base, extent.size.value});
  ASSERT_TRUE(all);
  static_cast<void>(pages.compact());
  EXPECT_EQ(store.isolated(), 0U) << "its owner was asked";
  EXPECT_EQ(store.migrated(), 0U);
  Result<Pin> half = pages.pin({extent.base, extent.size.value / 2});
  ASSERT_TRUE(half);
  all->release();
  const auto below = [&] {
    std::set<Page*> set;
    for (std::size_t i = 0; i < store.size(); ++i) {
      if (address_of(store.page(i)) < extent.base + extent.size.value / 2) {
        set.insert(store.page(i));
      }
    }
    return set;
  };
  const std::set<Page*> before = below();
  static_cast<void>(pages.compact());
  EXPECT_GT(store.migrated(), 0U) << "the other half is free to go";
  const std::set<Page*> after = below();
  EXPECT_TRUE(std::includes(after.begin(), after.end(), before.begin(), before.end()));
  check_conservation();
}

TEST_P(Compaction, EmptiesAsManyPageblocksAsThereIsRoomForWhatLivesInThem) {
  for (const double share : {0.5, 0.8, 0.2}) {
    store.clear();
    scatter(share);
    ASSERT_EQ(whole_blocks(), 0U);
    const std::uint64_t possible = free() / 512;
    const std::uint64_t live = store.size();
    const std::uint64_t migrated = store.migrated();
    const CompactionReport report = pages.compact();
    EXPECT_EQ(whole_blocks(), possible) << share;
    EXPECT_EQ(report.emptied, possible);
    EXPECT_EQ(report.failed, 0U);
    EXPECT_EQ(report.moved, store.migrated() - migrated);
    // The emptiest are emptied: no more than that share of all that live.
    EXPECT_LE(report.moved, live * possible / kBlocks);
    EXPECT_EQ(store.size(), live);
    check_conservation();
  }
}

TEST(PageMover, NeedsAllThreeOfItsSteps) {
  const MoveSteps all{[](void*, Page*) noexcept { return false; },
                      [](void*, Page*, Page*) noexcept { return false; },
                      [](void*, Page*) noexcept {}};
  EXPECT_NO_THROW(PageMover{all});
  for (int missing = 0; missing < 3; ++missing) {
    MoveSteps some = all;
    some.isolate = missing == 0 ? nullptr : some.isolate;
    some.migrate = missing == 1 ? nullptr : some.migrate;
    some.put_back = missing == 2 ? nullptr : some.put_back;
    EXPECT_THROW(PageMover{some}, std::invalid_argument);
  }
}

TEST_P(Compaction, CarriesNothingWhenNothingCanBeWon) {
  EXPECT_EQ(pages.compact().moved, 0U);
  while (store.add()) {
  }
  EXPECT_EQ(pages.compact().moved, 0U);
  store.clear();
  for (int i = 0; i < 100; ++i) {
    store.add();
  }
  EXPECT_EQ(pages.compact().moved, 0U) << "they are together already";
}

TEST_P(Compaction, CarriesPagesOfSeveralFramesAsTheyAre) {
  std::mt19937 random(3);
  for (;;) {
    const unsigned order = random() % 5;
    if (!store.add(Order{order})) {
      break;
    }
  }
  for (std::size_t i = store.size(); i-- > 0;) {
    if (random() % 2 == 0) {
      store.drop(i);
    }
  }
  const std::uint64_t before = whole_blocks();
  const CompactionReport report = pages.compact();
  EXPECT_GT(report.emptied, 3U);
  EXPECT_EQ(whole_blocks(), before + report.emptied);
  check_conservation();
}

// Somebody else looks at one page of each pageblock.
TEST_P(Compaction, APageThatIsSharedStaysAndKeepsItsPageblock) {
  scatter(0.5);
  std::vector<PageRef> shared(kBlocks);
  const std::uint32_t first = pages.zone().pieces().front().first.value;
  for (std::size_t i = 0; i < store.size(); ++i) {
    Page* const page = store.page(i);
    const std::size_t block = (index_of(page).value - first) / 512;
    if (shared[block].empty()) {
      ASSERT_TRUE(ref(page));
      shared[block] = PageRef{page};
    }
  }
  EXPECT_EQ(pages.compact().emptied, 0U);
  EXPECT_EQ(whole_blocks(), 0U);
  for (const PageRef& page : shared) {
    EXPECT_EQ(ref_count(page.get()), 2U);
  }
  shared.clear();
  EXPECT_GT(pages.compact().emptied, 0U);
  check_conservation();
}

// One page of each pageblock is nobody's to carry: what lives beside it is not carried in vain.
TEST_P(Compaction, APinnedPageSavesItsNeighboursTheMove) {
  std::vector<PageRef> pinned(kBlocks * 512);
  ASSERT_EQ(pages.alloc_bulk(pinned), pinned.size());
  const std::uint32_t first = pages.zone().pieces().front().first.value;
  std::erase_if(pinned, [first](const PageRef& page) {
    return (index_of(page.get()).value - first) % 512 != 200;
  });
  ASSERT_EQ(pinned.size(), kBlocks);
  scatter(0.5);
  EXPECT_EQ(pages.compact().moved, 0U);
  EXPECT_EQ(store.isolated(), 0U);
  EXPECT_TRUE(pages.alloc(kPageblockOrder).empty());
  EXPECT_EQ(store.isolated(), 0U);
  pinned.clear();
  EXPECT_GT(pages.compact().emptied, 0U);
  check_conservation();
}

TEST_P(Compaction, AnOwnerMayRefuseEitherStepAndNothingIsLost) {
  for (int which = 0; which < 2; ++which) {
    store.clear();
    scatter(0.5);
    store.refuse_isolate_every(which == 0 ? 100 : 0);
    store.refuse_migrate_every(which == 1 ? 100 : 0);
    const std::uint64_t put_back = store.put_back();
    const CompactionReport report = pages.compact();
    EXPECT_GT(report.refused, 0U);
    EXPECT_GT(report.failed, 0U);
    EXPECT_EQ(store.put_back() - put_back, which == 1 ? report.refused : 0);
    store.refuse_isolate_every(0);
    store.refuse_migrate_every(0);
    check_conservation();
    pages.compact();
    EXPECT_GE(whole_blocks(), free() / 512 - 1);
    check_conservation();
  }
}

TEST_P(Compaction, WithoutItsMoverAPageIsPinned) {
  scatter(0.5);
  store.mover().remove();
  EXPECT_EQ(pages.alloc_movable(store.mover()), nullptr);
  EXPECT_EQ(pages.compact().moved, 0U);
  EXPECT_EQ(whole_blocks(), 0U);
  pages.add_mover(store.mover());
  EXPECT_EQ(pages.compact().moved, 0U) << "these were of the registration that has ended";
  check_conservation();
}

TEST_P(Compaction, ARequestForALargeBlockMakesItsOwnRoom) {
  scatter(0.5);
  ASSERT_EQ(whole_blocks(), 0U);
  for (const unsigned order : {9U, 10U, 8U, 5U}) {
    const std::uint64_t moved = store.migrated();
    const PageRef page = pages.alloc(Order{order});
    EXPECT_FALSE(page.empty()) << order;
    EXPECT_LE(store.migrated() - moved, order == 10 ? 700U : 350U) << "no more than it needs";
  }
  check_conservation();
}

TEST_P(Compaction, NoWaitAndNoReclaimCarryNothing) {
  scatter(0.5);
  EXPECT_TRUE(pages.alloc(kPageblockOrder, AllocFlags::no_wait).empty());
  EXPECT_TRUE(pages.alloc(kPageblockOrder, AllocFlags::no_reclaim).empty());
  EXPECT_EQ(store.migrated(), 0U);
}

TEST_P(Compaction, FailuresPutItOff) {
  scatter(0.5);
  store.refuse_isolate_every(1);
  const auto runs = [&] { return pages.zone().zone().counters().compactions.get(); };
  const auto deferred = [&] { return pages.zone().zone().counters().compactions_deferred.get(); };
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(pages.alloc(kPageblockOrder).empty());
  }
  EXPECT_EQ(runs(), 4U) << "the first, then every 2nd, 4th, 8th";
  EXPECT_EQ(deferred(), 16U);
  store.refuse_isolate_every(0);
  std::uint64_t asked = 0;
  while (pages.alloc(kPageblockOrder).empty()) {
    ASSERT_LT(++asked, 20U);
  }
  EXPECT_FALSE(pages.alloc(kPageblockOrder).empty()) << "a success ends it";
}

TEST_P(Compaction, ALongRunIsMadeOfWhatCanBeCarriedAway) {
  scatter(0.6);
  ASSERT_EQ(whole_blocks(), 0U);
  PageRun run = pages.alloc_contiguous({4 * 512 + 17});
  ASSERT_FALSE(run.empty());
  std::memset(run.data(), 0x55, run.size().value);
  EXPECT_EQ(store.wrong(), 0U);
  const std::uint64_t live = store.size();
  EXPECT_FALSE(pages.drain_all().failed());
  EXPECT_EQ(pages.zone().census().out(), live + 4 * 512 + 17);
  run.reset();
  check_conservation();
}

// What a step asks of weir waits for nobody: not for the end of the very compaction it is part of.
TEST_P(Compaction, AStepMayAllocateUntilItIsRefused) {
  struct Asked {
    PageAllocator& pages;
    std::vector<Page*> got;
    Error drained = kOk;
    Error limited = kOk;
  } asked{pages, {}, kOk, kOk};
  PageMover greedy{
      {[](void* context, Page*) noexcept {
         Asked& all = *static_cast<Asked*>(context);
         while (Page* page = all.pages.alloc_page()) {
           all.got.push_back(page);
         }
         all.drained = all.pages.drain_all();
         all.limited = all.pages.set_limits(PageCount{100}, PageCount{0});
         return false;
       },
       [](void*, Page*, Page*) noexcept { return false; }, [](void*, Page*) noexcept {}},
      &asked};
  pages.add_mover(greedy);
  std::vector<PageRef> own = scattered_of(greedy);
  pages.compact();
  // The engine under a lock serves no thread that bears a mark.
  EXPECT_EQ(asked.got.empty(), GetParam() == EngineChoice::buddy);
  EXPECT_EQ(asked.drained.code, Errc::would_block);
  EXPECT_EQ(asked.limited.code, Errc::would_block);
  for (Page* const page : asked.got) {
    unref(page);
  }
  own.clear();
  greedy.remove();
  check_conservation();
}

// A mover may remove itself in a step, and be destroyed there: nobody asks it again, and its page stays.
TEST_P(Compaction, AMoverMayEndInItsStep) {
  struct Ending {
    std::unique_ptr<PageMover> mover;
    int after = 0;
  } ending;
  ending.mover = std::make_unique<PageMover>(
      MoveSteps{[](void* context, Page*) noexcept {
                  Ending& all = *static_cast<Ending*>(context);
                  all.after += all.mover == nullptr ? 1 : 0;
                  all.mover.reset();
                  return true;
                },
                [](void* context, Page*, Page*) noexcept {
                  ++static_cast<Ending*>(context)->after;
                  return false;
                },
                [](void* context, Page*) noexcept { ++static_cast<Ending*>(context)->after; }},
      &ending);
  pages.add_mover(*ending.mover);
  std::vector<PageRef> own = scattered_of(*ending.mover);
  pages.compact();
  EXPECT_EQ(ending.mover, nullptr) << "it was never asked";
  EXPECT_EQ(ending.after, 0);
  for (const PageRef& page : own) {
    EXPECT_EQ(ref_count(page.get()), 1U);
  }
  own.clear();
  check_conservation();
}

// An owner adds and drops pages in two threads; others take and give ordinary ones, large ones too; a third
// compacts all the time.
TEST_P(Compaction, LosesNothingWhileEverybodyIsAtWork) {
  while (store.size() < 3000 && store.add()) {
  }
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 2; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      while (!stop.load(std::memory_order_relaxed)) {
        if (random() % 2 == 0) {
          store.add(Order{random() % 8 == 0 ? static_cast<unsigned>(random() % 3) : 0});
        } else if (store.size() > 1000) {
          store.drop(random());
        }
      }
    });
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed + 77);
      std::vector<PageRef> mine;
      while (!stop.load(std::memory_order_relaxed)) {
        if (mine.size() < 200 && random() % 2 == 0) {
          mine.push_back(
              pages.alloc(Order{random() % 10 == 0 ? 9 : static_cast<unsigned>(random() % 3)}));
        } else if (!mine.empty()) {
          mine[random() % mine.size()].reset();
        }
        std::erase_if(mine, [](const PageRef& ref) { return ref.empty(); });
      }
    });
  }
  std::uint64_t emptied = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (int i = 0; i < 100 || (emptied < 5 && std::chrono::steady_clock::now() < until); ++i) {
    emptied += pages.compact().emptied;
    pages.alloc_contiguous({1025}).reset();
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_GT(store.migrated(), 0U);
  EXPECT_GT(emptied, 0U);
  check_conservation();
  store.clear();
  EXPECT_FALSE(pages.drain_all().failed());
  EXPECT_EQ(free(), whole_pages(kCapacity).value);
  EXPECT_EQ(pages.zone().zone().free_blocks(kMaxOrder), 8U);
}

}  // namespace
}  // namespace weir
