// SPDX-License-Identifier: MIT
// What any engine of a zone does, whichever frame it prefers: one suite for both, and both side by side as
// each other's model.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/unit/zone/engine_range.hpp"
#include "weir/zone/bitmap_engine.hpp"
#include "weir/zone/buddy_engine.hpp"

namespace weir {
namespace {

using test::EngineRange;
using Blocks = std::array<std::uint64_t, kOrderCount>;

struct BitmapAdapter {
  BitmapEngine engine;
  void adopt(PageIndex first, std::uint64_t frames) {
    if (engine.adopt(first, PageCount{frames}).failed()) {
      throw std::runtime_error("adopt");
    }
  }
  PageIndex take(Order order) { return engine.take(order, 0, 0); }
  std::uint32_t take_many(Order order, PageIndex* out, std::uint32_t n) {
    return engine.take_many(order, out, n, 0, 0);
  }
};
struct BuddyAdapter {
  BuddyEngine engine;
  void adopt(PageIndex first, std::uint64_t frames) { engine.adopt(first, frames); }
  PageIndex take(Order order) { return engine.take(order); }
  std::uint32_t take_many(Order order, PageIndex* out, std::uint32_t n) {
    return engine.take_many(order, out, n);
  }
};

// An engine with frames of its own.
template <class Adapter>
struct Stocked : EngineRange, Adapter {
  explicit Stocked(std::uint64_t frames, std::uint64_t offset = 0) : EngineRange(frames, offset) {
    this->adopt(first(), frames);
  }
  [[nodiscard]] Blocks blocks() const {
    Blocks all{};
    for (unsigned order = 0; order < kOrderCount; ++order) {
      all[order] = this->engine.free_blocks(Order{order});
    }
    return all;
  }
  // Blocks of this order that can be had, if nothing else is taken.
  [[nodiscard]] std::uint64_t obtainable(Order order) const {
    std::uint64_t sum = 0;
    for (unsigned k = order.value; k < kOrderCount; ++k) {
      sum += this->engine.free_blocks(Order{k}) << (k - order.value);
    }
    return sum;
  }
};

template <class Adapter>
class AnyEngine : public testing::Test {};
using Adapters = testing::Types<BuddyAdapter, BitmapAdapter>;
TYPED_TEST_SUITE(AnyEngine, Adapters);

TYPED_TEST(AnyEngine, StartsWithTheLargestAlignedBlocksOfItsRange) {
  const Stocked<TypeParam> odd(7, 1);  // frames 1..7
  EXPECT_EQ(odd.blocks(), (Blocks{1, 1, 1}));
  const Stocked<TypeParam> across(6, 1021);
  EXPECT_EQ(across.blocks(), (Blocks{2, 2}));
  const Stocked<TypeParam> large(3 * kMaxBlockFrames + 512);
  EXPECT_EQ(large.engine.free_blocks(Order{10}), 3U);
  EXPECT_EQ(large.engine.free_blocks(Order{9}), 1U);
}

TYPED_TEST(AnyEngine, HandsOutEveryBlockOfAnOrderOnceAndMergesThemAgain) {
  for (unsigned order = 0; order < kOrderCount; ++order) {
    Stocked<TypeParam> stock(2 * kMaxBlockFrames + 700, 3);
    const Blocks before = stock.blocks();
    const std::uint64_t expected = stock.obtainable(Order{order});
    std::vector<PageIndex> pages;
    for (PageIndex page = stock.take(Order{order}); page != kNoPage;
         page = stock.take(Order{order})) {
      EXPECT_EQ(page.value % frames_in(Order{order}), 0U);
      pages.push_back(page);
    }
    EXPECT_EQ(pages.size(), expected);
    std::vector<PageIndex> sorted = pages;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end());
    EXPECT_EQ(stock.engine.audit(), stock.frames() - (expected << order));
    std::shuffle(pages.begin(), pages.end(), std::mt19937{order});
    for (const PageIndex page : pages) {
      stock.engine.give(page, Order{order});
    }
    EXPECT_EQ(stock.blocks(), before);
  }
}

TYPED_TEST(AnyEngine, GiveManyIsGiveOfEach) {
  Stocked<TypeParam> stock(2 * kMaxBlockFrames);
  for (unsigned order = 0; order <= 6; ++order) {
    PageIndex pages[64];
    const std::uint32_t n = 64U >> order;
    ASSERT_EQ(stock.take_many(Order{order}, pages, n), n);
    std::shuffle(pages, pages + n, std::mt19937{order});
    stock.engine.give_many(Order{order}, pages, n);
    EXPECT_EQ(stock.engine.free_blocks(kMaxOrder), 2U);
    EXPECT_EQ(stock.engine.audit(), stock.frames());
  }
}

TYPED_TEST(AnyEngine, TheDescriptorOfABlockTellsItsOrderWhileItIsOut) {
  Stocked<TypeParam> stock(2048);
  for (unsigned order = 0; order < kOrderCount; ++order) {
    const PageIndex page = stock.take(Order{order});
    ASSERT_NE(page, kNoPage);
    EXPECT_EQ(order_of(page_at(page)), Order{order});
    EXPECT_EQ(page_at(page)->state.load(), FrameState::kTaken);
    EXPECT_EQ(page_at(page)->word.load(), kSoleOwner | (order > 0 ? kHighOrderFlag : 0));
    stock.engine.give(page, Order{order});
    EXPECT_EQ(page_at(page)->word.load(), kSoleOwner);
  }
}

// The same requests to both. They hand out other frames, so that now one and now the other still has a
// block; with everything back they are the same.
TEST(BothEngines, ShowTheSameBlocksWheneverEverythingIsBack) {
  for (const auto& [frames, offset] :
       {std::pair{1024U, 0U}, std::pair{3333U, 77U}, std::pair{6000U, 1000U}}) {
    Stocked<BuddyAdapter> buddy(frames, offset);
    Stocked<BitmapAdapter> bitmap(frames, offset);
    std::mt19937_64 random(frames);
    for (int round = 0; round < 20; ++round) {
      std::vector<std::pair<PageIndex, Order>> out[2];
      const auto step = [](auto& stock, auto& mine, bool taking, Order order, std::uint64_t which) {
        if (taking) {
          const bool there = stock.obtainable(order) != 0;
          const PageIndex page = stock.take(order);
          ASSERT_EQ(page != kNoPage, there) << "a refusal is the truth";
          if (there) {
            mine.emplace_back(page, order);
          }
        } else if (!mine.empty()) {
          std::swap(mine[which % mine.size()], mine.back());
          stock.engine.give(mine.back().first, mine.back().second);
          mine.pop_back();
        }
      };
      for (int i = 0; i < 400; ++i) {
        const bool taking = random() % 3 != 0;
        const Order order{static_cast<unsigned>(random() % (random() % 3 != 0 ? 4 : kOrderCount))};
        const std::uint64_t which = random();
        step(buddy, out[0], taking, order, which);
        step(bitmap, out[1], taking, order, which);
      }
      ASSERT_EQ(buddy.engine.audit(), buddy.engine.free_pages());
      ASSERT_EQ(bitmap.engine.audit(), bitmap.engine.free_pages());
      for (const auto& [page, order] : out[0]) {
        buddy.engine.give(page, order);
      }
      for (const auto& [page, order] : out[1]) {
        bitmap.engine.give(page, order);
      }
      ASSERT_EQ(buddy.blocks(), bitmap.blocks());
      ASSERT_EQ(bitmap.engine.free_pages(), frames);
    }
  }
}

}  // namespace
}  // namespace weir
