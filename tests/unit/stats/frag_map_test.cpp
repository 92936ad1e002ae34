// SPDX-License-Identifier: MIT
#include "weir/stats/frag_map.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weir {
namespace {

FragMap of(const std::vector<std::pair<unsigned, std::uint64_t>>& blocks) {
  FragMap map;
  for (const auto& [order, n] : blocks) {
    map.blocks_of_order[order] = n;
    map.free += n << order;
  }
  return map;
}

TEST(FragMap, TheUnusableIndexIsTheShareInBlocksThatAreTooSmall) {
  const FragMap map = of({{0, 100}, {3, 50}, {9, 1}});  // 100 + 400 + 512 frames
  EXPECT_EQ(map.unusable_index(Order{0}), 0U);
  EXPECT_EQ(map.unusable_index(Order{1}), 98U);
  EXPECT_EQ(map.unusable_index(Order{3}), 98U);
  EXPECT_EQ(map.unusable_index(Order{4}), 494U);
  EXPECT_EQ(map.unusable_index(Order{9}), 494U);
  EXPECT_EQ(map.unusable_index(Order{10}), 1000U);
  EXPECT_EQ(FragMap{}.unusable_index(Order{5}), 0U);
}

// By the kernel's formula: 1000 - (1000 + free * 1000 / requested) / blocks.
TEST(FragMap, TheExtfragIndexTellsWantOfMemoryFromPieces) {
  EXPECT_EQ(of({{9, 1}}).extfrag_index(Order{9}), -1000);
  EXPECT_EQ(of({{10, 1}}).extfrag_index(Order{9}), -1000);
  EXPECT_EQ(of({}).extfrag_index(Order{9}), 0);
  // 512 single frames would be enough, and are 512 pieces.
  EXPECT_EQ(of({{0, 512}}).extfrag_index(Order{9}), 997);
  // Two frames are no 2 MiB however they lie.
  EXPECT_EQ(of({{1, 1}}).extfrag_index(Order{9}), 1000 - 1003);
  EXPECT_EQ(of({{8, 2}}).extfrag_index(Order{9}), 0);
}

TEST(FragMap, BuddyinfoHasAColumnForEachOrder) {
  EXPECT_EQ(buddyinfo_text(of({{0, 1}, {2, 22}, {10, 333333}}), "test"),
            "Node 0, zone     test      1      0     22      0      0      0      0      0      0"
            "      0 333333\n");
}

class FragMapOf : public testing::TestWithParam<EngineChoice> {
 protected:
  [[nodiscard]] static Options options() {
    Options options;
    options.capacity = 16_MiB;
    options.engine = GetParam();
    options.lists = false;
    return options;
  }
  // The signs alone.
  static std::string signs(const PageAllocator& pages, unsigned width = 64) {
    std::string text;
    const std::string drawn = draw(frag_map(pages), width);
    for (std::size_t line = 0; line < drawn.size(); line = drawn.find('\n', line) + 1) {
      text += drawn.substr(line + 16, drawn.find('\n', line) - line - 16) + '|';
    }
    return text;
  }
  PageAllocator pages{options()};
};
INSTANTIATE_TEST_SUITE_P(Engines, FragMapOf,
                         testing::Values(EngineChoice::buddy, EngineChoice::bitmap),
                         [](const auto& engine) {
                           return engine.param == EngineChoice::buddy ? "Buddy" : "Bitmap";
                         });

TEST_P(FragMapOf, DrawsEveryPageblock) {
  EXPECT_EQ(signs(pages), "........|");
  EXPECT_EQ(signs(pages, 3), "...|...|..|");
  std::vector<PageRef> blocks;
  for (int i = 0; i < 8; ++i) {
    blocks.push_back(pages.alloc(kPageblockOrder));
  }
  EXPECT_EQ(signs(pages), "WWWWWWWW|");
  std::sort(blocks.begin(), blocks.end(),
            [](const PageRef& a, const PageRef& b) { return a.get() < b.get(); });
  blocks[2].reset();
  EXPECT_EQ(signs(pages), "WW.WWWWW|");
  std::vector<PageRef> singles;
  const bool apart = GetParam() == EngineChoice::bitmap;
  for (const auto& [until, sign] :
       {std::pair{1U, '1'}, {103U, '2'}, {256U, '5'}, {511U, '9'}, {512U, '#'}}) {
    while (singles.size() < until) {
      singles.push_back(pages.alloc());
    }
    // The buddy engine keeps no kinds apart: all count as what might move.
    const char drawn = apart ? sign : sign == '#' ? '@' : static_cast<char>(sign - '1' + 'a');
    EXPECT_EQ(signs(pages), std::string("WW") + drawn + "WWWWW|") << until;
  }
  EXPECT_TRUE(pages.alloc().empty());
}

TEST_P(FragMapOf, CountsAgreeWithThePageblocks) {
  std::vector<PageRef> all(4096);
  ASSERT_EQ(pages.alloc_bulk(all), 4096U);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (index_of(all[i].get()).value % 512 < 40 * (index_of(all[i].get()).value / 512 % 8)) {
      all[i].reset();
    }
  }
  const FragMap map = frag_map(pages);
  std::uint64_t in_blocks = 0;
  for (unsigned order = 0; order < kOrderCount; ++order) {
    in_blocks += map.blocks_of_order[order] << order;
  }
  std::uint64_t in_pageblocks = 0;
  for (const FragMap::Block& block : map.pageblocks) {
    EXPECT_EQ(block.view.free, 40 * (block.first.value / 512 % 8));
    in_pageblocks += block.view.free;
  }
  EXPECT_EQ(map.free, 40U * 28);
  EXPECT_EQ(in_blocks, map.free);
  EXPECT_EQ(in_pageblocks, map.free);
  EXPECT_EQ(map.managed, 4096U);
  EXPECT_EQ(map.whole_pageblocks(), 0U);
  EXPECT_EQ(map.unusable_index(kPageblockOrder), 1000U);
}

TEST_P(FragMapOf, ZoneinfoTellsWhereTheFramesAre) {
  const PageRef page = pages.alloc(Order{4});
  const std::string text = zoneinfo_text(pages, "test");
  const auto has = [&text](const char* line) { return text.find(line) != std::string::npos; };
  EXPECT_TRUE(has("Node 0, zone test\n")) << text;
  EXPECT_TRUE(has("  pages free     4080\n")) << text;
  EXPECT_TRUE(has("        min          128\n")) << text;
  EXPECT_TRUE(has("        managed      4096\n")) << text;
  EXPECT_TRUE(has("        engine       4080\n")) << text;
  EXPECT_TRUE(has("        out          16\n")) << text;
  EXPECT_TRUE(has("        blocks_2m    7\n")) << text;
  EXPECT_TRUE(has("  unusable_index 0.000 0.000")) << text;
}

TEST(FragMapOfPieces, AGapBetweenPiecesBeginsALineAndEndsThatAreNoPageblocksAreLeftOut) {
  constexpr std::size_t kBlock = 4U << 20;
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(kBlock, 4 * kBlock),
                                                           &std::free);
  auto* const base = static_cast<std::byte*>(memory.get());
  const std::span<std::byte> pieces[] = {{base + 4096, kBlock - 4096}, {base + 2 * kBlock, kBlock}};
  Options options;
  options.lists = false;
  const PageAllocator pages(pieces, options);
  const FragMap map = frag_map(pages);
  EXPECT_EQ(map.managed, 2047U);
  EXPECT_EQ(map.pageblocks.size(), 3U);
  const std::string drawn = draw(map);
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), '\n'), 2);
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), '.'), 3);
}

}  // namespace
}  // namespace weir
