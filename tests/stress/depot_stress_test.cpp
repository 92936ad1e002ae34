// SPDX-License-Identifier: MIT
// Four threads take and give clusters at random for a second. A book of their own proves that each
// body has one owner at a time; what a giver writes into a body, the next owner must read.
// WEIR_SEED repeats a run's choices (not its interleaving); WEIR_MILLISECONDS changes its length.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "weir/zone/depot.hpp"

namespace weir {
namespace {

constexpr std::uint32_t kThreads = 4;
constexpr std::uint32_t kBodies = 48;
constexpr std::uint32_t kCapacity = 20;

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 0) : otherwise;
}

// Relaxed throughout: the book must not order what the depot is to order.
class Book {
 public:
  void took(ClusterId id) { set(id, 0, 1); }
  void gives(ClusterId id) { set(id, 1, 0); }
  [[nodiscard]] std::uint32_t wrong() const { return wrong_.load(std::memory_order_relaxed); }

 private:
  void set(ClusterId id, int from, int to) {
    if (id.value >= kBodies || owned_[id.value].exchange(to, std::memory_order_relaxed) != from) {
      wrong_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  std::array<std::atomic<int>, kBodies> owned_{};
  std::atomic<std::uint32_t> wrong_{0};
};

// The first n frames carry `stamp` and their place; frames[] of an empty body carry nothing.
void write(Cluster& body, std::uint32_t n, std::uint32_t stamp) {
  for (std::uint32_t i = 0; i < n; ++i) {
    body.frames[i].value = stamp * kClusterFrames + i;
  }
}
bool intact(const Cluster& body, std::uint32_t n) {
  const std::uint32_t stamp = body.frames[0].value / kClusterFrames;
  for (std::uint32_t i = 0; i < n; ++i) {
    if (body.frames[i].value != stamp * kClusterFrames + i) {
      return false;
    }
  }
  return stamp != 0;
}

struct Tally {
  std::uint64_t moved = 0;    // clusters that arrived with frames
  std::uint64_t refused = 0;  // gives beyond the capacity
  std::uint64_t broken = 0;   // bodies whose frames were not those given
};

class DepotStress : public testing::TestWithParam<std::uint32_t> {};

TEST_P(DepotStress, EveryBodyHasOneOwnerAndItsFramesArrive) {
  const std::uint32_t shards = GetParam();
  const std::uint64_t seed = from_environment("WEIR_SEED", std::random_device{}());
  const std::chrono::milliseconds length{from_environment("WEIR_MILLISECONDS", 1000)};
  std::printf("seed: WEIR_SEED=%llu\n", static_cast<unsigned long long>(seed));
  Depot depot;
  ASSERT_FALSE(depot.open(kBodies, kCapacity, shards, kClusterFrames).failed());
  Book book;
  std::array<Tally, kThreads> tallies{};
  std::atomic<std::uint32_t> most_full{0};
  const auto work = [&](std::uint32_t me) {
    std::mt19937_64 random{seed + me};
    Tally& tally = tallies[me];
    std::vector<ClusterId> mine;
    const auto take = [&](ClusterId id, std::uint32_t n) {
      if (id == kNoCluster) {
        return;
      }
      book.took(id);
      if (n != 0) {
        ++tally.moved;
        tally.broken += intact(depot.body(id), n) ? 0 : 1;
        write(depot.body(id), n, 0);  // a second owner would see this
      }
      mine.push_back(id);
    };
    const auto end = std::chrono::steady_clock::now() + length;
    for (std::uint64_t step = 0; step % 256 != 0 || std::chrono::steady_clock::now() < end;
         ++step) {
      const auto shard = static_cast<std::uint32_t>(random() % shards);
      const auto stamp = static_cast<std::uint32_t>(1 + random() % 1'000'000);
      const std::uint64_t choice = random() % 12;
      std::uint32_t n = 0;
      if (mine.empty() || (choice < 6 && mine.size() < 12)) {
        switch (choice % 3) {
          case 0:
            take(depot.take_full(shard), kClusterFrames);
            break;
          case 1:
            take(depot.take_empty(shard), 0);
            break;
          default: {
            const ClusterId id = depot.take_partial(shard, n);
            take(id, n);
          }
        }
        continue;
      }
      const std::size_t at = random() % mine.size();
      const ClusterId id = mine[at];
      mine[at] = mine.back();
      mine.pop_back();
      book.gives(id);
      switch (choice % 3) {
        case 0:
          write(depot.body(id), kClusterFrames, stamp);
          if (!depot.give_full(id, shard)) {
            book.took(id);
            mine.push_back(id);
            ++tally.refused;
          }
          break;
        case 1:
          depot.give_empty(id, shard);
          break;
        default:
          n = static_cast<std::uint32_t>(1 + random() % (kClusterFrames - 1));
          write(depot.body(id), n, stamp);
          depot.give_partial(id, n, shard);
      }
      if (step % 64 == 0) {
        const std::uint32_t full = depot.full_clusters();
        std::uint32_t most = most_full.load(std::memory_order_relaxed);
        while (full > most &&
               !most_full.compare_exchange_weak(most, full, std::memory_order_relaxed)) {
        }
      }
    }
    for (const ClusterId id : mine) {
      book.gives(id);
      depot.give_empty(id, me % shards);
    }
  };
  std::vector<std::thread> threads;
  for (std::uint32_t me = 0; me < kThreads; ++me) {
    threads.emplace_back(work, me);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  Tally sum;
  for (const Tally& tally : tallies) {
    sum.moved += tally.moved;
    sum.refused += tally.refused;
    sum.broken += tally.broken;
  }
  std::printf("%llu clusters moved\n", static_cast<unsigned long long>(sum.moved));
  EXPECT_EQ(book.wrong(), 0U);
  EXPECT_EQ(sum.broken, 0U);
  EXPECT_GT(sum.moved, 0U);
  EXPECT_GT(sum.refused, 0U);
  if (shards == 1) {  // one look sees one word: no estimate
    EXPECT_LE(most_full.load(), kCapacity);
  }
  EXPECT_LE(depot.full_clusters(), kCapacity + (shards == 1 ? 0 : kThreads - 1));
  EXPECT_EQ(depot.full_clusters() + depot.partial_clusters() + depot.empty_bodies(), kBodies);

  // At rest all is there, once, and the counts are exact.
  std::uint64_t frames = depot.frames();
  std::array<int, kBodies> found{};
  for (ClusterId id = depot.take_full(0); id != kNoCluster; id = depot.take_full(0)) {
    ++found[id.value];
    EXPECT_TRUE(intact(depot.body(id), kClusterFrames));
    frames -= kClusterFrames;
  }
  std::uint32_t n = 0;
  for (ClusterId id = depot.take_partial(0, n); id != kNoCluster; id = depot.take_partial(0, n)) {
    ++found[id.value];
    EXPECT_TRUE(intact(depot.body(id), n));
    frames -= n;
  }
  EXPECT_EQ(frames, 0U);
  for (ClusterId id = depot.take_empty(0); id != kNoCluster; id = depot.take_empty(0)) {
    ++found[id.value];
  }
  for (const int times : found) {
    EXPECT_EQ(times, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Shards, DepotStress, testing::Values(1U, 3U));

}  // namespace
}  // namespace weir
