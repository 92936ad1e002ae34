// SPDX-License-Identifier: MIT
// Frames one after the other: cut to measure out of one block, or out of pageblocks side by side.
#include "weir/page/page_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "weir/page/page_allocator.hpp"

namespace weir {
namespace {

class PageRunOver : public testing::TestWithParam<EngineChoice> {
 protected:
  [[nodiscard]] static Options options(Bytes capacity) {
    Options options;
    options.capacity = capacity;
    options.engine = GetParam();
    return options;
  }
  static std::uint64_t out(PageAllocator& pages) {
    EXPECT_FALSE(pages.drain_all().failed());
    return pages.zone().census().out();
  }
};
INSTANTIATE_TEST_SUITE_P(Engines, PageRunOver,
                         testing::Values(EngineChoice::buddy, EngineChoice::bitmap),
                         [](const auto& engine) {
                           return engine.param == EngineChoice::buddy ? "Buddy" : "Bitmap";
                         });

TEST_P(PageRunOver, HasExactlyAsManyFramesAndTheTailStaysFree) {
  PageAllocator pages(options(16_MiB));
  for (std::uint64_t n = 1; n <= 1024; n += n < 40 ? 1 : 61) {
    PageRun run = pages.alloc_exact({n});
    ASSERT_FALSE(run.empty()) << n;
    EXPECT_EQ(run.frames(), PageCount{n});
    EXPECT_EQ(run.size(), bytes(PageCount{n}));
    std::memset(run.data(), 7, run.size().value);
    EXPECT_EQ(out(pages), n);
    pages.zone().zone().audit();
    // Every address leads to a block of the run that holds it.
    const auto* const begin = run.data();
    for (std::uint64_t i = 0; i < n; ++i) {
      const Page* const page = page_of(begin + i * kFrameBytes + 100);
      ASSERT_NE(page, nullptr);
      ASSERT_GE(address_of(page), begin);
      ASSERT_LE(address_of(page), begin + i * kFrameBytes);
      ASSERT_LE(address_of(page) + bytes(order_of(page)).value, begin + n * kFrameBytes);
    }
    run.reset();
    EXPECT_TRUE(run.empty());
    ASSERT_EQ(out(pages), 0U) << n;
    ASSERT_EQ(pages.zone().zone().free_blocks(kMaxOrder), 4U) << n;
  }
  EXPECT_TRUE(pages.alloc_exact({0}).empty());
  EXPECT_TRUE(pages.alloc_exact({1025}).empty());
}

TEST_P(PageRunOver, OfMoreThanALargestBlockIsPageblocksSideBySide) {
  PageAllocator pages(options(32_MiB));
  for (const std::uint64_t n : {1025U, 1536U, 3000U, 4096U, 8192U}) {
    PageRun run = pages.alloc_contiguous({n}, AllocFlags::zero);
    ASSERT_FALSE(run.empty()) << n;
    EXPECT_EQ(run.frames(), PageCount{n});
    EXPECT_EQ(run.data()[run.size().value - 1], std::byte{0});
    std::memset(run.data(), 7, run.size().value);
    EXPECT_EQ(out(pages), n);
    pages.zone().zone().audit();
    PageRun moved = std::move(run);
    EXPECT_TRUE(run.empty());  // NOLINT: what a moved-from run is, is promised
    moved.reset();
    ASSERT_EQ(out(pages), 0U);
    EXPECT_EQ(pages.zone().zone().free_blocks(kMaxOrder), 8U);
  }
  EXPECT_TRUE(pages.alloc_contiguous({8193}).empty());
  EXPECT_TRUE(pages.alloc_contiguous({~std::uint64_t{0}}).empty());
  EXPECT_EQ(pages.alloc_contiguous({100}).frames(), PageCount{100});
}

TEST_P(PageRunOver, FindsTheOneGapThatIsLongEnough) {
  PageAllocator pages(options(32_MiB));
  std::vector<Page*> blocks;
  while (Page* page = pages.alloc_page(kPageblockOrder)) {
    blocks.push_back(page);
  }
  ASSERT_EQ(blocks.size(), 16U);
  std::sort(blocks.begin(), blocks.end());
  for (const std::size_t i : {1U, 2U, 4U, 6U, 7U, 8U, 12U, 13U}) {
    unref(std::exchange(blocks[i], nullptr));
  }
  const PageRun run = pages.alloc_contiguous({1200});
  ASSERT_FALSE(run.empty());
  EXPECT_EQ(run.get(), blocks[5] + 512);
  EXPECT_TRUE(pages.alloc_contiguous({1200}).empty());
  for (Page* page : blocks) {
    unref(page);
  }
}

TEST_P(PageRunOver, OnePinnedPageInEveryPageblockLeavesNoRoom) {
  PageAllocator pages(options(16_MiB));
  std::vector<PageRef> all(4096);
  ASSERT_EQ(pages.alloc_bulk(all), 4096U);
  std::vector<PageRef> kept;
  for (PageRef& ref : all) {
    if (index_of(ref.get()).value % 512 == 300) {
      kept.push_back(std::move(ref));
    }
  }
  all.clear();
  EXPECT_TRUE(pages.alloc_contiguous({1025}).empty());
  EXPECT_EQ(out(pages), 8U);
  pages.zone().zone().audit();
  kept.clear();
  EXPECT_FALSE(pages.alloc_contiguous({1025}).empty());
}

TEST_P(PageRunOver, LeavesTheReserveToOthers) {
  Options asked = options(16_MiB);
  asked.reserve = PageCount{1024};
  PageAllocator pages(asked);
  EXPECT_TRUE(pages.alloc_contiguous({3 * 1024 + 1}).empty());
  EXPECT_FALSE(pages.alloc_contiguous({3 * 1024}).empty());
  // What came out of the reserve says so in all its parts.
  const PageRun most = pages.alloc_contiguous({3 * 1024});
  const PageRun emergency = pages.alloc_exact({300}, AllocFlags::emergency);
  ASSERT_FALSE(emergency.empty());
  for (std::uint64_t i = 0; i < 300; ++i) {
    EXPECT_TRUE(is_emergency(page_of(emergency.data() + i * kFrameBytes)));
  }
}

// Pieces whose own chunks are taken already get indexes one after the other, wherever their addresses are.
TEST_P(PageRunOver, EndsWhereThePieceOfMemoryEnds) {
  constexpr std::size_t kBlock = std::size_t{2} << 20;
  const std::unique_ptr<void, decltype(&std::free)> memory(
      std::aligned_alloc(2 * kBlock, 34 * kBlock), &std::free);
  auto* const low = static_cast<std::byte*>(memory.get());
  std::byte* const high = low + 16 * kBlock;
  const std::span<std::byte> before[] = {{low, kBlock}, {high + kBlock, kBlock}};
  const PageAllocator other(before, options(16_MiB));
  const std::span<std::byte> pieces[] = {{low + kBlock, 3 * kBlock}, {high, kBlock}};
  PageAllocator pages(pieces, options(16_MiB));
  const auto& own = pages.zone().pieces();
  ASSERT_EQ(own[0].first.value + 3 * 512, own[1].first.value) << "they are to adjoin by index";
  EXPECT_TRUE(pages.alloc_contiguous({4 * 512}).empty());
  const PageRun run = pages.alloc_contiguous({3 * 512});
  EXPECT_EQ(run.data(), low + kBlock);
}

TEST_P(PageRunOver, KeepsTheHardLimitToTheFrame) {
  Options asked = options(16_MiB);
  asked.limit = PageCount{2000};
  PageAllocator pages(asked);
  EXPECT_TRUE(pages.alloc_contiguous({2001}).empty());
  EXPECT_GT(pages.zone().zone().counters().refusals.get(), 0U);
  PageRun run = pages.alloc_contiguous({2000});
  EXPECT_EQ(run.frames(), PageCount{2000});
  EXPECT_TRUE(pages.alloc().empty());
  run.reset();
  const PageRef one = pages.alloc();
  EXPECT_FALSE(one.empty());
  EXPECT_TRUE(pages.alloc_contiguous({2000}).empty());
  EXPECT_FALSE(pages.alloc_contiguous({1999}).empty());
}

TEST_P(PageRunOver, TheSoftLimitRefusesNoRun) {
  Options asked = options(16_MiB);
  asked.soft_limit = PageCount{1000};
  PageAllocator pages(asked);
  EXPECT_FALSE(pages.alloc_contiguous({2000}).empty());
}

TEST_P(PageRunOver, PartsMayBeSharedAndGoHomeOneByOne) {
  PageAllocator pages(options(16_MiB));
  PageRun run = pages.alloc_exact({11});
  Page* const middle = page_of(run.data() + 9 * kFrameBytes);
  EXPECT_EQ(order_of(middle), Order{1});
  ASSERT_TRUE(ref(middle));
  run.reset();
  EXPECT_EQ(out(pages), 2U);
  unref(middle);
  EXPECT_EQ(out(pages), 0U);
}

}  // namespace
}  // namespace weir
