// SPDX-License-Identifier: MIT
#include "weir/io/spsc_ring.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

namespace weir {
namespace {

TEST(SpscRing, RoundsItsCapacityUpToAPowerOfTwo) {
  EXPECT_EQ(SpscRing<int>{0}.capacity(), 1U);
  EXPECT_EQ(SpscRing<int>{1}.capacity(), 1U);
  EXPECT_EQ(SpscRing<int>{5}.capacity(), 8U);
  EXPECT_EQ(SpscRing<int>{1024}.capacity(), 1024U);
}

TEST(SpscRing, TakesWhatFitsAndLeavesTheRestToTheCaller) {
  SpscRing<std::unique_ptr<int>> ring{4};
  std::array<std::unique_ptr<int>, 8> mine;
  for (int i = 0; i < 8; ++i) {
    mine[static_cast<std::size_t>(i)] = std::make_unique<int>(i);
  }
  EXPECT_EQ(ring.push_burst(mine), 4U);
  EXPECT_EQ(ring.size(), 4U);
  EXPECT_EQ(ring.push_burst(std::span(mine).subspan(4)), 0U);
  EXPECT_FALSE(ring.push(std::move(mine[4])));
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(mine[i] != nullptr, i >= 4) << i;
  }
  std::array<std::unique_ptr<int>, 3> out;
  EXPECT_EQ(ring.pop_burst(out), 3U);
  EXPECT_EQ(*out[0] + *out[1] * 10 + *out[2] * 100, 210);
  EXPECT_TRUE(ring.push(std::move(mine[4])));
  EXPECT_EQ(ring.ready(), 2U);
  EXPECT_EQ(ring.pop_burst(out), 2U);
  EXPECT_EQ(*out[1], 4);
  EXPECT_EQ(ring.pop_burst(out), 0U);
  EXPECT_EQ(ring.push_burst({}), 0U);
  EXPECT_EQ(ring.pop_burst({}), 0U);
}

TEST(SpscRing, FreesWhatIsLeftInItAndNothingTwice) {
  auto alive = std::make_shared<int>();
  {
    SpscRing<std::shared_ptr<int>> ring{8};
    std::shared_ptr<int> out;
    for (int i = 0; i < 21; ++i) {
      ASSERT_TRUE(ring.push(std::shared_ptr<int>{alive}));
      if (i >= 5) {
        ASSERT_EQ(ring.pop_burst(std::span(&out, 1)), 1U);
      }
    }
    EXPECT_EQ(alive.use_count(), 1 + 5 + 1);
  }
  EXPECT_EQ(alive.use_count(), 1);
}

TEST(SpscRing, PassesEverythingInOrderBetweenTwoThreads) {
  constexpr std::uint64_t kObjects = 400'000;
  for (const std::size_t capacity : {std::size_t{1}, std::size_t{2}, std::size_t{256}}) {
    SpscRing<std::uint64_t> ring{capacity};
    std::thread producer{[&] {
      std::mt19937 random{1};
      std::array<std::uint64_t, 64> burst{};
      for (std::uint64_t next = 0; next < kObjects;) {
        const std::size_t n = std::min<std::uint64_t>(1 + random() % 64, kObjects - next);
        std::iota(burst.begin(), burst.begin() + static_cast<std::ptrdiff_t>(n), next);
        const std::size_t pushed = ring.push_burst(std::span(burst).first(n));
        next += pushed;
        if (pushed == 0) {
          std::this_thread::yield();
        }
      }
    }};
    std::mt19937 random{2};
    std::array<std::uint64_t, 64> burst{};
    bool in_order = true;
    for (std::uint64_t next = 0; next < kObjects;) {
      const std::size_t popped = ring.pop_burst(std::span(burst).first(1 + random() % 64));
      for (std::size_t i = 0; i < popped; ++i) {
        in_order = in_order && burst[i] == next++;
      }
      if (popped == 0) {
        std::this_thread::yield();
      }
    }
    producer.join();
    EXPECT_TRUE(in_order);
    EXPECT_EQ(ring.size(), 0U);
  }
}

}  // namespace
}  // namespace weir
