// SPDX-License-Identifier: MIT
#include "weir/zone/frame_table.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/address_space.hpp"
#include "tests/support/process.hpp"
#include "tests/unit/zone/engine_range.hpp"
#include "weir/backing/anon_source.hpp"
#include "weir/backing/borrowed_source.hpp"
#include "weir/backing/memfd_source.hpp"
#include "weir/base/failpoint.hpp"
#include "weir/zone/buddy_engine.hpp"

namespace weir {
namespace {

using test::EngineRange;

std::byte* past(std::byte* base, Bytes size) { return base + size.value; }

// A range of the table over memory from elsewhere.
class Range {
 public:
  Range(std::byte* base, Bytes size, std::uint16_t zone = 1)
      : base_(base), size_(size), first_(frame_table::reserve_range(base, size, zone)) {}
  ~Range() {
    if (first_) {
      frame_table::release_range(*first_, base_, size_);
    }
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  [[nodiscard]] bool ok() const { return first_.ok(); }
  [[nodiscard]] Errc code() const { return first_.error().code; }
  [[nodiscard]] PageIndex first() const { return first_.value(); }

 private:
  std::byte* base_;
  Bytes size_;
  Result<PageIndex> first_;
};

// Index, descriptor and address of every frame lead to each other; natural alignment in one is
// natural alignment in the other; ends are ends.
void expect_round_trips(PageIndex first, std::byte* base, std::uint64_t frames) {
  ASSERT_EQ(first.value % kMaxBlockFrames,
            (reinterpret_cast<std::uintptr_t>(base) >> kFrameShift) % kMaxBlockFrames);
  for (std::uint64_t i = 0; i < frames; ++i) {
    const PageIndex index = advance(first, i);
    std::byte* address = base + i * kFrameBytes;
    ASSERT_EQ(address_of(index), address);
    ASSERT_EQ(address_of(page_at(index)), address);
    ASSERT_EQ(index_of(page_at(index)), index);
    ASSERT_EQ(frame_table::find(address), index);
    ASSERT_EQ(frame_table::find(address + 1), index);
    ASSERT_EQ(frame_table::find(address + kFrameBytes - 1), index);
    ASSERT_EQ(page_at(index)->state.load(), FrameState::kInner);
    ASSERT_EQ(page_at(index)->word.load(), kSoleOwner);
  }
  EXPECT_EQ(frame_table::find(base - 1), kNoPage);
  EXPECT_EQ(frame_table::find(base + frames * kFrameBytes), kNoPage);
}

TEST(FrameTable, RoundTripsOverOrdinaryMemory) {
  AnonSource source{system_memory(), ThpChoice::off};
  const Result<Extent> extent = source.obtain(8_MiB + 12_KiB);
  ASSERT_TRUE(extent);
  {
    const Range range{extent.value().base, extent.value().size};
    ASSERT_TRUE(range.ok());
    expect_round_trips(range.first(), extent.value().base, whole_pages(extent.value().size).value);
  }
  source.give_back(extent.value());
}

TEST(FrameTable, RoundTripsOverAMemoryFile) {
  MemfdSource source{system_memory(), ThpChoice::off};
  const Result<Extent> extent = source.obtain(5_MiB);
  ASSERT_TRUE(extent);
  {
    const Range range{extent.value().base, extent.value().size, 7};
    ASSERT_TRUE(range.ok());
    expect_round_trips(range.first(), extent.value().base, 1280);
    EXPECT_EQ(page_at(range.first())->zone, 7);
  }
  source.give_back(extent.value());
}

TEST(FrameTable, RoundTripsOverBorrowedMemoryAtEveryKindOfOddPlace) {
  const Result<std::byte*> base = system_memory().reserve(16_MiB, 4_MiB);
  ASSERT_TRUE(base);
  for (const std::uint64_t offset : {1, 3, 511, 512, 1023}) {
    for (const std::uint64_t frames : {1, 2, 3, 511, 513, 1023, 1024, 1025, 2049}) {
      SCOPED_TRACE(testing::Message() << frames << " frames from " << offset);
      std::byte* start = base.value() + offset * kFrameBytes;
      const Range range{start, bytes(PageCount{frames})};
      ASSERT_TRUE(range.ok());
      expect_round_trips(range.first(), start, frames);
      // The rest of the chunks is nobody's.
      EXPECT_EQ(page_at({range.first().value - 1})->state.load(), FrameState::kAbsent);
    }
  }
  system_memory().release(base.value(), 16_MiB);
}

int code_address() { return 1; }

TEST(FrameTable, ForeignAddressesAreRecognised) {
  const EngineRange range(2048, 5);
  int on_stack = 0;
  const auto on_heap = std::make_unique<int>(0);
  static const int in_data = 0;
  for (const void* address :
       {static_cast<const void*>(nullptr), static_cast<const void*>(&on_stack),
        static_cast<const void*>(on_heap.get()), static_cast<const void*>(&in_data),
        reinterpret_cast<const void*>(&code_address), reinterpret_cast<const void*>(~0ULL),
        reinterpret_cast<const void*>(1ULL << 47), reinterpret_cast<const void*>(1ULL << 48),
        reinterpret_cast<const void*>(1ULL << 63),
        // The right low 48 bits under a wrong head.
        reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(range.base()) |
                                      1ULL << 56)}) {
    EXPECT_EQ(frame_table::find(address), kNoPage) << address;
  }
  EXPECT_EQ(frame_table::find(range.base()), range.first());
}

TEST(FrameTable, TheGapBetweenTwoPiecesIsForeign) {
  const Result<std::byte*> base = system_memory().reserve(4_MiB, 4_MiB);
  ASSERT_TRUE(base);
  std::byte* low = past(base.value(), 4_KiB);
  std::byte* high = past(base.value(), 28_KiB);
  const Range first{low, 12_KiB};
  const Range second{high, 8_KiB};
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(frame_table::find(past(low, 12_KiB) - 1), advance(first.first(), 2));
  for (std::byte* at = past(low, 12_KiB); at < high; at += kFrameBytes) {
    EXPECT_EQ(frame_table::find(at), kNoPage);
  }
  EXPECT_EQ(frame_table::find(high), second.first());
  EXPECT_EQ(frame_table::find(past(high, 8_KiB)), kNoPage);
  system_memory().release(base.value(), 4_MiB);
}

TEST(FrameTable, BlocksOfTwoRangesNeverMerge) {
  // The end of one range and the start of the next, in address space and perhaps in indexes.
  const Result<std::byte*> base = system_memory().reserve(8_MiB, 4_MiB);
  ASSERT_TRUE(base);
  const Range left{base.value(), 2_MiB};
  const Range right{past(base.value(), 2_MiB), 2_MiB};
  ASSERT_TRUE(left.ok() && right.ok());
  BuddyEngine engine;
  engine.adopt(left.first(), 512);
  engine.adopt(right.first(), 512);
  const PageIndex a = engine.take(Order{9});
  const PageIndex b = engine.take(Order{9});
  EXPECT_NE(a, b);
  EXPECT_EQ(engine.take(Order{9}), kNoPage);
  engine.give(a, Order{9});
  engine.give(b, Order{9});
  EXPECT_EQ(engine.free_blocks(Order{9}), 2U);
  EXPECT_EQ(engine.free_blocks(Order{10}), 0U);
  EXPECT_EQ(engine.take(Order{10}), kNoPage);
  system_memory().release(base.value(), 8_MiB);
}

TEST(FrameTable, IndexesOfAReleasedRangeAreUsedAgainAndClean) {
  PageIndex before = kNoPage;
  const std::byte* base = nullptr;
  for (int round = 0; round < 3; ++round) {
    const EngineRange range(1500, 9);
    if (range.base() == base) {  // else the kernel has put the memory elsewhere
      EXPECT_EQ(range.first(), before);
    }
    before = range.first();
    base = range.base();
    for (std::uint64_t i = 0; i < range.frames(); ++i) {
      Page* page = page_at(range.frame(i));
      ASSERT_EQ(page->word.load(), kSoleOwner);
      ASSERT_EQ(page->state.load(), FrameState::kInner);
      ASSERT_EQ(page->owner, 0U);
      page->word.store(77);
      page->owner = 99;
      page->state.store(FrameState::kLive);
    }
  }
}

TEST(FrameTable, AddressesOfAReleasedRangeAreForeign) {
  std::byte* base = nullptr;
  {
    const EngineRange range(2048);
    base = range.base();
    EXPECT_NE(frame_table::find(base), kNoPage);
  }
  EXPECT_EQ(frame_table::find(base), kNoPage);
  EXPECT_EQ(frame_table::find(base + 5000), kNoPage);
}

TEST(FrameTable, DescriptorsOfAReleasedRangeStayReadableAndSayAbsent) {
  PageIndex first = kNoPage;
  {
    const EngineRange range(1500, 9);
    first = range.first();
    page_at(range.frame(7))->state.store(FrameState::kLive);
    page_at(range.frame(7))->word.store(55);
  }
  // Whoever found an index of it just before may still look.
  for (std::uint64_t i = 0; i < 1500; ++i) {
    ASSERT_EQ(page_at(advance(first, i))->state.load(), FrameState::kAbsent);
  }
}

TEST(FrameTable, TwoRangesStandSideBySide) {
  const EngineRange one(1024, 0, 1);
  const EngineRange other(3000, 100, 2);
  EXPECT_EQ(frame_table::find(one.base() + 5 * kFrameBytes), one.frame(5));
  EXPECT_EQ(frame_table::find(other.base() + 2999 * kFrameBytes), other.frame(2999));
  EXPECT_EQ(page_at(one.frame(1023))->zone, 1);
  EXPECT_EQ(page_at(other.frame(0))->zone, 2);
  // In different chunks, whatever their sizes: an index belongs to one range.
  EXPECT_NE(one.frame(1023).value / kMaxBlockFrames, other.first().value / kMaxBlockFrames);
}

bool is_linear(PageIndex index) { return page_at(index) < frame_table::g_linear_end; }

TEST(FrameTable, MemoryInsideTheWindowHasTheIndexThatItsAddressSays) {
  const EngineRange one(3000, 5);
  const EngineRange other(70, 1000);
  ASSERT_TRUE(is_linear(one.first()));
  ASSERT_TRUE(is_linear(other.first()));
  EXPECT_EQ((other.base() - one.base()) / static_cast<std::ptrdiff_t>(kFrameBytes),
            std::int64_t{other.first().value} - std::int64_t{one.first().value});
}

TEST(FrameTable, MemoryFarFromAllOtherIsFoundThroughItsChunk) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer ends the process for a mapping at such an address";
#endif
  const EngineRange near(16);  // so that the window stands
  // A terabyte and more below where the kernel puts mappings.
  for (const std::uint64_t at : {std::uint64_t{1} << 41, std::uint64_t{1} << 42}) {
    void* const wanted = reinterpret_cast<void*>(at + 12 * kFrameBytes);
    void* const memory =
        ::mmap(wanted, Bytes{6_MiB}.value, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (memory != wanted) {
      GTEST_SKIP() << "that address cannot be had";
    }
    {
      const Range range{static_cast<std::byte*>(memory), 6_MiB};
      ASSERT_TRUE(range.ok());
      EXPECT_FALSE(is_linear(range.first()));
      expect_round_trips(range.first(), static_cast<std::byte*>(memory), 1536);
    }
    ::munmap(memory, Bytes{6_MiB}.value);
  }
}

TEST(FrameTable, TwoPiecesInOneChunkOfAddressesGetDifferentChunksOfIndexes) {
  const Result<std::byte*> base = system_memory().reserve(8_MiB, 4_MiB);
  ASSERT_TRUE(base);
  {
    const Range first{base.value(), 4_KiB};
    const Range second{past(base.value(), 8_KiB), 4_MiB};  // reaches into the next chunk
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_TRUE(is_linear(first.first()));
    EXPECT_FALSE(is_linear(second.first()));
    expect_round_trips(first.first(), base.value(), 1);
    expect_round_trips(second.first(), past(base.value(), 8_KiB), 1024);
  }
  // Once the first has gone, its place serves the second.
  const Range second{past(base.value(), 8_KiB), 4_MiB};
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(is_linear(second.first()));
  expect_round_trips(second.first(), past(base.value(), 8_KiB), 1024);
  system_memory().release(base.value(), 8_MiB);
}

TEST(FrameTable, RefusesWhatIsNoRange) {
  const Result<std::byte*> base = system_memory().reserve(4_MiB, 4_MiB);
  ASSERT_TRUE(base);
  std::byte* start = base.value();
  // Its chunk would begin below address 0.
  EXPECT_EQ(Range(reinterpret_cast<std::byte*>(4096), 4_KiB).code(), Errc::foreign);
  EXPECT_EQ(Range(start, Bytes{0}).code(), Errc::zero_size);
  EXPECT_EQ(Range(start + 1, 8_KiB).code(), Errc::misaligned);
  EXPECT_EQ(Range(start, Bytes{5000}).code(), Errc::misaligned);
  EXPECT_EQ(Range(start, Bytes{(kMaxFrames + 1) << kFrameShift}).code(), Errc::too_large);
  EXPECT_EQ(Range(start, Bytes{~std::uint64_t{4095}}).code(), Errc::too_large);
  EXPECT_EQ(Range(start, Bytes{((std::uint64_t{1} << 32) + 1) * kFrameBytes}).code(),
            Errc::too_large);
  {
    const Range taken{start, 8_KiB};
    ASSERT_TRUE(taken.ok());
    EXPECT_EQ(Range(start, 8_KiB).code(), Errc::in_use);
    EXPECT_EQ(Range(start + 4096, 16_KiB).code(), Errc::in_use);
    EXPECT_EQ(frame_table::find(start), taken.first());
  }
  const Range again{start, 8_KiB};
  EXPECT_TRUE(again.ok());
  system_memory().release(start, 4_MiB);
}

TEST(FrameTable, AFailureAtAnyStepLeavesNothingBehind) {
  if (!kTestHooks) {
    GTEST_SKIP() << "needs failpoints";
  }
  const EngineRange neighbour(16);  // so that the table stands
  const Result<std::byte*> base = system_memory().reserve(8_MiB, 4_MiB);
  ASSERT_TRUE(base);
  PageIndex first = kNoPage;
  {
    const Range range{base.value() + 4096, 4_MiB};
    ASSERT_TRUE(range.ok());
    first = range.first();
  }
  for (const Failpoint point :
       {Failpoint::frame_range, Failpoint::memory_commit, Failpoint::map_register}) {
    for (std::uint64_t k = 1;; ++k) {
      bool reached = false;
      bool ok = false;
      const auto reserve = [&] {
        failpoints::arm(point, k);
        const Range range{base.value() + 4096, 4_MiB};
        ok = range.ok();
        reached = failpoints::hits(point) >= k;
        failpoints::reset();
      };
      EXPECT_FALSE(test::leaves_memory_mapped(reserve));
      EXPECT_EQ(ok, !reached);
      EXPECT_EQ(frame_table::find(base.value() + 4096), kNoPage);
      if (!reached) {
        EXPECT_GT(k, 1U);
        break;
      }
      const Range retry{base.value() + 4096, 4_MiB};
      ASSERT_TRUE(retry.ok());
      EXPECT_EQ(retry.first(), first);  // the indexes were not lost
    }
  }
  system_memory().release(base.value(), 8_MiB);
}

TEST(FrameTable, ReadersAskWhileRangesComeAndGo) {
  const EngineRange steady(1024, 3);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> asked{0};
  std::thread reader([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      for (std::uint64_t i = 0; i < 1024; i += 31) {
        if (frame_table::find(steady.base() + i * kFrameBytes) != steady.frame(i)) {
          wrong.fetch_add(1, std::memory_order_relaxed);
        }
      }
      asked.fetch_add(1, std::memory_order_relaxed);
    }
  });
  while (asked.load(std::memory_order_relaxed) == 0) {
    std::this_thread::yield();
  }
  for (std::uint64_t i = 0; i < 300; ++i) {
    const EngineRange guest(1 + i * 7 % 2000, i % 1024);
    ASSERT_EQ(frame_table::find(guest.base()), guest.first());
  }
  stop.store(true, std::memory_order_relaxed);
  reader.join();
  EXPECT_EQ(wrong.load(), 0U);
}

// In a process of its own: the table does not stand there yet.
void serve_under_a_tight_limit() {
  const rlimit limit{256 << 20, 256 << 20};
  ::setrlimit(RLIMIT_AS, &limit);
  if (frame_table::room() == 0 || frame_table::room() >= kMaxFrames) {
    ::_exit(1);
  }
  AnonSource source{system_memory(), ThpChoice::off};
  const Result<Extent> extent = source.obtain(32_MiB);
  if (!extent) {
    ::_exit(2);
  }
  const Range range{extent.value().base, extent.value().size};
  ::_exit(range.ok() && frame_table::find(extent.value().base) == range.first() ? 0 : 3);
}

void be_refused_when_nothing_fits() {
  alignas(kFrameBytes) static std::byte memory[kFrameBytes];
  const rlimit limit{1 << 20, 1 << 20};  // less than is mapped already
  ::setrlimit(RLIMIT_AS, &limit);
  const Range range{memory, 4_KiB};
  ::_exit(!range.ok() && range.code() == Errc::system ? 0 : 1);
}

TEST(FrameTableDeathTest, ServesAProcessWithATightAddressSpaceLimit) {
  if (test::kSanitized) {
    GTEST_SKIP() << "sanitizers map terabytes";
  }
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(serve_under_a_tight_limit(), testing::ExitedWithCode(0), "");
}

TEST(FrameTableDeathTest, SaysSoWhenTheTableDoesNotFitAtAll) {
  if (test::kSanitized) {
    GTEST_SKIP() << "sanitizers map terabytes";
  }
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(be_refused_when_nothing_fits(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace weir
