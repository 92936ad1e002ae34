// SPDX-License-Identifier: MIT
// When memory is gone, every public call answers (empty or an error) within a second, and when the
// pages come back the zone is whole again.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "weir/stats/snapshot.hpp"
#include "weir/weir.hpp"

namespace weir {
namespace {

using namespace std::chrono_literals;

// Takes every frame there is, through the given entry point.
struct Hoard {
  std::vector<PageRef> pages;
  std::vector<FragRef> frags;
  std::vector<PoolRef> pooled;
  std::vector<Packet> packets;
  void clear() {
    pages.clear();
    frags.clear();
    pooled.clear();
    packets.clear();
  }
};

class Exhausted : public testing::Test {
 protected:
  void exhaust() {
    while (PageRef page = pages_.alloc()) {
      hoard_.pages.push_back(std::move(page));
    }
    ASSERT_EQ(collect(pages_).census.engine, 0U);
    ASSERT_EQ(collect(pages_).census.lists, 0U);
    ASSERT_EQ(collect(pages_).census.depot, 0U);
  }
  void expect_whole() {
    EXPECT_FALSE(pages_.drain_all().failed());
    const Snapshot snapshot = collect(pages_);
    EXPECT_EQ(snapshot.census.engine, snapshot.census.managed);
    EXPECT_EQ(snapshot.free_blocks[kMaxOrderValue], snapshot.census.managed >> kMaxOrderValue);
  }
  // The call answers in time; what it says is the caller's to judge.
  template <class F>
  auto in_time(const char* what, F&& call) {
    const auto start = std::chrono::steady_clock::now();
    auto result = call();
    EXPECT_LT(std::chrono::steady_clock::now() - start, 1s) << what;
    return result;
  }

