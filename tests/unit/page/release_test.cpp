// SPDX-License-Identifier: MIT
#include "weir/page/release.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "tests/support/zones.hpp"
#include "weir/page/page_allocator.hpp"

namespace weir {
namespace {

using test::OnCpu;

constexpr Options kSmall{.capacity = 16_MiB};

TEST(Release, ChoosesListOrEngineByOrder) {
  const OnCpu cpu(0);
  PageAllocator pages(kSmall);
  for (unsigned order = 0; order <= kMaxOrderValue; ++order) {
    SCOPED_TRACE(order);
    Page* page = pages.alloc_page(Order{order});
    const std::uint64_t in_engine = pages.zone().zone().free_pages();
    const std::uint64_t in_list = pages.zone().lists().cached(0);
    unref(page);
    const bool listed = pages.zone().lists().capacity(kListOfOrder[order]) != 0;
    EXPECT_EQ(pages.zone().zone().free_pages() - in_engine, listed ? 0 : frames_in(Order{order}));
    EXPECT_EQ(pages.zone().lists().cached(0) - in_list, listed ? frames_in(Order{order}) : 0);
  }
}

TEST(Release, ABulkGoesToTheZonesItsPagesCameFrom) {
  const OnCpu cpu(0);
  PageAllocator first(kSmall);
  PageAllocator second(kSmall);
  std::vector<Page*> mixed;
  for (int i = 0; i < 300; ++i) {
    // Runs of one zone, of lengths from one to thirty.
    mixed.push_back((i % 31 < i / 10 ? first : second).alloc_page());
  }
  mixed.insert(mixed.begin() + 100, nullptr);
  mixed.push_back(second.alloc_page(Order{4}));
  const PageRef shared{mixed[5]};
  ASSERT_TRUE(ref(shared.get()));
  free_bulk(mixed);
  EXPECT_EQ(first.zone().census().out() + second.zone().census().out(), 1U);
  EXPECT_EQ(ref_count(shared.get()), 1U);
}

TEST(Release, OnePageTwiceInABulkDropsTwoReferences) {
  PageAllocator pages(kSmall);
  Page* page = pages.alloc_page();
  ASSERT_TRUE(ref(page));
  Page* const both[] = {page, page};
  free_bulk(both);
  EXPECT_EQ(pages.zone().census().out(), 0U);
}

TEST(Release, ABulkOfManyClustersGoesBackWhole) {
  const OnCpu cpu(0);
  PageAllocator pages(kSmall);
  std::vector<Page*> all(4096);
  ASSERT_EQ(pages.alloc_bulk(std::span<Page*>(all)), 4096U);
  const std::uint64_t before = pages.zone().zone().counters().lock_acquisitions.get();
  free_bulk(all);
  EXPECT_LE(pages.zone().zone().counters().lock_acquisitions.get() - before, 4096U / 64 + 1);
  EXPECT_EQ(pages.zone().census().out(), 0U);
}

TEST(Release, APageOfTheReserveGoesBackToTheReserve) {
  const OnCpu cpu(0);
  PageAllocator pages({.capacity = 16_MiB, .reserve = PageCount{1000}});
  std::vector<Page*> all(5000);
  const std::size_t got = pages.alloc_bulk(std::span<Page*>(all));
  ASSERT_EQ(got, 3096U);
  ASSERT_EQ(pages.alloc_page(), nullptr);
  for (const unsigned order : {0U, 2U}) {
    Page* reserved = pages.alloc_page(Order{order}, AllocFlags::emergency);
    ASSERT_NE(reserved, nullptr);
    EXPECT_NE(reserved->word.load() & kReserveFlag, 0U);
    EXPECT_EQ(ref_count(reserved), 1U);
    ASSERT_TRUE(ref(reserved));
    unref(reserved);
    EXPECT_NE(reserved->word.load() & kReserveFlag, 0U);
    unref(reserved);
    EXPECT_EQ(reserved->word.load() & kReserveFlag, 0U);
    // Nobody without the right gets it.
    EXPECT_EQ(pages.alloc_page(Order{order}), nullptr);
  }
  // In bulk, too.
  std::vector<Page*> more(100);
  ASSERT_EQ(pages.alloc_bulk(std::span<Page*>(more), AllocFlags::emergency), 100U);
  for (const Page* page : more) {
    EXPECT_NE(page->word.load() & kReserveFlag, 0U);
  }
  free_bulk(more);
  EXPECT_EQ(pages.alloc_page(), nullptr);
  all.resize(got);
  free_bulk(all);
  // With plenty free, the right makes no page special.
  const PageRef ordinary = pages.alloc(Order{0}, AllocFlags::emergency);
  EXPECT_EQ(ordinary.get()->word.load(), kSoleOwner);
}

TEST(Release, PagesOutliveTheirAllocator) {
  const std::uint32_t before = zone_registry::count();
  PageRef page;
  PageRef run;
  {
    PageAllocator pages(kSmall);
    page = pages.alloc();
    run = pages.alloc(Order{5});
  }
  EXPECT_EQ(zone_registry::count(), before + 1);
  page.data()[0] = std::byte{1};
  run.data()[run.size().value - 1] = std::byte{2};
  EXPECT_EQ(page_of(run.data() + 70'000), run.get());
  PageRef shared = run.share();
  run.reset();
  page.reset();
  EXPECT_EQ(zone_registry::count(), before + 1);
  std::byte* const memory = shared.data();
  std::thread([&] { shared.reset(); }).join();
  EXPECT_EQ(zone_registry::count(), before);
  EXPECT_EQ(page_of(memory), nullptr);
}

// ---- what must not be ----------------------------------------------------------------------------

struct ReleaseDeathTest : testing::Test {
  ReleaseDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void SetUp() override {
    if (!kCheckedDrops) {
      GTEST_SKIP() << "only checked builds verify every drop";
    }
  }
  PageAllocator pages{kSmall};
};

TEST_F(ReleaseDeathTest, ReportsADoubleFreeWhereverThePageIs) {
  Page* on_list = pages.alloc_page();
  unref(on_list);
  EXPECT_DEATH(unref(on_list), "double free: page [0-9]+ is already free");
  Page* run_on_list = pages.alloc_page(Order{2});
  unref(run_on_list);
  EXPECT_DEATH(unref(run_on_list), "double free: page [0-9]+ is already free");
  Page* in_engine = pages.alloc_page(Order{5});
  unref(in_engine);  // merged into a larger block by now
  EXPECT_DEATH(unref(in_engine), "double free|free of a tail");
  EXPECT_FALSE(pages.drain_all().failed());
  EXPECT_DEATH(unref(on_list), "double free|free of a tail");
  Page* const twice[] = {pages.alloc_page(), pages.alloc_page()};
  unref(twice[1]);
  EXPECT_DEATH(free_bulk(twice), "double free");
  unref(twice[0]);
}

TEST_F(ReleaseDeathTest, ReportsADoubleFreeOfTheHeadOfAFreeBlockAsOne) {
  Options options = kSmall;
  options.engine = EngineChoice::buddy;  // whose free blocks say so
  PageAllocator buddy(options);
  std::vector<Page*> all(4096);
  ASSERT_EQ(buddy.alloc_bulk(std::span<Page*>(all)), 4096U);
  Page* first = page_at(buddy.zone().pieces().front().first);
  free_bulk(all);
  EXPECT_FALSE(buddy.drain_all().failed());
  ASSERT_EQ(first->state.load(), FrameState::kFree);
  ASSERT_EQ(order_of(first), kMaxOrder);
  EXPECT_DEATH(unref(first), "double free: page [0-9]+ is already free");
}

TEST_F(ReleaseDeathTest, ReportsAWrongOrderAndATail) {
  Page* run = pages.alloc_page(Order{2});
  EXPECT_DEATH(release(run, Order{1}), "wrong order: page [0-9]+ has order 2, not 1");
  EXPECT_DEATH(release(run, Order{3}), "wrong order: page [0-9]+ has order 2, not 3");
  EXPECT_DEATH(unref(run + 1), "free of a tail: release: frame [0-9]+ is inside a page");
  unref(run);
}

TEST_F(ReleaseDeathTest, ReportsAPageThatWasNeverHandedOut) {
  Page* neighbour = pages.alloc_page();
  // The rest of the cluster lies on the list.
  EXPECT_DEATH(unref(neighbour + 1), "double free");
  unref(neighbour);
}

// The word of a tail is that of a sole owner's ordinary page; its state is not.
TEST(ReleaseAlwaysDeathTest, ADropOfATailIsReportedInEveryBuild) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const EngineChoice engine : {EngineChoice::buddy, EngineChoice::bitmap}) {
    Options options = kSmall;
    options.engine = engine;
    PageAllocator pages(options);
    for (const unsigned order : {1U, 3U, 6U, 8U}) {
      const PageRef run = pages.alloc(Order{order});
      EXPECT_DEATH(unref(run.get() + 1), "free of a tail: release: frame [0-9]+ is inside a page");
      EXPECT_DEATH(unref(run.get() + frames_in(Order{order}) - 1), "free of a tail");
    }
    // What was inside is ordinary once it is free.
    std::vector<PageRef> all(4096);
    EXPECT_EQ(pages.alloc_bulk(all), 4096U);
  }
}

TEST(ReleaseAlwaysDeathTest, SlowPathsVerifyInEveryBuild) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  PageAllocator pages(kSmall);
  Page* run = pages.alloc_page(Order{4});
  // An engine that gets a block back looks at it.
  CachedZone& zone = pages.zone();
  const PageIndex index = index_of(run);
  EXPECT_DEATH(zone.free_to_engine(index, Order{5}), "wrong order|double free");
  EXPECT_DEATH(zone.free_to_engine(advance(index, 1), Order{0}), "free of a tail");
  unref(run);
  EXPECT_DEATH(zone.free_to_engine(index, Order{4}), "double free|free of a tail");
}

}  // namespace
}  // namespace weir
