// SPDX-License-Identifier: MIT
#include "weir/zone/bitmap_engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/model/reference_buddy.hpp"
#include "tests/support/fake_memory.hpp"
#include "tests/unit/zone/engine_range.hpp"
#include "weir/base/check.hpp"

namespace weir {
namespace {

using test::EngineRange;
using test::FakeMemory;
using test::ReferenceBuddy;

constexpr std::uint32_t kCpu = 0;
constexpr std::uint32_t kOtherCpu = 1;

// An engine over its own descriptors, and a table of who has which frame: the test's own, told by
// nobody but the calls.
struct Bitmap : EngineRange {
  explicit Bitmap(std::uint64_t frames, std::uint64_t offset = 0)
      : EngineRange(frames, offset), out(frames) {
    if (engine.adopt(first(), PageCount{frames}).failed()) {
      throw std::runtime_error("adopt");
    }
  }
  // Position within the range; UINT64_MAX for kNoPage.
  std::uint64_t take(unsigned order, std::uint32_t cpu = kCpu, std::uint64_t leave = 0) {
    const PageIndex page = engine.take(Order{order}, leave, cpu);
    return page == kNoPage ? UINT64_MAX : took(page, order);
  }
  void give(std::uint64_t at, unsigned order) {
    gives(at, order);
    engine.give(frame(at), Order{order});
  }
  std::uint64_t took(PageIndex page, unsigned order) {
    const std::uint64_t at = page.value - first().value;
    EXPECT_EQ(page.value % frames_in(Order{order}), 0U);
    EXPECT_LE(at + frames_in(Order{order}), frames());
    for (std::uint64_t i = at; i < std::min(frames(), at + frames_in(Order{order})); ++i) {
      EXPECT_FALSE(out[i]) << "frame " << i << " was handed out twice";
      out[i] = true;
    }
    return at;
  }
  void gives(std::uint64_t at, unsigned order) {
    std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(at), frames_in(Order{order}), false);
  }
  [[nodiscard]] std::uint64_t free_in_table() const {
    return static_cast<std::uint64_t>(std::count(out.begin(), out.end(), false));
  }
  // What a buddy allocator would show for the table.
  [[nodiscard]] std::array<std::uint64_t, kOrderCount> expected_blocks() const {
    ReferenceBuddy model;
    for (std::uint64_t at = 0; at < frames(); ++at) {
      if (!out[at]) {
        model.adopt(frame(at), 1);
      }
    }
    std::array<std::uint64_t, kOrderCount> blocks{};
    for (unsigned order = 0; order < kOrderCount; ++order) {
      blocks[order] = model.free_blocks(Order{order});
    }
    return blocks;
  }
  [[nodiscard]] std::array<std::uint64_t, kOrderCount> blocks() const {
    std::array<std::uint64_t, kOrderCount> blocks{};
    for (unsigned order = 0; order < kOrderCount; ++order) {
      blocks[order] = engine.free_blocks(Order{order});
    }
    return blocks;
  }
  // Everything the engine says against the table.
  void compare() const {
    ASSERT_EQ(engine.free_pages(), free_in_table());
    ASSERT_EQ(engine.audit(), free_in_table());
    ASSERT_EQ(blocks(), expected_blocks());
    for (std::uint64_t at = 0; at < frames(); ++at) {
      ASSERT_EQ(engine.is_free(frame(at)), !out[at]) << at;
    }
  }

