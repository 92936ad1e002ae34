// SPDX-License-Identifier: MIT
#include "weir/zone/zone.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "tests/support/picture.hpp"
#include "tests/unit/zone/engine_range.hpp"
#include "weir/base/failpoint.hpp"

namespace weir {
namespace {

using test::EngineRange;

struct OpenZone : EngineRange {
  explicit OpenZone(std::uint64_t frames, std::uint64_t reserve = 0) : EngineRange(frames) {
    zone.open(PageCount{reserve});
    zone.adopt(first(), PageCount{frames});
    zone.seal();
  }
  [[nodiscard]] std::string blocks() const { return test::blocks(first(), frames()); }
  [[nodiscard]] std::uint64_t holds() const { return zone.counters().lock_acquisitions.get(); }

  Zone zone;
};

TEST(Zone, CountsWhatItAdoptsAndSetsTheWatermarksWhenSealed) {
  const OpenZone open(whole_pages(16_MiB).value);
  EXPECT_EQ(open.zone.managed(), whole_pages(16_MiB));
  EXPECT_EQ(open.zone.free_pages(), 4096U);
  EXPECT_EQ(open.zone.watermarks().min, PageCount{128});
  EXPECT_EQ(open.zone.watermarks().low, PageCount{160});
  EXPECT_EQ(open.zone.watermarks().high, PageCount{192});
}

TEST(Zone, AdoptsSeveralPieces) {
  const EngineRange one(8);
  const EngineRange two(3);
  Zone zone;
  zone.open(PageCount{0});
  zone.adopt(one.first(), PageCount{8});
  zone.adopt(two.first(), PageCount{3});
  zone.seal();
  EXPECT_EQ(zone.managed(), PageCount{11});
  EXPECT_EQ(zone.audit(), 11U);
  EXPECT_EQ(zone.free_blocks(Order{3}), 1U);
  EXPECT_EQ(zone.free_blocks(Order{1}), 1U);
  EXPECT_EQ(zone.free_blocks(Order{0}), 1U);
}

TEST(Zone, TakesAndGivesUnderOneHoldEach) {
  OpenZone open(1024);
  const PageIndex page = open.zone.take(Order{3}, false);
  EXPECT_EQ(page, open.first());
  EXPECT_EQ(open.zone.free_pages(), 1016U);
  EXPECT_EQ(open.holds(), 1U);
  open.zone.give(page, Order{3});
  EXPECT_EQ(open.zone.free_pages(), 1024U);
  EXPECT_EQ(open.holds(), 2U);
  const ZoneCounterValues counters = values_of(open.zone.counters());
  EXPECT_EQ(counters.taken, 8U);
  EXPECT_EQ(counters.given, 8U);
  EXPECT_EQ(counters.lock_frames, 16U);
  EXPECT_EQ(counters.lock_most_frames, 8U);
  EXPECT_EQ(counters.splits, 7U);
  EXPECT_EQ(counters.merges, 7U);
  EXPECT_EQ(counters.lock_waits, 0U);
  EXPECT_GT(counters.lock_longest_hold, 0U);
}

TEST(Zone, MovesAClusterUnderOneHold) {
  OpenZone open(1024);
  PageIndex pages[kClusterFrames];
  ASSERT_EQ(open.zone.take_many(pages, kClusterFrames, false), kClusterFrames);
  EXPECT_EQ(open.holds(), 1U);
  for (std::uint32_t i = 0; i < kClusterFrames; ++i) {
    EXPECT_EQ(pages[i], open.frame(i));
  }
  open.zone.give_many(pages, kClusterFrames, Order{0});
  EXPECT_EQ(open.holds(), 2U);
  EXPECT_EQ(open.zone.counters().lock_most_frames.get(), kClusterFrames);
  EXPECT_EQ(open.blocks(), "a" + std::string(1023, '-'));
}

TEST(Zone, FillsAHandWithTheLowestOnTop) {
  OpenZone open(1024);
  Hand hand;
  EXPECT_EQ(open.zone.take_into(hand, Order{1}, 4, false), 4U);
  EXPECT_EQ(Order{hand.order}, Order{1});
  ASSERT_EQ(hand.size(), 4U);
  EXPECT_EQ(hand.frames[3], open.frame(0));
  EXPECT_EQ(hand.frames[0], open.frame(6));
  EXPECT_EQ(open.zone.free_pages(), 1016U);
  open.zone.give_hand(hand);
  EXPECT_TRUE(hand.empty());
  EXPECT_EQ(open.zone.free_pages(), 1024U);
  EXPECT_EQ(open.holds(), 2U);
}

TEST(Zone, GivesOnlyWhatIsLeftInAHand) {
  OpenZone open(64);
  Hand hand;
  ASSERT_EQ(open.zone.take_into(hand, Order{0}, 8, false), 8U);
  const PageIndex top = hand.pop();
  const PageIndex bottom = hand.frames[hand.begin];
  hand.begin += 1;
  open.zone.give_hand(hand);
  EXPECT_EQ(open.zone.free_pages(), 62U);
  open.zone.give(top, Order{0});
  open.zone.give(bottom, Order{0});
  EXPECT_EQ(open.zone.free_blocks(Order{6}), 1U);
}

TEST(Zone, AnswersNoPageWhenNothingSuitableIsFree) {
  OpenZone open(4);
  EXPECT_EQ(open.zone.take(Order{3}, false), kNoPage);
  const PageIndex page = open.zone.take(Order{2}, false);
  EXPECT_EQ(page, open.first());
  EXPECT_EQ(open.zone.take(Order{0}, false), kNoPage);
  PageIndex pages[4];
  EXPECT_EQ(open.zone.take_many(pages, 4, false), 0U);
  Hand hand;
  EXPECT_EQ(open.zone.take_into(hand, Order{0}, 4, false), 0U);
  EXPECT_TRUE(hand.empty());
  open.zone.give(page, Order{2});
}

TEST(Zone, KeepsTheReserveForThoseWithTheRight) {
  OpenZone open(64, 16);
  PageIndex pages[64];
  std::uint32_t got = 0;
  while (got < 64) {
    const PageIndex page = open.zone.take(Order{0}, false);
    if (page == kNoPage) {
      break;
    }
    pages[got++] = page;
  }
  EXPECT_EQ(got, 48U);
  EXPECT_EQ(open.zone.free_pages(), 16U);
  EXPECT_EQ(open.zone.take_many(pages + got, 1, false), 0U);
  Hand hand;
  EXPECT_EQ(open.zone.take_into(hand, Order{0}, 1, false), 0U);
  for (; got < 64; ++got) {
    pages[got] = open.zone.take(Order{0}, true);
    ASSERT_NE(pages[got], kNoPage);
  }
  EXPECT_EQ(open.zone.take(Order{0}, true), kNoPage);
  open.zone.give_many(pages, 64, Order{0});
  EXPECT_EQ(open.zone.audit(), 64U);
}

TEST(Zone, ALargeBlockMayNotReachIntoTheReserve) {
  OpenZone open(64, 16);
  EXPECT_EQ(open.zone.take(Order{6}, false), kNoPage);
  const PageIndex half = open.zone.take(Order{5}, false);
  EXPECT_NE(half, kNoPage);
  EXPECT_EQ(open.zone.take(Order{5}, false), kNoPage);
  const PageIndex other = open.zone.take(Order{5}, true);
  EXPECT_NE(other, kNoPage);
  open.zone.give(half, Order{5});
  open.zone.give(other, Order{5});
}

TEST(Zone, TellsWhetherARefusalIsFinal) {
  OpenZone open(1);
  Atomic<std::uint32_t> hands{1};
  bool none_in_hand = true;
  const PageIndex page = open.zone.take_or_tell(Order{0}, false, hands, false, none_in_hand);
  EXPECT_EQ(page, open.first());
  EXPECT_EQ(open.zone.take_or_tell(Order{0}, false, hands, false, none_in_hand), kNoPage);
  EXPECT_FALSE(none_in_hand);
  EXPECT_EQ(open.zone.counters().refusals.get(), 0U);  // not final
  EXPECT_EQ(open.zone.take_or_tell(Order{0}, false, hands, true, none_in_hand), kNoPage);
  EXPECT_EQ(open.zone.counters().refusals.get(), 1U);  // the last try is
  hands.store(0);
  EXPECT_EQ(open.zone.take_or_tell(Order{0}, false, hands, false, none_in_hand), kNoPage);
  EXPECT_TRUE(none_in_hand);
  EXPECT_EQ(open.zone.counters().refusals.get(), 2U);
  open.zone.give(page, Order{0});
}

TEST(Zone, AThreadInsideALockedSectionIsRefusedAndItsPagesWaitOutside) {
  OpenZone open(64);
  const PageIndex single = open.zone.take(Order{0}, false);
  const PageIndex run = open.zone.take(Order{3}, false);
  const std::uint64_t holds = open.holds();
  {
    const ThreadMark mark;  // as a signal handler that interrupted a hold sees it
    EXPECT_EQ(open.zone.take(Order{0}, false), kNoPage);
    PageIndex page;
    EXPECT_EQ(open.zone.take_many(&page, 1, false), 0U);
    open.zone.give(single, Order{0});
    open.zone.give(run, Order{3});
  }
  EXPECT_EQ(open.holds(), holds);  // the lock was not touched
  EXPECT_TRUE(open.zone.has_loose());
  EXPECT_EQ(open.zone.free_pages(), 55U);
  // The next hold, whatever it is for, takes them in.
  EXPECT_EQ(open.zone.exact_free_pages(), 64U);
  EXPECT_FALSE(open.zone.has_loose());
  EXPECT_EQ(open.zone.free_blocks(Order{6}), 1U);
  EXPECT_EQ(open.zone.counters().given.get(), 9U);
}

TEST(Zone, ARequestFindsLoosePages) {
  OpenZone open(1);
  const PageIndex page = open.zone.take(Order{0}, false);
  {
    const ThreadMark mark;
    open.zone.give(page, Order{0});
  }
  EXPECT_EQ(open.zone.take(Order{0}, false), page);
  open.zone.give(page, Order{0});
}

TEST(Zone, FailpointsRefuseByKindOfRequest) {
  if (!kTestHooks) {
    GTEST_SKIP() << "needs failpoints";
  }
  OpenZone open(64);
  PageIndex pages[4];
  Hand hand;
  failpoints::fail_always(Failpoint::zone_take_high);
  EXPECT_EQ(open.zone.take(Order{1}, false), kNoPage);
  EXPECT_EQ(open.zone.take_into(hand, Order{1}, 2, false), 0U);
  const PageIndex single = open.zone.take(Order{0}, false);
  EXPECT_NE(single, kNoPage);
  failpoints::reset();
  failpoints::fail_always(Failpoint::zone_take_cluster);
  EXPECT_EQ(open.zone.take_many(pages, 4, false), 0U);
  EXPECT_EQ(open.zone.take_into(hand, Order{0}, 4, false), 0U);
  failpoints::reset();
  failpoints::arm(Failpoint::zone_take, 1);
  bool none_in_hand = false;
  Atomic<std::uint32_t> hands{1};
  EXPECT_EQ(open.zone.take_or_tell(Order{0}, false, hands, false, none_in_hand), kNoPage);
  EXPECT_TRUE(none_in_hand);  // a test that refuses means it
  failpoints::reset();
  open.zone.give(single, Order{0});
  EXPECT_EQ(open.zone.audit(), 64U);
}

TEST(Zone, FourThreadsTakeAndGiveWithoutLosingAFrame) {
  OpenZone open(512);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&open, t] {
      PageIndex pages[kClusterFrames];
      for (unsigned i = 0; i < 3000; ++i) {
        switch ((i + t) % 3) {
          case 0: {
            const Order order{i % 4};
            const PageIndex page = open.zone.take(order, false);
            if (page != kNoPage) {
              open.zone.give(page, order);
            }
            break;
          }
          case 1: {
            const std::uint32_t got = open.zone.take_many(pages, 1 + i % kClusterFrames, false);
            open.zone.give_many(pages, got, Order{0});
            break;
          }
          default: {
            Hand hand;
            static_cast<void>(open.zone.take_into(hand, Order{i % 3}, 1 + i % 16, false));
            open.zone.give_hand(hand);
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(open.zone.audit(), 512U);
  EXPECT_EQ(open.zone.free_blocks(Order{9}), 1U);
  const ZoneCounterValues counters = values_of(open.zone.counters());
  EXPECT_EQ(counters.taken, counters.given);
  EXPECT_LE(counters.lock_most_frames, kClusterFrames);
}

}  // namespace
}  // namespace weir
