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
    EXPECT_FALSE(zone.open(PageCount{reserve}, EngineChoice::buddy).failed());
    EXPECT_FALSE(zone.adopt(first(), PageCount{frames}).failed());
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
  EXPECT_FALSE(zone.open(PageCount{0}).failed());
  ASSERT_FALSE(zone.adopt(one.first(), PageCount{8}).failed());
  ASSERT_FALSE(zone.adopt(two.first(), PageCount{3}).failed());
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
  ASSERT_EQ(open.zone.take_many(Order{0}, pages, kClusterFrames, false), kClusterFrames);
  EXPECT_EQ(open.holds(), 1U);
  for (std::uint32_t i = 0; i < kClusterFrames; ++i) {
    EXPECT_EQ(pages[i], open.frame(i));
  }
  open.zone.give_many(pages, kClusterFrames, Order{0});
  EXPECT_EQ(open.holds(), 2U);
  EXPECT_EQ(open.zone.counters().lock_most_frames.get(), kClusterFrames);
  EXPECT_EQ(open.blocks(), "a" + std::string(1023, '-'));
}

TEST(Zone, MovesBlocksOfOneOrderAscendingUnderOneHold) {
  OpenZone open(1024);
  PageIndex pages[4];
  EXPECT_EQ(open.zone.take_many(Order{1}, pages, 4, false), 4U);
  EXPECT_EQ(open.holds(), 1U);
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(pages[i], open.frame(2 * i));
    EXPECT_EQ(order_of(page_at(pages[i])), Order{1});
  }
  EXPECT_EQ(open.zone.free_pages(), 1016U);
  open.zone.give_many(pages, 4, Order{1});
  EXPECT_EQ(open.holds(), 2U);
  EXPECT_EQ(open.zone.free_blocks(kMaxOrder), 1U);
}

TEST(Zone, TakesManyOnlyIfAllOfThemAreAllowed) {
  OpenZone open(8, 3);
  PageIndex pages[8];
  EXPECT_EQ(open.zone.take_many(Order{0}, pages, 6, false), 0U);
  EXPECT_EQ(open.zone.take_many(Order{1}, pages, 3, false), 0U);
  EXPECT_EQ(open.zone.free_pages(), 8U);
  EXPECT_EQ(open.zone.take_many(Order{0}, pages, 5, false), 5U);
  EXPECT_EQ(open.zone.take_many(Order{0}, pages + 5, 3, true), 3U);
  open.zone.give_many(pages, 8, Order{0});
  EXPECT_EQ(open.zone.free_blocks(Order{3}), 1U);
}

TEST(Zone, TakesManyOfALargeOrderAsFarAsThereAreBlocks) {
  OpenZone open(16);
  const PageIndex hole = open.zone.take(Order{0}, false);
  PageIndex pages[2];
  EXPECT_EQ(open.zone.take_many(Order{3}, pages, 1, false), 1U);
  EXPECT_EQ(open.zone.take_many(Order{3}, pages + 1, 1, false), 0U);  // seven left, in pieces
  open.zone.give(hole, Order{0});
  open.zone.give_many(pages, 1, Order{3});
  EXPECT_EQ(open.zone.audit(), 16U);
}

