// SPDX-License-Identifier: MIT
#include "weir/zone/buddy_engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "tests/model/reference_buddy.hpp"
#include "tests/support/picture.hpp"
#include "tests/unit/zone/engine_range.hpp"
#include "weir/base/check.hpp"
#include "weir/zone/engine.hpp"

namespace weir {
namespace {

using test::EngineRange;
using test::ReferenceBuddy;

static_assert(!Engine<BuddyEngine>);  // it needs somebody to lock it
static_assert(!Engine<int>);
static_assert(!Engine<ReferenceBuddy>);

// An engine over its own descriptors, and the drawing of them.
struct Buddy : EngineRange {
  explicit Buddy(std::uint64_t frames, std::uint64_t offset = 0) : EngineRange(frames, offset) {
    engine.adopt(first(), frames);
  }
  [[nodiscard]] std::string picture() const { return test::picture(first(), frames()); }
  [[nodiscard]] std::string blocks() const { return test::blocks(first(), frames()); }
  // Position within the range.
  [[nodiscard]] std::uint64_t take(unsigned order) {
    const PageIndex page = engine.take(Order{order});
    return page == kNoPage ? UINT64_MAX : page.value - first().value;
  }
  void give(std::uint64_t at, unsigned order) { engine.give(frame(at), Order{order}); }

