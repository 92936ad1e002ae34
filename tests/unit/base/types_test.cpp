// SPDX-License-Identifier: MIT
#include "weir/base/types.hpp"

#include <gtest/gtest.h>

#include <concepts>
#include <type_traits>

namespace weir {
namespace {

template <class A, class B>
concept Comparable = requires(A a, B b) {
  a == b;
};
template <class A, class B>
concept Ordered = requires(A a, B b) {
  a < b;
};
template <class A, class B>
concept Addable = requires(A a, B b) {
  a + b;
};

// What units are for: only like meets like.
static_assert(Comparable<PageIndex, PageIndex> && Ordered<PageIndex, PageIndex>);
static_assert(!Comparable<PageIndex, std::uint32_t> && !Comparable<PageIndex, int>);
static_assert(!Comparable<PageIndex, PageCount> && !Addable<PageIndex, PageIndex>);
static_assert(!Addable<PageIndex, int>);
static_assert(Addable<PageCount, PageCount> && !Addable<PageCount, Bytes>);
static_assert(!Comparable<PageCount, Bytes> && !Comparable<CpuId, NodeId>);
static_assert(!Addable<Bytes, std::uint64_t> && !Comparable<Bytes, std::uint64_t>);
static_assert(!std::convertible_to<int, Order> && !std::convertible_to<unsigned, Order>);
static_assert(!std::convertible_to<std::uint64_t, Bytes>);
static_assert(!std::convertible_to<std::size_t, Align>);
static_assert(!std::convertible_to<Order, unsigned> && !std::convertible_to<Bytes, std::uint64_t>);

// They cost what their number costs.
static_assert(sizeof(PageIndex) == 4 && sizeof(Order) == 4 && sizeof(CpuId) == 4);
static_assert(sizeof(PageCount) == 8 && sizeof(Bytes) == 8);
static_assert(std::is_trivially_copyable_v<PageIndex> && std::is_trivially_copyable_v<Bytes>);

TEST(Types, ConversionsBetweenOrderPagesAndBytesAgree) {
  for (unsigned order = 0; order < kOrderCount; ++order) {
    const PageCount count = pages(Order{order});
    EXPECT_EQ(count.value, std::uint64_t{1} << order);
    EXPECT_EQ(frames_in(Order{order}), count.value);
    EXPECT_EQ(bytes(Order{order}), bytes(count));
    EXPECT_EQ(bytes(count).value, count.value * 4096);
    EXPECT_EQ(whole_pages(bytes(count)), count);
  }
  EXPECT_EQ(bytes(kMaxOrder), 4_MiB);
  EXPECT_EQ(bytes(kPageblockOrder), 2_MiB);
}

TEST(Types, WholePagesCutsTheRestOff) {
  EXPECT_EQ(whole_pages(Bytes{0}).value, 0U);
  EXPECT_EQ(whole_pages(Bytes{4095}).value, 0U);
  EXPECT_EQ(whole_pages(Bytes{4096}).value, 1U);
  EXPECT_EQ(whole_pages(Bytes{UINT64_MAX}).value, (std::uint64_t{1} << 52) - 1);
}

TEST(Types, BuddiesAreEachOthersAndDifferInOneBit) {
  for (unsigned order = 0; order < kOrderCount; ++order) {
    for (std::uint32_t block = 0; block < 8; ++block) {
      const PageIndex page{block << order};
      const PageIndex buddy = buddy_of(page, Order{order});
      EXPECT_NE(buddy, page);
      EXPECT_EQ(buddy_of(buddy, Order{order}), page);
      EXPECT_EQ(buddy.value >> (order + 1), page.value >> (order + 1));
    }
  }
}

TEST(Types, AdvanceWalksForwardByFrames) {
  EXPECT_EQ(advance(PageIndex{5}, 0), PageIndex{5});
  EXPECT_EQ(advance(PageIndex{5}, 1024), PageIndex{1029});
  EXPECT_NE(advance(PageIndex{0}, 1), kNoPage);
}

TEST(Types, ArithmeticOnCountsAndBytes) {
  PageCount count{3};
  count += PageCount{4};
  count -= PageCount{2};
  EXPECT_EQ(count, PageCount{5});
  EXPECT_EQ(PageCount{5} - PageCount{2} + PageCount{1}, PageCount{4});
  EXPECT_EQ(1_MiB + 1_KiB - 1_KiB, kMiB);
  EXPECT_EQ(kKiB * 1024, kMiB);
  EXPECT_EQ(1_GiB, kMiB * 1024);
  EXPECT_LT(1_KiB, 1_MiB);
}

TEST(Types, NothingValuesCompareUnequalToEveryRealOne) {
  EXPECT_NE(kNoPage, PageIndex{static_cast<std::uint32_t>(kMaxFrames - 1)});
  EXPECT_NE(kNoCpu, CpuId{8191});
  EXPECT_EQ(NodeId{}, kAnyNode);
}

}  // namespace
}  // namespace weir
