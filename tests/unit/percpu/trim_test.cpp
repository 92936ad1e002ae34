// SPDX-License-Identifier: MIT
// What a zone gives back to the system, what it keeps, and that pins, refusals, forks and the end of a zone find
// it right in every state.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/fake_memory.hpp"
#include "tests/support/process.hpp"
#include "tests/support/zones.hpp"
#include "weir/backing/borrowed_source.hpp"
#include "weir/backing/hugetlb_source.hpp"
#include "weir/backing/memfd_source.hpp"
#include "weir/percpu/cached_zone.hpp"

namespace weir {
namespace {

using namespace std::chrono_literals;
using test::FakeMemory;
using test::free_all;
using test::OnCpu;
using test::take_all;
using Call = FakeMemory::Call;

constexpr std::uint32_t kBlock = frames_in(kPageblockOrder);
constexpr std::uint64_t kBlocks = 16;
constexpr Bytes kAll{UINT64_MAX};

// A fake memory that can hold the system call until it is told to go on.
class SlowMemory : public FakeMemory {
 public:
  Error try_discard(std::byte* base, Bytes size) noexcept override {
    std::unique_lock lock{mutex_};
    if (hold_) {
      inside_ = base;
      changed_.notify_all();
      changed_.wait(lock, [this] { return !hold_; });
      inside_ = nullptr;
    }
    lock.unlock();
    return FakeMemory::try_discard(base, size);
  }
  void hold() {
    const std::lock_guard lock{mutex_};
    hold_ = true;
  }
  const std::byte* wait_inside() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return inside_ != nullptr; });
    return inside_;
  }
  void go_on() {
    const std::lock_guard lock{mutex_};
    hold_ = false;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool hold_ = false;
  const std::byte* inside_ = nullptr;
};

enum class Kind { anonymous, memfd, hugetlb };

struct Ground {
  EngineChoice engine;
  Kind kind = Kind::anonymous;
};

// A zone of 16 pageblocks over a memory that keeps a book.
class TrimZone {
 public:
  explicit TrimZone(Ground ground, Options options = {}) {
    options.engine = ground.engine;
    std::unique_ptr<Source> source;
    switch (ground.kind) {
      case Kind::anonymous:
        source = std::make_unique<AnonSource>(memory, ThpChoice::off);
        break;
      case Kind::memfd:
        source = std::make_unique<MemfdSource>(memory, ThpChoice::off);
        break;
      case Kind::hugetlb:
        memory.play_huge_pages(bytes(kPageblockOrder) * kBlocks);
        source = std::make_unique<HugetlbSource>(memory, Bytes{kPageblockBytes}, false);
        break;
    }
    Result<Extent> extent = source->obtain(bytes(kPageblockOrder) * kBlocks);
    if (!extent) {
      throw std::runtime_error(extent.error().what);
    }
    base = extent->base;
    Result<CachedZone*> opened = zone_registry::open(source.get(), {*extent}, options, 2, 2);
    if (!opened) {
      throw std::runtime_error(opened.error().what);
    }
    static_cast<void>(source.release());
    zone = *opened;
  }
  ~TrimZone() {
    if (zone != nullptr) {
      EXPECT_EQ(zone->retire(), 0U);
    }
    EXPECT_TRUE(memory.clean());
  }
  TrimZone(const TrimZone&) = delete;
  TrimZone& operator=(const TrimZone&) = delete;

  CachedZone* operator->() { return zone; }
  CachedZone& operator*() { return *zone; }
  [[nodiscard]] PageIndex first() const { return zone->pieces().front().first; }
  [[nodiscard]] PageIndex block(std::uint64_t i) const { return advance(first(), i * kBlock); }
  [[nodiscard]] std::uint64_t block_of(PageIndex page) const {
    return (page.value - first().value) / kBlock;
  }
  [[nodiscard]] std::span<const std::byte> range(std::uint64_t frame, std::uint64_t frames) const {
    return {base + frame * kFrameBytes, frames * kFrameBytes};
  }
  // The pageblocks that the system was given, in the order of the calls. Of a file the book has offsets.
  [[nodiscard]] std::vector<std::uint64_t> given() const {
    std::vector<std::uint64_t> blocks;
    for (const FakeMemory::Record& record : memory.records()) {
      if (record.call == Call::discard || record.call == Call::punch_hole) {
        const auto from = record.call == Call::discard ? reinterpret_cast<std::uintptr_t>(base) : 0;
        const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(record.base) - from;
        EXPECT_EQ(offset % kPageblockBytes, 0U);
        EXPECT_EQ(record.size, bytes(kPageblockOrder));
        blocks.push_back(offset / kPageblockBytes);
      }
    }
    return blocks;
  }
  [[nodiscard]] std::uint64_t trimmed_blocks() const { return zone->trimmed_pages() / kBlock; }

