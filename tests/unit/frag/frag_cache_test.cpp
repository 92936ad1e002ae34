// SPDX-License-Identifier: MIT
// Fragments against their contracts: what is granted, what is refused, when a page is used again
// and when it is given back.
#include "weir/frag/frag_cache.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace weir {
namespace {

constexpr std::size_t kLarge = kFragPageBytes;

std::uint64_t frames_out(PageAllocator& pages) { return pages.zone().census().out(); }

// Every frame of a zone taken, then every other one given back: plenty of memory, no block above
// order 0. What is held is filled with a pattern that must survive.
class Scattered {
 public:
  explicit Scattered(PageAllocator& pages) {
    std::vector<PageRef> all;
    while (PageRef page = pages.alloc()) {
      std::memset(page.data(), kCanary, kFrameBytes);
      all.push_back(std::move(page));
    }
    for (PageRef& page : all) {
      if (index_of(page.get()).value % 2 == 0) {
        held_.push_back(std::move(page));
      }
    }
  }
  [[nodiscard]] std::size_t held() const { return held_.size(); }
  [[nodiscard]] bool untouched() const {
    return std::all_of(held_.begin(), held_.end(), [](const PageRef& page) {
      return std::all_of(page.data(), page.data() + kFrameBytes,
                         [](std::byte b) { return b == std::byte{kCanary}; });
    });
  }
  void give_back() { held_.clear(); }

