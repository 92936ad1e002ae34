// SPDX-License-Identifier: MIT
#include "weir/page/page_allocator.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/address_space.hpp"
#include "tests/support/process.hpp"
#include "tests/support/zones.hpp"
#include "weir/base/failpoint.hpp"
#include "weir/os/topology.hpp"

namespace weir {
namespace {

using test::OnCpu;

constexpr Options kSmall{.capacity = 16_MiB};
constexpr std::size_t kFrames = 4096;

std::uint64_t out(PageAllocator& pages) { return pages.zone().census().out(); }

// ---- alloc ---------------------------------------------------------------------------------------

TEST(PageAllocator, ServesEveryOrderToExhaustionAndIsWholeAgain) {
  PageAllocator pages(kSmall);
  for (unsigned order = 0; order <= kMaxOrderValue; ++order) {
    std::vector<PageRef> all;
    for (PageRef page = pages.alloc(Order{order}); page; page = pages.alloc(Order{order})) {
      all.push_back(std::move(page));
    }
    EXPECT_EQ(all.size(), kFrames >> order);
    EXPECT_TRUE(pages.alloc(Order{0}).empty());
    all.clear();
    EXPECT_FALSE(pages.drain_all().failed());
    EXPECT_EQ(pages.zone().zone().free_blocks(kMaxOrder), kFrames / kMaxBlockFrames);
  }
}

TEST(PageAllocator, AnOrderBeyondTheLargestIsRefused) {
  PageAllocator pages(kSmall);
  EXPECT_TRUE(pages.alloc(Order{11}).empty());
  EXPECT_EQ(pages.alloc_page(Order{64}), nullptr);
  EXPECT_EQ(pages.alloc_page(Order{0xffff'ffffU}), nullptr);
}

TEST(PageAllocator, EveryCallAnswersAtExhaustion) {
  PageAllocator pages(kSmall);
  std::vector<Page*> all(kFrames);
  ASSERT_EQ(pages.alloc_bulk(std::span<Page*>(all)), kFrames);
  const auto start = std::chrono::steady_clock::now();
  for (unsigned order = 0; order <= kMaxOrderValue; ++order) {
    for (const AllocFlags flags : {AllocFlags::none, AllocFlags::zero, AllocFlags::no_wait,
                                   AllocFlags::emergency | AllocFlags::no_wait}) {
      EXPECT_TRUE(pages.alloc(Order{order}, flags).empty());
    }
  }
  PageRef slots[10];
  EXPECT_EQ(pages.alloc_bulk(slots), 0U);
  PageList list;
  EXPECT_EQ(pages.alloc_bulk(list, 10), 0U);
  EXPECT_EQ(pages.drain(CpuId{0}).code, Errc::ok);
  EXPECT_FALSE(pages.drain_all().failed());
  EXPECT_NE(page_of(address_of(all[7])), nullptr);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  free_bulk(all);
  EXPECT_FALSE(pages.drain_all().failed());
  EXPECT_EQ(pages.zone().zone().free_blocks(kMaxOrder), kFrames / kMaxBlockFrames);
}

TEST(PageAllocator, ZeroMeansZeroWhereverThePageComesFrom) {
  const OnCpu cpu(0);
  PageAllocator pages(kSmall);
  const auto expect_zero = [](const Page* page) {
    const std::byte* bytes_of = address_of(page);
    const std::size_t length = bytes(order_of(page)).value;
    ASSERT_EQ(bytes_of[0], std::byte{0});
    ASSERT_EQ(std::memcmp(bytes_of, bytes_of + 1, length - 1), 0);
  };
  // All of it dirty.
  std::vector<Page*> all(kFrames);
  ASSERT_EQ(pages.alloc_bulk(std::span<Page*>(all)), kFrames);
  for (const Page* page : all) {
    std::memset(address_of(page), 0xa5, kFrameBytes);
  }
  free_bulk(all);
  for (unsigned order = 0; order <= kMaxOrderValue; ++order) {
    // Twice: out of the engine, then, where there is one, out of the list.
    for (int round = 0; round < 2; ++round) {
      PageRef page = pages.alloc(Order{order}, AllocFlags::zero);
      ASSERT_FALSE(page.empty());
      expect_zero(page.get());
      std::memset(page.data(), 0x5a, page.size().value);
    }
  }
  std::vector<PageRef> slots(200);
  ASSERT_EQ(pages.alloc_bulk(slots, AllocFlags::zero), 200U);
  for (const PageRef& page : slots) {
    expect_zero(page.get());
    std::memset(page.data(), 0x77, kFrameBytes);
  }
  slots.clear();
  PageList list;
  ASSERT_EQ(pages.alloc_bulk(list, 200, AllocFlags::zero), 200U);
  while (Page* page = list.pop()) {
    expect_zero(page);
    unref(page);
  }
}

TEST(PageAllocator, APageThatWasNotZeroedIsAsItWas) {
  const OnCpu cpu(0);
  PageAllocator pages(kSmall);
  Page* page = pages.alloc_page();
  std::memset(address_of(page), 0x42, kFrameBytes);
  unref(page);
  const PageRef again = pages.alloc();
  ASSERT_EQ(again.get(), page);
  EXPECT_EQ(again.data()[99], std::byte{0x42});  // nobody has paid for zeroing it
}

TEST(PageAllocator, DrainSaysWhenThereIsNoSuchCpu) {
  PageAllocator pages(kSmall);
  EXPECT_EQ(pages.drain(CpuId{topology().cpu_limit - 1}).code, Errc::ok);
  EXPECT_EQ(pages.drain(CpuId{topology().cpu_limit}).code, Errc::too_large);
  EXPECT_EQ(pages.drain(kNoCpu).code, Errc::too_large);
}

// ---- bulk ----------------------------------------------------------------------------------------

// The contract of the array form, for both kinds of slot and with lists and without.
template <class Slot>
struct Bulk {
  static Page* page(const Slot& slot) {
    if constexpr (std::is_pointer_v<Slot>) {
      return slot;
    } else {
      return slot.get();
    }
  }
  static void clear(Slot& slot) {
    if constexpr (std::is_pointer_v<Slot>) {
      unref(std::exchange(slot, nullptr));
    } else {
      slot.reset();
    }
  }
  static std::vector<Page*> pages_in(const std::vector<Slot>& slots) {
    std::vector<Page*> pages;
    for (const Slot& slot : slots) {
      pages.push_back(page(slot));
    }
    return pages;
  }
  static void clear_all(std::vector<Slot>& slots) {
    for (Slot& slot : slots) {
      clear(slot);
    }
  }
  static std::size_t fill(PageAllocator& pages, std::vector<Slot>& slots, std::size_t n) {
    return pages.alloc_bulk(std::span<Slot>(slots).first(n));
  }

  static void run(const Options& options) {
    PageAllocator pages(options);
    std::vector<Slot> slots(300);

    // n = 0
    EXPECT_EQ(fill(pages, slots, 0), 0U);
    EXPECT_EQ(out(pages), 0U);

    // Empty array.
    EXPECT_EQ(fill(pages, slots, 300), 300U);
    EXPECT_EQ(out(pages), 300U);
    std::vector<Page*> before = pages_in(slots);
    EXPECT_EQ(std::set<Page*>(before.begin(), before.end()).size(), 300U);
    EXPECT_EQ(std::count(before.begin(), before.end(), nullptr), 0);

    // Full array: the same number, nothing taken, nothing changed.
    EXPECT_EQ(fill(pages, slots, 300), 300U);
    EXPECT_EQ(pages_in(slots), before);
    EXPECT_EQ(out(pages), 300U);

    // Holes are filled, what stands between them stays.
    for (const std::size_t hole : {0U, 1U, 5U, 99U, 100U, 298U, 299U}) {
      clear(slots[hole]);
    }
    EXPECT_EQ(out(pages), 293U);
    EXPECT_EQ(fill(pages, slots, 300), 300U);
    EXPECT_EQ(out(pages), 300U);
    std::vector<Page*> after = pages_in(slots);
    EXPECT_EQ(std::set<Page*>(after.begin(), after.end()).size(), 300U);
    for (std::size_t i = 0; i < 300; ++i) {
      const bool was_hole = i == 0 || i == 1 || i == 5 || i == 99 || i == 100 || i >= 298;
      EXPECT_TRUE(was_hole || after[i] == before[i]) << i;
    }

    // Many holes far apart: every second slot of more than one cluster.
    for (std::size_t i = 0; i < 300; i += 2) {
      clear(slots[i]);
    }
    EXPECT_EQ(fill(pages, slots, 300), 300U);
    EXPECT_EQ(out(pages), 300U);

    // A part of the array only.
    for (std::size_t i = 0; i < 20; ++i) {
      clear(slots[i]);
    }
    EXPECT_EQ(fill(pages, slots, 10), 10U);
    EXPECT_EQ(page(slots[10]), nullptr);
    clear_all(slots);

    // Short: [x, 0, y, 0, 0] with one page left, two left, three left.
    std::vector<Page*> rest(kFrames);
    for (const std::size_t left : {0U, 1U, 2U, 3U, 4U}) {
      SCOPED_TRACE(left);
      std::vector<Slot> five(5);
      ASSERT_EQ(fill(pages, five, 1), 1U);
      std::swap(five[0], five[2]);
      ASSERT_EQ(fill(pages, five, 1), 1U);
      Page* const x = page(five[0]);
      Page* const y = page(five[2]);
      const std::size_t take = pages.effective().managed.value - 2 - left;
      ASSERT_EQ(pages.alloc_bulk(std::span<Page*>(rest).first(take)), take);
      const std::size_t expected = left == 0 ? 1 : left == 1 ? 3 : left == 2 ? 4 : 5;
      EXPECT_EQ(fill(pages, five, 5), expected);
      EXPECT_EQ(page(five[0]), x);
      EXPECT_EQ(page(five[2]), y);
      EXPECT_EQ(page(five[1]) != nullptr, left >= 1);
      EXPECT_EQ(page(five[3]) != nullptr, left >= 2);
      EXPECT_EQ(page(five[4]) != nullptr, left >= 3);
      // Populated slots beyond a hole are not counted.
      if (left == 0) {
        EXPECT_EQ(fill(pages, five, 5), 1U);
        clear(five[0]);
        EXPECT_EQ(fill(pages, five, 5), 1U);
      }
      clear_all(five);
      free_bulk(std::span<Page* const>(rest).first(take));
      std::fill(rest.begin(), rest.end(), nullptr);
      EXPECT_EQ(out(pages), 0U);
    }

    // Short in the middle of a long array: the leading count, and not one page lost.
    std::vector<Slot> many(kFrames + 100);
    ASSERT_EQ(fill(pages, many, 1), 1U);
    std::swap(many[0], many[kFrames + 50]);
    EXPECT_EQ(fill(pages, many, many.size()), kFrames - 1);
    EXPECT_EQ(out(pages), kFrames);
    EXPECT_NE(page(many[kFrames + 50]), nullptr);
    EXPECT_EQ(page(many[kFrames - 1]), nullptr);
    clear_all(many);
    EXPECT_EQ(out(pages), 0U);
  }
};

TEST(PageAllocatorBulk, ArrayOfOwners) { Bulk<PageRef>::run(kSmall); }
TEST(PageAllocatorBulk, ArrayOfPointers) { Bulk<Page*>::run(kSmall); }
TEST(PageAllocatorBulk, ArrayWithoutLists) {
  Options options = kSmall;
  options.lists = false;
  Bulk<PageRef>::run(options);
  Bulk<Page*>::run(options);
}
TEST(PageAllocatorBulk, ArrayWithFreesGoingToTheEngine) {
  Options options = kSmall;
  options.free_order0 = FreeOrder0::engine;
  Bulk<PageRef>::run(options);
}
TEST(PageAllocatorBulk, ArrayWithBusyLists) {
  if (!kTestHooks) {
    GTEST_SKIP() << "needs failpoints";
  }
  failpoints::fail_always(Failpoint::list_busy);
  Bulk<Page*>::run(kSmall);
  failpoints::reset();
}

TEST(PageAllocatorBulk, MakesProgressWhileOnePageCanBeHad) {
  if (!kTestHooks) {
    GTEST_SKIP() << "needs failpoints";
  }
  PageAllocator pages(kSmall);
  failpoints::fail_always(Failpoint::zone_take_cluster);  // nothing in bulk anywhere
  std::array<PageRef, 100> slots;
  EXPECT_EQ(pages.alloc_bulk(slots), 100U);
  PageList list;
  EXPECT_EQ(pages.alloc_bulk(list, 100), 100U);
  failpoints::arm(Failpoint::zone_take, 2, UINT64_MAX / 2);  // one page, then no more
  std::array<PageRef, 10> few;
  EXPECT_EQ(pages.alloc_bulk(few), 1U);
  failpoints::reset();
}

TEST(PageAllocatorBulk, TheListFormAddsAtTheHead) {
  PageAllocator pages(kSmall);
  PageList list;
  EXPECT_EQ(pages.alloc_bulk(list, 0), 0U);
  EXPECT_TRUE(list.empty());
  Page* const old = pages.alloc_page(Order{1});
  list.push(old);
  EXPECT_EQ(pages.alloc_bulk(list, 200), 200U);
  EXPECT_EQ(list.size(), 201U);
  EXPECT_EQ(out(pages), 202U);
  EXPECT_EQ(pages.alloc_bulk(list, 1), 1U);
  std::set<Page*> seen;
  for (int i = 0; i < 201; ++i) {
    Page* page = list.pop();
    EXPECT_TRUE(seen.insert(page).second);
    EXPECT_NE(page, old);
    unref(page);
  }
  EXPECT_EQ(list.pop(), old);
  unref(old);
  EXPECT_EQ(out(pages), 0U);
}

TEST(PageAllocatorBulk, TheListFormReturnsWhatItAddedWhenTheZoneIsShort) {
  PageAllocator pages(kSmall);
  PageList list;
  EXPECT_EQ(pages.alloc_bulk(list, kFrames - 7), kFrames - 7);
  EXPECT_EQ(pages.alloc_bulk(list, 100), 7U);
  EXPECT_EQ(pages.alloc_bulk(list, 100), 0U);
  EXPECT_EQ(list.size(), kFrames);
  list.clear();
  EXPECT_EQ(out(pages), 0U);
}

TEST(PageAllocatorBulk, AHugeCountIsNoOverflow) {
  PageAllocator pages(kSmall);
  PageList list;
  EXPECT_EQ(pages.alloc_bulk(list, SIZE_MAX), kFrames);
  list.clear();
  EXPECT_EQ(pages.alloc_bulk(list, (std::size_t{1} << 32) + 1), kFrames);
}

// ---- page_of -------------------------------------------------------------------------------------

int code() { return 0; }

void expect_page_of(PageAllocator& pages) {
  const CachedZone::Piece piece = pages.zone().pieces().front();
  std::byte* const begin = piece.extent.base;
  std::byte* const end = begin + piece.extent.size.value;
  std::vector<Page*> all;
  while (Page* page = pages.alloc_page()) {
    all.push_back(page);
  }
  EXPECT_EQ(page_of(begin), page_at(piece.first));
  EXPECT_EQ(address_of(page_of(begin)), begin);
  EXPECT_EQ(page_of(begin + 1), page_of(begin));
  EXPECT_EQ(address_of(page_of(end - 1)), end - kFrameBytes);
  EXPECT_EQ(page_of(begin - 1), nullptr);
  EXPECT_EQ(page_of(end), nullptr);
  EXPECT_EQ(page_of(end + 1), nullptr);
  for (Page* page : all) {
    ASSERT_EQ(page_of(address_of(page)), page);
    ASSERT_EQ(page_of(address_of(page) + kFrameBytes - 1), page);
  }
  free_bulk(all);
  EXPECT_FALSE(pages.drain_all().failed());
  // While it is free, memory belongs to no page.
  for (std::byte* at = begin; at < end; at += kFrameBytes) {
    ASSERT_EQ(page_of(at), nullptr);
  }
  for (unsigned order = 1; order <= kMaxOrderValue; ++order) {
    const PageRef before = pages.alloc();  // so that blocks of this order are not all there is
    const PageRef run = pages.alloc(Order{order});
    if (run.empty()) {
      continue;
    }
    for (std::size_t offset = 0; offset < run.size().value; offset += kFrameBytes) {
      ASSERT_EQ(page_of(run.data() + offset), run.get()) << order << " " << offset;
      ASSERT_EQ(page_of(run.data() + offset + 4095), run.get());
    }
    EXPECT_NE(page_of(run.data() - 1), run.get());
    EXPECT_NE(page_of(run.data() + run.size().value), run.get());
  }
}

TEST(PageOf, FindsThePageOfEveryAddressOfOwnMemory) {
  PageAllocator pages(kSmall);
  expect_page_of(pages);
}

TEST(PageOf, FindsThePageOfEveryAddressOfAMemoryFile) {
  PageAllocator pages({.capacity = 9_MiB, .source = SourceChoice::memfd});
  EXPECT_EQ(pages.effective().extent.source, SourceKind::memfd);
  expect_page_of(pages);
}

// Memory as a user may bring it.
class Borrowed {
 public:
  explicit Borrowed(std::size_t frames) : size_(frames * kFrameBytes) {
    memory_ = static_cast<std::byte*>(
        ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  ~Borrowed() { ::munmap(memory_, size_); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  [[nodiscard]] std::span<std::byte> frames(std::size_t from, std::size_t n) const {
    return {memory_ + from * kFrameBytes, n * kFrameBytes};
  }

 private:
  std::size_t size_;
  std::byte* memory_;
};

TEST(PageOf, FindsThePageOfEveryAddressOfBorrowedMemory) {
  const Borrowed memory(5000);
  for (const auto& [from, frames] :
       {std::pair{1, 1}, std::pair{3, 700}, std::pair{7, 1025}, std::pair{513, 3000}}) {
    const std::span<std::byte> piece[] = {
        memory.frames(static_cast<std::size_t>(from), static_cast<std::size_t>(frames))};
    PageAllocator pages(piece, {});
    EXPECT_EQ(pages.effective().managed.value, static_cast<std::uint64_t>(frames));
    expect_page_of(pages);
  }
}

TEST(PageOf, TheGapBetweenTwoPiecesIsForeign) {
  const Borrowed memory(100);
  const std::span<std::byte> pieces[] = {memory.frames(0, 10), memory.frames(15, 20)};
  PageAllocator pages(pieces, {});
  std::vector<PageRef> all;
  for (PageRef page = pages.alloc(); page; page = pages.alloc()) {
    all.push_back(std::move(page));
  }
  EXPECT_EQ(all.size(), 30U);
  for (std::size_t frame = 0; frame < 100; ++frame) {
    const bool ours = frame < 10 || (frame >= 15 && frame < 35);
    EXPECT_EQ(page_of(memory.frames(frame, 1).data()) != nullptr, ours) << frame;
  }
}

TEST(PageOf, ForeignAddressesHaveNone) {
  PageAllocator pages(kSmall);
  int on_stack = 0;
  const auto on_heap = std::make_unique<int>(0);
  for (const void* address :
       {static_cast<const void*>(nullptr), static_cast<const void*>(&on_stack),
        static_cast<const void*>(on_heap.get()), reinterpret_cast<const void*>(&code),
        static_cast<const void*>(&pages), reinterpret_cast<const void*>(~0ULL),
        reinterpret_cast<const void*>(1ULL << 63)}) {
    EXPECT_EQ(page_of(address), nullptr);
  }
  const PageRef page = pages.alloc();
  EXPECT_EQ(page_of(page.get()), nullptr);  // the descriptor is not the page
}

TEST(PageOf, FreeAtDropsTheReferenceOfAnInteriorAddress) {
  PageAllocator pages(kSmall);
  Page* run = pages.alloc_page(Order{3});
  ASSERT_TRUE(ref(run, 2));
  free_at(address_of(run) + 5000);
  free_at(address_of(run) + 32767);
  EXPECT_EQ(ref_count(run), 1U);
  for (int i = 0; i < 100'000; ++i) {  // constant use however long
    Page* page = pages.alloc_page();
    free_at(address_of(page) + static_cast<std::size_t>(i) % kFrameBytes);
  }
  EXPECT_EQ(out(pages), 8U);
  free_at(address_of(run));
  EXPECT_EQ(out(pages), 0U);
}

TEST(PageOfDeathTest, FreeAtReportsAForeignAddress) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  PageAllocator pages(kSmall);
  int here = 0;
  EXPECT_DEATH(free_at(&here), "foreign pointer: free_at: 0x[0-9a-f]+ is no memory of weir");
  EXPECT_DEATH(free_at(nullptr), "foreign pointer: free_at");
}

// ---- what is obtained and what is not ------------------------------------------------------------

TEST(PageAllocator, ReadsBackWhatItReallyGot) {
  PageAllocator pages({.capacity = Bytes{16 * 1024 * 1024 - 1}, .high = PageCount{200}});
  const Effective& effective = pages.effective();
  const std::uint64_t cpus = topology().allowed_cpus.count();
  const bool listed = list_mode().form != ListForm::off;
  EXPECT_EQ(effective.managed, PageCount{4096});
  EXPECT_EQ(effective.options.capacity, 16_MiB);
  EXPECT_EQ(effective.lists, topology().cpu_limit);
  EXPECT_STREQ(effective.list_mode, list_form_name(list_mode().form));
  EXPECT_STREQ(effective.list_mode_reason, list_mode().reason);
  EXPECT_GE(effective.list_memory, Bytes{topology().cpu_limit * arch::kBlockBytes});
  EXPECT_EQ(effective.cluster, cluster_frames(PageCount{4096}, cpus));
  EXPECT_EQ(effective.batch, 1U);
  EXPECT_EQ(effective.high, listed ? 200U : 0U);
  EXPECT_EQ(effective.options.high, PageCount{effective.high});
  const CacheLimits limits = cache_limits(PageCount{4096}, cpus, listed, true, 200, 0, kMaxFrames);
  EXPECT_EQ(effective.high_max, limits.high_max);
  EXPECT_EQ(effective.depot, limits.depot_clusters * effective.cluster);
  EXPECT_EQ(effective.cached_max, limits.total);
  EXPECT_EQ(effective.watermark_min, 128U);
  EXPECT_EQ(effective.watermark_low, 160U);
  EXPECT_EQ(effective.watermark_high, 192U);
  EXPECT_EQ(effective.extent.source, SourceKind::anonymous);

  PageAllocator capped({.capacity = 16_MiB, .high = PageCount{1'000'000}});
  EXPECT_EQ(capped.effective().high, listed ? kListCapacityMax : 0U);
  PageAllocator off({.capacity = 16_MiB, .lists = false, .high = PageCount{500}});
  EXPECT_STREQ(off.effective().list_mode, "off");
  EXPECT_EQ(off.effective().high, 0U);
  EXPECT_EQ(off.effective().depot, 0U);
  EXPECT_EQ(off.effective().cached_max, 0U);
  PageAllocator immediate({.capacity = 16_MiB, .merge = Merge::immediate});
  EXPECT_EQ(immediate.effective().depot, 0U);
  PageAllocator nothing_cached({.capacity = 16_MiB, .cached = PageCount{0}});
  EXPECT_STREQ(nothing_cached.effective().list_mode, "off");
  EXPECT_EQ(nothing_cached.effective().cached_max, 0U);
}

// ---- bursts, all or nothing ----------------------------------------------------------------------

TEST(PageAllocatorBulk, ABurstFillsFromTheStart) {
  const OnCpu cpu(0);
  PageAllocator pages(kSmall);
  std::vector<Page*> burst(300, nullptr);
  for (const std::size_t n : {0U, 1U, 63U, 64U, 65U, 128U, 300U}) {
    SCOPED_TRACE(n);
    std::fill(burst.begin(), burst.end(), nullptr);
    ASSERT_EQ(pages.alloc_burst(std::span(burst).first(n)), n);
    EXPECT_EQ(std::set<Page*>(burst.begin(), burst.begin() + static_cast<std::ptrdiff_t>(n)).size(),
              n);
    EXPECT_EQ(std::count(burst.begin(), burst.end(), nullptr),
              static_cast<std::ptrdiff_t>(300 - n));
    EXPECT_EQ(out(pages), n);
    for (const AllocFlags flags : {AllocFlags::zero, AllocFlags::no_wait}) {
      std::vector<Page*> more(n);
      ASSERT_EQ(pages.alloc_burst(more, flags), n);
      for (Page* page : more) {
        EXPECT_TRUE(flags != AllocFlags::zero || *address_of(page) == std::byte{0});
        *address_of(page) = std::byte{1};
      }
      free_bulk(more);
    }
    free_bulk(std::span<Page* const>(burst).first(n));
    EXPECT_EQ(out(pages), 0U);
  }
}

TEST(PageAllocatorBulk, ABurstOfMoreThanThereIsTakesAllThereIs) {
  PageAllocator pages(kSmall);
  std::vector<Page*> burst(kFrames + 100);
  ASSERT_EQ(pages.alloc_burst(burst), kFrames);
  EXPECT_EQ(pages.alloc_burst(burst), 0U);
  free_bulk(std::span<Page* const>(burst).first(kFrames));
  EXPECT_EQ(out(pages), 0U);
}

TEST(PageAllocatorBulk, ExactlyIsAllOrNothing) {
  PageAllocator pages(kSmall);
  std::vector<Page*> all(kFrames);
  EXPECT_TRUE(pages.alloc_exactly(std::span(all).first(0)));
  std::vector<Page*> too_many(kFrames + 1);
  EXPECT_FALSE(pages.alloc_exactly(too_many));
  EXPECT_EQ(out(pages), 0U);
  ASSERT_TRUE(pages.alloc_exactly(all, AllocFlags::zero));
  EXPECT_EQ(std::set<Page*>(all.begin(), all.end()).size(), kFrames);
  for (const Page* page : all) {
    ASSERT_EQ(ref_count(page), 1U);
    ASSERT_EQ(*address_of(page), std::byte{0});
  }
  Page* one = nullptr;
  EXPECT_FALSE(pages.alloc_exactly(std::span(&one, 1)));
  free_bulk(all);
  EXPECT_EQ(out(pages), 0U);
}

// A section copies before it commits. When it is interrupted there, and the pages are gone afterwards,
// the copies are nobody's pages: no slot may keep one.
namespace left_behind {
PageAllocator* g_pages = nullptr;
std::vector<Page*> g_taken;
std::atomic<std::size_t> g_count{0};  // of them, taken by the handler
std::atomic<bool> g_armed{false};

void take_all(int) {
  if (g_armed.exchange(false) && g_count == 0) {
    g_count = g_pages->alloc_burst(g_taken);
  }
}
// The handler takes only while there are none.
void give_back_taken() {
  if (const std::size_t count = g_count.load(); count != 0) {
    free_bulk(std::span<Page* const>(g_taken).first(count));
    g_count.store(0);
  }
}
}  // namespace left_behind

TEST(PageAllocatorBulk, ASlotThatWasNotFilledIsEmptyWhateverATryLeftThere) {
  if (kCheckedDrops) {
    GTEST_SKIP() << "this build fills slots one by one";
  }
  using namespace left_behind;
  PageAllocator pages({.capacity = 1_MiB});
  g_pages = &pages;
  g_taken.resize(256);
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = &take_all;
  ::sigaction(SIGUSR1, &action, &before);
  const pthread_t self = ::pthread_self();
  std::atomic<bool> stop{false};
  // At odd moments of the thread that takes and gives, again and again.
  std::thread alarms([&] {
    while (!stop.load()) {
      g_armed.store(true);
      ::pthread_kill(self, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  std::array<PageRef, kClusterFrames> slots;
  int refused = 0;
  int left = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (left == 0 && std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < 50; ++i) {
      const std::size_t filled = pages.alloc_bulk(std::span<PageRef>(slots));
      for (std::size_t slot = filled; slot < slots.size(); ++slot) {
        if (!slots[slot].empty()) {
          ++left;
          static_cast<void>(slots[slot].detach());  // not ours
        }
      }
      refused += filled < slots.size() ? 1 : 0;
      free_bulk(std::span<PageRef>(slots));
      give_back_taken();
    }
  }
  stop.store(true);
  alarms.join();
  ::sigaction(SIGUSR1, &before, nullptr);
  give_back_taken();
  EXPECT_EQ(left, 0);
  EXPECT_GT(refused, 0);  // the handler came where it mattered
  EXPECT_EQ(out(pages), 0U);
}

TEST(PageAllocatorBulk, OwnersAreLetGoInBulkAndEmptyAfterwards) {
  PageAllocator pages(kSmall);
  std::vector<PageRef> owners(200);
  ASSERT_EQ(pages.alloc_bulk(std::span(owners).first(180)), 180U);  // twenty are empty
  owners[190] = pages.alloc(Order{3});
  const PageRef shared = owners[7].share();
  free_bulk(std::span<PageRef>(owners));
  EXPECT_TRUE(
      std::all_of(owners.begin(), owners.end(), [](const PageRef& page) { return page.empty(); }));
  EXPECT_EQ(out(pages), 1U);
  EXPECT_EQ(ref_count(shared.get()), 1U);
  free_bulk(std::span<PageRef>{});
}

TEST(PageAllocator, TicksAreHarmlessAtAnyTime) {
  PageAllocator pages(kSmall);
  pages.tick();
  std::vector<Page*> all(kFrames);
  ASSERT_EQ(pages.alloc_burst(all), kFrames);
  pages.tick();
  free_bulk(all);
  for (int i = 0; i < 5; ++i) {
    pages.tick();
    EXPECT_EQ(out(pages), 0U);
  }
  EXPECT_FALSE(pages.drain_all().failed());
  EXPECT_EQ(pages.zone().zone().audit(), kFrames);
}

TEST(PageAllocator, HugePagesThatAreNotThereAreReplacedAndToldSo) {
  PageAllocator pages({.capacity = 4_MiB, .source = SourceChoice::hugetlb});
  const Effective& effective = pages.effective();
  if (effective.extent.source == SourceKind::anonymous) {
    EXPECT_EQ(effective.options.source, SourceChoice::anonymous);
    EXPECT_EQ(effective.extent.page_size, Bytes{kFrameBytes});
    EXPECT_NE(std::string(effective.extent.note), "");
  } else {
    EXPECT_EQ(effective.options.source, SourceChoice::hugetlb);
    EXPECT_EQ(effective.extent.page_size, 2_MiB);
  }
  EXPECT_FALSE(pages.alloc(kMaxOrder).empty());
}

// Runs the constructor, and says what it threw: "invalid: text", "system: text" or "none".
template <class... Arguments>
std::string thrown_by(Arguments&&... arguments) {
  try {
    PageAllocator pages(std::forward<Arguments>(arguments)...);
  } catch (const std::invalid_argument& error) {
    return std::string("invalid: ") + error.what();
  } catch (const std::system_error& error) {
    return std::string("system: ") + error.what();
  }
  return "none";
}

// One line that says whose it is, what is wrong with which value.
void expect_refusal(const std::string& got, const std::string& kind, const std::string& words) {
  EXPECT_EQ(got.substr(0, kind.size()), kind) << got;
  EXPECT_NE(got.find("weir: "), std::string::npos) << got;
  EXPECT_NE(got.find(words), std::string::npos) << got;
  EXPECT_EQ(got.find('\n'), std::string::npos);
}

TEST(PageAllocator, RefusesImpossibleOptionsWithOneClearLine) {
  { const PageAllocator warm(kSmall); }
  const std::uint32_t zones = zone_registry::count();
  const std::size_t files = test::file_count();
  const auto thrown_by_options = [](const Options& options) {
    std::string text;
    EXPECT_FALSE(test::leaves_memory_mapped([&] { text = thrown_by(options); }));
    return text;
  };
  for (const std::uint64_t size :
       {UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - 4095, UINT64_MAX - 4096, std::uint64_t{1} << 63,
        ((std::uint64_t{1} << 32) + 1) * kFrameBytes, (std::uint64_t{1} << 32) * kFrameBytes,
        (kMaxFrames << kFrameShift) + 1}) {
    for (const SourceChoice source :
         {SourceChoice::anonymous, SourceChoice::memfd, SourceChoice::hugetlb}) {
      expect_refusal(thrown_by_options({.capacity = Bytes{size}, .source = source}),
                     "invalid: ", "capacity: too large");
    }
  }
  expect_refusal(thrown_by_options({.capacity = Bytes{0}}),
                 "invalid: ", "capacity: size must not be zero");
  for (const std::uint64_t reserve : {std::uint64_t{4096}, std::uint64_t{4097}, UINT64_MAX}) {
    expect_refusal(thrown_by_options({.capacity = 16_MiB, .reserve = PageCount{reserve}}),
                   "invalid: ", "reserve must be smaller than the capacity");
  }
  for (const Merge merge : {Merge::skip, Merge::clusters}) {
    expect_refusal(
        thrown_by_options({.capacity = 16_MiB, .engine = EngineChoice::bitmap, .merge = merge}),
        "invalid: ", "merge=skip and merge=clusters are ways of the engine buddy");
  }
  EXPECT_EQ(zone_registry::count(), zones);
  EXPECT_EQ(test::file_count(), files);
}

TEST(PageAllocator, RefusesBorrowedMemoryThatCannotBe) {
  const Borrowed memory(64);
  using Pieces = std::vector<std::span<std::byte>>;
  const auto refused = [](const Pieces& pieces, const char* kind, const char* words,
                          const Options& options = {}) {
    std::string text;
    EXPECT_FALSE(test::leaves_memory_mapped(
        [&] { text = thrown_by(std::span<const std::span<std::byte>>(pieces), options); }));
    expect_refusal(text, kind, words);
  };
  refused({}, "invalid: ", "capacity: size must not be zero");
  {
    const Pieces warm{memory.frames(0, 64)};
    const PageAllocator pages(std::span<const std::span<std::byte>>(warm), {});
  }
  const std::uint32_t zones = zone_registry::count();
  std::byte* const base = memory.frames(0, 1).data();
  refused({{base + 1, 8192}}, "invalid: ", "base of borrowed memory: not suitably aligned");
  refused({{base + 2048, 8192}}, "invalid: ", "base of borrowed memory: not suitably aligned");
  refused({{base, 5000}}, "invalid: ", "size of borrowed memory: not suitably aligned");
  refused({{base, std::size_t{0}}}, "invalid: ", "size of borrowed memory: size must not be zero");
  refused({{static_cast<std::byte*>(nullptr), 4096}}, "", "borrowed memory is null");
  refused({{base, SIZE_MAX - 4095}}, "invalid: ", "too large");
  refused({{base, ((std::size_t{1} << 32) + 1) * kFrameBytes}}, "invalid: ", "too large");
  refused({memory.frames(0, 10), memory.frames(9, 3)}, "invalid: ", "already in use");
  refused({memory.frames(0, 10), memory.frames(0, 10)}, "invalid: ", "already in use");
  refused({memory.frames(0, 10), {base + 1, 4096}}, "invalid: ", "not suitably aligned");
  refused({memory.frames(0, 10)}, "invalid: ", "reserve must be smaller than the capacity",
          {.reserve = PageCount{10}});
  {
    const Pieces taken{memory.frames(20, 10)};
    const PageAllocator pages(std::span<const std::span<std::byte>>(taken), {});
    refused({memory.frames(0, 5), memory.frames(25, 10)}, "invalid: ", "already in use");
  }
  EXPECT_EQ(zone_registry::count(), zones);
  // And all of it is still to be had.
  const Pieces whole{memory.frames(0, 64)};
  const PageAllocator pages(std::span<const std::span<std::byte>>(whole), {});
  EXPECT_EQ(pages.effective().managed, PageCount{64});
}

TEST(PageAllocator, AFailureAtAnyStepOfConstructionLeavesNothingBehind) {
  if (!kTestHooks) {
    GTEST_SKIP() << "needs failpoints";
  }
  { const PageAllocator warm({.capacity = 5_MiB, .source = SourceChoice::memfd}); }
  const std::size_t files = test::file_count();
  int failed = 0;
  for (const SourceChoice source :
       {SourceChoice::anonymous, SourceChoice::memfd, SourceChoice::hugetlb}) {
    for (const Failpoint point :
         {Failpoint::memory_map, Failpoint::memory_commit, Failpoint::memory_memfd,
          Failpoint::source_obtain, Failpoint::map_register, Failpoint::frame_range}) {
      for (std::uint64_t k = 1;; ++k) {
        std::string got;
        bool reached = false;
        const auto construct = [&] {
          failpoints::arm(point, k);
          got = thrown_by(Options{.capacity = 5_MiB, .source = source});
          reached = failpoints::hits(point) >= k;
          failpoints::reset();
        };
        EXPECT_FALSE(test::leaves_memory_mapped(construct)) << got;
        EXPECT_EQ(zone_registry::count(), 0U);
        EXPECT_EQ(test::file_count(), files);
        if (!reached) {
          EXPECT_EQ(got, "none");
          break;
        }
        if (got != "none") {  // a request for huge pages may have fallen back
          expect_refusal(got, "system: ", "weir: ");
          ++failed;
        }
      }
    }
  }
  EXPECT_GT(failed, 12);
}

TEST(PageAllocator, BorrowedMemoryStaysTheUsers) {
  const Borrowed memory(100);
  std::memset(memory.frames(0, 100).data(), 0x3c, 100 * kFrameBytes);
  const std::span<std::byte> pieces[] = {memory.frames(10, 50)};
  {
    PageAllocator pages(pieces, {});
    std::vector<PageRef> all;
    for (PageRef page = pages.alloc(); page; page = pages.alloc()) {
      EXPECT_EQ(page.data()[17], std::byte{0x3c});  // nobody wrote to it
      all.push_back(std::move(page));
    }
    EXPECT_EQ(all.size(), 50U);
    all[7].data()[0] = std::byte{1};
  }
  EXPECT_EQ(test::permissions(pieces[0].data()), "rw-p");
  EXPECT_EQ(std::count(memory.frames(0, 100).begin(), memory.frames(0, 100).end(), std::byte{0x3c}),
            static_cast<std::ptrdiff_t>(100 * kFrameBytes - 1));
  PageAllocator again(pieces, {});
  EXPECT_EQ(again.effective().managed, PageCount{50});
}

// What a child process writes to standard error.
std::string told_by(const std::function<void()>& body) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    body();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t n = 0; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(n));
  }
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return text;
}

TEST(PageAllocator, TellsOnceThatPagesOutliveIt) {
  EXPECT_EQ(told_by([] {
              for (int i = 0; i < 3; ++i) {
                PageRef page;
                PageAllocator pages(kSmall);
                page = pages.alloc();
                pages.~PageAllocator();
                page.reset();
                new (&pages) PageAllocator(kSmall);
              }
            }),
            "weir: notice: an allocator ended with pages still out; its memory stays until they "
            "return\n");
  EXPECT_EQ(told_by([] {
              PageAllocator pages(kSmall);
              const PageRef page = pages.alloc();
            }),
            "");
}

TEST(PageAllocator, ManyAllocatorsAtOnceAndOneTooMany) {
  std::vector<std::unique_ptr<PageAllocator>> all;
  for (unsigned i = 1; i < kMaxZones; ++i) {
    all.push_back(std::make_unique<PageAllocator>(Options{.capacity = 64_KiB}));
  }
  expect_refusal(thrown_by(Options{.capacity = 64_KiB}), "system: ", "zones of the process");
  std::vector<PageRef> pages;
  for (const auto& allocator : all) {
    pages.push_back(allocator->alloc());
    ASSERT_FALSE(pages.back().empty());
  }
  all.clear();  // each with a page out
  EXPECT_EQ(zone_registry::count(), kMaxZones - 1);
  pages.clear();
  EXPECT_EQ(zone_registry::count(), 0U);
}

TEST(PageAllocator, TwoThreadsWithAllCallsAtOnce) {
  PageAllocator pages(kSmall);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      std::vector<PageRef> slots(150);
      for (int i = 0; i < 400; ++i) {
        const std::size_t n = static_cast<std::size_t>(i * 7 + t) % 150;
        ASSERT_EQ(pages.alloc_bulk(std::span(slots).first(n)), n);
        const PageRef run = pages.alloc(Order{static_cast<unsigned>(i % 6)});
        ASSERT_FALSE(run.empty());
        EXPECT_EQ(page_of(run.data() + run.size().value - 1), run.get());
        PageList list;
        ASSERT_EQ(pages.alloc_bulk(list, n), n);
        if (i % 50 == 0) {
          EXPECT_FALSE(pages.drain_all().failed());
        }
        for (PageRef& slot : slots) {
          const PageRef shared = slot.share();
          slot.reset();
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(out(pages), 0U);
  EXPECT_FALSE(pages.drain_all().failed());
  EXPECT_EQ(pages.zone().zone().audit(), kFrames);
}

}  // namespace
}  // namespace weir