  SlowMemory memory;
  CachedZone* zone = nullptr;
  std::byte* base = nullptr;
};

class Trim : public testing::TestWithParam<Ground> {};

std::vector<std::uint64_t> all_but(const std::set<std::uint64_t>& left_out) {
  std::vector<std::uint64_t> blocks;
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    if (!left_out.contains(i)) {
      blocks.push_back(i);
    }
  }
  return blocks;
}

TEST_P(Trim, GivesBackEveryFreePageblockOnceAndWhole) {
  TrimZone zone{GetParam()};
  TrimReport report;
  EXPECT_EQ(zone->trim(kAll, &report), bytes(kPageblockOrder) * kBlocks);
  EXPECT_EQ(report.returned, bytes(kPageblockOrder) * kBlocks);
  EXPECT_EQ(report.pinned, Bytes{0});
  EXPECT_STREQ(report.note, "");
  EXPECT_EQ(zone.given(), all_but({}));
  EXPECT_EQ(zone.trimmed_blocks(), kBlocks);
  EXPECT_EQ(zone->zone().free_pages(), kBlocks * kBlock);
  EXPECT_EQ(zone->zone().counters().trims.get(), kBlocks);
  EXPECT_EQ(zone->zone().counters().taken.get(), 0U) << "nobody got them";
  // What is with the system is not given again.
  EXPECT_EQ(zone->trim(kAll), Bytes{0});
  EXPECT_EQ(zone.given().size(), kBlocks);
  static_cast<void>(zone->zone().audit());
}

TEST_P(Trim, GivesNoMoreThanItIsAskedFor) {
  TrimZone zone{GetParam()};
  EXPECT_EQ(zone->trim(Bytes{kPageblockBytes - 1}), Bytes{0});
  EXPECT_EQ(zone->trim(Bytes{3 * kPageblockBytes - 1}), Bytes{2 * kPageblockBytes});
  EXPECT_EQ(zone->trim(Bytes{kPageblockBytes}), Bytes{kPageblockBytes});
  EXPECT_EQ(zone.given(), (std::vector<std::uint64_t>{0, 1, 2}));
}

TEST_P(Trim, LeavesWhatIsInUseAndEmptiesListsAndDepotFirst) {
  TrimZone zone{GetParam()};
  std::vector<PageIndex> pages;
  while (pages.size() < 4 * kBlock) {
    pages.push_back(zone->alloc(Order{0}, {}));
  }
  const PageIndex kept = pages.back();
  pages.pop_back();
  *address_of(kept) = std::byte{7};
  free_all(*zone, pages);  // some of them to list and depot
  EXPECT_EQ(zone->trim(kAll), Bytes{(kBlocks - 1) * kPageblockBytes});
  std::vector<std::uint64_t> given = zone.given();
  std::sort(given.begin(), given.end());
  EXPECT_EQ(given, all_but({zone.block_of(kept)}));
  EXPECT_EQ(*address_of(kept), std::byte{7});
  const CachedZone::Census census = zone->census();
  EXPECT_EQ(census.engine + 1, census.managed);
  zone->free(kept, Order{0});
}

TEST_P(Trim, WhatIsUsedAgainReadsAsZeroAndWorks) {
  if (GetParam().kind == Kind::hugetlb) {
    GTEST_SKIP() << "huge pages are played with ordinary ones here: the same case";
  }
  TrimZone zone{GetParam()};
  for (int round = 0; round < 3; ++round) {
    std::vector<PageIndex> blocks = take_all(*zone, kPageblockOrder);
    ASSERT_EQ(blocks.size(), kBlocks);
    EXPECT_EQ(zone->trimmed_pages(), 0U);
    for (const PageIndex block : blocks) {
      for (std::uint32_t i = 0; i < kBlock; i += 37) {
        ASSERT_EQ(*address_of(advance(block, i)), std::byte{0});
        *address_of(advance(block, i)) = std::byte{0xab};
      }
    }
    free_all(*zone, blocks, kPageblockOrder);
    test::outlast_shortage();
    ASSERT_EQ(zone->trim(kAll), Bytes{kBlocks * kPageblockBytes});
  }
}

