// SPDX-License-Identifier: MIT
#include "weir/page/page_list.hpp"

#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

#include "weir/page/page_allocator.hpp"

namespace weir {
namespace {

constexpr Options kSmall{.capacity = 16_MiB};

static_assert(!std::is_copy_constructible_v<PageList>);
static_assert(!std::is_move_constructible_v<PageList>);  // nothing needs it yet

TEST(PageList, LastInFirstOut) {
  PageAllocator pages(kSmall);
  PageList list;
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.pop(), nullptr);
  std::vector<Page*> pushed;
  for (int i = 0; i < 5; ++i) {
    pushed.push_back(pages.alloc_page(Order{static_cast<unsigned>(i)}));
    list.push(pushed.back());
    EXPECT_EQ(list.size(), pushed.size());
  }
  EXPECT_FALSE(list.empty());
  while (!pushed.empty()) {
    Page* page = list.pop();
    EXPECT_EQ(page, pushed.back());
    EXPECT_EQ(page->next, kNoPage);
    pushed.pop_back();
    unref(page);
  }
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.size(), 0U);
  EXPECT_EQ(list.pop(), nullptr);
}

TEST(PageList, OwnsTheReferencesOfItsPages) {
  PageAllocator pages(kSmall);
  const PageRef shared = pages.alloc();
  {
    PageList list;
    list.push(shared.share().detach());
    list.push(pages.alloc_page());
    list.push(pages.alloc_page(Order{3}));
    EXPECT_EQ(pages.zone().census().out(), 10U);
    EXPECT_EQ(ref_count(shared.get()), 2U);
  }
  EXPECT_EQ(pages.zone().census().out(), 1U);
  EXPECT_EQ(ref_count(shared.get()), 1U);
}

TEST(PageList, CanBeUsedAgainAfterClear) {
  PageAllocator pages(kSmall);
  PageList list;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 100; ++i) {
      list.push(pages.alloc_page());
    }
    EXPECT_EQ(list.size(), 100U);
    list.clear();
    EXPECT_TRUE(list.empty());
    EXPECT_EQ(pages.zone().census().out(), 0U);
  }
}

}  // namespace
}  // namespace weir
