// SPDX-License-Identifier: MIT
// Order and length of rounds.
#include "lab/harness/plan.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

namespace weir::lab {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

TEST(Plan, EachRoundStartsOneContenderFurther) {
  EXPECT_EQ(round_order(0, 3), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(round_order(1, 3), (std::vector<std::size_t>{1, 2, 0}));
  EXPECT_EQ(round_order(2, 3), (std::vector<std::size_t>{2, 0, 1}));
  EXPECT_EQ(round_order(3, 3), (std::vector<std::size_t>{0, 1, 2}));
}

TEST(Plan, EveryContenderRunsOnceARoundAndInEveryPlaceOnceACycle) {
  constexpr std::size_t kContenders = 7;
  std::map<std::size_t, std::set<std::size_t>> places;
  for (std::size_t round = 0; round < kContenders; ++round) {
    const auto order = round_order(round, kContenders);
    EXPECT_EQ(std::set<std::size_t>(order.begin(), order.end()).size(), kContenders);
    for (std::size_t place = 0; place < kContenders; ++place) {
      places[order[place]].insert(place);
    }
  }
  for (const auto& [contender, seen] : places) {
    EXPECT_EQ(seen.size(), kContenders) << contender;
  }
}

TEST(Plan, OneContenderIsAPlanToo) { EXPECT_EQ(round_order(5, 1), std::vector<std::size_t>{0}); }

TEST(Plan, SevenRoundsAtLeastAndTheWholeTimeIsShared) {
  const Plan plan = plan_for(seconds{1}, 8, 0);
  EXPECT_EQ(plan.rounds, kLeastRounds);
  EXPECT_EQ(plan.slot, nanoseconds{seconds{1}} / (8 * 8));
}

TEST(Plan, MoreTimeMeansMoreRoundsNotEndlessOnes) {
  const Plan plan = plan_for(seconds{60}, 8, 0);
  EXPECT_GT(plan.rounds, kLeastRounds);
  EXPECT_GE(plan.slot, milliseconds{195});
  EXPECT_LE(plan.slot, milliseconds{205});
  EXPECT_LE(plan.slot * 8 * static_cast<long>(plan.rounds + 1), seconds{61});
}

TEST(Plan, ANumberOfRoundsIsTakenAsGiven) {
  const Plan plan = plan_for(seconds{10}, 5, 3);
  EXPECT_EQ(plan.rounds, 3U);
  EXPECT_EQ(plan.slot, nanoseconds{seconds{10}} / (5 * 4));
}

TEST(Plan, RoundsNeverExceedTheLimitAndSlotsNeverVanish) {
  EXPECT_LE(plan_for(seconds{3600}, 1, 0).rounds, kMostRounds);
  EXPECT_GE(plan_for(nanoseconds{1}, 9, 0).slot, milliseconds{1});
  EXPECT_GE(plan_for(nanoseconds{1}, 0, 0).slot, milliseconds{1});  // nobody takes part
}

}  // namespace
}  // namespace weir::lab
