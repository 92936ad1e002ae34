// SPDX-License-Identifier: MIT
#include "weir/page/ref_count.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <span>
#include <thread>
#include <vector>

#include "weir/page/page_allocator.hpp"

namespace weir {
namespace {

constexpr Options kSmall{.capacity = 16_MiB};

TEST(RefCount, ASoleOwnerOfAnOrdinaryPageIsTheWordOne) {
  PageAllocator pages(kSmall);
  Page* page = pages.alloc_page();
  EXPECT_EQ(page->word.load(), kSoleOwner);
  EXPECT_EQ(ref_count(page), 1U);
  unref(page);
  EXPECT_EQ(page->word.load(), kSoleOwner);  // so it stays while it is free
  EXPECT_EQ(pages.alloc_page(), page);
  EXPECT_EQ(page->word.load(), kSoleOwner);
  unref(page);
}

// Descriptors that cannot be written: taking and dropping an ordinary page does not try.
TEST(RefCount, TakingAndDroppingAnOrdinaryPageWritesNoDescriptor) {
  if (list_mode().form == ListForm::off) {
    GTEST_SKIP() << "without lists every page comes from the engine, which writes";
  }
  if (kCheckedDrops) {
    GTEST_SKIP() << "checked builds keep a state for each frame";
  }
  PageAllocator pages(kSmall);
  std::vector<Page*> out(32);
  for (Page*& page : out) {
    page = pages.alloc_page();
  }
  for (Page* page : out) {
    unref(page);
  }
  const CachedZone::Piece& piece = pages.zone().pieces().front();
  void* descriptors = page_at(piece.first);
  const std::size_t length = whole_pages(piece.extent.size).value * sizeof(Page);
  ASSERT_EQ(::mprotect(descriptors, length, PROT_READ), 0);
  for (int round = 0; round < 100; ++round) {
    for (Page*& page : out) {
      page = pages.alloc_page();
    }
    for (Page* page : out) {
      unref(page);
    }
    ASSERT_EQ(pages.alloc_bulk(std::span<Page*>(out)), 32U);  // full: nothing to do
    std::fill(out.begin(), out.end(), nullptr);
    ASSERT_EQ(pages.alloc_bulk(std::span<Page*>(out)), 32U);
    free_bulk(out);
  }
  ASSERT_EQ(::mprotect(descriptors, length, PROT_READ | PROT_WRITE), 0);
}

TEST(RefCount, EachReferenceIsDroppedOnce) {
  PageAllocator pages(kSmall);
  for (const unsigned order : {0U, 1U, 9U, 10U}) {
    Page* page = pages.alloc_page(Order{order});
    const std::uint32_t flags = page->word.load() & ~kRefMask;
    EXPECT_EQ(flags, order == 0 ? 0U : kHighOrderFlag);
    EXPECT_TRUE(ref(page));
    EXPECT_TRUE(ref(page, 5));
    EXPECT_EQ(ref_count(page), 7U);
    const std::uint64_t out = pages.zone().census().out();
    unref(page);
    unref_many(page, 4);
    EXPECT_EQ(ref_count(page), 2U);
    EXPECT_EQ(page->word.load() & ~kRefMask, flags);
    unref(page);
    EXPECT_EQ(pages.zone().census().out(), out);
    unref(page);
    EXPECT_EQ(pages.zone().census().out(), out - frames_in(Order{order}));
  }
}

TEST(RefCount, AllReferencesAtOnce) {
  PageAllocator pages(kSmall);
  for (const unsigned order : {0U, 3U}) {
    Page* page = pages.alloc_page(Order{order});
    ASSERT_TRUE(ref(page, 31));
    unref_many(page, 32);
    EXPECT_EQ(pages.zone().census().out(), 0U);
    EXPECT_EQ(page->word.load() & kRefMask, kSoleOwner);
    EXPECT_EQ(pages.alloc_page(Order{order}), page);
    EXPECT_EQ(ref_count(page), 1U);
    unref_many(page, 1);
    EXPECT_EQ(pages.zone().census().out(), 0U);
  }
}

TEST(RefCount, TheCountHasALimitAndNeverWraps) {
  PageAllocator pages(kSmall);
  for (const unsigned order : {0U, 2U}) {
    Page* page = pages.alloc_page(Order{order});
    const std::uint32_t fresh = page->word.load();
    // More than will ever fit.
    for (const std::uint32_t n : {kMaxRefs, kMaxRefs + 1, kRefMask, kRefMask + 1, kHighOrderFlag,
                                  kPoolFlag, 0x8000'0000U, UINT32_MAX - 1, UINT32_MAX}) {
      EXPECT_FALSE(ref(page, n)) << n;
      ASSERT_EQ(page->word.load(), fresh) << n;
    }
    EXPECT_TRUE(ref(page, kMaxRefs - 1));
    EXPECT_EQ(ref_count(page), kMaxRefs);
    for (const std::uint32_t n : {1U, 2U, kMaxRefs - 1, kMaxRefs, UINT32_MAX}) {
      EXPECT_FALSE(ref(page, n)) << n;
      ASSERT_EQ(page->word.load(), fresh + kMaxRefs - 1) << n;
    }
    PageRef owner(page);
    EXPECT_TRUE(owner.share().empty());
    unref_many(page, kMaxRefs - 1);
    EXPECT_EQ(page->word.load(), fresh);
    const PageRef other = owner.share();
    EXPECT_FALSE(other.empty());
  }
  EXPECT_EQ(pages.zone().census().out(), 0U);
}

TEST(RefCount, NullIsNoPage) {
  unref(nullptr);
  free_bulk(std::span<Page* const>{});
  Page* const none[3] = {};
  free_bulk(none);
}

TEST(RefCount, TwoThreadsShareAndDropWithoutLosingAReference) {
  PageAllocator pages(kSmall);
  constexpr int kRounds = 100'000;
  // Each round a page with two owners is dropped from two threads; the last one gives it back.
  std::atomic<Page*> handed{nullptr};
  std::thread other([&] {
    for (int i = 0; i < kRounds; ++i) {
      Page* page = nullptr;
      while ((page = handed.exchange(nullptr, std::memory_order_acquire)) == nullptr) {
        std::this_thread::yield();
      }
      // Read what the other wrote, write what the next owner will not care about.
      EXPECT_EQ(page->private_word, static_cast<std::uint64_t>(i));
      unref(page);
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    Page* page = pages.alloc_page();
    ASSERT_NE(page, nullptr);
    page->private_word = static_cast<std::uint64_t>(i);
    ASSERT_TRUE(ref(page));
    while (handed.load(std::memory_order_relaxed) != nullptr) {
      std::this_thread::yield();
    }
    handed.store(page, std::memory_order_release);
    unref(page);
  }
  other.join();
  EXPECT_EQ(pages.zone().census().out(), 0U);
}

TEST(RefCount, WhatEarlierOwnersWroteIsSeenByTheNextLife) {
  PageAllocator pages(kSmall);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 30'000; ++i) {
        PageRef page = pages.alloc();
        // Not atomic: only the passing of the page orders it against its earlier owners.
        *reinterpret_cast<int*>(page.data()) += 1;
        const PageRef second = page.share();
        page.reset();
        *reinterpret_cast<int*>(second.data()) += 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(pages.zone().census().out(), 0U);
}

struct RefCountDeathTest : testing::Test {
  RefCountDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(RefCountDeathTest, ReportsMoreDropsThanReferences) {
  PageAllocator pages(kSmall);
  Page* page = pages.alloc_page();
  EXPECT_DEATH(unref_many(page, 2), "reference underflow: page [0-9]+: a reference was dropped");
  ASSERT_TRUE(ref(page, 3));
  EXPECT_DEATH(unref_many(page, 5), "reference underflow");
  EXPECT_DEATH(unref_many(page, 1U << 24 | 1), "reference underflow");
  unref_many(page, 4);
}

}  // namespace
}  // namespace weir
