// SPDX-License-Identifier: MIT
#include "weir/pool/recycle_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include "weir/page/page_allocator.hpp"

namespace weir {
namespace {

class RecycleRingTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(pages.alloc_bulk(taken), taken.size()); }
  void TearDown() override { free_bulk(taken); }

  PageAllocator pages{{.capacity = 4_MiB}};
  std::array<Page*, 200> taken{};
  std::array<Page*, 200> out{};
  RecycleRing ring;
};

TEST_F(RecycleRingTest, HoldsExactlyItsCapacityPowerOfTwoOrNot) {
  for (const std::uint32_t capacity : {1U, 3U, 64U, 100U, 129U}) {
    ASSERT_TRUE(ring.open(capacity));
    for (std::uint32_t round = 0; round < 5; ++round) {
      const LockGuard guard{ring.lock()};
      EXPECT_EQ(ring.room(200), capacity);
      ring.push(taken.data(), capacity);
      EXPECT_EQ(ring.room(1), 0U);
      EXPECT_EQ(ring.size(), capacity);
      EXPECT_EQ(ring.pop(out.data(), 200), capacity);
      EXPECT_TRUE(std::equal(out.begin(), out.begin() + capacity, taken.begin()));
      EXPECT_EQ(ring.pop(out.data(), 1), 0U);
    }
  }
}

TEST_F(RecycleRingTest, WithoutCapacityHasNoRoom) {
  ASSERT_TRUE(ring.open(0));
  EXPECT_EQ(ring.room(1), 0U);
  EXPECT_EQ(ring.pop(out.data(), 1), 0U);
  EXPECT_EQ(ring.size(), 0U);
}

TEST_F(RecycleRingTest, GivesTheNewestFirstTheVeryNewestLast) {
  ASSERT_TRUE(ring.open(7));
  std::vector<Page*> model;
  std::size_t in = 0;
  for (int step = 0; step < 500; ++step) {
    const std::uint32_t n = ring.room(1 + static_cast<std::uint32_t>(step) % 5);
    for (std::uint32_t i = 0; i < n; ++i) {
      model.push_back(taken[in++ % taken.size()]);
      ring.push(&model.back(), 1);
    }
    const std::uint32_t got = ring.pop(out.data(), 1 + static_cast<std::uint32_t>(step) % 3);
    ASSERT_LE(got, model.size());
    EXPECT_TRUE(std::equal(out.begin(), out.begin() + got, model.end() - got));
    model.resize(model.size() - got);
  }
  EXPECT_EQ(model.size(), ring.size());
  EXPECT_GT(in, 400U);
}

TEST_F(RecycleRingTest, ProducersAndOneConsumerPassEveryPageOnce) {
  constexpr std::uint32_t kEach = 50'000;
  ASSERT_TRUE(ring.open(37));
  std::array<std::uint32_t, 2> pushed{};
  std::vector<std::thread> producers;
  for (std::size_t id = 0; id < 2; ++id) {
    producers.emplace_back([&, id] {
      while (pushed[id] < kEach) {
        Page* mine[3] = {taken[id], taken[id], taken[id]};
        std::uint32_t n = 0;
        {
          const LockGuard guard{ring.lock()};
          n = ring.room(std::min(3U, kEach - pushed[id]));
          ring.push(mine, n);
        }
        pushed[id] += n;
        if (n == 0) {
          std::this_thread::yield();
        }
      }
    });
  }
  std::array<std::uint32_t, 2> popped{};
  while (popped[0] + popped[1] < 2 * kEach) {
    std::uint32_t n = 0;
    {
      const LockGuard guard{ring.lock()};
      n = ring.pop(out.data(), 16);
    }
    for (std::uint32_t i = 0; i < n; ++i) {
      ++popped[out[i] == taken[0] ? 0 : 1];
    }
    if (n == 0) {
      std::this_thread::yield();
    }
  }
  for (std::thread& producer : producers) {
    producer.join();
  }
  EXPECT_EQ(popped, pushed);
  EXPECT_EQ(ring.size(), 0U);
}

}  // namespace
}  // namespace weir
