// SPDX-License-Identifier: MIT
// Pageblocks whose memory is with the system: what any engine marks, when the mark goes, and that such memory is
// taken last. One suite for both engines.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/unit/zone/engine_range.hpp"
#include "weir/zone/bitmap_engine.hpp"
#include "weir/zone/locked_engine.hpp"

namespace weir {
namespace {

using test::EngineRange;

constexpr std::uint32_t kBlock = frames_in(kPageblockOrder);

struct BitmapSide {
  BitmapEngine engine;
};
struct LockedSide {
  ZoneCounters counters;
  LockedEngine engine{counters};
};

template <class Side>
struct Stock : EngineRange, Side {
  explicit Stock(std::uint64_t frames, std::uint64_t offset = 0) : EngineRange(frames, offset) {
    if (this->engine.adopt(first(), PageCount{frames}).failed()) {
      throw std::runtime_error("adopt");
    }
  }
  PageIndex take(unsigned order) { return this->engine.take(Order{order}, 0, 0); }
  void give(PageIndex page, unsigned order) { this->engine.give(page, Order{order}); }
  // Whole pageblocks of the range.
  [[nodiscard]] PageIndex block(std::uint64_t i) const {
    return advance({align_up(first().value, kBlock)}, i * kBlock);
  }
  [[nodiscard]] std::uint64_t block_count() const {
    return (first().value + frames() - block(0).value) / kBlock;
  }
  [[nodiscard]] bool trim(std::uint64_t i) {
    if (!this->engine.begin_trim(block(i), 0)) {
      return false;
    }
    this->engine.end_trim(block(i), true);
    return true;
  }
  // A letter a pageblock: t trimmed, . free, # something of it is out.
  [[nodiscard]] std::string picture() const {
    std::string text;
    for (std::uint64_t i = 0; i < block_count(); ++i) {
      bool free = true;
      for (std::uint32_t k = 0; k < kBlock; ++k) {
        free = free && !out.contains(advance(block(i), k).value);
      }
      text += this->engine.is_trimmed(block(i)) ? 't' : free ? '.' : '#';
    }
    return text;
  }
  // Everything once more: the audit, the counts, and that only what is free is marked.
  void expect_sound() {
    EXPECT_EQ(this->engine.audit(), this->engine.free_pages());
    EXPECT_EQ(this->engine.free_pages(), frames() - out.size());
    const std::string text = picture();
    EXPECT_EQ(this->engine.trimmed_blocks(),
              static_cast<std::uint64_t>(std::count(text.begin(), text.end(), 't')));
    for (std::uint64_t i = 0; i < block_count(); ++i) {
      for (std::uint32_t k = 0; k < kBlock && this->engine.is_trimmed(block(i)); ++k) {
        ASSERT_FALSE(out.contains(advance(block(i), k).value)) << "a frame of it is out";
      }
    }
  }
  PageIndex note(PageIndex page, unsigned order) {
    for (std::uint32_t k = 0; page != kNoPage && k < frames_in(Order{order}); ++k) {
      EXPECT_TRUE(out.insert(page.value + k).second) << "handed out twice";
    }
    return page;
  }
  void forget(PageIndex page, unsigned order) {
    for (std::uint32_t k = 0; k < frames_in(Order{order}); ++k) {
      out.erase(page.value + k);
    }
  }
  std::set<std::uint32_t> out{};
};

template <class Side>
class EngineTrim : public testing::Test {};
using Sides = testing::Types<LockedSide, BitmapSide>;
TYPED_TEST_SUITE(EngineTrim, Sides);

TYPED_TEST(EngineTrim, MarksWhatIsWhollyFreeAndNothingElse) {
  Stock<TypeParam> stock(4 * kBlock);
  EXPECT_EQ(stock.engine.trimmed_blocks(), 0U);
  EXPECT_TRUE(stock.trim(1));
  EXPECT_EQ(stock.picture(), ".t..");
  EXPECT_EQ(stock.engine.free_pages(), 4 * kBlock) << "trimmed frames are free";
  EXPECT_FALSE(stock.trim(1)) << "trimmed already";
  EXPECT_FALSE(stock.engine.begin_trim(stock.frame(64), 0)) << "no pageblock begins there";
  const PageIndex single = stock.note(stock.take(0), 0);
  const std::uint64_t holder = (single.value - stock.first().value) / kBlock;
  EXPECT_FALSE(stock.trim(holder)) << "a frame of it is out";
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(stock.trim(i), i != 1 && i != holder);
  }
  EXPECT_EQ(stock.engine.trimmed_blocks(), 3U);
  stock.expect_sound();
  stock.give(single, 0);
  stock.forget(single, 0);
  EXPECT_TRUE(stock.trim(holder));
  EXPECT_EQ(stock.picture(), "tttt");
  EXPECT_EQ(stock.engine.free_blocks(kMaxOrder), 2U) << "marks hinder no merge";
  stock.expect_sound();
}

TYPED_TEST(EngineTrim, APageblockOnItsWayIsTakenAndComesBackAsItWent) {
  Stock<TypeParam> stock(2 * kBlock);
  ASSERT_TRUE(stock.engine.begin_trim(stock.block(0), 0));
  EXPECT_EQ(stock.engine.free_pages(), kBlock);
  EXPECT_EQ(stock.engine.trimmed_blocks(), 0U);
  EXPECT_FALSE(stock.engine.begin_trim(stock.block(0), 0)) << "it is not there";
  EXPECT_EQ(stock.take(9), stock.block(1));
  EXPECT_EQ(stock.take(0), kNoPage);
  stock.engine.end_trim(stock.block(0), false);
  EXPECT_EQ(stock.engine.trimmed_blocks(), 0U) << "the system did not take it";
  stock.give(stock.block(1), 9);
  EXPECT_EQ(stock.engine.free_blocks(kMaxOrder), 1U);
  EXPECT_EQ(page_at(stock.block(0))->word.load(), kSoleOwner);
  stock.expect_sound();
}

TYPED_TEST(EngineTrim, LeavesAsManyFramesAsItIsTold) {
  Stock<TypeParam> stock(2 * kBlock);
  EXPECT_FALSE(stock.engine.begin_trim(stock.block(0), kBlock + 1));
  EXPECT_EQ(stock.engine.free_pages(), 2 * kBlock);
  ASSERT_TRUE(stock.engine.begin_trim(stock.block(0), kBlock));
  stock.engine.end_trim(stock.block(0), true);
  stock.expect_sound();
}

TYPED_TEST(EngineTrim, TrimmedPageblocksAreTakenWhenNothingElseIsThere) {
  for (const unsigned order : {0U, 3U, 7U, 8U, 9U}) {
    for (const std::uint64_t resident : {0U, 1U, 2U, 3U, 4U, 5U}) {
      Stock<TypeParam> stock(6 * kBlock);
      for (std::uint64_t i = 0; i < 6; ++i) {
        ASSERT_EQ(i == resident || stock.trim(i), true);
      }
      const std::uint32_t in_one = kBlock >> order;
      for (std::uint32_t i = 0; i < in_one; ++i) {
        const PageIndex page = stock.note(stock.take(order), order);
        EXPECT_EQ((page.value - stock.first().value) / kBlock, resident) << "order " << order;
        ASSERT_EQ(stock.engine.trimmed_blocks(), 5U);
      }
      stock.expect_sound();
      // And one after the other of the trimmed ones: the marks go one by one.
      for (std::uint32_t i = 0; i < 5 * in_one; ++i) {
        ASSERT_NE(stock.note(stock.take(order), order), kNoPage);
        ASSERT_EQ(stock.engine.trimmed_blocks(), 4 - i / in_one);
      }
      EXPECT_EQ(stock.take(order), kNoPage);
      stock.expect_sound();
    }
  }
}

TYPED_TEST(EngineTrim, AResidentHalfOfALargestBlockGoesBeforeATrimmedPageblock) {
  Stock<TypeParam> stock(4 * kBlock);
  ASSERT_EQ(stock.note(stock.take(9), 9), stock.block(0));
  ASSERT_TRUE(stock.trim(1) && stock.trim(2));
  EXPECT_EQ(stock.picture(), "#tt.");
  EXPECT_EQ(stock.note(stock.take(9), 9), stock.block(3));
  EXPECT_EQ(stock.engine.trimmed_blocks(), 2U);
  stock.expect_sound();
}

TYPED_TEST(EngineTrim, LargestBlocksAreTrimmedPairsOnlyWhenNoResidentOneIsThere) {
  Stock<TypeParam> stock(8 * kBlock);
  for (const std::uint64_t i : {0U, 1U, 3U, 4U, 5U}) {
    ASSERT_TRUE(stock.trim(i));
  }
  EXPECT_EQ(stock.picture(), "tt.ttt..");
  // A pair of which one half is trimmed may come before or after: lists and buckets know two kinds.
  const std::vector<std::uint64_t> marks_of = {2, 0, 1, 0, 2, 0, 0, 0};
  std::uint64_t left = 5;
  std::vector<std::uint64_t> pairs;
  for (int i = 0; i < 4; ++i) {
    pairs.push_back((stock.note(stock.take(10), 10).value - stock.first().value) / kBlock);
    left -= marks_of[pairs.back()];
    EXPECT_EQ(stock.engine.trimmed_blocks(), left);
    stock.expect_sound();
  }
  const auto place = [&](std::uint64_t pair) {
    return std::find(pairs.begin(), pairs.end(), pair) - pairs.begin();
  };
  EXPECT_LT(place(6), place(0));
  EXPECT_LT(place(6), place(4));
  EXPECT_EQ(stock.engine.trimmed_blocks(), 0U);
}

TYPED_TEST(EngineTrim, TheMarkIsLostAndDoesNotComeBackWithTheFrames) {
  for (const unsigned order : {0U, 1U, 6U, 8U, 9U, 10U}) {
    Stock<TypeParam> stock(2 * kBlock);
    ASSERT_TRUE(stock.trim(0) && stock.trim(1));
    const PageIndex page = stock.note(stock.take(order), order);
    const std::uint64_t lost = order == 10 ? 2 : 1;
    EXPECT_EQ(stock.engine.trimmed_blocks(), 2 - lost) << order;
    stock.expect_sound();
    stock.give(page, order);
    stock.forget(page, order);
    EXPECT_EQ(stock.engine.trimmed_blocks(), 2 - lost) << order;
    EXPECT_EQ(stock.engine.free_blocks(kMaxOrder), 1U) << "merged with its trimmed neighbour";
    stock.expect_sound();
  }
}

TYPED_TEST(EngineTrim, WhatSomebodyElseMayHaveTouchedCountsAsResident) {
  Stock<TypeParam> stock(4 * kBlock);
  for (std::uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(stock.trim(i));
  }
  stock.engine.forget_trim(stock.block(2));
  EXPECT_EQ(stock.picture(), "tt.t");
  stock.engine.forget_trim(stock.block(2));
  EXPECT_EQ(stock.picture(), "tt.t");
  stock.expect_sound();
  EXPECT_EQ(stock.take(9), stock.block(2)) << "and is taken first";
  stock.engine.forget_trim(stock.block(2));
  stock.give(stock.block(2), 9);
  EXPECT_TRUE(stock.trim(2));
  stock.expect_sound();
}

TYPED_TEST(EngineTrim, PartsOfAPageblockAtTheEndsAreNeverTrimmed) {
  Stock<TypeParam> stock(3 * kBlock, 100);
  EXPECT_FALSE(stock.engine.begin_trim(stock.first(), 0));
  const PageIndex begin{align_up(stock.first().value, kBlock)};
  EXPECT_FALSE(stock.engine.begin_trim({begin.value - kBlock}, 0));
  EXPECT_TRUE(stock.engine.begin_trim(begin, 0));
  stock.engine.end_trim(begin, true);
  EXPECT_FALSE(stock.engine.begin_trim(advance(begin, 2 * kBlock), 0)) << "it ends within";
  EXPECT_EQ(stock.engine.trimmed_blocks(), 1U);
  stock.expect_sound();
}

TYPED_TEST(EngineTrim, CountsAndMarksAreRightThroughRandomPrograms) {
  Stock<TypeParam> stock(9 * kBlock + 77, 300);
  std::mt19937_64 random(7);
  std::vector<std::pair<PageIndex, unsigned>> taken;
  const std::uint64_t first_block = align_up(stock.first().value, kBlock);
  std::uint64_t trims = 0;
  for (int step = 0; step < 6000; ++step) {
    const PageIndex some{static_cast<std::uint32_t>(first_block + random() % 9 * kBlock)};
    switch (random() % 6) {
      case 0:
      case 1: {
        const unsigned order = random() % 2 == 0 ? 9 : static_cast<unsigned>(random() % 11);
        if (const PageIndex page = stock.note(stock.take(order), order); page != kNoPage) {
          taken.emplace_back(page, order);
        }
        break;
      }
      case 2:
      case 3:
        if (!taken.empty()) {
          std::swap(taken[random() % taken.size()], taken.back());
          stock.give(taken.back().first, taken.back().second);
          stock.forget(taken.back().first, taken.back().second);
          taken.pop_back();
        }
        break;
      case 4:
        stock.engine.forget_trim(some);
        break;
      default: {
        bool free = !stock.engine.is_trimmed(some) &&
                    some.value + kBlock <= stock.first().value + stock.frames();
        for (std::uint32_t k = 0; k < kBlock; ++k) {
          free = free && !stock.out.contains(some.value + k);
        }
        const std::uint64_t before = stock.engine.trimmed_blocks();
        ASSERT_EQ(stock.engine.begin_trim(some, 0), free);
        if (free) {
          const bool done = random() % 4 != 0;
          stock.engine.end_trim(some, done);
          ASSERT_EQ(stock.engine.trimmed_blocks(), before + (done ? 1 : 0));
          ++trims;
        }
        break;
      }
    }
    if (step % 50 == 0) {
      stock.expect_sound();
    }
  }
  EXPECT_GT(trims, 100U);
  while (!taken.empty()) {
    stock.give(taken.back().first, taken.back().second);
    stock.forget(taken.back().first, taken.back().second);
    taken.pop_back();
  }
  stock.expect_sound();
}

TEST(BitmapEngineTrim, AChildKnowsWhatIsTrimmed) {
  Stock<BitmapSide> stock(6 * kBlock);
  ASSERT_TRUE(stock.trim(1) && stock.trim(4));
  const PageIndex single = stock.note(stock.take(0), 0);
  stock.engine.recover_in_child();
  EXPECT_EQ(stock.engine.trimmed_blocks(), 2U);
  stock.expect_sound();
  EXPECT_EQ(stock.picture().substr(4, 1), "t");
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(stock.engine.is_trimmed(stock.note(stock.take(9), 9)));
    EXPECT_EQ(stock.engine.trimmed_blocks(), 2U) << "resident ones first";
  }
  stock.give(single, 0);
}

TEST(BitmapEngineTrimDeathTest, EndsATrimOnlyOfWhatIsOnItsWay) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Stock<BitmapSide> stock(2 * kBlock);
  EXPECT_DEATH(stock.engine.end_trim(stock.block(0), true), "weir");
}
TEST(BuddyEngineTrimDeathTest, EndsATrimOnlyOfWhatIsOnItsWay) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Stock<LockedSide> stock(2 * kBlock);
  EXPECT_DEATH(stock.engine.end_trim(stock.block(0), true), "weir");
}

}  // namespace
}  // namespace weir