TEST_P(Trim, ARefusalOfTheSystemAtAnyStepLosesNothing) {
  const Call call = GetParam().kind == Kind::memfd ? Call::punch_hole : Call::discard;
  for (std::uint64_t k = 1; k <= kBlocks; ++k) {
    TrimZone zone{GetParam()};
    zone.memory.fail(call, k);
    TrimReport report;
    EXPECT_EQ(zone->trim(kAll, &report), Bytes{(k - 1) * kPageblockBytes});
    EXPECT_STRNE(report.note, "");
    EXPECT_EQ(zone.given().size(), k) << "and it is not asked again";
    EXPECT_EQ(zone.trimmed_blocks(), k - 1);
    EXPECT_EQ(zone->zone().counters().trims_refused.get(), 1U);
    EXPECT_EQ(zone->zone().audit(), kBlocks * kBlock);
    // The one that was refused is there, as resident memory: it is taken before the trimmed ones.
    if (k < kBlocks) {
      const PageIndex page = zone->alloc(kMaxOrder, {});
      EXPECT_NE(page, kNoPage);
      zone->free(page, kMaxOrder);
      EXPECT_EQ(zone->zone().audit(), kBlocks * kBlock);
    }
    EXPECT_GT(zone->trim(kAll).value, 0U) << "the user may ask once more";
  }
}

TEST_P(Trim, NeverBelowTheHighWatermarkOfFreeFrames) {
  TrimZone zone{GetParam()};
  const std::uint64_t high = std::min(zone->zone().watermarks().high.value, kBlocks * kBlock / 6);
  std::vector<PageIndex> pages = take_all(*zone, kPageblockOrder);
  ASSERT_EQ(pages.size(), kBlocks);
  test::outlast_shortage();
  for (std::uint64_t free = 1; free <= kBlocks; ++free) {
    zone->free(pages.back(), kPageblockOrder);
    pages.pop_back();
    const bool may = (free - 1) * kBlock >= high;
    EXPECT_EQ(zone->trim(kAll).value != 0, may && zone.given().size() < free) << free;
    EXPECT_EQ(zone.trimmed_blocks(), may ? free : 0) << "one by one: trimmed frames are free, too";
    test::outlast_shortage();
  }
}

TEST_P(Trim, AReserveAndALimitKeepTheirFrames) {
  TrimZone zone{GetParam(), {.reserve = PageCount{2 * kBlock}}};
  ASSERT_FALSE(zone->set_limits(PageCount{8 * kBlock}, PageCount{0}).failed());
  test::outlast_shortage();
  std::vector<PageIndex> pages;
  for (int i = 0; i < 6; ++i) {
    pages.push_back(zone->alloc(kPageblockOrder, {}));
    ASSERT_NE(pages.back(), kNoPage);
  }
  EXPECT_EQ(zone->trim(kAll), Bytes{0}) << "what users may still have is kept for them";
  free_all(*zone, pages, kPageblockOrder);
  test::outlast_shortage();
  EXPECT_EQ(zone->trim(kAll), Bytes{kBlocks * kPageblockBytes});
}

// ---- pins ----

