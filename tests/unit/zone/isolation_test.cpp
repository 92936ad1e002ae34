// SPDX-License-Identifier: MIT
// Pageblocks that are named: withheld, taken out of, taken whole; blocks made two of; and who can move apart
// from who cannot. One suite for both engines.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/support/side_table.hpp"
#include "tests/unit/zone/engine_range.hpp"
#include "weir/zone/bitmap_engine.hpp"
#include "weir/zone/locked_engine.hpp"

namespace weir {
namespace {

using test::EngineRange;
using test::SideTable;

struct Bitmap {
  BitmapEngine engine;
};
struct Locked {
  Locked() { engine.open(BuddyMerge::eager); }
  ZoneCounters counters;
  LockedEngine engine{counters};
};

template <class Kind>
struct Stocked : EngineRange, Kind {
  explicit Stocked(std::uint64_t frames, std::uint64_t offset = 0) : EngineRange(frames, offset) {
    EXPECT_FALSE(this->engine.adopt(first(), PageCount{frames}).failed());
  }
  [[nodiscard]] PageIndex take(unsigned order = 0, Mobility mobility = Mobility::pinned) {
    return this->engine.take(Order{order}, 0, 0, mobility);
  }
  void give(PageIndex page, unsigned order = 0) { this->engine.give(page, Order{order}); }
  [[nodiscard]] std::vector<PageIndex> take_all(unsigned order = 0) {
    std::vector<PageIndex> pages;
    for (PageIndex page = take(order); page != kNoPage; page = take(order)) {
      pages.push_back(page);
    }
    return pages;
  }
  [[nodiscard]] std::uint64_t block_of(PageIndex page) const {
    return (page.value - first().value) / kPageblockFrames;
  }
  [[nodiscard]] PageIndex block(std::uint64_t i) const { return frame(i * kPageblockFrames); }
};

template <class Kind>
class Isolation : public testing::Test {};
using Kinds = testing::Types<Locked, Bitmap>;
TYPED_TEST_SUITE(Isolation, Kinds);

TYPED_TEST(Isolation, NobodyGetsWhatIsFreeThereOrComesBackUntilItEnds) {
  Stocked<TypeParam> stock(4 * kPageblockFrames);
  std::vector<PageIndex> all = stock.take_all();
  ASSERT_EQ(all.size(), stock.frames());
  std::sort(all.begin(), all.end());
  for (std::uint32_t i = 0; i < 100; ++i) {
    stock.give(all[kPageblockFrames + i]);  // of block 1
  }
  ASSERT_TRUE(stock.engine.isolate(stock.block(1), 0));
  EXPECT_EQ(stock.engine.free_pages(), 0U);
  EXPECT_EQ(stock.take(), kNoPage);
  EXPECT_TRUE(stock.engine.pageblock(stock.block(1)).isolated);
  EXPECT_EQ(stock.engine.pageblock(stock.block(1)).free, 100U);
  for (std::uint32_t i = 100; i < 200; ++i) {
    stock.give(all[kPageblockFrames + i]);
  }
  stock.engine.give_many(Order{0}, &all[kPageblockFrames + 200], 64);  // one word
  const PageIndex scattered[] = {all[kPageblockFrames + 300], all[5], all[kPageblockFrames + 270]};
  stock.engine.give_many(Order{0}, scattered, 3);
  EXPECT_EQ(stock.engine.free_pages(), 1U);
  EXPECT_EQ(stock.take(), all[5]);
  EXPECT_EQ(stock.take(), kNoPage);
  EXPECT_FALSE(stock.engine.take_isolated(stock.block(1)));
  EXPECT_EQ(stock.engine.pageblock(stock.block(1)).free, 266U);
  stock.engine.audit();

  stock.engine.end_isolation(stock.block(1));
  EXPECT_FALSE(stock.engine.pageblock(stock.block(1)).isolated);
  EXPECT_EQ(stock.engine.free_pages(), 266U);
  EXPECT_EQ(stock.engine.audit(), 266U);
  for (std::uint32_t i = 0; i < 266; ++i) {
    EXPECT_EQ(stock.block_of(stock.take()), 1U);
  }
  EXPECT_EQ(stock.take(), kNoPage);
}

TYPED_TEST(Isolation, LargerBlocksThatComeBackAreWithheldAndMergeAtTheEnd) {
  Stocked<TypeParam> stock(2 * kPageblockFrames);
  std::vector<PageIndex> blocks[4];
  const unsigned orders[] = {3, 6, 7, 8};
  for (unsigned i = 0; i < 4; ++i) {
    blocks[i].push_back(stock.take(orders[i]));
  }
  std::vector<PageIndex> rest = stock.take_all();
  const PageIndex here = stock.block(stock.block_of(blocks[3][0]));
  ASSERT_TRUE(stock.engine.isolate(here, 0));
  for (unsigned i = 0; i < 4; ++i) {
    stock.give(blocks[i][0], orders[i]);
    EXPECT_EQ(page_at(blocks[i][0])->word.load(), kSoleOwner);
  }
  for (const PageIndex page : rest) {
    stock.give(page);
  }
  EXPECT_EQ(stock.engine.free_pages(), kPageblockFrames);
  EXPECT_EQ(stock.engine.free_blocks(Order{9}), 1U);
  EXPECT_EQ(stock.engine.free_blocks(Order{10}), 0U);
  stock.engine.end_isolation(here);
  EXPECT_EQ(stock.engine.free_blocks(Order{10}), 1U);
  EXPECT_EQ(stock.engine.audit(), stock.frames());
}

TYPED_TEST(Isolation, EitherHalfOfALargestBlockCanBeWithheld) {
  for (const std::uint64_t half : {0U, 1U}) {
    Stocked<TypeParam> stock(2 * kPageblockFrames);
    ASSERT_TRUE(stock.engine.isolate(stock.frame(half * kPageblockFrames + 77), 0));
    EXPECT_EQ(stock.engine.free_pages(), kPageblockFrames);
    EXPECT_EQ(stock.take(10), kNoPage);
    const PageIndex other = stock.take(9);
    EXPECT_EQ(stock.block_of(other), 1 - half);
    EXPECT_EQ(stock.take(9), kNoPage);
    ASSERT_TRUE(stock.engine.take_isolated(stock.block(half)));
    EXPECT_EQ(order_of(page_at(stock.block(half))), kPageblockOrder);
    EXPECT_EQ(page_at(stock.block(half))->word.load(), kSoleOwner | kHighOrderFlag);
    EXPECT_TRUE(stock.engine.pageblock(stock.block(half)).whole);
    stock.give(stock.block(half), 9);
    stock.give(other, 9);
    EXPECT_EQ(stock.engine.free_blocks(Order{10}), 1U);
    EXPECT_EQ(stock.engine.audit(), stock.frames());
  }
}

TYPED_TEST(Isolation, SeveralThatAdjoinAreWithheldAndTakenOneAfterTheOther) {
  Stocked<TypeParam> stock(8 * kPageblockFrames);
  for (std::uint64_t i = 2; i < 7; ++i) {
    ASSERT_TRUE(stock.engine.isolate(stock.block(i), 0));
  }
  EXPECT_EQ(stock.engine.free_pages(), 3 * kPageblockFrames);
  for (std::uint64_t i = 2; i < 5; ++i) {
    ASSERT_TRUE(stock.engine.take_isolated(stock.block(i)));
  }
  stock.engine.end_isolation(stock.block(5));
  stock.engine.end_isolation(stock.block(6));
  EXPECT_EQ(stock.engine.free_pages(), 5 * kPageblockFrames);
  EXPECT_EQ(stock.engine.audit(), 5 * kPageblockFrames);
  for (std::uint64_t i = 2; i < 5; ++i) {
    stock.give(stock.block(i), 9);
  }
  EXPECT_EQ(stock.engine.free_blocks(Order{10}), 4U);
}

TYPED_TEST(Isolation, IsRefusedForWhatIsOutAsAWholeAndTwice) {
  Stocked<TypeParam> stock(6 * kPageblockFrames);
  const PageIndex nine = stock.take(9);
  const PageIndex ten = stock.take(10);
  EXPECT_FALSE(stock.engine.isolate(nine, 0));
  EXPECT_FALSE(stock.engine.isolate(ten, 0));
  EXPECT_FALSE(stock.engine.isolate(advance(ten, kPageblockFrames), 0));
  EXPECT_EQ(stock.engine.free_pages(), 3 * kPageblockFrames);
  std::uint64_t free = 0;
  while (stock.engine.pageblock(stock.block(free)).whole) {
    ++free;
  }
  ASSERT_TRUE(stock.engine.isolate(stock.block(free), 0));
  EXPECT_FALSE(stock.engine.isolate(stock.block(free), 0));
  stock.engine.end_isolation(stock.block(free));
  EXPECT_EQ(stock.engine.free_pages(), 3 * kPageblockFrames);
}

TYPED_TEST(Isolation, LeavesTheReserveAndWhatIsClaimed) {
  Stocked<TypeParam> stock(2 * kPageblockFrames);
  EXPECT_FALSE(stock.engine.isolate(stock.block(0), kPageblockFrames + 1));
  EXPECT_EQ(stock.engine.free_pages(), stock.frames());
  EXPECT_EQ(stock.engine.free_blocks(Order{10}), 1U);
  ASSERT_TRUE(stock.engine.claim(kPageblockFrames + 1, 0));
  EXPECT_FALSE(stock.engine.isolate(stock.block(0), 0));
  EXPECT_EQ(stock.engine.free_pages(), kPageblockFrames - 1);
  PageIndex pages[1];
  stock.engine.take_claimed(pages, 1, 0);
  stock.engine.unclaim(kPageblockFrames);
  ASSERT_TRUE(
      stock.engine.isolate(stock.block(1 - stock.block_of(pages[0])), kPageblockFrames - 1));
  EXPECT_EQ(stock.engine.free_pages(), kPageblockFrames - 1);
  EXPECT_FALSE(stock.engine.claim(kPageblockFrames, 0));
}

TYPED_TEST(Isolation, TakesOutOfThePageblockThatIsNamedAlone) {
  Stocked<TypeParam> stock(6 * kPageblockFrames, 3 * kPageblockFrames);
  for (unsigned order = 0; order < 9; ++order) {
    for (const std::uint64_t block : {0U, 1U, 4U}) {
      std::vector<PageIndex> pages;
      for (;;) {
        const PageIndex page =
            stock.engine.take_in(stock.block(block), Order{order}, 0, Mobility::movable);
        if (page == kNoPage) {
          break;
        }
        ASSERT_EQ(stock.block_of(page), block);
        EXPECT_EQ(order_of(page_at(page)), Order{order});
        EXPECT_EQ(page_at(page)->state.load(), FrameState::kTaken);
        pages.push_back(page);
      }
      EXPECT_EQ(pages.size(), kPageblockFrames >> order);
      for (const PageIndex page : pages) {
        stock.give(page, order);
      }
      EXPECT_EQ(stock.engine.audit(), stock.frames());
    }
  }
  EXPECT_EQ(stock.engine.take_in(stock.block(0), Order{0}, stock.frames(), Mobility::movable),
            kNoPage);
  ASSERT_TRUE(stock.engine.isolate(stock.block(0), 0));
  EXPECT_EQ(stock.engine.take_in(stock.block(0), Order{0}, 0, Mobility::movable), kNoPage);
}

TYPED_TEST(Isolation, ABlockThatIsOutBecomesTwoDownToSingleFrames) {
  for (unsigned order = 1; order <= kMaxOrderValue; ++order) {
    Stocked<TypeParam> stock(2 * kMaxBlockFrames);
    const PageIndex head = stock.take(order);
    std::vector<std::pair<PageIndex, unsigned>> parts{{head, order}};
    std::mt19937 random(order);
    while (parts.size() < frames_in(Order{order})) {
      const std::size_t i = random() % parts.size();
      if (parts[i].second == 0) {
        continue;
      }
      const auto [page, size] = parts[i];
      stock.engine.split(page, Order{size});
      parts[i].second = size - 1;
      parts.emplace_back(advance(page, 1U << (size - 1)), size - 1);
      for (const auto& [part, k] : {parts[i], parts.back()}) {
        ASSERT_EQ(order_of(page_at(part)), Order{k});
        ASSERT_EQ(page_at(part)->state.load(), FrameState::kTaken);
        ASSERT_EQ(page_at(part)->word.load(), kSoleOwner | (k > 0 ? kHighOrderFlag : 0));
      }
      if (parts.size() == 7 || (order > 8 && random() % 8 == 0)) {
        break;
      }
    }
    EXPECT_EQ(stock.engine.audit(), stock.frames() - frames_in(Order{order}));
    EXPECT_EQ(stock.engine.free_pages(), stock.frames() - frames_in(Order{order}));
    std::shuffle(parts.begin(), parts.end(), random);
    for (const auto& [page, k] : parts) {
      stock.give(page, k);
    }
    EXPECT_EQ(stock.engine.free_blocks(Order{10}), 2U);
    EXPECT_EQ(stock.engine.audit(), stock.frames());
  }
}

// Threads take and give all the time; one withholds pageblocks, and takes a whole one where it can.
TYPED_TEST(Isolation, LosesNothingBesideThreadsThatTakeAndGive) {
  Stocked<TypeParam> stock(8 * kPageblockFrames);
  SideTable table(stock.first(), stock.frames());
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (std::uint32_t cpu = 0; cpu < 3; ++cpu) {
    threads.emplace_back([&, cpu] {
      std::mt19937 random(cpu);
      std::vector<std::pair<PageIndex, unsigned>> mine;
      while (!stop.load(std::memory_order_relaxed)) {
        if (mine.size() < 300 && random() % 2 == 0) {
          const unsigned order = random() % 4 == 0 ? random() % 10 : 0;
          const PageIndex page = stock.engine.take(
              Order{order}, 0, cpu, random() % 2 == 0 ? Mobility::pinned : Mobility::movable);
          if (page != kNoPage) {
            table.took(page, Order{order});
            mine.emplace_back(page, order);
          }
        } else if (!mine.empty()) {
          std::swap(mine[random() % mine.size()], mine.back());
          table.gave(mine.back().first, Order{mine.back().second});
          stock.engine.give(mine.back().first, Order{mine.back().second});
          mine.pop_back();
        }
      }
      for (const auto& [page, order] : mine) {
        table.gave(page, Order{order});
        stock.engine.give(page, Order{order});
      }
    });
  }
  std::mt19937 random(7);
  std::uint32_t whole = 0;
  for (std::uint32_t i = 0; i < 2000; ++i) {
    const PageIndex block = stock.block(random() % 8);
    if (!stock.engine.isolate(block, 0)) {
      continue;
    }
    if (random() % 4 == 0) {
      std::this_thread::yield();
    }
    if (random() % 2 == 0 && stock.engine.take_isolated(block)) {
      table.took(block, kPageblockOrder);
      ++whole;
      table.gave(block, kPageblockOrder);
      stock.give(block, 9);
    } else {
      stock.engine.end_isolation(block);
    }
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_GT(whole, 0U);
  EXPECT_EQ(table.violations(), 0U) << table.report();
  EXPECT_EQ(stock.engine.free_pages(), stock.frames());
  EXPECT_EQ(stock.engine.audit(), stock.frames());
  EXPECT_EQ(stock.engine.free_blocks(Order{10}), 4U);
}

// A neighbour that comes back while a pageblock is being withheld does not take it along into a larger block.
TEST(BuddyIsolation, ANeighbourThatComesBackMeanwhileStaysByItself) {
  for (const std::uint64_t isolated : {0U, 1U}) {
    const EngineRange range(2 * kPageblockFrames);
    BuddyEngine buddy;
    buddy.adopt(range.first(), range.frames());
    const PageIndex halves[] = {buddy.take(kPageblockOrder), buddy.take(kPageblockOrder)};
    const PageIndex here = range.frame(isolated * kPageblockFrames);
    const PageIndex there = range.frame((1 - isolated) * kPageblockFrames);
    ASSERT_NE(halves[0], halves[1]);
    buddy.give(here, kPageblockOrder);
    ASSERT_TRUE(buddy.begin_isolation(here));
    buddy.give(there, kPageblockOrder);
    EXPECT_EQ(buddy.withhold(here), kPageblockFrames);
    EXPECT_EQ(buddy.free_pages(), kPageblockFrames);
    EXPECT_TRUE(buddy.take_isolated(here));
    EXPECT_EQ(buddy.audit(), kPageblockFrames);
    buddy.give(here, kPageblockOrder);
    EXPECT_EQ(buddy.free_blocks(kMaxOrder), 1U);
  }
}

// ---- who can move, and who cannot ----------------------------------------------------------------

using Grouping = Stocked<Bitmap>;

TEST(Mobility, EachKindIsServedFromPageblocksOfItsOwn) {
  Grouping stock(8 * kPageblockFrames);
  std::vector<std::uint32_t> kinds(8, 0);
  for (std::uint32_t i = 0; i < 600; ++i) {
    kinds[stock.block_of(stock.take(i % 3 == 0 ? 2 : 0, Mobility::pinned))] |= 1;
    kinds[stock.block_of(stock.take(i % 5 == 0 ? 1 : 0, Mobility::movable))] |= 2;
  }
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), 3U), 0);
  for (std::uint64_t i = 0; i < 8; ++i) {
    const PageblockView view = stock.engine.pageblock(stock.block(i));
    if (kinds[i] != 0) {
      EXPECT_EQ(view.mobility, kinds[i] == 2 ? Mobility::movable : Mobility::pinned) << i;
    }
  }
}