TEST(Zone, AnswersNoPageWhenNothingSuitableIsFree) {
  OpenZone open(4);
  EXPECT_EQ(open.zone.take(Order{3}, false), kNoPage);
  const PageIndex page = open.zone.take(Order{2}, false);
  EXPECT_EQ(page, open.first());
  EXPECT_EQ(open.zone.take(Order{0}, false), kNoPage);
  PageIndex pages[4];
  EXPECT_EQ(open.zone.take_many(Order{0}, pages, 4, false), 0U);
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
  EXPECT_EQ(open.zone.take_many(Order{0}, pages + got, 1, false), 0U);
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

// What lies outside the zone, as a test says it.
struct Others final : Zone::Outside {
  explicit Others(bool are_quiet) : all_quiet(are_quiet) {}
  [[nodiscard]] bool quiet() const noexcept override { return all_quiet; }
  bool all_quiet;
};

TEST(Zone, TellsWhetherARefusalIsFinal) {
  OpenZone open(1);
  Others others{false};
  bool quiet = true;
  const PageIndex page = open.zone.take_or_tell(Order{0}, false, others, false, quiet);
  EXPECT_EQ(page, open.first());
  EXPECT_EQ(open.zone.take_or_tell(Order{0}, false, others, false, quiet), kNoPage);
  EXPECT_FALSE(quiet);
  EXPECT_EQ(open.zone.counters().refusals.get(), 0U);  // not final
  EXPECT_EQ(open.zone.take_or_tell(Order{0}, false, others, true, quiet), kNoPage);
  EXPECT_EQ(open.zone.counters().refusals.get(), 1U);  // the last try is
  others.all_quiet = true;
  EXPECT_EQ(open.zone.take_or_tell(Order{0}, false, others, false, quiet), kNoPage);
  EXPECT_TRUE(quiet);
  EXPECT_EQ(open.zone.counters().refusals.get(), 2U);
  open.zone.give(page, Order{0});
}

TEST(ZoneLimits, TheHardOneIsKeptBackAndTheReserveLiesWithinIt) {
  OpenZone open(64, 4);
  open.zone.set_limits(PageCount{40}, {});
  EXPECT_EQ(open.zone.hard_limit(), PageCount{40});
  const Others others{true};
  PageIndex pages[64];
  EXPECT_EQ(open.zone.take_many(Order{0}, pages, 37, false), 0U);
  EXPECT_FALSE(open.zone.claim(37, false));
  ASSERT_EQ(open.zone.take_many(Order{0}, pages, 36, false), 36U);
  bool quiet = false;
  TakeReport report;
  EXPECT_EQ(open.zone.take_or_tell(Order{0}, false, others, false, quiet, &report), kNoPage);
  EXPECT_TRUE(report.refused);
  EXPECT_FALSE(report.by_limit);  // by the reserve
  EXPECT_EQ(report.usable, 0);
  for (std::size_t i = 36; i < 40; ++i) {
    report = {};
    pages[i] = open.zone.take(Order{0}, true, &report);
    ASSERT_TRUE(is_page(pages[i]));
    EXPECT_EQ(report.from_reserve, 1U);
  }
  EXPECT_EQ(open.zone.take_or_tell(Order{0}, true, others, false, quiet, &report), kNoPage);
  EXPECT_TRUE(report.by_limit);
  EXPECT_EQ(report.used, 40U);
  EXPECT_EQ(open.zone.counters().refusals.get(), 2U);
  EXPECT_EQ(open.zone.counters().limit_refusals.get(), 1U);
  // It comes down below what is out: that much is owed first.
  open.zone.set_limits(PageCount{30}, {});
  EXPECT_EQ(open.zone.take_or_tell(Order{0}, true, others, false, quiet, &report), kNoPage);
  EXPECT_EQ(report.usable, -10);
  open.zone.give_many(pages + 29, 11, Order{0});
  pages[29] = open.zone.take(Order{0}, true);
  EXPECT_TRUE(is_page(pages[29]));
  EXPECT_EQ(open.zone.take(Order{0}, true), kNoPage);
  open.zone.give_many(pages, 30, Order{0});
  EXPECT_EQ(open.zone.audit(), 64U);
}

TEST(ZoneLimits, WhatIsClaimedCountsAsOut) {
  OpenZone open(64);
  open.zone.set_limits(PageCount{40}, {});
  ASSERT_TRUE(open.zone.claim(30, false));
  EXPECT_EQ(open.zone.take(Order{4}, false), kNoPage);
  const PageIndex run = open.zone.take(Order{3}, false);
  EXPECT_TRUE(is_page(run));
  EXPECT_FALSE(open.zone.claim(3, false));
  PageIndex pages[30];
  open.zone.take_claimed(pages, 30);
  EXPECT_EQ(open.zone.take(Order{2}, false), kNoPage);
  open.zone.give_many(pages, 30, Order{0});
  open.zone.give(run, Order{3});
}

TEST(ZoneLimits, TheSoftOneIsCrossedOnlyWhenThatIsCertain) {
  OpenZone open(64);
  open.zone.set_limits({}, PageCount{10});
  Others others{false};
  PageIndex pages[64];
  EXPECT_EQ(open.zone.take_many(Order{0}, pages, 11, false), 0U);
  ASSERT_EQ(open.zone.take_many(Order{0}, pages, 10, false), 10U);
  // One page may still be on its way home.
  bool quiet = true;
  TakeReport report;
  EXPECT_EQ(open.zone.take(Order{0}, false, &report), kNoPage);
  EXPECT_FALSE(open.zone.claim(1, false, &report));
  EXPECT_EQ(open.zone.take_or_tell(Order{0}, false, others, false, quiet, &report), kNoPage);
  EXPECT_FALSE(quiet);
  quiet = true;
  EXPECT_FALSE(open.zone.claim_or_tell(5, false, others, false, quiet, &report));
  EXPECT_FALSE(quiet);
  EXPECT_EQ(report.crossings, 0U);
  EXPECT_EQ(open.zone.counters().refusals.get(), 0U);
  others.all_quiet = true;
  ASSERT_TRUE(open.zone.claim_or_tell(5, false, others, false, quiet, &report));
  EXPECT_EQ(report.crossings, 1U);
  EXPECT_EQ(report.crossing_used, 10U);
  EXPECT_EQ(report.crossing_asked, 5U);
  open.zone.take_claimed(pages + 10, 5);
  // Above it nobody asks, until it is reached from above.
  ASSERT_EQ(open.zone.take_many(Order{0}, pages + 15, 20, false), 20U);
  open.zone.give_many(pages + 11, 24, Order{0});
  pages[11] = open.zone.take(Order{0}, false);
  EXPECT_TRUE(is_page(pages[11]));
  open.zone.give_many(pages + 10, 2, Order{0});
  EXPECT_EQ(open.zone.take(Order{0}, false), kNoPage);
  // Who does not try again is served, certain or not.
  others.all_quiet = false;
  pages[10] = open.zone.take_or_tell(Order{0}, false, others, true, quiet, &report);
  EXPECT_TRUE(is_page(pages[10]));
  EXPECT_EQ(report.crossings, 2U);
  EXPECT_EQ(open.zone.counters().soft_crossings.get(), 2U);
  open.zone.give_many(pages, 11, Order{0});
}

TEST(Zone, WhatIsClaimedIsKeptForWhoClaimedIt) {
  OpenZone open(64);
  const Others quiet_others{true};
  bool quiet = false;
  ASSERT_TRUE(open.zone.claim_or_tell(40, false, quiet_others, false, quiet));
  // 24 are left for others, singly, in bulk, as a block, or claimed.
  EXPECT_EQ(open.zone.take(Order{5}, false), kNoPage);
  PageIndex pages[64];
  EXPECT_EQ(open.zone.take_many(Order{0}, pages, 25, false), 0U);
  EXPECT_EQ(open.zone.take_or_tell(Order{5}, false, quiet_others, false, quiet), kNoPage);
  EXPECT_TRUE(quiet);
  EXPECT_FALSE(open.zone.claim_or_tell(25, false, quiet_others, false, quiet));
  EXPECT_TRUE(quiet);
  EXPECT_EQ(open.zone.counters().refusals.get(), 2U);
  EXPECT_EQ(open.zone.take_many(Order{0}, pages, 24, false), 24U);
  EXPECT_EQ(open.zone.take(Order{0}, true), kNoPage);
  // They come in parts.
  open.zone.take_claimed(pages + 24, 30);
  EXPECT_EQ(open.zone.take(Order{0}, false), kNoPage);
  open.zone.take_claimed(pages + 54, 10);
  EXPECT_EQ(open.zone.free_pages(), 0U);
  std::sort(pages, pages + 64);
  for (std::uint32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(pages[i], open.frame(i));
  }
  open.zone.give_many(pages, 64, Order{0});
  EXPECT_EQ(open.zone.take(Order{6}, false), open.first());  // nothing is claimed any more
  open.zone.give(open.first(), Order{6});
  EXPECT_EQ(open.zone.audit(), 64U);
}

TEST(Zone, AClaimLeavesTheReserveAloneAndTellsWhetherItsRefusalIsFinal) {
  OpenZone open(64, 16);
  Others others{false};
  bool quiet = true;
  EXPECT_FALSE(open.zone.claim_or_tell(49, false, others, false, quiet));
  EXPECT_FALSE(quiet);
  EXPECT_EQ(open.zone.counters().refusals.get(), 0U);
  others.all_quiet = true;
  EXPECT_FALSE(open.zone.claim_or_tell(49, false, others, false, quiet));
  EXPECT_TRUE(quiet);
  EXPECT_EQ(open.zone.counters().refusals.get(), 1U);
  EXPECT_FALSE(open.zone.claim_or_tell(65, true, others, false, quiet));
  ASSERT_TRUE(open.zone.claim_or_tell(49, true, others, false, quiet));
  PageIndex pages[49];
  open.zone.take_claimed(pages, 49);
  open.zone.give_many(pages, 49, Order{0});
}

TEST(Zone, AThreadInsideALockedSectionIsRefusedAndItsPagesWaitOutside) {
  OpenZone open(64);
  const PageIndex single = open.zone.take(Order{0}, false);
  const PageIndex run = open.zone.take(Order{3}, false);
  const std::uint64_t holds = open.holds();
  {
    const ThreadMark mark;  // as a signal handler that interrupted a hold sees it
    EXPECT_EQ(open.zone.take(Order{0}, false), kNoPage);
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
  failpoints::fail_always(Failpoint::zone_take_high);
  EXPECT_EQ(open.zone.take(Order{1}, false), kNoPage);
  EXPECT_EQ(open.zone.take_many(Order{1}, pages, 2, false), 0U);
  const PageIndex single = open.zone.take(Order{0}, false);
  EXPECT_NE(single, kNoPage);
  failpoints::reset();
  failpoints::fail_always(Failpoint::zone_take_cluster);
  EXPECT_EQ(open.zone.take_many(Order{0}, pages, 4, false), 0U);
  const Others others{false};
  bool quiet = false;
  EXPECT_FALSE(open.zone.claim_or_tell(4, false, others, false, quiet));
  EXPECT_TRUE(quiet);  // a test that refuses means it
  failpoints::reset();
  failpoints::arm(Failpoint::zone_take, 1);
  quiet = false;
  EXPECT_EQ(open.zone.take_or_tell(Order{0}, false, others, false, quiet), kNoPage);
  EXPECT_TRUE(quiet);
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
            const std::uint32_t got =
                open.zone.take_many(Order{0}, pages, 1 + i % kClusterFrames, false);
            open.zone.give_many(pages, got, Order{0});
            break;
          }
          default: {
            const Order order{i % 3};
            const std::uint32_t got = open.zone.take_many(order, pages, 1 + i % 16, false);
            open.zone.give_many(pages, got, order);
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