TEST_P(Trim, APinKeepsEveryPageblockThatItTouchesInWhateverStateItIs) {
  TrimZone zone{GetParam()};
  WEIR_NEEDS_LISTS;
  const OnCpu cpu(0);
  // Live: pageblock 15 or wherever the engine puts it. On the list and in the depot: single frames.
  const PageIndex live = zone->alloc(kPageblockOrder, {});
  std::vector<PageIndex> singles(1500);
  for (PageIndex& page : singles) {
    page = zone->alloc(Order{0}, {});
  }
  free_all(*zone, singles);
  ASSERT_NE(zone->census().lists, 0U);
  ASSERT_NE(zone->census().depot, 0U);
  std::set<std::uint64_t> pinned;
  std::vector<Pin> pins;
  const auto pin = [&](PageIndex page) {
    Result<Pin> got = zone->pin(zone.range(page.value - zone.first().value, 1));
    ASSERT_TRUE(got);
    EXPECT_EQ(got->first(), page);
    EXPECT_EQ(got->frames(), PageCount{1});
    pins.push_back(std::move(got).value());
    pinned.insert(zone.block_of(page));
  };
  pin(live);
  pin(singles.front());  // on its way back somewhere: list or depot
  pin(singles.back());
  std::uint64_t free_block = 0;
  while (pinned.contains(free_block) || zone->zone().is_taken(zone.block(free_block))) {
    ++free_block;
  }
  pin(zone.block(free_block));
  zone->free(live, kPageblockOrder);
  TrimReport report;
  EXPECT_EQ(zone->trim(kAll, &report), Bytes{(kBlocks - pinned.size()) * kPageblockBytes});
  EXPECT_EQ(report.pinned, Bytes{pinned.size() * kPageblockBytes});
  EXPECT_EQ(zone.given(), all_but(pinned));
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    EXPECT_EQ(zone->is_pinned(zone.block(i), kBlock), pinned.contains(i));
  }
  pins.clear();
  EXPECT_EQ(zone->trim(kAll), Bytes{pinned.size() * kPageblockBytes});
}

TEST_P(Trim, PinsNestAndOverlap) {
  TrimZone zone{GetParam()};
  Result<Pin> whole = zone->pin(zone.range(0, kBlocks * kBlock));
  ASSERT_TRUE(whole);
  EXPECT_EQ(zone->trim(kAll), Bytes{0});
  Result<Pin> across =
      zone->pin(zone.range(3 * kBlock - 1, 2));  // the end of 2, the beginning of 3
  Result<Pin> again = zone->pin(zone.range(3 * kBlock, 1));
  ASSERT_TRUE(across && again);
  whole->release();
  EXPECT_FALSE(*whole);
  whole->release();
  EXPECT_EQ(zone->trim(kAll), Bytes{(kBlocks - 2) * kPageblockBytes});
  EXPECT_EQ(zone.given(), all_but({2, 3}));
  Pin moved = std::move(across).value();
  Pin other = std::move(moved);
  EXPECT_FALSE(moved);               // NOLINT(bugprone-use-after-move)
  other = std::move(again).value();  // ends what it was
  EXPECT_EQ(zone->trim(kAll), Bytes{kPageblockBytes});
  EXPECT_EQ(zone.given().back(), 2U);
  other.release();
  EXPECT_EQ(zone->trim(kAll), Bytes{kPageblockBytes});
}

TEST_P(Trim, APinnedPageblockCountsAsResidentAgain) {
  TrimZone zone{GetParam()};
  ASSERT_EQ(zone->trim(kAll), Bytes{kBlocks * kPageblockBytes});
  {
    const Result<Pin> pin = zone->pin(zone.range(5 * kBlock, kBlock + 1));
    ASSERT_TRUE(pin);
    EXPECT_EQ(zone.trimmed_blocks(), kBlocks - 2);
    EXPECT_EQ(zone->trim(kAll), Bytes{0});
  }
  EXPECT_EQ(zone->trim(kAll), Bytes{2 * kPageblockBytes});
  EXPECT_EQ(zone.given().size(), kBlocks + 2);
}

TEST_P(Trim, ARangeThatIsNotOfTheZoneIsNotPinned) {
  TrimZone zone{GetParam()};
  const auto code = [&](std::span<const std::byte> range) { return zone->pin(range).error().code; };
  std::vector<std::byte> foreign(3 * kFrameBytes);
  const auto* aligned = reinterpret_cast<const std::byte*>(
      align_up<std::uintptr_t>(reinterpret_cast<std::uintptr_t>(foreign.data()), kFrameBytes));
  EXPECT_EQ(code({}), Errc::zero_size);
  EXPECT_EQ(code({zone.base, 0}), Errc::zero_size);
  EXPECT_EQ(code({zone.base + 1, kFrameBytes}), Errc::misaligned);
  EXPECT_EQ(code({zone.base, kFrameBytes - 1}), Errc::misaligned);
  EXPECT_EQ(code({aligned, kFrameBytes}), Errc::foreign);
  EXPECT_EQ(code(zone.range(kBlocks * kBlock, 1)), Errc::foreign);
  EXPECT_EQ(code({zone.base - kFrameBytes, 2 * kFrameBytes}), Errc::foreign);
  EXPECT_EQ(code(zone.range(kBlocks * kBlock - 1, 2)), Errc::too_large);
  EXPECT_EQ(code({zone.base, ~std::size_t{0} / kFrameBytes * kFrameBytes}), Errc::too_large);
  EXPECT_TRUE(zone->pin(zone.range(kBlocks * kBlock - 1, 1)));
  {
    const ThreadMark mark;
    EXPECT_EQ(code(zone.range(0, 1)), Errc::would_block);
    TrimReport report;
    EXPECT_EQ(zone->trim(kAll, &report), Bytes{0});
    EXPECT_STRNE(report.note, "");
  }
  EXPECT_EQ(zone->trim(kAll), Bytes{kBlocks * kPageblockBytes}) << "no pin was left behind";
}