 private:
  static constexpr unsigned char kCanary = 0xc5;
  std::vector<PageRef> held_;
};

class FragCacheTest : public testing::Test {
 protected:
  PageAllocator pages{{.capacity = 4_MiB}};
};

static_assert(!std::is_copy_constructible_v<FragRef> && !std::is_copy_assignable_v<FragRef>);
static_assert(std::is_nothrow_move_constructible_v<FragRef>);
static_assert(!std::is_copy_constructible_v<FragCache> && !std::is_move_constructible_v<FragCache>);

TEST_F(FragCacheTest, CutsAscendingFragmentsOfExactlyTheSizeAskedFor) {
  FragCache frags{pages};
  const FragRef a = frags.alloc(100);
  const FragRef b = frags.alloc(1);
  const FragRef c = frags.alloc(1500);
  ASSERT_TRUE(a && b && c);
  EXPECT_EQ(a.size(), 100U);
  EXPECT_EQ(b.data(), a.data() + 100);
  EXPECT_EQ(c.data(), a.data() + 101);
  EXPECT_EQ(c.size(), 1500U);
  EXPECT_EQ(a.page(), c.page());
  EXPECT_EQ(a.data(), address_of(a.page()));
  EXPECT_EQ(order_of(a.page()), Order{3});
  EXPECT_EQ(a.pinned(), Bytes{kLarge});
}

TEST_F(FragCacheTest, AlignsTheOffsetAndNotTheSize) {
  FragCache frags{pages};
  const FragRef a = frags.alloc(100);
  const FragRef b = frags.alloc(200, Align{64});
  const FragRef c = frags.alloc(10);
  const FragRef d = frags.alloc(10, Align{4096});
  EXPECT_EQ(b.data() - a.data(), 128);
  EXPECT_EQ(c.data() - a.data(), 328);  // as in the picture of the header
  EXPECT_EQ(d.data() - a.data(), 4096);
  EXPECT_EQ(frags.counters().gap_bytes, 28U + 4096 - 338);
  EXPECT_EQ(frags.counters().allocated_bytes, 4096U + 10);
}

TEST_F(FragCacheTest, RefusesWhatCannotBeAndChangesNothing) {
  FragCache frags{pages};
  const FragRef first = frags.alloc(10);
  const std::uint32_t word = first.page()->word.load();
  constexpr std::size_t kHuge = SIZE_MAX;
  for (const std::size_t size : {std::size_t{0}, kLarge + 1, kHuge, kHuge - 9, kHuge - kLarge,
                                 std::size_t{1} << 32, (std::size_t{1} << 32) + 1}) {
    EXPECT_TRUE(frags.alloc(size).empty()) << size;
    EXPECT_TRUE(frags.alloc(size, Align{4096}).empty()) << size;
  }
  for (const std::size_t align : {std::size_t{0}, std::size_t{3}, std::size_t{48},
                                  std::size_t{8192}, kHuge, std::size_t{1} << 63}) {
    EXPECT_TRUE(frags.alloc(10, Align{align}).empty()) << align;
  }
  EXPECT_EQ(first.page()->word.load(), word);
  EXPECT_EQ(frags.counters().refusals, 20U);
  EXPECT_EQ(frags.counters().allocated, 1U);
  EXPECT_EQ(frags.alloc(10).data(), first.data() + 10);
}

TEST_F(FragCacheTest, RefusesTheSameFromAFreshCacheWithoutTakingAPage) {
  FragCache frags{pages};
  EXPECT_TRUE(frags.alloc(0).empty());
  EXPECT_TRUE(frags.alloc(kLarge + 1).empty());
  EXPECT_TRUE(frags.alloc(1, Align{3}).empty());
  EXPECT_EQ(frags.held(), Bytes{0});
  EXPECT_EQ(frames_out(pages), 0U);
  frags.drain();
}

TEST_F(FragCacheTest, ServesAFragmentAsLargeAsItsPage) {
  FragCache frags{pages};
  const FragRef small = frags.alloc(1);
  const FragRef whole = frags.alloc(kLarge, Align{4096});
  ASSERT_TRUE(whole);
  EXPECT_NE(whole.page(), small.page());
  std::memset(whole.data(), 1, whole.size());
}

TEST_F(FragCacheTest, OneByteFragmentsDoNotExhaustTheStock) {
  FragCache frags{pages};
  std::vector<FragRef> all;
  for (std::size_t i = 0; i < kLarge; ++i) {
    all.push_back(frags.alloc(1));
    ASSERT_TRUE(all.back());
  }
  EXPECT_EQ(frags.counters().pages_taken, 1U);
  EXPECT_EQ(ref_count(all.front().page()), kLarge + 1);
  Page* page = all.front().page();
  frags.drain();
  EXPECT_EQ(ref_count(page), kLarge);
  all.clear();
  EXPECT_EQ(frames_out(pages), 0U);
}

TEST_F(FragCacheTest, WritesNoReferenceCountWhileAPageLasts) {
  FragCache frags{pages};
  std::vector<FragRef> all;
  all.push_back(frags.alloc(64));
  const std::uint32_t word = all[0].page()->word.load();
  while (frags.counters().allocated_bytes < kLarge) {
    all.push_back(frags.alloc(64));
  }
  EXPECT_EQ(all.size(), kLarge / 64);
  EXPECT_EQ(all[0].page()->word.load(), word);
}

TEST_F(FragCacheTest, RefusesWhatIsLargerThanTheFrameItFellBackTo) {
  Scattered scattered{pages};
  FragCache frags{pages};
  EXPECT_TRUE(frags.alloc(kFrameBytes + 1).empty());
  EXPECT_TRUE(frags.alloc(kLarge).empty());
  {
    const FragRef small = frags.alloc(64);
    ASSERT_TRUE(small);
    EXPECT_EQ(small.pinned(), Bytes{kFrameBytes});
    EXPECT_TRUE(frags.degraded());
    // With a frame in hand the answer is the same, and the frame stays.
    EXPECT_TRUE(frags.alloc(kFrameBytes + 1).empty());
    FragRef next = frags.alloc(kFrameBytes - 64);
    ASSERT_TRUE(next);
    EXPECT_EQ(next.page(), small.page());
    std::memset(next.data(), 0xee, next.size());
    std::memset(small.data(), 0xdd, small.size());
    EXPECT_TRUE(frags.alloc(4097).empty());
    FragRef third = frags.alloc(kFrameBytes);
    ASSERT_TRUE(third);
    std::memset(third.data(), 0xee, third.size());
  }
  EXPECT_TRUE(scattered.untouched());
  scattered.give_back();
  const FragRef large = frags.alloc(kFrameBytes + 1);
  ASSERT_TRUE(large);
  EXPECT_EQ(large.pinned(), Bytes{kLarge});
  EXPECT_FALSE(frags.degraded());
}

TEST_F(FragCacheTest, ReturnsToLargePagesAsSoonAsThereAreSome) {
  Scattered scattered{pages};
  FragCache frags{pages};
  FragRef small = frags.alloc(4000);
  ASSERT_TRUE(small);
  EXPECT_TRUE(frags.degraded());
  EXPECT_EQ(frags.counters().small_pages, 1U);
  small.reset();
  scattered.give_back();
  // The frame is used up and nobody holds a part of it: it is given back, not used again.
  const FragRef next = frags.alloc(4000);
  ASSERT_TRUE(next);
  EXPECT_FALSE(frags.degraded());
  EXPECT_EQ(next.pinned(), Bytes{kLarge});
  EXPECT_EQ(frags.counters().pages_reused, 0U);
  EXPECT_EQ(frames_out(pages), kLarge / kFrameBytes);
}

TEST_F(FragCacheTest, StaysUsableOnSmallPagesWhileLargeOnesAreMissing) {
  Scattered scattered{pages};
  {
    FragCache frags{pages};
    for (int i = 0; i < 1000; ++i) {
      FragRef frag = frags.alloc(1500);
      ASSERT_TRUE(frag);
      std::memset(frag.data(), 0xee, frag.size());
    }
    EXPECT_EQ(frags.counters().small_pages, 500U);
    EXPECT_EQ(frames_out(pages), scattered.held() + 1);
  }
  EXPECT_TRUE(scattered.untouched());
  EXPECT_EQ(frames_out(pages), scattered.held());
}

TEST(FragCacheReserve, UsesAPageOfTheReserveOnceOnly) {
  PageAllocator pages{{.capacity = 4_MiB, .reserve = PageCount{64}}};
  std::vector<PageRef> all;
  while (PageRef page = pages.alloc()) {
    all.push_back(std::move(page));
  }
  FragCache without{pages};
  EXPECT_TRUE(without.alloc(100).empty());
  FragCache frags{pages, AllocFlags::emergency};
  FragRef frag = frags.alloc(4096);
  ASSERT_TRUE(frag);
  EXPECT_TRUE(frags.degraded());
  const std::uint64_t out = frames_out(pages);
  frag.reset();
  EXPECT_EQ(frames_out(pages), out);  // the cache still has it
  all.clear();
  const FragRef next = frags.alloc(4096);
  ASSERT_TRUE(next);
  EXPECT_FALSE(frags.degraded());
  EXPECT_EQ(frags.counters().pages_reused, 0U);
  EXPECT_EQ(frames_out(pages), kLarge / kFrameBytes);
}

TEST_F(FragCacheTest, ReusesThePageInPlaceWhenAllFragmentsAreBack) {
  FragCache frags{pages};
  std::byte* start = nullptr;
  for (int round = 0; round < 100; ++round) {
    for (std::size_t i = 0; i < kLarge / 1024; ++i) {
      const FragRef frag = frags.alloc(1024);
      ASSERT_TRUE(frag);
      if (start == nullptr) {
        start = frag.data();
      }
      ASSERT_EQ(frag.data(), start + i * 1024);
    }
  }
  EXPECT_EQ(frags.counters().pages_taken, 1U);
  EXPECT_EQ(frags.counters().pages_reused, 99U);
  EXPECT_EQ(frags.counters().allocated, 100 * kLarge / 1024);
  EXPECT_EQ(frags.counters().allocated_bytes, 100 * kLarge);
}

TEST_F(FragCacheTest, TakesAnotherPageWhileOneFragmentIsOut) {
  FragCache frags{pages};
  FragRef kept = frags.alloc(1024);
  std::memset(kept.data(), 0x5a, kept.size());
  for (std::size_t i = 1; i < kLarge / 1024; ++i) {
    ASSERT_TRUE(frags.alloc(1024));
  }
  FragRef next = frags.alloc(1024);
  ASSERT_TRUE(next);
  EXPECT_NE(next.page(), kept.page());
  EXPECT_EQ(ref_count(kept.page()), 1U);
  std::memset(next.data(), 0xa5, next.size());
  EXPECT_TRUE(std::all_of(kept.data(), kept.data() + kept.size(),
                          [](std::byte b) { return b == std::byte{0x5a}; }));
  EXPECT_EQ(frames_out(pages), 2 * kLarge / kFrameBytes);
  kept.reset();
  EXPECT_EQ(frames_out(pages), kLarge / kFrameBytes);
}

TEST_F(FragCacheTest, AFreedNeighbourDoesNotMakeAFragmentGrow) {
  FragCache frags{pages};
  const FragRef a = frags.alloc(100);
  FragRef b = frags.alloc(100);
  std::byte* behind = b.data();
  b.reset();
  EXPECT_EQ(a.size(), 100U);
  const FragRef c = frags.alloc(100);
  EXPECT_EQ(c.data(), behind + 100);
}

TEST_F(FragCacheTest, ShowsHowMuchMoreMemoryFragmentsPinThanTheyUse) {
  constexpr std::size_t kPages = 64;
  FragCache frags{pages};
  std::vector<FragRef> kept;
  for (std::size_t page = 0; page < kPages; ++page) {
    for (std::size_t i = 0; i < kLarge / 128; ++i) {
      FragRef frag = frags.alloc(128);
      ASSERT_TRUE(frag);
      if (i == 0) {
        kept.push_back(std::move(frag));
      }
    }
  }
  frags.drain();
  EXPECT_EQ(frags.counters().page_bytes, kPages * kLarge);
  EXPECT_EQ(frags.counters().allocated_bytes, kPages * kLarge);
  std::set<Page*> pinned;
  std::uint64_t pinned_bytes = 0;
  std::uint64_t used_bytes = 0;
  for (const FragRef& frag : kept) {
    used_bytes += frag.size();
    if (pinned.insert(frag.page()).second) {
      pinned_bytes += frag.pinned().value;
    }
  }
  EXPECT_EQ(pinned_bytes, kPages * kLarge);
  EXPECT_EQ(used_bytes, kPages * 128);
  EXPECT_EQ(frames_out(pages) * kFrameBytes, pinned_bytes);
  kept.clear();
  EXPECT_EQ(frames_out(pages), 0U);
}

TEST_F(FragCacheTest, PacksSmallFragmentsTightly) {
  FragCache frags{pages};
  std::vector<FragRef> all;
  for (int i = 0; i < 1000; ++i) {
    all.push_back(frags.alloc(128));
    ASSERT_TRUE(all.back());
  }
  EXPECT_LE(frags.counters().pages_taken, (128'000 + kLarge - 1) / kLarge + 1);
}

TEST_F(FragCacheTest, SharesAFragmentUpToTheLimitOfTheCount) {
  FragCache frags{pages};
  FragRef frag = frags.alloc(100);
  FragRef second = frag.share();
  EXPECT_EQ(second.data(), frag.data());
  EXPECT_EQ(second.size(), frag.size());
  Page* page = frag.page();
  const std::uint32_t more = kMaxRefs - ref_count(page);
  ASSERT_TRUE(ref(page, more));
  EXPECT_TRUE(frag.share().empty());
  EXPECT_EQ(ref_count(page), kMaxRefs);
  unref_many(page, more);
  frags.drain();
  frag.reset();
  EXPECT_EQ(frames_out(pages), kLarge / kFrameBytes);
  second.reset();
  EXPECT_EQ(frames_out(pages), 0U);
  EXPECT_TRUE(FragRef{}.share().empty());
}

TEST_F(FragCacheTest, ADropTooManyIsReported) {
  if constexpr (!kCheckedDrops) {
    GTEST_SKIP() << "drops are verified in checked builds";
  }
  FragCache frags{pages};
  FragRef frag = frags.alloc(100);
  frags.drain();
  Page* page = frag.detach();
  unref(page);
  // What the report says depends on what has become of the frames meanwhile.
  EXPECT_DEATH(unref(page), "double free|wrong order|free of a tail");
}

TEST_F(FragCacheTest, FreesAFragmentByAnyAddressInIt) {
  for (int i = 0; i < 20'000; ++i) {
    FragCache frags{pages};
    FragRef frag = frags.alloc(3000, Align{64});
    FragRef other = frags.alloc(3000, Align{64});
    ASSERT_TRUE(frag && other);
    std::byte* data = other.data();
    static_cast<void>(other.detach());
    free_at(data + i % 3000);
  }
  EXPECT_EQ(frames_out(pages), 0U);
}

TEST_F(FragCacheTest, DrainGivesThePageBackAndLeavesFragmentsAlone) {
  FragCache frags{pages};
  FragRef frag = frags.alloc(100);
  frags.drain();
  EXPECT_EQ(frags.held(), Bytes{0});
  EXPECT_EQ(frames_out(pages), kLarge / kFrameBytes);
  std::memset(frag.data(), 1, frag.size());
  frag.reset();
  EXPECT_EQ(frames_out(pages), 0U);
  frags.drain();
  EXPECT_TRUE(frags.alloc(100));
}

TEST_F(FragCacheTest, ItsEndDrainsItAndItsFragmentsOutliveIt) {
  FragRef frag;
  {
    FragCache frags{pages};
    frag = frags.alloc(100);
    static_cast<void>(frags.alloc(100));
  }
  EXPECT_EQ(ref_count(frag.page()), 1U);
  frag = FragRef{};
  EXPECT_EQ(frames_out(pages), 0U);
}

TEST_F(FragCacheTest, MovingPassesTheFragmentOnOnce) {
  FragCache frags{pages};
  FragRef a = frags.alloc(10);
  std::byte* data = a.data();
  FragRef b{std::move(a)};
  EXPECT_TRUE(a.empty());  // NOLINT(bugprone-use-after-move): what a move leaves is the contract
  EXPECT_EQ(a.size(), 0U);
  EXPECT_EQ(a.pinned(), Bytes{0});
  FragRef& same = b;
  b = std::move(same);
  EXPECT_EQ(b.data(), data);
  FragRef c = frags.alloc(10);
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  frags.drain();
  c.reset();
  EXPECT_EQ(frames_out(pages), 0U);
}

TEST_F(FragCacheTest, RefusesAtExhaustionAndServesAgainAfterwards) {
  FragCache frags{pages};
  std::vector<FragRef> all;
  std::size_t total = 0;
  while (FragRef frag = frags.alloc(3000)) {
    total += frag.size();
    all.push_back(std::move(frag));
  }
  EXPECT_TRUE(frags.alloc(3000).empty());
  EXPECT_TRUE(frags.alloc(kLarge).empty());
  // Every page was used; a page of 32 KiB holds ten such fragments.
  EXPECT_GE(total, pages.effective().managed.value / 8 * 30'000);
  all.clear();
  EXPECT_TRUE(frags.alloc(kLarge));
  frags.drain();
  EXPECT_EQ(frames_out(pages), 0U);
}

TEST_F(FragCacheTest, IsReportedWhenAnotherThreadUsesIt) {
  if constexpr (!kAudit) {
    GTEST_SKIP() << "the thread is checked in checked builds";
  }
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        FragCache frags{pages};
        static_cast<void>(frags.alloc(1));
        std::thread{[&] { static_cast<void>(frags.alloc(1)); }}.join();
      },
      "a FragCache is used from a thread that does not own it");
}

TEST_F(FragCacheTest, CanBeHandedOnAfterADrain) {
  FragCache frags{pages};
  ASSERT_TRUE(frags.alloc(1));
  frags.drain();
  std::thread{[&] {
    EXPECT_TRUE(frags.alloc(1));
    frags.drain();
  }}.join();
  EXPECT_TRUE(frags.alloc(1));
}

// The side table of the tests below: what lies where, and what was written there.
class LiveFragments {
 public:
  void add(FragRef frag, unsigned char stamp) {
    const auto begin = reinterpret_cast<std::uintptr_t>(frag.data());
    const auto after = live_.lower_bound(begin);
    ASSERT_TRUE(after == live_.end() || after->first >= begin + frag.size()) << "overlap";
    if (after != live_.begin()) {
      const auto before = std::prev(after);
      ASSERT_LE(before->first + before->second.frag.size(), begin) << "overlap";
    }
    std::memset(frag.data(), stamp, frag.size());
    live_.emplace(begin, Entry{std::move(frag), stamp});
  }
  void drop(std::size_t n) {
    auto it = live_.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(n % live_.size()));
    const Entry& entry = it->second;
    ASSERT_TRUE(std::all_of(entry.frag.data(), entry.frag.data() + entry.frag.size(),
                            [&](std::byte b) { return b == std::byte{entry.stamp}; }));
    live_.erase(it);
  }
  [[nodiscard]] std::size_t size() const { return live_.size(); }

 private:
  struct Entry {
    FragRef frag;
    unsigned char stamp;
  };
  std::map<std::uintptr_t, Entry> live_;
};

TEST_F(FragCacheTest, LiveFragmentsNeverOverlapInARandomRun) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random{seed};
  LiveFragments live;
  {
    FragCache frags{pages};
    for (int step = 0; step < 30'000 && !HasFatalFailure(); ++step) {
      if (random() % 3 != 0) {
        const std::size_t size = random() % 8 == 0 ? 1 + random() % kLarge : 1 + random() % 2000;
        const Align align{std::size_t{1} << random() % 13};
        FragRef frag = frags.alloc(size, align);
        if (frag.empty()) {
          while (live.size() > 10) {
            live.drop(random());
          }
          continue;
        }
        ASSERT_EQ(frag.size(), size);
        ASSERT_TRUE(is_aligned(reinterpret_cast<std::uintptr_t>(frag.data()), align.value));
        const std::byte* page = address_of(frag.page());
        ASSERT_GE(frag.data(), page);
        ASSERT_LE(frag.data() + size, page + frag.pinned().value);
        live.add(std::move(frag), static_cast<unsigned char>(step));
      } else if (live.size() != 0) {
        live.drop(random());
      }
    }
  }
  while (live.size() != 0) {
    live.drop(0);
  }
  EXPECT_EQ(frames_out(pages), 0U);
}

