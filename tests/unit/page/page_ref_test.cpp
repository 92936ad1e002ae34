// SPDX-License-Identifier: MIT
#include "weir/page/page_ref.hpp"

#include <gtest/gtest.h>

#include <type_traits>
#include <utility>

#include "weir/page/page_allocator.hpp"

namespace weir {
namespace {

constexpr Options kSmall{.capacity = 16_MiB};

static_assert(!std::is_copy_constructible_v<PageRef>);
static_assert(!std::is_copy_assignable_v<PageRef>);
static_assert(std::is_nothrow_move_constructible_v<PageRef>);
static_assert(std::is_nothrow_move_assignable_v<PageRef>);
static_assert(!std::is_convertible_v<Page*, PageRef>);
static_assert(!std::is_convertible_v<PageRef, bool>);

std::uint64_t out(PageAllocator& pages) { return pages.zone().census().out(); }

TEST(PageRef, OwnsNothingAtFirst) {
  PageRef empty;
  EXPECT_TRUE(empty.empty());
  EXPECT_FALSE(static_cast<bool>(empty));
  EXPECT_TRUE(empty == nullptr);
  EXPECT_EQ(empty.get(), nullptr);
  EXPECT_TRUE(empty.share().empty());
  EXPECT_EQ(empty.detach(), nullptr);
  empty.reset();
}

TEST(PageRef, DescribesItsPage) {
  PageAllocator pages(kSmall);
  for (unsigned order = 0; order <= kMaxOrderValue; ++order) {
    const PageRef page = pages.alloc(Order{order});
    ASSERT_FALSE(page.empty());
    EXPECT_EQ(page.order(), Order{order});
    EXPECT_EQ(page.size(), Bytes{kFrameBytes << order});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(page.data()) % page.size().value, 0U);
    page.data()[0] = std::byte{1};
    page.data()[page.size().value - 1] = std::byte{2};
  }
}

TEST(PageRef, GivesThePageBackAtTheEndOfItsLife) {
  PageAllocator pages(kSmall);
  {
    const PageRef one = pages.alloc();
    const PageRef run = pages.alloc(Order{3});
    EXPECT_EQ(out(pages), 9U);
  }
  EXPECT_EQ(out(pages), 0U);
}

TEST(PageRef, MovesAndLeavesNothingBehind) {
  PageAllocator pages(kSmall);
  PageRef a = pages.alloc();
  Page* const page = a.get();
  PageRef b = std::move(a);
  EXPECT_TRUE(a.empty());  // NOLINT(bugprone-use-after-move): that is the question
  EXPECT_EQ(b.get(), page);
  PageRef c = pages.alloc(Order{2});
  EXPECT_EQ(out(pages), 5U);
  c = std::move(b);  // what c owned goes home
  EXPECT_EQ(c.get(), page);
  EXPECT_EQ(out(pages), 1U);
  PageRef& same = c;
  c = std::move(same);
  EXPECT_EQ(c.get(), page);
  c = PageRef{};
  EXPECT_EQ(out(pages), 0U);
}

TEST(PageRef, SharesOnePage) {
  PageAllocator pages(kSmall);
  PageRef first = pages.alloc(Order{1});
  PageRef second = first.share();
  PageRef third = second.share();
  EXPECT_EQ(second.get(), first.get());
  EXPECT_EQ(ref_count(first.get()), 3U);
  first.reset();
  second = PageRef{};
  EXPECT_EQ(out(pages), 2U);
  EXPECT_EQ(ref_count(third.get()), 1U);
  third.reset();
  EXPECT_EQ(out(pages), 0U);
}

TEST(PageRef, DetachesIntoTheCallersCare) {
  PageAllocator pages(kSmall);
  Page* page = pages.alloc().detach();
  EXPECT_EQ(out(pages), 1U);
  {
    const PageRef again(page);
    EXPECT_EQ(again.get(), page);
  }
  EXPECT_EQ(out(pages), 0U);
}

TEST(PageRef, AssigningOverASharedPageDropsOneReference) {
  PageAllocator pages(kSmall);
  PageRef a = pages.alloc();
  PageRef b = a.share();
  b = pages.alloc();
  EXPECT_EQ(ref_count(a.get()), 1U);
  EXPECT_EQ(out(pages), 2U);
}

}  // namespace
}  // namespace weir