TEST_P(Trim, AZoneWithAPinStaysUntilThePinHasEnded) {
  const std::uint32_t zones = zone_registry::count();
  TrimZone zone{GetParam()};
  Result<Pin> pin = zone->pin(zone.range(0, kBlock));
  Result<Pin> other = zone->pin(zone.range(kBlock, 1));
  ASSERT_TRUE(pin && other);
  EXPECT_EQ(zone->retire(), 0U) << "no page is out";
  EXPECT_EQ(zone_registry::count(), zones + 1);
  EXPECT_EQ(zone.memory.calls(Call::release), 0U);
  zone.base[5] = std::byte{1};  // mapped as before
  pin->release();
  EXPECT_EQ(zone_registry::count(), zones + 1);
  other->release();
  EXPECT_EQ(zone_registry::count(), zones);
  EXPECT_EQ(zone.memory.calls(Call::release), 1U);
  zone.zone = nullptr;
}

TEST_P(Trim, TheLastPageOfAZoneThatIsPinnedDoesNotCloseIt) {
  const std::uint32_t zones = zone_registry::count();
  TrimZone zone{GetParam()};
  const PageIndex page = zone->alloc(Order{0}, {});
  Result<Pin> pin = zone->pin(zone.range(0, 1));
  ASSERT_TRUE(pin);
  EXPECT_EQ(zone->retire(), 1U);
  zone->free(page, Order{0});
  EXPECT_EQ(zone_registry::count(), zones + 1);
  std::thread{[&pin] { pin->release(); }}.join();
  EXPECT_EQ(zone_registry::count(), zones);
  zone.zone = nullptr;
}

// ---- while a pageblock is on its way ----

class SlowTrim : public Trim {
 protected:
  // Runs `meanwhile` while the system call of the first pageblock is under way.
  void meanwhile(TrimZone& zone, Bytes target, const std::function<void()>& act) {
    zone.memory.hold();
    std::thread trimmer{[&] { static_cast<void>(zone->trim(target)); }};
    EXPECT_EQ(zone.memory.wait_inside(), zone.base);
    act();
    zone.memory.go_on();
    trimmer.join();
  }
};

TEST_P(SlowTrim, NobodyGetsAPageblockThatIsOnItsWayAndNobodyElseWaits) {
  TrimZone zone{GetParam()};
  meanwhile(zone, Bytes{kPageblockBytes}, [&] {
    std::vector<PageIndex> pages;
    for (std::uint64_t i = 0; i + 1 < kBlocks; ++i) {
      pages.push_back(zone->alloc(kPageblockOrder, {.no_wait = true}));
      ASSERT_NE(pages.back(), kNoPage);
      ASSERT_NE(zone.block_of(pages.back()), 0U);
    }
    free_all(*zone, pages, kPageblockOrder);
  });
  EXPECT_EQ(zone.trimmed_blocks(), 1U);
}

TEST_P(SlowTrim, ARequestThatNeedsItWaitsAndIsServed) {
  for (const unsigned order : {0U, 9U}) {
    TrimZone zone{GetParam()};
    std::vector<PageIndex> pages;
    std::atomic<bool> served{false};
    std::thread asker;
    meanwhile(zone, Bytes{kPageblockBytes}, [&] {
      const std::uint64_t others = (kBlocks - 1) * (kBlock >> order);
      for (std::uint64_t i = 0; i < others; ++i) {
        pages.push_back(zone->alloc(Order{order}, {}));
        ASSERT_NE(pages.back(), kNoPage);
      }
      asker = std::thread{[&, order] {
        const PageIndex page = zone->alloc(Order{order}, {});
        if (is_page(page)) {
          served = true;
          zone->free(page, Order{order});
        }
      }};
      std::this_thread::sleep_for(20ms);
      EXPECT_FALSE(served);
    });
    asker.join();
    EXPECT_TRUE(served) << "it was refused a block that was on its way, order " << order;
    free_all(*zone, pages, Order{order});
  }
}