TEST(Mobility, FallsBackToTheEmptiestThatItCanMakeItsOwnThenToTheFullest) {
  Grouping stock(4 * kPageblockFrames);
  std::vector<PageIndex> all = stock.take_all();
  std::sort(all.begin(), all.end());
  // All pageblocks are of the pinned and full; then 300, 400, 20 and 100 frames of them are free.
  const std::uint32_t free[] = {300, 400, 20, 100};
  for (std::uint32_t block = 0; block < 4; ++block) {
    for (std::uint32_t i = 0; i < free[block]; ++i) {
      stock.give(all[block * kPageblockFrames + i]);
    }
  }
  const auto drain = [&](std::uint32_t n) {
    std::vector<std::uint64_t> blocks;
    for (std::uint32_t i = 0; i < n; ++i) {
      blocks.push_back(stock.block_of(stock.take(0, Mobility::movable)));
    }
    return blocks;
  };
  EXPECT_EQ(drain(400), std::vector<std::uint64_t>(400, 1));
  EXPECT_EQ(stock.engine.pageblock(stock.block(1)).mobility, Mobility::movable);
  EXPECT_EQ(drain(300), std::vector<std::uint64_t>(300, 0));
  EXPECT_EQ(stock.engine.pageblock(stock.block(0)).mobility, Mobility::movable);
  EXPECT_EQ(drain(20), std::vector<std::uint64_t>(20, 2));
  EXPECT_EQ(drain(100), std::vector<std::uint64_t>(100, 3));
  EXPECT_EQ(stock.engine.pageblock(stock.block(2)).mobility, Mobility::pinned) << "stolen from";
  EXPECT_EQ(stock.engine.pageblock(stock.block(3)).mobility, Mobility::pinned);
  EXPECT_EQ(stock.take(0, Mobility::movable), kNoPage);
  stock.engine.audit();
}

TEST(Mobility, APageblockThatWasWhollyFreeBelongsToWhoeverComesNext) {
  Grouping stock(2 * kPageblockFrames);
  std::vector<PageIndex> pages;
  for (std::uint32_t i = 0; i < 2 * kPageblockFrames; ++i) {
    pages.push_back(stock.take(0, Mobility::movable));
  }
  for (const PageIndex page : pages) {
    stock.give(page);
  }
  const PageIndex pinned = stock.take(0, Mobility::pinned);
  EXPECT_EQ(stock.engine.pageblock(pinned).mobility, Mobility::pinned);
  const PageIndex movable = stock.take(0, Mobility::movable);
  EXPECT_NE(stock.block_of(movable), stock.block_of(pinned));
}

}  // namespace
}  // namespace weir