  BitmapEngine engine;
  std::vector<bool> out;
};

// ---- life ----------------------------------------------------------------------------------------

TEST(BitmapEngine, AdoptsRangesOfAnySizeAtAnyPlace) {
  for (const std::uint64_t frames : {1U, 63U, 64U, 511U, 512U, 513U, 1023U, 1024U, 1025U, 3000U}) {
    for (const std::uint64_t offset : {0U, 1U, 511U, 512U, 1023U}) {
      SCOPED_TRACE(testing::Message() << frames << " frames from " << offset);
      const Bitmap bitmap(frames, offset);
      bitmap.compare();
      EXPECT_FALSE(bitmap.engine.is_free(bitmap.frame(frames)));
      EXPECT_EQ(page_at(bitmap.frame(frames - 1))->state.load(), FrameState::kTaken);
      EXPECT_EQ(page_at(bitmap.frame(0))->word.load(), kSoleOwner);
    }
  }
}

TEST(BitmapEngine, AnEmptyOneHasNothing) {
  BitmapEngine engine;
  EXPECT_EQ(engine.take(Order{0}, 0, kCpu), kNoPage);
  EXPECT_EQ(engine.take(kMaxOrder, 0, kCpu), kNoPage);
  EXPECT_FALSE(engine.claim(1, 0));
  EXPECT_TRUE(engine.claim(0, 0));
  EXPECT_EQ(engine.free_pages(), 0U);
  EXPECT_EQ(engine.audit(), 0U);
  EXPECT_FALSE(engine.is_free({5}));
}

TEST(BitmapEngine, RefusesSizesThatMakeNoSense) {
  BitmapEngine engine;
  EXPECT_EQ(engine.adopt({0}, PageCount{0}).code, Errc::zero_size);
  EXPECT_EQ(engine.adopt({4096}, PageCount{0xffff'ffff}).code, Errc::too_large);
  EXPECT_EQ(engine.adopt({4096}, PageCount{~std::uint64_t{0}}).code, Errc::too_large);
}

TEST(BitmapEngine, AdoptIsUndoneWholeAtEveryStepThatFails) {
  FakeMemory memory;
  const EngineRange one(2048);
  const EngineRange two(700);
  {
    BitmapEngine engine;
    ASSERT_FALSE(engine.adopt(one.first(), PageCount{2048}, memory).failed());
    const Bytes before = engine.metadata();
    for (const FakeMemory::Call call : {FakeMemory::Call::reserve, FakeMemory::Call::commit}) {
      memory.fail(call, 1);
      EXPECT_TRUE(engine.adopt(two.first(), PageCount{700}, memory).failed());
      EXPECT_EQ(engine.audit(), 2048U);
      EXPECT_EQ(engine.metadata(), before);
      EXPECT_FALSE(engine.is_free(two.first()));
    }
    memory.fail_nothing();
    ASSERT_FALSE(engine.adopt(two.first(), PageCount{700}, memory).failed());
    EXPECT_EQ(engine.audit(), 2748U);
    EXPECT_GT(engine.metadata(), before);
  }
  EXPECT_EQ(memory.outstanding_mappings(), 0U);
}

TEST(BitmapEngine, SeveralRangesServeOneRequest) {
  const EngineRange one(100, 5);
  const EngineRange two(1024);
  const EngineRange three(513, 1000);
  BitmapEngine engine;
  for (const EngineRange* range : {&one, &two, &three}) {
    ASSERT_FALSE(engine.adopt(range->first(), PageCount{range->frames()}).failed());
  }
  ASSERT_EQ(engine.audit(), 1637U);
  EXPECT_EQ(engine.free_blocks(kMaxOrder), 1U);
  EXPECT_EQ(engine.take(kMaxOrder, 0, kCpu), two.first());
  engine.give(two.first(), kMaxOrder);
  std::set<std::uint32_t> seen;
  std::vector<PageIndex> pages(1637);
  std::uint64_t got = 0;
  while (got < pages.size()) {
    const auto n = static_cast<std::uint32_t>(std::min<std::uint64_t>(64, pages.size() - got));
    ASSERT_EQ(engine.take_many(Order{0}, &pages[got], n, 0, kCpu), n);
    got += n;
  }
  for (const PageIndex page : pages) {
    EXPECT_TRUE(seen.insert(page.value).second);
  }
  EXPECT_EQ(engine.audit(), 0U);
  // Mixed from all three in one call.
  std::shuffle(pages.begin(), pages.end(), std::mt19937{3});
  for (std::size_t at = 0; at < pages.size(); at += 64) {
    const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(64, pages.size() - at));
    engine.give_many(Order{0}, &pages[at], n);
  }
  EXPECT_EQ(engine.audit(), 1637U);
  EXPECT_EQ(engine.free_blocks(kMaxOrder), 1U);
}

TEST(BitmapEngine, StandsBesideTheFramesInLittleMemory) {
  const Bitmap bitmap(256 * 1024);  // 1 GiB
  const std::uint64_t beside = bitmap.engine.metadata().value - sizeof(BitmapEngine);
  EXPECT_LE(beside, 256 * 1024 / 8 + 512 * 16U) << "a bit a frame, some bytes a pageblock";
}

// ---- takes and gives -----------------------------------------------------------------------------

TEST(BitmapEngine, EveryOrderToExhaustionAndBackToTheLargestBlocks) {
  constexpr std::uint64_t kFrames = 3 * kMaxBlockFrames;
  for (unsigned order = 0; order <= kMaxOrderValue; ++order) {
    SCOPED_TRACE(testing::Message() << "order " << order);
    Bitmap bitmap(kFrames);
    std::vector<std::uint64_t> taken;
    for (std::uint64_t at = bitmap.take(order); at != UINT64_MAX; at = bitmap.take(order)) {
      taken.push_back(at);
    }
    EXPECT_EQ(taken.size(), kFrames >> order);
    EXPECT_EQ(bitmap.engine.free_pages(), 0U);
    EXPECT_EQ(bitmap.engine.audit(), 0U);
    std::shuffle(taken.begin(), taken.end(), std::mt19937{order});
    for (const std::uint64_t at : taken) {
      bitmap.give(at, order);
    }
    EXPECT_EQ(bitmap.engine.free_blocks(kMaxOrder), 3U);
    bitmap.compare();
  }
}

TEST(BitmapEngine, OddRangesGiveWhatABuddyAllocatorWouldGive) {
  for (const std::uint64_t frames : {1U, 3U, 100U, 777U, 1023U, 1025U, 2600U}) {
    for (const std::uint64_t offset : {0U, 7U, 1000U}) {
      for (unsigned order = 0; order <= kMaxOrderValue; ++order) {
        SCOPED_TRACE(testing::Message() << frames << " from " << offset << " order " << order);
        Bitmap bitmap(frames, offset);
        std::uint64_t expected = 0;
        for (unsigned k = order; k <= kMaxOrderValue; ++k) {
          expected += bitmap.engine.free_blocks(Order{k}) << (k - order);
        }
        std::vector<std::uint64_t> taken;
        for (std::uint64_t at = bitmap.take(order); at != UINT64_MAX; at = bitmap.take(order)) {
          taken.push_back(at);
        }
        EXPECT_EQ(taken.size(), expected);
        EXPECT_EQ(bitmap.engine.audit(), frames - (expected << order));
        for (const std::uint64_t at : taken) {
          bitmap.give(at, order);
        }
        bitmap.compare();
      }
    }
  }
}

TEST(BitmapEngine, HighOrderBearsItsFlagWhileTakenAndOnlyThen) {
  for (unsigned order = 1; order <= kMaxOrderValue; ++order) {
    Bitmap bitmap(2048);
    const std::uint64_t at = bitmap.take(order);
    ASSERT_NE(at, UINT64_MAX);
    Page* const page = page_at(bitmap.frame(at));
    EXPECT_EQ(page->word.load(), kSoleOwner | kHighOrderFlag);
    EXPECT_EQ(order_of(page), Order{order});
    EXPECT_EQ(page->state.load(), FrameState::kTaken);
    bitmap.give(at, order);
    EXPECT_EQ(page->word.load(), kSoleOwner);
    EXPECT_EQ(order_of(page), Order{0});
  }
}

TEST(BitmapEngine, TakeManyTakesAWordAtOnce) {
  Bitmap bitmap(1024);
  PageIndex pages[64];
  ASSERT_EQ(bitmap.engine.take_many(Order{0}, pages, 64, 0, kCpu), 64U);
  for (std::uint32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(pages[i].value, pages[0].value + i);
  }
  EXPECT_EQ(pages[0].value % 64, 0U);
  PageIndex pairs[32];
  ASSERT_EQ(bitmap.engine.take_many(Order{1}, pairs, 32, 0, kCpu), 32U);
  for (std::uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(pairs[i].value, pairs[0].value + 2 * i);
    EXPECT_EQ(order_of(page_at(pairs[i])), Order{1});
  }
  EXPECT_EQ(bitmap.engine.audit(), 1024U - 128);
}

TEST(BitmapEngine, TakeManyOfLargeBlocksReturnsWhatThereIs) {
  Bitmap bitmap(1024 + 512 + 40);
  PageIndex pages[64];
  // 1576 frames would do for 12 blocks of order 7, but 40 of them are no block.
  EXPECT_EQ(bitmap.engine.take_many(Order{7}, pages, 12, 0, kCpu), 12U);
  EXPECT_EQ(bitmap.engine.take_many(Order{5}, pages + 12, 2, 0, kCpu), 0U);  // 40 < 64: nothing
  EXPECT_EQ(bitmap.engine.take_many(Order{4}, pages + 12, 2, 0, kCpu), 2U);
  EXPECT_EQ(bitmap.engine.take_many(Order{2}, pages + 14, 2, 0, kCpu), 2U);
  EXPECT_EQ(bitmap.engine.free_pages(), 0U);
  for (int i = 0; i < 12; ++i) {
    bitmap.engine.give(pages[i], Order{7});
  }
  EXPECT_EQ(bitmap.engine.take_many(Order{10}, pages, 1, 0, kCpu), 1U);
  EXPECT_EQ(bitmap.engine.take_many(Order{8}, pages + 1, 2, 0, kCpu), 2U);
  EXPECT_EQ(bitmap.engine.audit(), 0U);
}

TEST(BitmapEngine, TakeManyUndoesTheClaimOfWhatItDoesNotFind) {
  Bitmap bitmap(1024);
  std::vector<std::uint64_t> taken;
  for (int i = 0; i < 16; ++i) {
    taken.push_back(bitmap.take(6));
  }
  bitmap.give(taken[3], 6);
  bitmap.give(taken[9],
              6);  // 128 frames, but no block of order 7, nor three of order 5 in one word
  PageIndex pages[4];
  EXPECT_EQ(bitmap.engine.take_many(Order{7}, pages, 1, 0, kCpu), 0U);
  EXPECT_EQ(bitmap.engine.free_pages(), 128U);
  EXPECT_EQ(bitmap.engine.take_many(Order{5}, pages, 4, 0, kCpu), 4U);
  EXPECT_EQ(bitmap.engine.free_pages(), 0U);
  bitmap.engine.give_many(Order{5}, pages, 2);
  bitmap.give(taken[0], 6);
  // Claims 128, finds one block of 64.
  EXPECT_EQ(bitmap.engine.take_many(Order{6}, pages, 2, 0, kCpu), 2U);
  EXPECT_EQ(bitmap.engine.audit(), 0U);
}

TEST(BitmapEngine, GiveManyInAnyOrderIsGiveOfEach) {
  std::mt19937 random{5};
  // All in one stretch of eight pageblocks, and from all over several.
  for (const auto& [frames, order] : {std::pair{4096U, 0U},
                                      {4096U, 1U},
                                      {4096U, 4U},
                                      {4096U, 6U},
                                      {16384U, 0U},
                                      {16384U, 2U},
                                      {16384U, 5U},
                                      {16384U, 6U}}) {
    Bitmap bitmap(frames);
    std::vector<std::uint64_t> taken;
    for (std::uint64_t at = bitmap.take(order); at != UINT64_MAX; at = bitmap.take(order)) {
      taken.push_back(at);
    }
    std::shuffle(taken.begin(), taken.end(), random);
    while (!taken.empty()) {
      const auto n = std::min<std::size_t>(1 + random() % (64U >> order), taken.size());
      std::vector<PageIndex> pages;
      for (std::size_t i = 0; i < n; ++i) {
        pages.push_back(bitmap.frame(taken.back()));
        bitmap.gives(taken.back(), order);
        taken.pop_back();
      }
      bitmap.engine.give_many(Order{order}, pages.data(), static_cast<std::uint32_t>(n));
      ASSERT_EQ(bitmap.engine.audit(), bitmap.free_in_table());
    }
    bitmap.compare();
    EXPECT_EQ(bitmap.engine.free_blocks(kMaxOrder), frames / kMaxBlockFrames);
  }
}

TEST(BitmapEngine, GiveManyOfNeighboursWithinAWordAndAcrossTwo) {
  Bitmap bitmap(1024);
  for (int i = 0; i < 1024; ++i) {
    ASSERT_NE(bitmap.take(0), UINT64_MAX);
  }
  for (const auto& [from, n] : {std::pair{0U, 64U}, std::pair{70U, 1U}, std::pair{72U, 8U},
                                std::pair{100U, 64U}, std::pair{480U, 64U}, std::pair{960U, 64U}}) {
    std::vector<PageIndex> pages;
    for (std::uint32_t i = 0; i < n; ++i) {
      pages.push_back(bitmap.frame(from + i));
      bitmap.gives(from + i, 0);
    }
    bitmap.engine.give_many(Order{0}, pages.data(), n);
    bitmap.compare();
  }
  bitmap.engine.give_many(Order{0}, nullptr, 0);
  bitmap.compare();
}

// ---- claims --------------------------------------------------------------------------------------

TEST(BitmapEngine, AClaimIsOutOfReachOfOthersUntilItIsTakenOrUndone) {
  Bitmap bitmap(1024);
  ASSERT_TRUE(bitmap.engine.claim(1000, 0));
  EXPECT_EQ(bitmap.engine.free_pages(), 24U);
  EXPECT_EQ(bitmap.engine.claimed_pages(), 1000U);
  EXPECT_EQ(bitmap.engine.audit(), 1024U);
  EXPECT_FALSE(bitmap.engine.claim(25, 0));
  EXPECT_EQ(bitmap.take(5), UINT64_MAX);  // blocks of 32 are there, but 24 frames may go
  EXPECT_NE(bitmap.take(4), UINT64_MAX);
  std::vector<PageIndex> pages(1000);
  for (std::size_t at = 0; at < 1000; at += 50) {
    bitmap.engine.take_claimed(&pages[at], 50, static_cast<std::uint32_t>(at));
    EXPECT_EQ(bitmap.engine.claimed_pages(), 950 - at);
  }
  for (const PageIndex page : pages) {
    bitmap.took(page, 0);
  }
  bitmap.compare();
  ASSERT_TRUE(bitmap.engine.claim(8, 0));
  bitmap.engine.unclaim(8);
  bitmap.compare();
}

TEST(BitmapEngine, LeaveIsLeft) {
  Bitmap bitmap(1024);
  EXPECT_EQ(bitmap.take(10, kCpu, 1), UINT64_MAX);
  EXPECT_EQ(bitmap.take(9, kCpu, 513), UINT64_MAX);
  EXPECT_NE(bitmap.take(9, kCpu, 512), UINT64_MAX);
  PageIndex pages[64];
  EXPECT_EQ(bitmap.engine.take_many(Order{0}, pages, 64, 449, kCpu), 0U);
  EXPECT_EQ(bitmap.engine.take_many(Order{0}, pages, 64, 448, kCpu), 64U);
  EXPECT_FALSE(bitmap.engine.claim(1, 448));
  EXPECT_FALSE(bitmap.engine.claim(449, 0));
  EXPECT_FALSE(bitmap.engine.claim(1, ~std::uint64_t{0}));
  EXPECT_TRUE(bitmap.engine.claim(448, 0));
  EXPECT_EQ(bitmap.engine.free_pages(), 0U);
}

TEST(BitmapEngine, AClaimIsServedOutOfWhatOthersHaveReserved) {
  Bitmap bitmap(1024);
  for (std::uint32_t cpu = 0; cpu < 2; ++cpu) {
    ASSERT_NE(bitmap.take(0, cpu), UINT64_MAX);  // each has a pageblock now
  }
  for (int i = 0; i < 1022; ++i) {
    ASSERT_NE(bitmap.take(0, 7), UINT64_MAX);
  }
  EXPECT_EQ(bitmap.take(0, 7), UINT64_MAX);
  EXPECT_EQ(bitmap.engine.audit(), 0U);
}

// ---- policy --------------------------------------------------------------------------------------

// Takes all, then gives so many of each pageblock that these are free.
void leave_free(Bitmap& bitmap, const std::vector<std::uint32_t>& counts) {
  while (bitmap.take(0) != UINT64_MAX) {
  }
  for (std::size_t block = 0; block < counts.size(); ++block) {
    for (std::uint32_t i = 0; i < counts[block]; ++i) {
      bitmap.give(block * kPageblockFrames + i, 0);
    }
  }
}

TEST(BitmapEngine, SingleFramesComeOutOfTheFullestPageblock) {
  Bitmap bitmap(8 * kPageblockFrames);
  const std::vector<std::uint32_t> free{300, 512, 100, 0, 511, 7, 512, 200};
  leave_free(bitmap, free);
  std::vector<std::uint64_t> visited;
  for (std::uint64_t at = bitmap.take(0); at != UINT64_MAX; at = bitmap.take(0)) {
    if (visited.empty() || visited.back() != at / kPageblockFrames) {
      visited.push_back(at / kPageblockFrames);
    }
  }
  EXPECT_EQ(visited, (std::vector<std::uint64_t>{5, 2, 7, 0, 4, 1, 6}));
}

TEST(BitmapEngine, AClusterIsGatheredFromSeveralFullPageblocks) {
  Bitmap bitmap(4 * kPageblockFrames);
  leave_free(bitmap, {10, 512, 20, 100});
  PageIndex pages[64];
  ASSERT_EQ(bitmap.engine.take_many(Order{0}, pages, 64, 0, kCpu), 64U);
  for (const PageIndex page : pages) {
    bitmap.took(page, 0);
  }
  EXPECT_EQ(bitmap.engine.free_in_pageblock(bitmap.frame(0)), 0U);
  EXPECT_EQ(bitmap.engine.free_in_pageblock(bitmap.frame(512)), 512U);
  EXPECT_EQ(bitmap.engine.free_in_pageblock(bitmap.frame(2 * 512)), 0U);
  EXPECT_EQ(bitmap.engine.free_in_pageblock(bitmap.frame(3 * 512)), 66U);
  bitmap.compare();
}

TEST(BitmapEngine, ReservationsKeepCpusApart) {
  Bitmap bitmap(8 * kPageblockFrames);
  std::set<std::uint64_t> one;
  std::set<std::uint64_t> other;
  for (int i = 0; i < 400; ++i) {
    one.insert(bitmap.take(0, kCpu) / kPageblockFrames);
    other.insert(bitmap.take(0, kOtherCpu) / kPageblockFrames);
  }
  EXPECT_EQ(one.size(), 1U);
  EXPECT_EQ(other.size(), 1U);
  EXPECT_NE(*one.begin(), *other.begin());
  bitmap.compare();
}

TEST(BitmapEngine, CpusBeginAtPlacesOfTheirOwn) {
  constexpr std::uint64_t kBlocks = 4 * BitmapEngine::kCpuSlots;
  Bitmap bitmap(kBlocks * kPageblockFrames);
  std::uint32_t cpu = 0;
  for (const std::uint64_t block : {kBlocks * 0, kBlocks / 2, kBlocks / 4, 3 * kBlocks / 4}) {
    EXPECT_EQ(bitmap.take(0, cpu++) / kPageblockFrames, block);
  }
  EXPECT_EQ(bitmap.take(0, 64 + 1) / kPageblockFrames, kBlocks / 2);  // shares the slot of 1
  // Once round, when nothing is left from there on.
  Bitmap low(kBlocks * kPageblockFrames);
  while (low.take(0) != UINT64_MAX) {
  }
  low.give(77, 0);
  EXPECT_EQ(low.take(0, 63), 77U);
}

TEST(BitmapEngine, APageblockThatRanDryCanBeFoundByAllAgain) {
  Bitmap bitmap(4 * kPageblockFrames);
  std::vector<std::uint64_t> taken;
  for (std::uint32_t i = 0; i < kPageblockFrames; ++i) {
    taken.push_back(bitmap.take(0, kCpu));
  }
  bitmap.give(taken[17], 0);
  EXPECT_EQ(bitmap.take(0, kOtherCpu), taken[17]);  // the fullest there is
}

TEST(BitmapEngine, SmallBlocksComeOutOfUsedPageblocksAndSplitNothingLarger) {
  Bitmap bitmap(4 * kPageblockFrames);
  ASSERT_NE(bitmap.take(0), UINT64_MAX);
  const std::uint64_t used = bitmap.take(0) / kPageblockFrames;
  for (const unsigned order : {1U, 3U, 0U, 7U, 5U, 2U}) {
    EXPECT_EQ(bitmap.take(order) / kPageblockFrames, used) << order;
  }
  EXPECT_EQ(bitmap.engine.free_blocks(Order{9}) + 2 * bitmap.engine.free_blocks(Order{10}), 3U);
  // A hole of two is used for two before a free word is broken.
  Bitmap holes(kPageblockFrames);
  while (holes.take(0) != UINT64_MAX) {
  }
  holes.give(200, 0);
  holes.give(201, 0);
  for (std::uint32_t i = 0; i < 64; ++i) {
    holes.give(64 + i, 0);
  }
  EXPECT_EQ(holes.take(1), 200U);
}

TEST(BitmapEngine, WhollyFreePageblocksWithoutANeighbourLeaveFirst) {
  Bitmap bitmap(6 * kPageblockFrames);
  std::vector<std::uint64_t> taken;
  for (int i = 0; i < 6; ++i) {
    taken.push_back(bitmap.take(9));
  }
  std::sort(taken.begin(), taken.end());
  for (const int i : {0, 1, 3}) {
    bitmap.give(taken[i], 9);
  }
  EXPECT_EQ(bitmap.engine.free_blocks(kMaxOrder), 1U);
  EXPECT_EQ(bitmap.take(9), taken[3]);  // not out of the pair 0 and 1, which comes first
  bitmap.give(taken[3], 9);
  EXPECT_EQ(bitmap.take(0) / kPageblockFrames, 3U);
  EXPECT_EQ(bitmap.engine.free_blocks(kMaxOrder), 1U);
  EXPECT_EQ(bitmap.take(10), 0U);
}

TEST(BitmapEngine, APageblockThatSomebodyReservedIsTakenWholeOnceItIsFreeAgain) {
  Bitmap bitmap(1024);
  const std::uint64_t at = bitmap.take(0);
  bitmap.give(at, 0);
  EXPECT_EQ(bitmap.take(10), 0U);
  EXPECT_EQ(bitmap.engine.audit(), 0U);
  EXPECT_EQ(bitmap.take(0), UINT64_MAX);
  bitmap.give(0, 10);
  bitmap.compare();
}

// ---- beside the model ----------------------------------------------------------------------------

TEST(BitmapEngine, ShowsTheBlocksOfABuddyAllocatorThroughARandomRun) {
  for (const auto& [frames, offset] :
       {std::pair{1024U, 0U}, std::pair{5000U, 3U}, std::pair{3 * 1024U, 512U}}) {
    Bitmap bitmap(frames, offset);
    const std::uint64_t seed = 0x5eed0000 + frames + offset;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    std::vector<std::pair<std::uint64_t, unsigned>> taken;
    for (int step = 0; step < 6000; ++step) {
      const bool taking = (random() % 16 < 12) == (step / 512 % 2 == 0);
      const auto cpu = static_cast<std::uint32_t>(random() % 3);
      if (taking || taken.empty()) {
        const auto order = static_cast<unsigned>(random() % (random() % 4 != 0 ? 3 : kOrderCount));
        std::uint64_t blocks = 0;
        for (unsigned k = order; k < kOrderCount; ++k) {
          blocks += bitmap.engine.free_blocks(Order{k});
        }
        const std::uint64_t at = bitmap.take(order, cpu);
        ASSERT_EQ(at != UINT64_MAX, blocks != 0) << "a refusal is the truth, at rest";
        if (at != UINT64_MAX) {
          taken.emplace_back(at, order);
        }
      } else {
        std::swap(taken[random() % taken.size()], taken.back());
        bitmap.give(taken.back().first, taken.back().second);
        taken.pop_back();
      }
      ASSERT_EQ(bitmap.engine.audit(), bitmap.free_in_table());
      if (step % 64 == 0) {
        bitmap.compare();
      }
    }
    for (const auto& [at, order] : taken) {
      bitmap.give(at, order);
    }
    bitmap.compare();
  }
}

// ---- after a fork --------------------------------------------------------------------------------

TEST(BitmapEngine, RecoversFromAForkInTheMiddleOfAnything) {
  Bitmap bitmap(5000, 100);
  std::mt19937 random{9};
  std::vector<std::pair<std::uint64_t, unsigned>> taken;
  for (int i = 0; i < 300; ++i) {
    const unsigned order = random() % 6 == 0 ? random() % kOrderCount : random() % 3;
    if (const std::uint64_t at = bitmap.take(order, random() % 4); at != UINT64_MAX) {
      taken.emplace_back(at, order);
    }
  }
  ASSERT_TRUE(bitmap.engine.claim(77, 0));  // somebody who is not in the child
  bitmap.engine.recover_in_child();
  EXPECT_EQ(bitmap.engine.claimed_pages(), 0U);
  bitmap.compare();
  for (const auto& [at, order] : taken) {
    bitmap.give(at, order);
  }
  bitmap.compare();
  EXPECT_NE(bitmap.take(10), UINT64_MAX);
}

// ---- what must not be ----------------------------------------------------------------------------

class BitmapEngineDeathTest : public testing::Test {
 protected:
  BitmapEngineDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(BitmapEngineDeathTest, ReportsAPageThatIsFreeAlready) {
  for (unsigned order = 0; order <= kMaxOrderValue; ++order) {
    Bitmap bitmap(2048);
    const std::uint64_t at = bitmap.take(order);
    ASSERT_NE(at, UINT64_MAX);
    bitmap.give(at, order);
    EXPECT_DEATH(bitmap.give(at, order), "double free: page [0-9]+ is already free") << order;
  }
}

TEST_F(BitmapEngineDeathTest, ReportsAFreePageAmongMany) {
  Bitmap bitmap(2048);
  PageIndex pages[8];
  ASSERT_EQ(bitmap.engine.take_many(Order{0}, pages, 8, 0, kCpu), 8U);
  bitmap.engine.give(pages[5], Order{0});
  EXPECT_DEATH(bitmap.engine.give_many(Order{0}, pages, 8), "double free: page");
  std::swap(pages[0], pages[7]);
  EXPECT_DEATH(bitmap.engine.give_many(Order{0}, pages, 8), "double free: page");
  PageIndex twice[3] = {pages[1], pages[2], pages[1]};
  EXPECT_DEATH(bitmap.engine.give_many(Order{0}, twice, 3), "double free: page");
}

TEST_F(BitmapEngineDeathTest, ChangesNothingBeforeAReport) {
  static Bitmap* s_bitmap = nullptr;
  Bitmap bitmap(2048);
  s_bitmap = &bitmap;
  PageIndex pages[4];
  ASSERT_EQ(bitmap.engine.take_many(Order{1}, pages, 4, 0, kCpu), 4U);
  bitmap.engine.give(pages[3], Order{1});
  const auto handler = [](Finding, const char*) {
    std::fprintf(stderr, "%llu frames are here, the flag is %s\n",
                 static_cast<unsigned long long>(s_bitmap->engine.audit()),
                 (page_at(s_bitmap->first())->word.load() & kHighOrderFlag) != 0 ? "set" : "gone");
  };
  EXPECT_DEATH(
      {
        set_report_handler(handler);
        bitmap.engine.give_many(Order{1}, pages, 4);
      },
      "2042 frames are here, the flag is set");
}

TEST_F(BitmapEngineDeathTest, ChangesNoBitBeforeAReport) {
  static Bitmap* s_bitmap = nullptr;
  Bitmap bitmap(16 * kPageblockFrames);
  s_bitmap = &bitmap;
  while (bitmap.take(0) != UINT64_MAX) {
  }
  bitmap.give(5, 0);
  const auto handler = [](Finding, const char*) {
    std::fprintf(stderr, "%llu frames are here, and frame 3 is %s\n",
                 static_cast<unsigned long long>(s_bitmap->engine.audit()),
                 s_bitmap->engine.is_free(s_bitmap->frame(3)) ? "free" : "out");
  };
  // Of one word, of one stretch, from all over: the last one is free already.
  for (const std::vector<std::uint64_t>& at :
       {std::vector<std::uint64_t>{3, 4, 5}, {3, 700, 5}, {3, 7000, 700, 5}, {5}}) {
    std::vector<PageIndex> pages;
    for (const std::uint64_t one : at) {
      pages.push_back(bitmap.frame(one));
    }
    EXPECT_DEATH(
        {
          set_report_handler(handler);
          bitmap.engine.give_many(Order{0}, pages.data(), static_cast<std::uint32_t>(pages.size()));
        },
        "1 frames are here, and frame 3 is out");
  }
}

TEST_F(BitmapEngineDeathTest, ReportsTheInsideOfAWholePageblock) {
  Bitmap bitmap(2048);
  const std::uint64_t nine = bitmap.take(9);
  const std::uint64_t ten = bitmap.take(10);
  ASSERT_NE(ten, UINT64_MAX);
  EXPECT_DEATH(bitmap.give(nine + 1, 0), "free of a tail: .*frame [0-9]+ is inside a page");
  EXPECT_DEATH(bitmap.give(ten + 512, 0), "free of a tail");
  EXPECT_DEATH(bitmap.give(ten + 512, 9), "free of a tail");
  EXPECT_DEATH(bitmap.give(nine + 64, 3), "free of a tail");
  EXPECT_DEATH(bitmap.give(nine, 0), "wrong order: page [0-9]+ has order 9, not 0");
  EXPECT_DEATH(bitmap.give(ten, 0), "wrong order: page [0-9]+ has order 10, not 0");
  PageIndex pages[2] = {bitmap.frame(nine + 7), bitmap.frame(nine + 90)};
  EXPECT_DEATH(bitmap.engine.give_many(Order{0}, pages, 2), "free of a tail");
}

TEST_F(BitmapEngineDeathTest, ReportsAnOrderThatIsTooSmallAndOneThatIsTooLarge) {
  Bitmap bitmap(2048);
  const std::uint64_t at = bitmap.take(3);
  EXPECT_DEATH(bitmap.give(at, 2), "wrong order: page [0-9]+ has order 3, not 2");
  EXPECT_DEATH(bitmap.give(at, 4), "wrong order: page [0-9]+ has order 3, not 4");
  EXPECT_DEATH(bitmap.give(at, 9), "wrong order: page [0-9]+ has order 3, not 9");
  const std::uint64_t ten = bitmap.take(10);
  EXPECT_DEATH(bitmap.give(ten, 9), "wrong order: page [0-9]+ has order 10, not 9");
}

TEST_F(BitmapEngineDeathTest, ReportsAFrameOutsideTheRange) {
  Bitmap bitmap(8, 4);
  EXPECT_DEATH(bitmap.engine.give(bitmap.frame(8), Order{0}), "free of a tail: ");
  EXPECT_DEATH(bitmap.engine.give({bitmap.first().value - 1}, Order{0}), "free of a tail: ");
}

}  // namespace
}  // namespace weir