TEST_P(SlowTrim, AllOrNothingWaitsAsWell) {
  TrimZone zone{GetParam()};
  std::vector<Page*> pages(kBlocks * kBlock);
  std::atomic<bool> served{false};
  std::thread asker;
  meanwhile(zone, Bytes{kPageblockBytes}, [&] {
    asker = std::thread{[&] { served = zone->alloc_exactly(pages.data(), pages.size(), {}); }};
    std::this_thread::sleep_for(20ms);
  });
  asker.join();
  ASSERT_TRUE(served);
  zone->free_bulk(pages.data(), pages.size());
}

TEST_P(SlowTrim, APinWaitsForThePageblockOnItsWayAndKeepsItThen) {
  TrimZone zone{GetParam()};
  std::atomic<bool> pinned{false};
  std::size_t given_before = 0;
  Pin pin;
  std::thread pinner;
  meanwhile(zone, kAll, [&] {
    pinner = std::thread{[&] {
      Result<Pin> got = zone->pin(zone.range(0, kBlocks * kBlock));
      given_before = zone.given().size();
      pin = std::move(got).value();
      pinned = true;
    }};
    std::this_thread::sleep_for(20ms);
    EXPECT_FALSE(pinned) << "the memory was given back under the pin";
  });
  pinner.join();
  ASSERT_TRUE(pinned);
  EXPECT_EQ(zone.given().size(), given_before) << "nothing was given after the pin";
  EXPECT_GE(given_before, 1U);
  EXPECT_EQ(zone.trimmed_blocks(), 0U) << "what had been given counts as resident";
}

TEST_P(SlowTrim, AForkWaitsForIt) {
  if (test::kSanitized) {
    GTEST_SKIP() << "threads and forks";
  }
  TrimZone zone{GetParam()};
  std::thread forker;
  int status = -1;
  meanwhile(zone, kAll, [&] {
    forker = std::thread{[&] {
      status = test::run_in_child([&] {
        if (zone->zone().audit() != kBlocks * kBlock) return 1;
        if (zone->trim(kAll).value % kPageblockBytes != 0) return 2;
        return zone.trimmed_blocks() == kBlocks ? 0 : 3;
      });
    }};
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(status, -1);
  });
  forker.join();
  EXPECT_EQ(status, 0);
  EXPECT_EQ(zone.trimmed_blocks(), kBlocks) << "and the parent went on";
}

// ---- the idle policy ----

// Ticks until nothing more is given, or the end of patience.
void tick_for(CachedZone& zone, std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  do {
    zone.tick();
    std::this_thread::sleep_for(1ms);
  } while (std::chrono::steady_clock::now() < end);
}

TEST_P(Trim, AQuietZoneGivesBackAllButTheHighWatermark) {
  TrimZone zone{GetParam(), {.idle_trim = 20ms}};
  free_all(*zone, take_all(*zone));
  tick_for(*zone, 200ms);
  if (GetParam().kind == Kind::hugetlb) {
    EXPECT_TRUE(zone.given().empty()) << "what the system takes, another may have";
    return;
  }
  const std::uint64_t resident = zone->zone().free_pages() - zone->trimmed_pages();
  const std::uint64_t high = std::min(zone->zone().watermarks().high.value, kBlocks * kBlock / 6);
  EXPECT_GE(resident, high);
  EXPECT_LT(resident, high + kBlock);
  const std::size_t given = zone.given().size();
  tick_for(*zone, 50ms);
  EXPECT_EQ(zone.given().size(), given) << "it went on below";
}

TEST_P(Trim, AZoneThatIsUsedGivesNothingBackByItself) {
  TrimZone zone{GetParam(), {.idle_trim = 100ms}};
  const auto end = std::chrono::steady_clock::now() + 300ms;
  while (std::chrono::steady_clock::now() < end) {
    zone->free(zone->alloc(Order{10}, {}), Order{10});  // past the lists
    zone->tick();
    std::this_thread::sleep_for(2ms);
  }
  EXPECT_TRUE(zone.given().empty());
}

