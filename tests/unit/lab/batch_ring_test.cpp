// SPDX-License-Identifier: MIT
// The ring of batches, and the trace of pages: what the flow between CPUs rests on.
#include "lab/experiments/batch_ring.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

#include "lab/contenders/page_trace.hpp"

namespace weir::lab {
namespace {

TEST(BatchRing, HoldsAsManyObjectsWhateverTheBatch) {
  EXPECT_EQ(BatchRing<int>(64, 1024).batches(), 16U);
  EXPECT_EQ(BatchRing<int>(128, 1024).batches(), 8U);
  EXPECT_EQ(BatchRing<int>(64, 1000).batches(), 8U);
  EXPECT_EQ(BatchRing<int>(64, 1).batches(), 1U);
}

TEST(BatchRing, HasNoRoomWhenFullAndNoFrontWhenEmpty) {
  BatchRing<int> ring(4, 8);
  EXPECT_TRUE(ring.front().empty());
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(ring.room().size(), 4U);
    ring.publish();
  }
  EXPECT_TRUE(ring.room().empty());
  ASSERT_EQ(ring.front().size(), 4U);
  ring.pop();
  EXPECT_EQ(ring.room().size(), 4U);
  ring.pop();
  EXPECT_TRUE(ring.front().empty());
}

TEST(BatchRing, WhatIsNotPublishedDoesNotArrive) {
  BatchRing<int> ring(4, 8);
  ring.room().front() = 7;
  EXPECT_TRUE(ring.front().empty());
}

TEST(BatchRing, BatchesArriveInOrderBetweenTwoThreads) {
  constexpr int kBatches = 20'000;
  BatchRing<int> ring(4, 16);
  std::thread producer([&] {
    for (int i = 0; i < kBatches;) {
      const std::span<int> room = ring.room();
      if (room.empty()) {
        std::this_thread::yield();
        continue;
      }
      std::iota(room.begin(), room.end(), 4 * i++);
      ring.publish();
    }
  });
  int expected = 0;
  bool in_order = true;
  while (expected < 4 * kBatches) {
    const std::span<int> front = ring.front();
    if (front.empty()) {
      std::this_thread::yield();
      continue;
    }
    for (const int value : front) {
      in_order = in_order && value == expected++;
    }
    ring.pop();
  }
  producer.join();
  EXPECT_TRUE(in_order);
}

TEST(PageTrace, KeepsTheLastPagesInTheirOrder) {
  PageTrace trace;
  EXPECT_TRUE(trace.pages().empty());
  trace.record(5);
  trace.record(3);
  trace.record(5);
  EXPECT_EQ(trace.pages(), (std::vector<std::uint32_t>{5, 3, 5}));
  for (std::uint32_t page = 0; page < PageTrace::kLength + 10; ++page) {
    trace.record(page);
  }
  const std::vector<std::uint32_t> pages = trace.pages();
  ASSERT_EQ(pages.size(), PageTrace::kLength);
  EXPECT_EQ(pages.front(), 10U);
  EXPECT_EQ(pages.back(), PageTrace::kLength + 9);
  trace.clear();
  EXPECT_TRUE(trace.pages().empty());
}

TEST(PageTrace, CountsDifferentPages) {
  EXPECT_EQ(distinct({}), 0U);
  EXPECT_EQ(distinct({3, 5, 3, 3, 9}), 3U);
}

}  // namespace
}  // namespace weir::lab
