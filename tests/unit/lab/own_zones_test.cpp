// SPDX-License-Identifier: MIT
// The experiments with a zone of their own: that each round does what its description says, counts it, and
// leaves the zone as it found it.
#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "lab/experiments/compaction.hpp"
#include "lab/experiments/experiments.hpp"
#include "lab/experiments/fragmentation.hpp"
#include "lab/experiments/low_memory.hpp"
#include "lab/experiments/mixed_load.hpp"
#include "lab/harness/crew.hpp"

namespace weir::lab {
namespace {

Options options_of(EngineChoice engine, Merge merge) {
  Options options;
  options.engine = engine;
  options.merge = merge;
  options.thp = ThpChoice::off;
  return options;
}

// Every way to choose engine and merging that the experiments compare.
std::vector<Options> ways() {
  std::vector<Options> all;
  for (const EngineChoice engine : {EngineChoice::buddy, EngineChoice::bitmap}) {
    for (const Merge merge : {Merge::immediate, Merge::deferred}) {
      all.push_back(options_of(engine, merge));
    }
  }
  return all;
}

std::string text_of(const Options& options) {
  return std::string{choice_name(options.engine)} + " " + choice_name(options.merge);
}

Outcome run_once(Trial& trial, Crew& crew) {
  trial.prepare({std::chrono::milliseconds{3}, crew.cpus().shared()});
  if (trial.two_sided()) {
    crew.run([&] { trial.lead(); }, [&] { trial.follow(); });
  } else {
    crew.run([&] { trial.lead(); }, {});
  }
  return trial.collect();
}

double reading(const Outcome& outcome, std::string_view metric) {
  for (const Reading& r : outcome.readings) {
    if (r.metric == metric) {
      return r.value;
    }
  }
  return -1;
}

// Every metric of the tables and the main one are taken.
void expect_described(const Experiment& experiment, const Outcome& outcome) {
  EXPECT_GT(reading(outcome, experiment.metric.name), 0);
  for (const Details& details : experiment.details) {
    for (const Details::Column& column : details.columns) {
      EXPECT_GE(reading(outcome, column.metric), 0) << column.metric;
    }
  }
}

// ---- low-memory ----------------------------------------------------------------------------------

constexpr std::uint64_t kSmallFrames = std::uint64_t{1} << 17;

Outcome low_memory(bool scattered, const Options& options, Crew& crew, int rounds = 2) {
  LowMemoryTrial trial{{"small", scattered, kSmallFrames}, options};
  Outcome outcome;
  for (int round = 0; round < rounds && outcome.fault.empty(); ++round) {
    outcome = run_once(trial, crew);
  }
  return outcome;
}

TEST(LowMemory, CrossesLowOnceAndDrainsTheDepotOnceForIt) {
  Crew crew{choose_cpus()};
  const auto low = static_cast<double>(watermarks_of(PageCount{kSmallFrames}).low.value);
  for (const Options& options : ways()) {
    for (const bool scattered : {false, true}) {
      SCOPED_TRACE(text_of(options) + (scattered ? " scattered" : ""));
      const Outcome outcome = low_memory(scattered, options, crew);
      ASSERT_EQ(outcome.fault, "");
      expect_described(*find_experiment("low-memory"), outcome);
      EXPECT_EQ(reading(outcome, "crossings"), 1);
      EXPECT_EQ(reading(outcome, "depot_drains"), options.merge == Merge::deferred ? 1 : 0);
      EXPECT_EQ(reading(outcome, "depot_drains_per_crossing"), reading(outcome, "depot_drains"));
      // Lists hold what is neither free nor live: no more than they start with and a cluster.
      const double live = reading(outcome, "low_at_live");
      EXPECT_LE(live, kSmallFrames - low);
      EXPECT_GE(live, kSmallFrames - low - 256);
    }
  }
}

TEST(LowMemory, IsShortOfPageblocksOnlyWhereLivePagesLieScattered) {
  Crew crew{choose_cpus()};
  constexpr auto kMost = static_cast<double>(kLowMemoryLevels.size() * LowMemoryTrial::kTries);
  for (const Options& options : ways()) {
    SCOPED_TRACE(text_of(options));
    const Outcome in_order = low_memory(false, options, crew);
    const Outcome scattered = low_memory(true, options, crew);
    EXPECT_EQ(reading(in_order, "order9_served_4high"), 1);
    EXPECT_LE(reading(in_order, "order9_served"), kMost);
    EXPECT_GT(reading(in_order, "order9_served"), kMost / 2);
    EXPECT_EQ(reading(scattered, "order9_served"), 0);
    EXPECT_GT(reading(scattered, "shortages"), 0);
    double share = 0;
    for (const LowMemoryLevel& level : kLowMemoryLevels) {
      share += reading(in_order, level.order9_served);
      EXPECT_GT(reading(in_order, level.time), 0) << level.time;
      EXPECT_GT(reading(in_order, level.order9_time), 0) << level.order9_time;
    }
    EXPECT_EQ(share * LowMemoryTrial::kTries, reading(in_order, "order9_served"));
  }
}

// Where nothing is put off every page that swings past the list goes through the engine; where it is, only
// while memory is low.
TEST(LowMemory, PutsOffNothingWhileMemoryIsLow) {
  Crew crew{choose_cpus()};
  for (const EngineChoice engine : {EngineChoice::buddy, EngineChoice::bitmap}) {
    SCOPED_TRACE(choice_name(engine));
    const double eager =
        reading(low_memory(false, options_of(engine, Merge::immediate), crew), "engine_frames");
    const double deferred =
        reading(low_memory(false, options_of(engine, Merge::deferred), crew), "engine_frames");
    constexpr double kSwung = 2.0 * kLowMemoryLevels.size() * LowMemoryTrial::kSwings *
                              (LowMemoryTrial::kLeastSwing + LowMemoryTrial::kMostSwing) / 2;
    EXPECT_GT(eager, kSwung * 0.6);
    EXPECT_LT(eager, kSwung);
    EXPECT_LT(deferred, eager * 0.8);
    EXPECT_GT(deferred, eager * 0.3);
  }
}

TEST(LowMemory, AZoneThatCannotHandOutItsPagesIsAFault) {
  Crew crew{choose_cpus()};
  Options options = options_of(EngineChoice::buddy, Merge::deferred);
  options.limit = PageCount{kSmallFrames / 2};
  EXPECT_EQ(low_memory(true, options, crew).fault, "it did not hand out all of its zone");
  EXPECT_EQ(low_memory(false, options, crew).fault, "it refused pages that were free");
}

TEST(LowMemory, ASwingThatIsRefusedIsAFault) {
  Crew crew{choose_cpus()};
  // min leaves fewer frames than the greatest swing takes.
  constexpr std::uint64_t kFew = std::uint64_t{1} << 15;
  static_assert(watermarks_of(PageCount{kFew}).min.value < LowMemoryTrial::kMostSwing);
  LowMemoryTrial trial{{"tiny", false, kFew}, options_of(EngineChoice::buddy, Merge::deferred)};
  EXPECT_EQ(run_once(trial, crew).fault, "it refused pages that were free");
}

// ---- mixed-load ----------------------------------------------------------------------------------

constexpr std::uint64_t kMixedFrames = std::uint64_t{1} << 15;

TEST(MixedLoad, BothKindsAreServedAndEveryLargestBlockComesBack) {
  Crew crew{choose_cpus()};
  for (const Options& options : ways()) {
    for (const std::uint32_t threads : {2U, 4U}) {
      SCOPED_TRACE(text_of(options) + " " + std::to_string(threads));
      MixedLoadTrial trial{{"small", threads, 256, kMixedFrames}, options};
      for (int round = 0; round < 2; ++round) {
        const Outcome outcome = run_once(trial, crew);
        ASSERT_EQ(outcome.fault, "");
        expect_described(*find_experiment("mixed-load"), outcome);
        EXPECT_GT(reading(outcome, "order0_rate"), 0);
        EXPECT_GT(reading(outcome, "order9_rate"), 0);
        EXPECT_DOUBLE_EQ(reading(outcome, "time") * reading(outcome, "order0_rate"), 1e9);
        const double attempts = reading(outcome, "order9_attempts");
        EXPECT_EQ(static_cast<std::uint64_t>(attempts) % MixedLoadTrial::kBlocks, 0U);
        EXPECT_LE(reading(outcome, "order9_refused"), attempts);
        constexpr auto kAll = static_cast<double>(kMixedFrames >> kMaxOrder.value);
        EXPECT_EQ(reading(outcome, "largest_drained"), kAll);
        EXPECT_EQ(reading(outcome, "largest_served"), kAll);
        EXPECT_LE(reading(outcome, "largest_before"), reading(outcome, "largest_merged"));
        EXPECT_LE(reading(outcome, "largest_merged"), kAll);
        EXPECT_GT(reading(outcome, "largest_merged"), kAll / 2);
      }
    }
  }
}

// A quarter of the pageblocks, more or less, and none out of the holes between live pages.
TEST(MixedLoad, BeginsWithSomePageblocksAndManyHoles) {
  Crew crew{choose_cpus()};
  for (const Options& options : ways()) {
    SCOPED_TRACE(text_of(options));
    MixedLoadTrial trial{{"small", 2, 256, kMixedFrames}, options};
    trial.prepare({std::chrono::milliseconds{1}, crew.cpus().shared()});
    constexpr std::uint64_t kWhole = kMixedFrames / kPageblockFrames;
    constexpr auto kBlocks = static_cast<double>(kWhole);
    const auto free = static_cast<double>(trial.pages().zone_state().free);
    crew.run([&] { trial.lead(); }, [&] { trial.follow(); });
    const Outcome outcome = trial.collect();
    const double whole = reading(outcome, "order9_free_at_start");
    EXPECT_GT(whole, kBlocks / 8);
    EXPECT_LT(whole, kBlocks / 2);
    const double holes = free - whole * kPageblockFrames;
    EXPECT_NEAR(holes / ((kBlocks - whole) * kPageblockFrames), 0.5, 0.02);
  }
}

TEST(MixedLoad, ARefusedPageblockIsCountedApart) {
  Crew crew{choose_cpus()};
  // Two pageblocks and more in hand than there are: 4 MiB of 16 at most come home whole.
  MixedLoadTrial trial{{"tiny", 2, 64, std::uint64_t{1} << 12},
                       options_of(EngineChoice::bitmap, Merge::deferred)};
  const Outcome outcome = run_once(trial, crew);
  ASSERT_EQ(outcome.fault, "");
  EXPECT_LT(reading(outcome, "order9_free_at_start"), MixedLoadTrial::kBlocks);
  EXPECT_GT(reading(outcome, "order9_refusal_rate"), 0);
  EXPECT_GE(reading(outcome, "order9_refused"),
            reading(outcome, "order9_attempts") *
                (1 - reading(outcome, "order9_free_at_start") / MixedLoadTrial::kBlocks));
}

TEST(MixedLoad, AZoneThatCannotHandOutItsPagesIsAFault) {
  Crew crew{choose_cpus()};
  Options options = options_of(EngineChoice::buddy, Merge::deferred);
  options.limit = PageCount{kMixedFrames / 2};
  MixedLoadTrial trial{{"small", 2, 256, kMixedFrames}, options};
  EXPECT_NE(run_once(trial, crew).fault.find("did not hand out all"), std::string::npos);
}

// ---- fragmentation -------------------------------------------------------------------------------

constexpr std::uint64_t kChurnFrames = std::uint64_t{1} << 16;

TEST(Fragmentation, TheBitmapEngineMakesWholeBlocksBehindListsAndDepot) {
  Crew crew{choose_cpus()};
  for (const Giver giver : {Giver::same, Giver::other, Giver::other_meanwhile}) {
    SCOPED_TRACE(static_cast<int>(giver));
    FragmentationTrial trial{{"small", kChurnFrames, giver},
                             options_of(EngineChoice::bitmap, Merge::deferred)};
    const Outcome outcome = run_once(trial, crew);
    ASSERT_EQ(outcome.fault, "");
    expect_described(*find_experiment("fragmentation"), outcome);
    EXPECT_EQ(reading(outcome, "whole_0"), 0);
    EXPECT_LT(reading(outcome, "whole_10"), 20);
    // At once it is a matter of who is faster.
    EXPECT_GE(reading(outcome, "whole_100"), giver == Giver::other_meanwhile ? 0 : 90);
    EXPECT_LE(reading(outcome, "whole_100"), reading(outcome, "whole_100_drained"));
    EXPECT_LE(reading(outcome, "whole_100_drained"), 100);
    EXPECT_EQ(reading(outcome, "broken"), 100 - reading(outcome, "whole_100"));
    // A half stays out, a tenth of it goes and comes each time.
    EXPECT_EQ(reading(outcome, "pages"), 2 * 100 * (kChurnFrames / 2 / 10));
  }
}

TEST(Fragmentation, TheBuddyEngineDoesNot) {
  Crew crew{choose_cpus()};
  FragmentationTrial trial{{"small", kChurnFrames, Giver::same},
                           options_of(EngineChoice::buddy, Merge::deferred)};
  const Outcome outcome = run_once(trial, crew);
  ASSERT_EQ(outcome.fault, "");
  EXPECT_LT(reading(outcome, "whole_100"), 20);
  EXPECT_EQ(reading(outcome, "broken"), 100 - reading(outcome, "whole_100"));
}

// The same seed, the same frames: whole rounds can be told again. The next round has another.
TEST(Fragmentation, IsTheSameAgainAndAnotherNextRound) {
  Crew crew{choose_cpus()};
  const Options options = options_of(EngineChoice::bitmap, Merge::immediate);
  FragmentationTrial one{{"small", kChurnFrames, Giver::same}, options};
  FragmentationTrial two{{"small", kChurnFrames, Giver::same}, options};
  const auto looks = [&](FragmentationTrial& trial) {
    const Outcome outcome = run_once(trial, crew);
    EXPECT_EQ(outcome.fault, "");
    std::vector<double> seen;
    for (const Details::Column& column :
         find_experiment("fragmentation")->details.front().columns) {
      seen.push_back(reading(outcome, column.metric));
    }
    return seen;
  };
  const std::vector<double> first = looks(one);
  EXPECT_EQ(looks(two), first);
  EXPECT_NE(looks(one), first);
}

TEST(Fragmentation, AZoneThatCannotHandOutItsPagesIsAFault) {
  Crew crew{choose_cpus()};
  Options options = options_of(EngineChoice::bitmap, Merge::deferred);
  options.limit = PageCount{kChurnFrames / 2};
  for (const Giver giver : {Giver::same, Giver::other}) {
    FragmentationTrial trial{{"small", kChurnFrames, giver}, options};
    EXPECT_EQ(run_once(trial, crew).fault, "it did not hand out all of its zone");
  }
}

// ---- compaction ----------------------------------------------------------------------------------

TEST(CompactionTrials, CarryTheLeastThereIsAndWinAllThereIs) {
  Crew crew{choose_cpus()};
  double moved[2] = {};
  for (const unsigned turns : {0U, 60U}) {
    for (const EngineChoice engine : {EngineChoice::buddy, EngineChoice::bitmap}) {
      CompactionTrial trial{{"small", kChurnFrames, turns}, options_of(engine, Merge::deferred)};
      const Outcome outcome = run_once(trial, crew);
      ASSERT_EQ(outcome.fault, "");
      expect_described(*find_experiment("compaction"), outcome);
      EXPECT_EQ(reading(outcome, "whole_after"), 100);
      EXPECT_LE(reading(outcome, "over_least"), 101);
      EXPECT_GE(reading(outcome, "over_least"), 99);
      EXPECT_EQ(reading(outcome, "failed"), 0);
      moved[engine == EngineChoice::bitmap ? 1 : 0] = reading(outcome, "moved");
    }
    EXPECT_LE(moved[1], turns == 0 ? moved[0] * 1.01 : moved[0] / 3);
    EXPECT_GT(moved[1], 0);
  }
}

TEST(CompactionTrials, AZoneThatCannotHandOutItsPagesIsAFault) {
  Crew crew{choose_cpus()};
  Options options = options_of(EngineChoice::bitmap, Merge::deferred);
  options.limit = PageCount{kChurnFrames / 2};
  CompactionTrial trial{{"small", kChurnFrames, 1}, options};
  EXPECT_EQ(run_once(trial, crew).fault, "it did not hand out all of its zone");
}

// ---- their descriptions --------------------------------------------------------------------------

// All have the same path of release, and begin with the same zone.
TEST(OwnZones, OneIsOpenAtATimeAndTheDefault) {
  Crew crew{choose_cpus()};
  LowMemoryTrial one{{"small", false, kSmallFrames},
                     options_of(EngineChoice::buddy, Merge::deferred)};
  MixedLoadTrial two{{"small", 2, 256, kMixedFrames},
                     options_of(EngineChoice::bitmap, Merge::deferred)};
  EXPECT_EQ(run_once(one, crew).fault, "");
  two.prepare({std::chrono::milliseconds{1}, crew.cpus().shared()});
  EXPECT_EQ(zone_registry::g_default.load(memory_order_relaxed), &two.pages().zone());
  crew.run([&] { two.lead(); }, [&] { two.follow(); });
  EXPECT_EQ(two.collect().fault, "");
}

TEST(OwnZones, OneThatCannotBeOpenedIsAFault) {
  Crew crew{choose_cpus()};
  Options options = options_of(EngineChoice::bitmap, Merge::skip);  // the buddy engine's alone
  LowMemoryTrial low{{"small", false, kSmallFrames}, options};
  MixedLoadTrial mixed{{"small", 2, 256, kMixedFrames}, options};
  FragmentationTrial churn{{"small", kChurnFrames, Giver::other}, options};
  for (Trial* trial : std::initializer_list<Trial*>{&low, &mixed, &churn}) {
    const Outcome outcome = run_once(*trial, crew);
    EXPECT_NE(outcome.fault, "");
    EXPECT_TRUE(outcome.readings.empty());
  }
}

TEST(OwnZones, EveryCaseOfTheExperimentsIsKnown) {
  for (const Case& one : find_experiment("low-memory")->cases) {
    EXPECT_EQ(low_memory_case(one.name).name, one.name);
  }
  for (const Case& one : find_experiment("mixed-load")->cases) {
    EXPECT_EQ(mixed_load_case(one.name).name, one.name);
  }
  for (const Case& one : find_experiment("compaction")->cases) {
    EXPECT_EQ(compaction_case(one.name).name, one.name);
    EXPECT_EQ(one.quick && one.name.starts_with("16g"), false);
  }
  for (const Case& one : find_experiment("fragmentation")->cases) {
    EXPECT_EQ(fragmentation_case(one.name).name, one.name);
    EXPECT_EQ(fragmentation_case(one.name).frames,
              std::uint64_t{1} << (one.name.starts_with("16g") ? 22 : 18));
    EXPECT_EQ(one.quick && one.name.starts_with("16g"), false);
  }
}

}  // namespace
}  // namespace weir::lab