TEST_P(Trim, NoneIdlesWhereTheOptionSaysNever) {
  TrimZone zone{GetParam(), {.idle_trim = 0ms}};
  tick_for(*zone, 50ms);
  EXPECT_TRUE(zone.given().empty());
  EXPECT_GT(zone->trim(kAll).value, 0U);
}

// A round that had to leave pinned pageblocks alone is not the last one.
TEST_P(Trim, WhatAPinKeptGoesByItselfWhenItHasEnded) {
  if (GetParam().kind == Kind::hugetlb) {
    GTEST_SKIP() << "huge pages do not go by themselves";
  }
  TrimZone zone{GetParam(), {.idle_trim = 1ms}};
  std::uint64_t kept = 0;
  {
    Result<Pin> pin = zone->pin({zone.base, zone->zone().managed().value * kFrameBytes});
    ASSERT_TRUE(pin.ok());
    tick_for(*zone, 50ms);
    kept = zone.trimmed_blocks();
  }
  EXPECT_EQ(kept, 0U);
  tick_for(*zone, 50ms);
  EXPECT_GT(zone.trimmed_blocks(), 0U);
}

TEST_P(Trim, AnIdleZoneAsksARefusingSystemOnce) {
  if (GetParam().kind == Kind::hugetlb) {
    GTEST_SKIP() << "huge pages do not go by themselves";
  }
  TrimZone zone{GetParam(), {.idle_trim = 1ms}};
  const Call call = GetParam().kind == Kind::memfd ? Call::punch_hole : Call::discard;
  zone.memory.fail(call, 2, 100);
  tick_for(*zone, 100ms);
  EXPECT_EQ(zone.given().size(), 2U);
  EXPECT_EQ(zone.trimmed_blocks(), 1U);
}

std::string name_of(const testing::TestParamInfo<Ground>& info) {
  const char* kind = info.param.kind == Kind::memfd     ? "Memfd"
                     : info.param.kind == Kind::hugetlb ? "Hugetlb"
                                                        : "Anonymous";
  return std::string(kind) + (info.param.engine == EngineChoice::buddy ? "Buddy" : "Bitmap");
}
INSTANTIATE_TEST_SUITE_P(Everywhere, Trim,
                         testing::Values(Ground{EngineChoice::buddy}, Ground{EngineChoice::bitmap},
                                         Ground{EngineChoice::buddy, Kind::memfd},
                                         Ground{EngineChoice::bitmap, Kind::memfd},
                                         Ground{EngineChoice::bitmap, Kind::hugetlb}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Everywhere, SlowTrim,
                         testing::Values(Ground{EngineChoice::buddy}, Ground{EngineChoice::bitmap}),
                         name_of);

// ---- what is not weir's ----

TEST(TrimBorrowed, StaysItsOwners) {
  constexpr std::size_t kSize = 4 * kPageblockBytes;
  void* base = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  BorrowedSource source{static_cast<std::byte*>(base), Bytes{kSize}};
  Result<Extent> extent = source.obtain(Bytes{kSize});
  ASSERT_TRUE(extent);
  Result<CachedZone*> zone = zone_registry::open(nullptr, {*extent}, {.idle_trim = 1ms}, 2, 2);
  ASSERT_TRUE(zone);
  std::fill_n(static_cast<char*>(base), kSize, 'x');
  TrimReport report;
  EXPECT_EQ((*zone)->trim(kAll, &report), Bytes{0});
  EXPECT_STRNE(report.note, "");
  tick_for(**zone, 30ms);
  EXPECT_EQ((*zone)->trimmed_pages(), 0U);
  EXPECT_EQ(std::count(static_cast<char*>(base), static_cast<char*>(base) + kSize, 'x'),
            static_cast<std::ptrdiff_t>(kSize));
  EXPECT_EQ(source.trim(*extent, Bytes{0}, Bytes{kPageblockBytes}).code, Errc::unsupported);
  EXPECT_TRUE((*zone)->pin({static_cast<std::byte*>(base), kFrameBytes})) << "but it can be pinned";
  EXPECT_EQ((*zone)->retire(), 0U);
  ::munmap(base, kSize);
}

}  // namespace
}  // namespace weir
