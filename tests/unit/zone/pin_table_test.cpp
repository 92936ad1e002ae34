// SPDX-License-Identifier: MIT
#include "weir/zone/pin_table.hpp"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

namespace weir {
namespace {

constexpr std::uint32_t kBlock = 512;

TEST(PinTable, APinCountsForEveryPageblockThatItTouches) {
  PinTable table;
  table.open(5 * kBlock, 1);
  table.add_piece({10 * kBlock}, 5 * kBlock);
  EXPECT_FALSE(table.is_pinned({10 * kBlock}, 5 * kBlock));
  table.add({11 * kBlock + 511}, 2);  // the last frame of one, the first of the next
  EXPECT_EQ(table.live(), 1U);
  EXPECT_FALSE(table.is_pinned({10 * kBlock}, kBlock));
  EXPECT_TRUE(table.is_pinned({11 * kBlock}, 1));
  EXPECT_TRUE(table.is_pinned({12 * kBlock + 511}, 1));
  EXPECT_FALSE(table.is_pinned({13 * kBlock}, 2 * kBlock));
  EXPECT_TRUE(table.is_pinned({10 * kBlock}, kBlock + 1));
  table.remove({11 * kBlock + 511}, 2);
  EXPECT_EQ(table.live(), 0U);
  EXPECT_FALSE(table.is_pinned({10 * kBlock}, 5 * kBlock));
}

TEST(PinTable, CountsOverlappingPinsInPiecesOfAnyPlace) {
  // The second piece begins in the pageblock in which the first ends.
  const std::pair<std::uint32_t, std::uint32_t> pieces[] = {{700, 1401}, {2101, 77}, {9000, 5000}};
  PinTable table;
  table.open(1401 + 77 + 5000, 3);
  for (const auto& [first, frames] : pieces) {
    table.add_piece({first}, frames);
  }
  std::mt19937 random{3};
  struct Pin {
    std::size_t piece;
    PageIndex first;
    std::uint32_t frames;
  };
  std::vector<Pin> pins;
  for (int step = 0; step < 3000; ++step) {
    if (pins.empty() || random() % 2 == 0) {
      const std::size_t piece = random() % 3;
      const auto& [first, frames] = pieces[piece];
      const std::uint32_t at = random() % frames;
      pins.push_back(
          {piece, {first + at}, 1 + static_cast<std::uint32_t>(random() % (frames - at))});
      table.add(pins.back().first, pins.back().frames);
    } else {
      std::swap(pins[random() % pins.size()], pins.back());
      table.remove(pins.back().first, pins.back().frames);
      pins.pop_back();
    }
    ASSERT_EQ(table.live(), pins.size());
    const std::size_t piece = random() % 3;
    const std::uint32_t at = pieces[piece].first + random() % pieces[piece].second;
    bool pinned = false;
    for (const Pin& pin : pins) {
      pinned = pinned || (pin.piece == piece && pin.first.value / kBlock <= at / kBlock &&
                          at / kBlock <= (pin.first.value + pin.frames - 1) / kBlock);
    }
    ASSERT_EQ(table.is_pinned({at}, 1), pinned);
  }
}

TEST(PinTable, ForgetsAllWhenItIsOpenedAgainAndKnowsNothingElse) {
  PinTable table;
  EXPECT_FALSE(table.is_pinned({0}, 100));
  table.open(kBlock, 1);
  table.add_piece({0}, kBlock);
  table.add({0}, 1);
  EXPECT_FALSE(table.is_pinned({kBlock}, kBlock));
  table.open(kBlock, 1);
  table.add_piece({0}, kBlock);
  EXPECT_EQ(table.live(), 0U);
  EXPECT_FALSE(table.is_pinned({0}, kBlock));
}

}  // namespace
}  // namespace weir