  BuddyEngine engine;
};

TEST(Buddy, AdoptsARangeAsTheLargestAlignedBlocks) {
  const Buddy eight(8);
  EXPECT_EQ(eight.blocks(), "3-------");
  const Buddy odd(7, 1);  // frames 1..7 of a chunk
  EXPECT_EQ(odd.blocks(), "01-2---");
  const Buddy one(1, 1023);
  EXPECT_EQ(one.blocks(), "0");
  const Buddy three(3);
  EXPECT_EQ(three.blocks(), "1-0");
}

TEST(Buddy, AdoptsAcrossTheEdgeOfALargestBlock) {
  const Buddy across(6, 1021);
  EXPECT_EQ(across.blocks(), "01-1-0");
  EXPECT_EQ(across.engine.audit(), 6U);
}

TEST(Buddy, SplitKeepsTheLowerHalf) {
  Buddy buddy(8);
  EXPECT_EQ(buddy.take(0), 0U);
  EXPECT_EQ(buddy.picture(), "#.......");
  EXPECT_EQ(buddy.blocks(), "A01-2---");
  EXPECT_EQ(buddy.engine.splits(), 3U);
  EXPECT_EQ(buddy.take(1), 2U);
  EXPECT_EQ(buddy.picture(), "#.##....");
  EXPECT_EQ(buddy.blocks(), "A0B=2---");
  EXPECT_EQ(buddy.engine.splits(), 3U);
}

TEST(Buddy, TakesTheSmallestBlockThatSuffices) {
  Buddy buddy(16);
  EXPECT_EQ(buddy.take(2), 0U);
  EXPECT_EQ(buddy.blocks(), "C===2---3-------");
  EXPECT_EQ(buddy.take(0), 4U);  // not out of the block of 8
  EXPECT_EQ(buddy.blocks(), "C===A01-3-------");
}

TEST(Buddy, MergesOnlyWithItsOwnBuddy) {
  Buddy buddy(8);
  for (std::uint64_t i = 0; i < 8; ++i) {
    ASSERT_EQ(buddy.take(0), i);
  }
  EXPECT_EQ(buddy.blocks(), "AAAAAAAA");
  buddy.give(1, 0);
  buddy.give(2, 0);  // beside 1, but the buddy of 3
  EXPECT_EQ(buddy.blocks(), "A00AAAAA");
  buddy.give(0, 0);
  EXPECT_EQ(buddy.blocks(), "1-0AAAAA");
  EXPECT_EQ(buddy.picture(), "...#####");
  buddy.give(3, 0);
  EXPECT_EQ(buddy.blocks(), "2---AAAA");
  buddy.give(5, 0);
  buddy.give(6, 0);
  buddy.give(4, 0);
  EXPECT_EQ(buddy.blocks(), "2---1-0A");
  buddy.give(7, 0);
  EXPECT_EQ(buddy.blocks(), "3-------");
  EXPECT_EQ(buddy.engine.merges(), 7U);
}

TEST(Buddy, DoesNotMergeWithABuddyThatIsFreeInPartsOnly) {
  Buddy buddy(8);
  EXPECT_EQ(buddy.take(2), 0U);
  EXPECT_EQ(buddy.take(0), 4U);
  buddy.give(0, 2);  // its buddy 4..7 has one frame out
  EXPECT_EQ(buddy.blocks(), "2---A01-");
  buddy.give(4, 0);
  EXPECT_EQ(buddy.blocks(), "3-------");
}

TEST(Buddy, DoesNotMergeBeyondTheEndsOfItsRange) {
  Buddy buddy(2, 1);  // frames 1 and 2: their buddies 0 and 3 are no frames
  EXPECT_EQ(buddy.blocks(), "00");
  EXPECT_EQ(buddy.take(0), 0U);
  EXPECT_EQ(buddy.take(0), 1U);
  buddy.give(1, 0);
  buddy.give(0, 0);
  EXPECT_EQ(buddy.blocks(), "00");
  EXPECT_EQ(buddy.engine.audit(), 2U);
}

TEST(Buddy, BlocksOfTheLargestOrderStayApart) {
  Buddy buddy(2048);
  EXPECT_EQ(buddy.engine.free_blocks(kMaxOrder), 2U);
  EXPECT_EQ(buddy.take(10), 0U);
  EXPECT_EQ(buddy.take(10), 1024U);
  buddy.give(1024, 10);
  buddy.give(0, 10);
  EXPECT_EQ(buddy.engine.free_blocks(kMaxOrder), 2U);
  EXPECT_EQ(buddy.engine.merges(), 0U);
}

TEST(Buddy, FourSinglesOfAnOrderTwoMergeInAll24Orders) {
  std::array<std::uint64_t, 4> order{0, 1, 2, 3};
  int permutations = 0;
  do {
    Buddy buddy(4);
    for (std::uint64_t i = 0; i < 4; ++i) {
      ASSERT_EQ(buddy.take(0), i);
    }
    for (const std::uint64_t frame : order) {
      ASSERT_NE(buddy.blocks(), "2---");
      buddy.give(frame, 0);
    }
    EXPECT_EQ(buddy.blocks(), "2---");
    EXPECT_EQ(buddy.engine.audit(), 4U);
    ++permutations;
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(permutations, 24);
}

TEST(Buddy, TakesLastGivenFirst) {
  Buddy buddy(64);
  for (int i = 0; i < 64; ++i) {
    static_cast<void>(buddy.take(0));
  }
  buddy.give(8, 0);
  buddy.give(40, 0);
  buddy.give(24, 0);
  EXPECT_EQ(buddy.take(0), 24U);
  EXPECT_EQ(buddy.take(0), 40U);
  EXPECT_EQ(buddy.take(0), 8U);
}

TEST(Buddy, PlacesABlockLastWhenTheNextLargerBuddyIsFree) {
  Buddy buddy(16);
  for (int i = 0; i < 16; ++i) {
    static_cast<void>(buddy.take(0));
  }
  buddy.give(8, 0);  // its larger buddy 10..11 is out: first
  buddy.give(2, 0);
  buddy.give(3, 0);  // 2..3 is free as a pair
  EXPECT_EQ(buddy.blocks(), "AA1-AAAA0AAAAAAA");
  buddy.give(0, 0);  // 0 waits only for 1 to become a block of four with 2..3: last
  EXPECT_EQ(buddy.blocks(), "0A1-AAAA0AAAAAAA");
  EXPECT_EQ(buddy.take(0), 8U);
  EXPECT_EQ(buddy.take(0), 0U);
}

TEST(Buddy, PlacementLooksAtAFreeBuddyOfExactlyTheNextOrder) {
  Buddy buddy(16);
  for (int i = 0; i < 16; ++i) {
    static_cast<void>(buddy.take(0));
  }
  buddy.give(12, 0);
  buddy.give(3, 0);  // half of the larger buddy of 0..1: not whole, so no reason to wait
  buddy.give(0, 0);
  EXPECT_EQ(buddy.take(0), 0U);
  EXPECT_EQ(buddy.take(0), 3U);
  EXPECT_EQ(buddy.take(0), 12U);
}

TEST(Buddy, TakeManyAscendsOutOfOneBlock) {
  Buddy buddy(1024);
  PageIndex pages[64];
  ASSERT_EQ(buddy.engine.take_many(Order{0}, pages, 64), 64U);
  for (std::uint32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(pages[i], buddy.frame(i));
  }
  PageIndex pairs[32];
  ASSERT_EQ(buddy.engine.take_many(Order{1}, pairs, 32), 32U);
  for (std::uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(pairs[i], buddy.frame(64 + 2 * i));
  }
}

TEST(Buddy, TakeManyReturnsWhatThereIs) {
  Buddy buddy(11);
  PageIndex pages[64];
  EXPECT_EQ(buddy.engine.take_many(Order{1}, pages, 64), 5U);
  EXPECT_EQ(buddy.engine.take_many(Order{1}, pages, 64), 0U);
  EXPECT_EQ(buddy.engine.take_many(Order{0}, pages, 0), 0U);
  EXPECT_EQ(buddy.engine.free_pages(), 1U);
  EXPECT_EQ(buddy.engine.take_many(Order{0}, pages, 64), 1U);
  EXPECT_EQ(pages[0], buddy.frame(10));
}

TEST(Buddy, GiveManyIsGiveOfEach) {
  Buddy buddy(64);
  PageIndex pages[64];
  ASSERT_EQ(buddy.engine.take_many(Order{0}, pages, 64), 64U);
  std::reverse(std::begin(pages), std::end(pages));
  buddy.engine.give_many(Order{0}, pages, 64);
  EXPECT_EQ(buddy.engine.free_blocks(Order{6}), 1U);
  EXPECT_EQ(buddy.engine.audit(), 64U);
}

TEST(Buddy, EveryOrderToExhaustionAndBackToTheLargestBlocks) {
  constexpr std::uint64_t kFrames = 3 * kMaxBlockFrames;
  for (unsigned order = 0; order <= kMaxOrderValue; ++order) {
    Buddy buddy(kFrames);
    std::vector<PageIndex> pages;
    for (PageIndex page = buddy.engine.take(Order{order}); page != kNoPage;
         page = buddy.engine.take(Order{order})) {
      EXPECT_EQ((page.value - buddy.first().value) % frames_in(Order{order}), 0U);
      pages.push_back(page);
    }
    EXPECT_EQ(pages.size(), kFrames >> order);
    EXPECT_EQ(buddy.engine.free_pages(), 0U);
    EXPECT_EQ(buddy.picture(), std::string(kFrames, '#'));
    std::shuffle(pages.begin(), pages.end(), std::mt19937{order});
    for (const PageIndex page : pages) {
      buddy.engine.give(page, Order{order});
    }
    EXPECT_EQ(buddy.engine.free_blocks(kMaxOrder), 3U);
    EXPECT_EQ(buddy.engine.audit(), kFrames);
  }
}

TEST(Buddy, HighOrderBearsItsFlagWhileTakenAndOnlyThen) {
  Buddy buddy(8);
  ASSERT_EQ(buddy.take(2), 0U);
  Page* page = page_at(buddy.frame(0));
  EXPECT_EQ(page->word.load(), kSoleOwner | kHighOrderFlag);
  EXPECT_EQ(order_of(page), Order{2});
  buddy.give(0, 2);
  EXPECT_EQ(page->word.load(), kSoleOwner);
  ASSERT_EQ(buddy.take(0), 0U);
  EXPECT_EQ(page->word.load(), kSoleOwner);
  buddy.give(0, 0);
}

// ---- beside the model ----------------------------------------------------------------------------

struct Range {
  std::uint64_t frames;
  std::uint64_t offset;
};

class BuddyBesideTheModel : public testing::TestWithParam<Range> {};

TEST_P(BuddyBesideTheModel, AgreesAfterEveryStepOfARandomRun) {
  const auto [frames, offset] = GetParam();
  const std::uint64_t seed = 0x5eed0000 + frames * 4096 + offset;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  Buddy buddy(frames, offset);
  ReferenceBuddy model;
  model.adopt(buddy.first(), frames);
  ASSERT_EQ(model.difference(buddy.engine), "");
  std::vector<std::pair<PageIndex, Order>> taken;
  // Comparing all descriptors costs the size of the range: fewer steps in larger ones.
  const int steps = frames < 64 ? 4000 : 1500;
  for (int step = 0; step < steps; ++step) {
    // Runs of takes and runs of gives, so that both ends are reached.
    const bool taking = (random() % 16 < 12) == (step / 64 % 2 == 0);
    if (taking || taken.empty()) {
      const Order order{static_cast<unsigned>(random() % (random() % 2 == 0 ? 3 : kOrderCount))};
      const PageIndex page = buddy.engine.take(order);
      ASSERT_TRUE(model.took(page, order)) << "step " << step << " order " << order.value;
      if (page != kNoPage) {
        taken.emplace_back(page, order);
      }
    } else {
      const std::size_t which = random() % taken.size();
      std::swap(taken[which], taken.back());
      const auto [page, order] = taken.back();
      taken.pop_back();
      buddy.engine.give(page, order);
      ASSERT_TRUE(model.gave(page, order));
    }
    ASSERT_EQ(model.difference(buddy.engine), "") << "step " << step;
    ASSERT_EQ(buddy.engine.audit(), model.free_pages());
  }
  for (const auto& [page, order] : taken) {
    buddy.engine.give(page, order);
    ASSERT_TRUE(model.gave(page, order));
  }
  EXPECT_EQ(model.difference(buddy.engine), "");
  EXPECT_EQ(buddy.engine.free_pages(), frames);
}

std::string range_name(const testing::TestParamInfo<Range>& range) {
  return std::to_string(range.param.frames) + "FramesFrom" + std::to_string(range.param.offset);
}

INSTANTIATE_TEST_SUITE_P(Ranges, BuddyBesideTheModel,
                         testing::Values(Range{1, 0}, Range{1, 1}, Range{1, 1023}, Range{3, 0},
                                         Range{3, 1022}, Range{64, 0}, Range{100, 7},
                                         Range{1023, 0}, Range{1023, 1}, Range{1024, 0},
                                         Range{1024, 512}, Range{1025, 0}, Range{1025, 1023},
                                         Range{2048, 3}),
                         range_name);

// ---- what must not be ----------------------------------------------------------------------------

class BuddyDeathTest : public testing::Test {
 protected:
  BuddyDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(BuddyDeathTest, ReportsAPageThatIsFreeAlready) {
  Buddy buddy(8);
  ASSERT_EQ(buddy.take(2), 0U);
  buddy.give(0, 2);
  EXPECT_DEATH(buddy.give(0, 2), "double free: page [0-9]+ is already free");
}

TEST_F(BuddyDeathTest, ReportsTheInsideOfAPage) {
  Buddy buddy(8);
  ASSERT_EQ(buddy.take(2), 0U);
  EXPECT_DEATH(buddy.give(1, 0), "free of a tail: .*frame [0-9]+ is inside a page");
  EXPECT_DEATH(buddy.give(2, 1), "free of a tail: .*frame [0-9]+ is inside a page");
  buddy.give(0, 2);
}

TEST_F(BuddyDeathTest, ReportsAnOrderThatIsTooSmallAndOneThatIsTooLarge) {
  Buddy buddy(8);
  ASSERT_EQ(buddy.take(2), 0U);
  EXPECT_DEATH(buddy.give(0, 1), "wrong order: page [0-9]+ has order 2, not 1");
  EXPECT_DEATH(buddy.give(0, 3), "wrong order: page [0-9]+ has order 2, not 3");
  buddy.give(0, 2);
}

TEST_F(BuddyDeathTest, ReportsAFrameOutsideTheRange) {
  Buddy buddy(8);
  EXPECT_DEATH(buddy.give(8, 0), "free of a tail: ");
}

TEST_F(BuddyDeathTest, AuditNamesTheInvariantThatIsBroken) {
  Buddy buddy(64);
  for (int i = 0; i < 64; ++i) {
    static_cast<void>(buddy.take(0));
  }
  buddy.give(0, 0);
  buddy.give(16, 0);
  buddy.give(32, 0);  // the list of order 0: 32, 16, 0
  ASSERT_EQ(buddy.engine.audit(), 3U);
  const auto corrupt = [&](auto change) {
    change(*page_at(buddy.frame(16)));
    static_cast<void>(buddy.engine.audit());
  };
  EXPECT_DEATH(corrupt([&](Page& page) { page.prev = buddy.frame(0); }), "BuddyEngine I4");
  EXPECT_DEATH(corrupt([&](Page& page) { page.next = kNoPage; }), "BuddyEngine I4");
  EXPECT_DEATH(corrupt([&](Page& page) { page.next = buddy.frame(32); }), "BuddyEngine I[14]");
  EXPECT_DEATH(corrupt([](Page& page) { page.state.store(FrameState::kTaken); }), "BuddyEngine I2");
  EXPECT_DEATH(corrupt([](Page& page) { page.order.store(1); }), "BuddyEngine I2");
  // A second free half that was not merged.
  EXPECT_DEATH(corrupt([&](Page&) {
                 Page& half = *page_at(buddy.frame(17));
                 half.state.store(FrameState::kFree);
                 half.order.store(0);
               }),
               "BuddyEngine I3");
}

}  // namespace
}  // namespace weir