TEST_F(FragCacheTest, FragmentsAreDroppedByOtherThreadsWhileTheOwnerCuts) {
  struct Parcel {
    FragRef frag;
    unsigned char stamp;
  };
  constexpr int kFragments = 60'000;
  std::mutex mutex;
  std::vector<Parcel> parcels;
  bool done = false;
  std::thread dropper{[&] {
    for (;;) {
      std::vector<Parcel> mine;
      bool last = false;
      {
        const std::lock_guard guard{mutex};
        mine.swap(parcels);
        last = done;
      }
      for (const Parcel& parcel : mine) {
        ASSERT_TRUE(std::all_of(parcel.frag.data(), parcel.frag.data() + parcel.frag.size(),
                                [&](std::byte b) { return b == std::byte{parcel.stamp}; }));
      }
      if (mine.empty() && last) {
        return;
      }
      if (mine.empty()) {
        std::this_thread::yield();
      }
    }
  }};
  {
    FragCache frags{pages};
    for (int i = 0; i < kFragments;) {
      FragRef frag = frags.alloc(1 + static_cast<std::size_t>(i) % 1500, Align{8});
      if (frag.empty()) {
        std::this_thread::yield();
        continue;
      }
      const auto stamp = static_cast<unsigned char>(++i);
      std::memset(frag.data(), stamp, frag.size());
      const std::lock_guard guard{mutex};
      parcels.push_back({std::move(frag), stamp});
    }
    const std::lock_guard guard{mutex};
    done = true;
  }
  dropper.join();
  EXPECT_EQ(frames_out(pages), 0U);
}

TEST_F(FragCacheTest, CountersAreReadFromAnywhereWhileTheOwnerCuts) {
  FragCache frags{pages};
  std::atomic<bool> done{false};
  std::thread reader{[&] {
    std::uint64_t taken = 0;
    while (!done.load()) {
      const FragCounterValues now = frags.counters();
      EXPECT_GE(now.pages_taken, taken);
      taken = now.pages_taken;
    }
  }};
  for (int i = 0; i < 20'000; ++i) {
    ASSERT_TRUE(frags.alloc(700));
  }
  done.store(true);
  reader.join();
  EXPECT_EQ(frags.counters().allocated, 20'000U);
}

}  // namespace
}  // namespace weir
