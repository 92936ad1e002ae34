// SPDX-License-Identifier: MIT
#include "weir/zone/pageblock_state.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <vector>

namespace weir {
namespace {

constexpr unsigned kFlagSets[] = {0, BlockEntry::kReserved};
constexpr BlockEntry kWholeEntry = BlockEntry::of(0, BlockEntry::kWhole);

TEST(BlockEntry, KeepsCountAndFlagsApart) {
  constexpr BlockEntry kThree = BlockEntry::of(3, BlockEntry::kReserved);
  static_assert(kThree.word == 0x0803 && kThree.count() == 3 && kThree.reserved());
  static_assert(!kThree.whole() && !kThree.all_free());
  static_assert(kWholeEntry.word == 0x0400 && kWholeEntry.whole() && kWholeEntry.count() == 0);
  static_assert(BlockEntry::of(512).all_free() && !BlockEntry::of(511).all_free());
  static_assert(BlockEntry{} == BlockEntry::of(0));
}

TEST(BlockEntry, LessTakesWhatIsThereAndRefusesMore) {
  for (const unsigned flags : kFlagSets) {
    for (std::uint32_t count = 0; count <= kPageblockFrames; ++count) {
      const BlockEntry before = BlockEntry::of(count, flags);
      for (std::uint32_t n = 1; n <= kPageblockFrames; ++n) {
        const MaybeEntry after = before.less(n);
        ASSERT_EQ(after.has_value(), n <= count) << n << " of " << count;
        if (after) {
          ASSERT_EQ(after->count(), count - n);
          ASSERT_EQ(after->reserved(), flags != 0 && n < count) << n << " of " << count;
          ASSERT_FALSE(after->whole());
        }
      }
    }
  }
  EXPECT_FALSE(kWholeEntry.less(1));
}

TEST(BlockEntry, MoreAddsUpToAllAndKeepsAReservation) {
  for (const unsigned flags : kFlagSets) {
    for (std::uint32_t count = 0; count <= kPageblockFrames; ++count) {
      const BlockEntry before = BlockEntry::of(count, flags);
      for (std::uint32_t n = 1; n <= kPageblockFrames; ++n) {
        const MaybeEntry after = before.more(n);
        ASSERT_EQ(after.has_value(), count + n <= kPageblockFrames) << n << " to " << count;
        if (after) {
          ASSERT_EQ(*after, BlockEntry::of(count + n, flags));
        }
      }
    }
  }
  EXPECT_FALSE(kWholeEntry.more(1));
  EXPECT_FALSE(kWholeEntry.more(512));
}

TEST(BlockEntry, ReserveLeavesAFlagOnlyWhereFramesAreLeft) {
  for (std::uint32_t count = 0; count <= kPageblockFrames; ++count) {
    for (const std::uint32_t n : {1U, 63U, 64U}) {
      const MaybeEntry after = BlockEntry::of(count).reserve(n);
      ASSERT_EQ(after.has_value(), n <= count);
      if (after) {
        ASSERT_EQ(*after, BlockEntry::of(count - n, count == n ? 0 : BlockEntry::kReserved));
      }
    }
  }
  EXPECT_FALSE(kWholeEntry.reserve(1));
}

TEST(BlockEntry, ReleaseEndsAReservationAndNothingElse) {
  EXPECT_EQ(BlockEntry::of(7, BlockEntry::kReserved).release(), BlockEntry::of(7));
  EXPECT_FALSE(BlockEntry::of(7).release());
  EXPECT_FALSE(BlockEntry::of(0).release());
  EXPECT_FALSE(kWholeEntry.release());
}

TEST(BlockEntry, IsTakenWholeOnlyWhenAllOfItIsFree) {
  for (const unsigned flags : kFlagSets) {
    for (std::uint32_t count = 0; count <= kPageblockFrames; ++count) {
      const MaybeEntry after = BlockEntry::of(count, flags).take_whole();
      ASSERT_EQ(after.has_value(), count == kPageblockFrames);
      if (after) {
        ASSERT_EQ(*after, kWholeEntry);
      }
      ASSERT_FALSE(BlockEntry::of(count, flags).give_whole());
    }
  }
  EXPECT_FALSE(kWholeEntry.take_whole());
  EXPECT_EQ(kWholeEntry.give_whole(), BlockEntry::of(kPageblockFrames));
}

TEST(BlockEntry, BucketsRiseWithTheCountAndTheWhollyFreeHaveTheirOwn) {
  EXPECT_EQ(BlockEntry::of(0).bucket(), kNoBucket);
  EXPECT_EQ(kWholeEntry.bucket(), kNoBucket);
  EXPECT_EQ(BlockEntry::of(1).bucket(), 0U);
  EXPECT_EQ(BlockEntry::of(511).bucket(), kPartialBuckets - 1);
  EXPECT_EQ(BlockEntry::of(512).bucket(), kFreeBucket);
  EXPECT_EQ(BlockEntry::of(512, BlockEntry::kTrimmed).bucket(), kTrimmedBucket);
  EXPECT_GT(kTrimmedBucket, kFreeBucket) << "buckets are looked through from below";
  EXPECT_EQ(kBuckets, kTrimmedBucket + 1);
  for (std::uint32_t count = 1; count <= kPageblockFrames; ++count) {
    EXPECT_EQ(BlockEntry::of(count, BlockEntry::kReserved).bucket(), kNoBucket);
    if (count > 1) {
      const unsigned step = BlockEntry::of(count).bucket() - BlockEntry::of(count - 1).bucket();
      if (count < kPageblockFrames) {
        EXPECT_EQ(step, count % (1U << kBucketShift) == 1 ? 1U : 0U) << count;
      }
      EXPECT_EQ(BlockEntry::of(count, BlockEntry::kIsolated).bucket(), kNoBucket);
    }
  }
}

TEST(BlockEntry, PartlyFreeOnesOfTheMovableHaveBucketsOfTheirOwn) {
  for (std::uint32_t count = 1; count < kPageblockFrames; ++count) {
    const unsigned pinned = BlockEntry::of(count).bucket();
    EXPECT_LT(pinned, kPartialBuckets);
    EXPECT_EQ(BlockEntry::of(count, BlockEntry::kMovable).bucket(), pinned + kPartialBuckets);
    EXPECT_EQ(BlockEntry::bucket_of(count, Mobility::movable), pinned + kPartialBuckets);
  }
  EXPECT_EQ(BlockEntry::of(kPageblockFrames, BlockEntry::kMovable).bucket(), kFreeBucket);
}

TEST(BlockEntry, TakesTheMobilityOfItsTakersWhileHalfOfItIsFree) {
  for (const unsigned kind : {0U, BlockEntry::kMovable}) {
    for (std::uint32_t count = 1; count <= kPageblockFrames; ++count) {
      for (const Mobility taker : {Mobility::pinned, Mobility::movable}) {
        const BlockEntry before = BlockEntry::of(count, kind);
        const Mobility wanted = count >= kPageblockFrames / 2 ? taker : before.mobility();
        ASSERT_EQ(before.less(1, taker)->mobility(), wanted) << count;
        ASSERT_EQ(before.reserve(1, taker)->mobility(), wanted) << count;
        ASSERT_EQ(before.less(count, taker)->mobility(), wanted) << count;
        if (count < kPageblockFrames) {
          ASSERT_EQ(before.more(1)->mobility(), before.mobility());
        }
      }
    }
  }
  EXPECT_EQ(kWholeEntry.give_whole()->less(1, Mobility::movable)->mobility(), Mobility::movable);
}

TEST(BlockEntry, IsolatedKeepsWhatItHasAndWhatComesBack) {
  for (std::uint32_t count = 0; count <= kPageblockFrames; ++count) {
    const BlockEntry before = BlockEntry::of(count, BlockEntry::kMovable | BlockEntry::kReserved);
    const MaybeEntry isolated = before.isolate();
    ASSERT_TRUE(isolated);
    EXPECT_TRUE(isolated->isolated() && !isolated->reserved());
    EXPECT_EQ(isolated->count(), count);
    EXPECT_EQ(isolated->available(), 0U);
    EXPECT_FALSE(isolated->isolate());
    EXPECT_FALSE(isolated->less(1));
    EXPECT_FALSE(isolated->reserve(1));
    EXPECT_FALSE(isolated->take_whole());
    EXPECT_EQ(isolated->take_isolated().has_value(), count == kPageblockFrames);
    if (count < kPageblockFrames) {
      EXPECT_EQ(isolated->more(1)->count(), count + 1);
      EXPECT_TRUE(isolated->more(1)->isolated());
    }
    EXPECT_EQ(*isolated->end_isolation(), BlockEntry::of(count, BlockEntry::kMovable));
    EXPECT_FALSE(before.end_isolation());
    EXPECT_FALSE(before.take_isolated());
  }
  EXPECT_FALSE(kWholeEntry.isolate());
  EXPECT_EQ(*BlockEntry::of(kPageblockFrames).isolate()->take_isolated(), kWholeEntry);
  EXPECT_EQ(*kWholeEntry.split_whole(), BlockEntry::of(0));
  EXPECT_FALSE(BlockEntry::of(0).split_whole());
}

TEST(BlockEntry, IsTrimmedFromWholeAndLosesTheMarkWithAnyFrame) {
  const BlockEntry trimmed = *kWholeEntry.give_trimmed();
  EXPECT_TRUE(trimmed.trimmed() && trimmed.all_free() && !trimmed.all_resident());
  EXPECT_EQ(trimmed, BlockEntry::of(kPageblockFrames, BlockEntry::kTrimmed));
  for (std::uint32_t n = 1; n <= kPageblockFrames; ++n) {
    EXPECT_EQ(trimmed.less(n), BlockEntry::of(kPageblockFrames - n));
    EXPECT_EQ(trimmed.reserve(n), BlockEntry::of(kPageblockFrames).reserve(n));
    EXPECT_FALSE(trimmed.more(n));
  }
  EXPECT_EQ(trimmed.take_whole(), kWholeEntry);
  EXPECT_EQ(trimmed.untrim(), BlockEntry::of(kPageblockFrames));
  EXPECT_TRUE(trimmed.may_move(*trimmed.untrim()));
  EXPECT_TRUE(trimmed.may_move(*trimmed.less(1)));
  EXPECT_TRUE(kWholeEntry.may_move(trimmed));
  for (const unsigned flags : kFlagSets) {
    for (std::uint32_t count = 0; count <= kPageblockFrames; ++count) {
      const BlockEntry entry = BlockEntry::of(count, flags);
      EXPECT_FALSE(entry.untrim());
      EXPECT_EQ(entry.take_resident().has_value(), count == kPageblockFrames);
      if (!entry.whole()) {
        EXPECT_FALSE(entry.give_trimmed());
      }
    }
  }
  EXPECT_FALSE(trimmed.take_resident()) << "what is trimmed is not trimmed again";
  EXPECT_EQ(trimmed.isolate(), BlockEntry::of(kPageblockFrames).isolate());
  EXPECT_FALSE(trimmed.isolate()->take_resident());
  EXPECT_EQ(trimmed.less(1, Mobility::movable), BlockEntry::of(511, BlockEntry::kMovable));
  EXPECT_EQ(EntryPair::of(trimmed, BlockEntry::of(512)).take_whole()->word,
            EntryPair::of(kWholeEntry, kWholeEntry).word);
}

TEST(BlockEntry, MayMoveIsNeverFalseWhenTheBucketChanges) {
  std::uint32_t needless = 0;
  for (const unsigned flags : kFlagSets) {
    for (std::uint32_t before = 0; before <= kPageblockFrames; ++before) {
      for (std::uint32_t after = 0; after <= kPageblockFrames; ++after) {
        const BlockEntry from = BlockEntry::of(before, flags);
        const BlockEntry to = BlockEntry::of(after, flags);
        ASSERT_TRUE(from.may_move(to) || from.bucket() == to.bucket()) << before << " " << after;
        needless += from.may_move(to) && from.bucket() == to.bucket() && flags == 0 ? 1 : 0;
      }
      ASSERT_TRUE(BlockEntry::of(before).may_move(BlockEntry::of(before, BlockEntry::kReserved)));
      ASSERT_TRUE(BlockEntry::of(before, flags).may_move(kWholeEntry));
      ASSERT_TRUE(kWholeEntry.may_move(BlockEntry::of(before, flags)));
    }
  }
  EXPECT_LE(needless, 2U) << "none to none, and free to free";
}

TEST(EntryPair, HalvesDoNotTouchEachOther) {
  std::mt19937 random{1};
  for (int i = 0; i < 1000; ++i) {
    const BlockEntry even{static_cast<std::uint32_t>(random() & 0xffff)};
    const BlockEntry odd{static_cast<std::uint32_t>(random() & 0xffff)};
    const EntryPair pair = EntryPair::of(even, odd);
    ASSERT_EQ(pair.at(0), even);
    ASSERT_EQ(pair.at(1), odd);
    const BlockEntry other{static_cast<std::uint32_t>(random() & 0xffff)};
    ASSERT_EQ(pair.with(0, other).at(0), other);
    ASSERT_EQ(pair.with(0, other).at(1), odd);
    ASSERT_EQ(pair.with(1, other).at(0), even);
    ASSERT_EQ(pair.with(1, other).at(1), other);
  }
}

TEST(EntryPair, IsTakenWholeOnlyTogether) {
  const BlockEntry states[] = {BlockEntry::of(0),
                               BlockEntry::of(1),
                               BlockEntry::of(511),
                               BlockEntry::of(512),
                               BlockEntry::of(512, BlockEntry::kReserved),
                               BlockEntry::of(3, BlockEntry::kReserved),
                               kWholeEntry};
  for (const BlockEntry even : states) {
    for (const BlockEntry odd : states) {
      const EntryPair pair = EntryPair::of(even, odd);
      const std::optional<EntryPair> taken = pair.take_whole();
      EXPECT_EQ(taken.has_value(), even.all_free() && odd.all_free());
      if (taken) {
        EXPECT_EQ(taken->word, EntryPair::of(kWholeEntry, kWholeEntry).word);
      }
      const std::optional<EntryPair> given = pair.give_whole();
      EXPECT_EQ(given.has_value(), even.whole() && odd.whole());
      if (given) {
        EXPECT_EQ(given->word, EntryPair::of(BlockEntry::of(512), BlockEntry::of(512)).word);
      }
      EXPECT_EQ(pair.most(), std::max(even.count(), odd.count()));
    }
  }
}

TEST(ZoneCounts, ComparesWithoutOverflow) {
  constexpr ZoneCounts kTen = ZoneCounts::of(10, 7);
  static_assert(kTen.free() == 10 && kTen.claimed() == 7);
  for (std::uint64_t n = 0; n <= 12; ++n) {
    for (std::uint64_t leave = 0; leave <= 12; ++leave) {
      EXPECT_EQ(kTen.has(n, leave), n + leave <= 10);
    }
  }
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  EXPECT_FALSE(kTen.has(kHuge, 1));
  EXPECT_FALSE(kTen.has(1, kHuge));
  EXPECT_FALSE(kTen.has(kHuge, kHuge));
  EXPECT_FALSE(ZoneCounts::of(0xffff'ffff, 0).has(std::uint64_t{1} << 32, 0));
}

TEST(ZoneCounts, ClaimsMoveFramesFromFreeToClaimedAndBack) {
  constexpr ZoneCounts kBefore = ZoneCounts::of(10, 2);
  constexpr std::optional<ZoneCounts> kClaimed = kBefore.claim(4, 6);
  static_assert(kClaimed && kClaimed->word == ZoneCounts::of(6, 6).word);
  static_assert(!kBefore.claim(4, 7) && !kBefore.claim(11, 0));
  EXPECT_EQ(kClaimed->word + ZoneCounts::unclaim(4), kBefore.word);
  EXPECT_EQ(kClaimed->word - 4 * ZoneCounts::kOneClaimed, ZoneCounts::of(6, 2).word);
  constexpr std::optional<ZoneCounts> kTaken = kBefore.take(10, 0);
  static_assert(kTaken && kTaken->word == ZoneCounts::of(0, 2).word);
  static_assert(!kBefore.take(10, 1));
}

// The slow and obvious way: looks at every frame of every aligned place.
bool all_set(std::uint64_t word, unsigned from, unsigned length) {
  for (unsigned i = from; i < from + length; ++i) {
    if ((word >> i & 1) == 0) {
      return false;
    }
  }
  return true;
}

std::vector<std::uint64_t> words_to_try() {
  std::vector<std::uint64_t> words{0, 1, kAllBits, kAllBits - 1, 0x8000'0000'0000'0000U};
  std::mt19937_64 random{7};
  for (int i = 0; i < 300; ++i) {
    words.push_back(random());
    words.push_back(random() | random());
    words.push_back(random() | random() | random() | random());
    words.push_back(kAllBits << (random() % 64));
    words.push_back(kAllBits >> (random() % 64));
    words.push_back(~(std::uint64_t{1} << (random() % 64)));
  }
  return words;
}

TEST(RunBits, HeadsAreTheAlignedFreeRuns) {
  for (const std::uint64_t word : words_to_try()) {
    for (unsigned order = 0; order <= kWordOrder; ++order) {
      std::uint64_t expected = 0;
      std::uint64_t lonely = 0;
      for (unsigned at = 0; at < 64; at += 1U << order) {
        if (all_set(word, at, 1U << order)) {
          expected |= std::uint64_t{1} << at;
          const unsigned buddy = at ^ (1U << order);
          if (order == kWordOrder || !all_set(word, buddy, 1U << order)) {
            lonely |= std::uint64_t{1} << at;
          }
        }
      }
      ASSERT_EQ(run_heads(word, order), expected) << std::hex << word << " order " << order;
      ASSERT_EQ(lonely_heads(word, order), lonely) << std::hex << word << " order " << order;
    }
  }
}

TEST(RunBits, ARunHasTwoToTheOrderBits) {
  for (unsigned order = 0; order <= kWordOrder; ++order) {
    for (unsigned at = 0; at < 64; at += 1U << order) {
      const std::uint64_t bits = run_bits(std::uint64_t{1} << at, order);
      for (unsigned i = 0; i < 64; ++i) {
        ASSERT_EQ(bits >> i & 1, i >= at && i < at + (1U << order) ? 1U : 0U);
      }
    }
  }
  EXPECT_EQ(run_bits(0, 3), 0U);
  EXPECT_EQ(run_bits(0x0101, 3), 0xffffU);
}

TEST(RunBits, LowestBitsAreSoManyFromTheBottom) {
  for (const std::uint64_t word : words_to_try()) {
    for (std::uint32_t n = 0; n <= 64; ++n) {
      const std::uint64_t low = lowest_bits(word, n);
      ASSERT_EQ(low & ~word, 0U);
      ASSERT_EQ(std::popcount(low), std::min<int>(static_cast<int>(n), std::popcount(word)));
      ASSERT_TRUE(low == 0 || low == word || (low ^ word) > low - 1)
          << "a higher bit was preferred";
      if (low != word) {
        ASSERT_GT(std::countr_zero(low ^ word), 63 - std::countl_zero(low));
      }
    }
  }
}

TEST(RunBits, NamesAscendFromTheFirst) {
  for (const std::uint64_t word : words_to_try()) {
    PageIndex out[65];
    const PageIndex* const end = name_bits({1000}, word, out);
    ASSERT_EQ(end - out, std::popcount(word));
    std::uint64_t again = 0;
    for (const PageIndex* at = out; at != end; ++at) {
      ASSERT_TRUE(at == out || at[-1] < *at);
      again |= std::uint64_t{1} << (at->value - 1000);
    }
    ASSERT_EQ(again, word);
  }
}

TEST(RunBits, AscendSeesEveryGap) {
  PageIndex pages[64];
  for (std::uint32_t i = 0; i < 64; ++i) {
    pages[i] = {500 + i};
  }
  EXPECT_TRUE(ascend(pages, 64));
  for (std::uint32_t i = 0; i < 64; ++i) {
    for (const std::uint32_t other : {0U, 499U + i, 501U + i, 564U}) {
      const PageIndex kept = pages[i];
      pages[i] = {other};
      EXPECT_FALSE(ascend(pages, 64)) << i;
      pages[i] = kept;
    }
  }
  EXPECT_TRUE(ascend(pages + 63, 1));
}

TEST(MaximalBlocks, AreThoseOfABuddyAllocator) {
  std::mt19937_64 random{11};
  for (int round = 0; round < 500; ++round) {
    std::uint64_t words[kBitWords];
    for (std::uint64_t& word : words) {
      const std::uint64_t kind = random() % 4;
      word = kind == 0 ? random() : kind == 1 ? kAllBits : kind == 2 ? random() | random() : 0;
    }
    words[random() % kBitWords] &= ~(std::uint64_t{1} << (random() % 64));  // not wholly free
    const auto is_free = [&](unsigned from, unsigned length) {
      for (unsigned i = from; i < from + length; ++i) {
        if ((words[i / 64] >> (i % 64) & 1) == 0) {
          return false;
        }
      }
      return true;
    };
    for (unsigned order = 0; order < kPageblockOrderValue; ++order) {
      std::uint32_t expected = 0;
      for (unsigned at = 0; at < kPageblockFrames; at += 1U << order) {
        expected += is_free(at, 1U << order) && !is_free(at ^ (1U << order), 1U << order) ? 1 : 0;
      }
      ASSERT_EQ(maximal_blocks(words, order), expected) << "order " << order;
    }
  }
}

}  // namespace
}  // namespace weir