  PageAllocator pages_{{.capacity = 32_MiB}};
  Hoard hoard_;
};

TEST_F(Exhausted, EveryCallAnswersWithinASecond) {
  FragCache frags{pages_};
  PagePool pool{pages_, {.ring = 64}};
  PoolPacketSource source{pool};
  FragPacketSource frag_source{frags};
  exhaust();

  for (unsigned order = 0; order <= kMaxOrderValue + 1; ++order) {
    EXPECT_TRUE(in_time("alloc", [&] { return pages_.alloc(Order{order}); }).empty());
    EXPECT_TRUE(in_time("no_wait", [&] {
                  return pages_.alloc(Order{order}, AllocFlags::no_wait);
                }).empty());
  }
  EXPECT_EQ(in_time("alloc_page", [&] { return pages_.alloc_page(); }), nullptr);
  std::array<PageRef, 100> refs;
  EXPECT_EQ(in_time("bulk", [&] { return pages_.alloc_bulk(refs); }), 0U);
  std::array<Page*, 100> plain{};
  EXPECT_EQ(in_time("bulk", [&] { return pages_.alloc_bulk(std::span<Page*>{plain}); }), 0U);
  EXPECT_EQ(in_time("burst", [&] { return pages_.alloc_burst(std::span{plain}); }), 0U);
  EXPECT_FALSE(in_time("exactly", [&] { return pages_.alloc_exactly(std::span{plain}.first(2)); }));
  in_time("tick", [&] {
    pages_.tick();
    return 0;
  });
  PageList list;
  EXPECT_EQ(in_time("bulk", [&] { return pages_.alloc_bulk(list, 100); }), 0U);
  EXPECT_TRUE(in_time("frag", [&] { return frags.alloc(100); }).empty());
  EXPECT_TRUE(in_time("frag", [&] { return frags.alloc(kFragPageBytes, Align{4096}); }).empty());
  EXPECT_TRUE(in_time("pool", [&] { return pool.get(); }).empty());
  EXPECT_EQ(in_time("pool", [&] { return pool.get_bulk(std::span<Page*>{plain}); }), 0U);
  std::array<Packet, 32> burst;
  EXPECT_EQ(in_time("packets", [&] { return source.alloc_burst(burst); }), 0U);
  EXPECT_EQ(in_time("packets", [&] { return frag_source.alloc_burst(burst); }), 0U);
  in_time("drain", [&] {
    EXPECT_FALSE(pages_.drain_all().failed());
    frags.drain();
    pool.drain();
    return 0;
  });
  EXPECT_FALSE(in_time("drain", [&] { return pages_.drain(CpuId{0}); }).failed());
  EXPECT_EQ(in_time("collect", [&] { return collect(pages_); }).census.out(),
            pages_.effective().managed.value);
  EXPECT_EQ(in_time("page_of", [&] { return page_of(hoard_.pages[7].data() + 4095); }),
            hoard_.pages[7].get());
  PageRef shared = in_time("share", [&] { return hoard_.pages[0].share(); });
  EXPECT_EQ(ref_count(shared.get()), 2U);
  shared.reset();
  EXPECT_TRUE(in_time("allocator", [&] {
    try {
      const PagePool other{pages_};
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }));

  hoard_.clear();
  expect_whole();
}

TEST_F(Exhausted, EachEntryPointCanTakeEverythingAndGiveItBack) {
  const std::uint64_t managed = pages_.effective().managed.value;
  {
    FragCache frags{pages_};
    std::uint64_t bytes = 0;
    while (FragRef frag = frags.alloc(kFrameBytes)) {
      bytes += frag.size();
      hoard_.frags.push_back(std::move(frag));
    }
    EXPECT_EQ(bytes, managed * kFrameBytes);
  }
  hoard_.clear();
  expect_whole();
  {
    PagePool pool{pages_};
    while (PoolRef page = pool.get()) {
      hoard_.pooled.push_back(std::move(page));
    }
    EXPECT_EQ(hoard_.pooled.size(), managed);
  }
  hoard_.clear();  // after the pool went
  expect_whole();
  {
    PagePool pool{pages_};
    PoolPacketSource source{pool};
    for (;;) {
      std::array<Packet, 32> burst;
      const std::size_t n = source.alloc_burst(burst);
      if (n == 0) {
        break;
      }
      for (Packet& packet : std::span{burst}.first(n)) {
        hoard_.packets.push_back(std::move(packet));
      }
    }
    EXPECT_EQ(hoard_.packets.size(), managed);
    hoard_.clear();
  }
  expect_whole();
  for (unsigned order = 0; order <= kMaxOrderValue; ++order) {
    while (PageRef page = pages_.alloc(Order{order})) {
      hoard_.pages.push_back(std::move(page));
    }
    EXPECT_EQ(hoard_.pages.size(), managed >> order) << "order " << order;
    hoard_.clear();
  }
  expect_whole();
}

TEST_F(Exhausted, ThreadsAtTheLimitAllComeBackAndWhatIsFreedIsFound) {
  exhaust();
  const std::size_t spare = 100;
  hoard_.pages.resize(hoard_.pages.size() - spare);
  // 100 frames go round among 4 threads; every refusal must be honest enough that each thread gets
  // on: nobody may starve while frames are free.
  std::vector<std::thread> threads;
  std::array<std::uint64_t, 4> served{};
  const auto end = std::chrono::steady_clock::now() + 1s;
  for (std::size_t t = 0; t < served.size(); ++t) {
    threads.emplace_back([this, t, end, &served] {
      std::vector<PageRef> mine;
      while (std::chrono::steady_clock::now() < end) {
        for (int i = 0; i < 40; ++i) {
          if (PageRef page = pages_.alloc()) {
            mine.push_back(std::move(page));
            ++served[t];
          }
        }
        mine.clear();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::uint64_t n : served) {
    EXPECT_GT(n, 1000U);
  }
  hoard_.clear();
  expect_whole();
}

TEST_F(Exhausted, FramesSpreadOverListsStillMakeTheLargestBlock) {
  std::vector<std::vector<PageRef>> shares(4);
  exhaust();
  for (std::size_t i = 0; i < hoard_.pages.size(); ++i) {
    shares[i % 4].push_back(std::move(hoard_.pages[i]));
  }
  std::vector<std::thread> threads;
  for (std::vector<PageRef>& share : shares) {
    threads.emplace_back([&share] { share.clear(); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::vector<PageRef> large;
  while (PageRef block = pages_.alloc(kMaxOrder)) {
    large.push_back(std::move(block));
  }
  EXPECT_EQ(large.size(), pages_.effective().managed.value >> kMaxOrderValue);
  large.clear();
  expect_whole();
}

}  // namespace
}  // namespace weir
