// SPDX-License-Identifier: MIT
#include "weir/zone/block_index.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "weir/base/atomic.hpp"

namespace weir {
namespace {

using Index = BasicBlockIndex<Atomic>;

struct Opened {
  explicit Opened(std::uint32_t blocks) : memory(Index::bytes_for(blocks) / 8 + 8) {
    index.open(memory.data(), blocks);
  }
  std::vector<std::uint64_t> memory;
  Index index;
};

TEST(BlockIndex, HasNothingAtFirst) {
  for (const std::uint32_t blocks : {2U, 64U, 130U, 5000U}) {
    const Opened opened(blocks);
    for (unsigned bucket = 0; bucket < kBuckets; ++bucket) {
      EXPECT_EQ(opened.index.next(bucket, 0), Index::kNone);
      EXPECT_EQ(opened.index.next_pair(bucket, 0), Index::kNone);
      EXPECT_EQ(opened.index.next_unpaired(bucket, 0), Index::kNone);
    }
    EXPECT_TRUE(opened.index.consistent());
  }
}

TEST(BlockIndex, AgreesWithASetThroughRandomChanges) {
  for (const std::uint32_t blocks : {2U, 64U, 66U, 4096U, 4098U, 9000U}) {
    Opened opened(blocks);
    std::vector<std::set<std::uint32_t>> model(kBuckets);
    std::mt19937 random{blocks};
    for (int step = 0; step < 6000; ++step) {
      const unsigned bucket = random() % kBuckets;
      const std::uint32_t block = random() % blocks;
      // Few stay: words and summaries become empty again and again.
      if (random() % 3 == 0) {
        opened.index.set(bucket, block);
        model[bucket].insert(block);
      } else {
        const std::uint32_t old = model[bucket].empty() ? block : *model[bucket].begin();
        opened.index.clear(bucket, old);
        model[bucket].erase(old);
      }
      const std::uint32_t from = random() % (blocks + 2);
      const auto expected = model[bucket].lower_bound(from);
      ASSERT_EQ(opened.index.next(bucket, from),
                expected == model[bucket].end() ? Index::kNone : *expected);
      ASSERT_EQ(opened.index.test(bucket, block), model[bucket].contains(block));
    }
    EXPECT_TRUE(opened.index.consistent());
    opened.index.clear_all();
    for (unsigned bucket = 0; bucket < kBuckets; ++bucket) {
      EXPECT_EQ(opened.index.next(bucket, 0), Index::kNone);
    }
  }
}

TEST(BlockIndex, FindsPairsAndThoseWithoutANeighbour) {
  Opened opened(300);
  for (const std::uint32_t block : {1U, 2U, 64U, 65U, 200U, 201U, 203U, 204U}) {
    opened.index.set(4, block);
  }
  EXPECT_EQ(opened.index.next_pair(4, 0), 64U);  // 1 and 2 are neighbours, but no pair
  EXPECT_EQ(opened.index.next_pair(4, 65), 200U);
  EXPECT_EQ(opened.index.next_pair(4, 202), Index::kNone);
  EXPECT_EQ(opened.index.next_unpaired(4, 0), 1U);
  EXPECT_EQ(opened.index.next_unpaired(4, 64), 64U);    // its word has a pair only
  EXPECT_EQ(opened.index.next_unpaired(4, 192), 203U);  // past the pair in the same word
}

TEST(BlockIndex, IsInconsistentOnceAWordIsMissingInTheSummary) {
  Opened opened(100);
  opened.index.set(0, 70);
  EXPECT_TRUE(opened.index.consistent());
  opened.memory[0] = 0;  // the summary of bucket 0
  EXPECT_FALSE(opened.index.consistent());
}

}  // namespace
}  // namespace weir
