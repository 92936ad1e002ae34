// SPDX-License-Identifier: MIT
// The loop over rounds and contenders, with contenders that only keep a diary.
#include "lab/harness/runner.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "lab/harness/interrupt.hpp"

namespace weir::lab {
namespace {

struct Diary {
  std::vector<std::string> slots;  // contender of each slot, in order
  int prepared = 0;
  int followed = 0;
};

// Yields its slot number; faulty or interrupted when asked.
class DiaryTrial final : public Trial {
 public:
  DiaryTrial(std::string name, Diary& diary, bool two_sided)
      : name_(std::move(name)), diary_(diary), two_sided_(two_sided) {}

  void prepare(const RoundSetup&) override { ++diary_.prepared; }
  void lead() override {
    diary_.slots.push_back(name_);
    if (diary_.slots.size() == interrupt_in_) {
      std::raise(SIGTERM);
    }
  }
  void follow() override { ++diary_.followed; }
  [[nodiscard]] bool two_sided() const override { return two_sided_; }
  Outcome collect() override {
    ++slot_;
    return {{{"time", "ns", static_cast<double>(slot_)}}, slot_ == fault_in_ ? "it broke" : ""};
  }

  std::size_t interrupt_in_ = 0;
  int fault_in_ = 0;

 private:
  std::string name_;
  Diary& diary_;
  bool two_sided_;
  int slot_ = 0;
};

struct RunnerTest : testing::Test {
  Diary diary;
  Experiment experiment;
  Crew crew{choose_cpus()};
  Progress progress{nullptr, false, 0};
  const Plan plan{3, std::chrono::milliseconds{1}};

  RunnerTest() {
    experiment.name = "pair";
    experiment.metric = {"time", "ns", "ns", 1, false};
  }

  Contender contender(const std::string& name, int fault_in = 0, std::size_t interrupt_in = 0,
                      bool two_sided = false) {
    return {name, "", "", name.starts_with("weir") ? Side::weir : Side::other,
            [=, this](const TrialSetup&) -> TrialOrProblem {
              auto trial = std::make_unique<DiaryTrial>(name, diary, two_sided);
              trial->fault_in_ = fault_in;
              trial->interrupt_in_ = interrupt_in;
              return {std::move(trial), ""};
            }};
  }
  CaseResult run(const std::vector<Contender>& contenders) {
    std::vector<const Contender*> pointers;
    for (const Contender& c : contenders) {
      pointers.push_back(&c);
    }
    return run_case(experiment, "page", {}, pointers, plan, crew, progress);
  }
};

TEST_F(RunnerTest, ContendersAreInterleavedAndTheStartRotates) {
  const CaseResult result = run({contender("a"), contender("b"), contender("c")});
  EXPECT_EQ(diary.slots,
            (std::vector<std::string>{"a", "b", "c", "b", "c", "a", "c", "a", "b", "a", "b", "c"}));
  EXPECT_EQ(result.rounds, 3U);
  EXPECT_EQ(result.fault, "");
}

TEST_F(RunnerTest, TheWarmUpRoundIsNotCounted) {
  const CaseResult result = run({contender("a"), contender("b")});
  ASSERT_EQ(result.contenders.size(), 2U);
  for (const ContenderResult& c : result.contenders) {
    ASSERT_NE(c.find("time"), nullptr);
    EXPECT_EQ(c.find("time")->values, (std::vector<double>{2, 3, 4}));
  }
  EXPECT_EQ(result.control_ns.size(), 6U);
}

TEST_F(RunnerTest, OnlyTwoSidedTrialsUseTheFollower) {
  static_cast<void>(run({contender("a"), contender("b", 0, 0, true)}));
  EXPECT_EQ(diary.followed, 4);
  EXPECT_EQ(diary.prepared, 8);
}

TEST_F(RunnerTest, AFaultStopsTheRunAndIsNamed) {
  const CaseResult result = run({contender("a"), contender("b", 3)});
  EXPECT_EQ(result.fault, "pair page, round 2 of 3, b: it broke");
  EXPECT_EQ(result.rounds, 1U);
}

TEST_F(RunnerTest, AFaultInTheWarmUpIsAFaultToo) {
  EXPECT_EQ(run({contender("a", 1)}).fault, "pair page, warming up, a: it broke");
}

TEST_F(RunnerTest, AnInterruptLetsTheRoundEnd) {
  const InterruptGuard guard;
  const CaseResult result = run({contender("a", 0, 4), contender("b")});  // in round 1
  EXPECT_EQ(result.rounds, 1U);
  EXPECT_EQ(diary.slots.size(), 4U);
  EXPECT_EQ(result.contenders[0].find("time")->values.size(),
            result.contenders[1].find("time")->values.size());
}

TEST_F(RunnerTest, MissingContendersAreNamedAndTheOthersRun) {
  Contender gone = contender("gone");
  gone.missing = "not found: package gone";
  const CaseResult result = run({gone, contender("a")});
  ASSERT_EQ(result.contenders.size(), 2U);
  EXPECT_EQ(result.contenders[0].absent, "not found: package gone");
  EXPECT_EQ(result.contenders[0].find("time"), nullptr);
  EXPECT_EQ(result.contenders[1].find("time")->values.size(), 3U);
}

TEST_F(RunnerTest, ContendersThatCannotBeSetUpAreNamedToo) {
  Contender broken = contender("broken");
  broken.make = [](const TrialSetup&) { return TrialOrProblem{nullptr, "no memory"}; };
  const CaseResult result = run({broken, contender("a")});
  EXPECT_EQ(result.contenders[0].absent, "could not be set up: no memory");
  EXPECT_EQ(result.fault, "");
  EXPECT_EQ(result.rounds, 3U);
}

TEST_F(RunnerTest, WeirMustBeThere) {
  Contender broken = contender("weir.page");
  broken.make = [](const TrialSetup&) { return TrialOrProblem{nullptr, "no memory"}; };
  const CaseResult result = run({broken, contender("a")});
  EXPECT_EQ(result.fault, "weir.page could not be set up: no memory");
  EXPECT_TRUE(diary.slots.empty());
}

TEST_F(RunnerTest, TheCaseDecidesOnTheBatch) {
  experiment.cases = {{"page", "", 16}, {"other", "", 32}};
  std::uint32_t batch = 0;
  Contender one = contender("a");
  one.make = [&, make = one.make](const TrialSetup& setup) {
    batch = setup.batch;
    return make(setup);
  };
  static_cast<void>(run({one}));
  EXPECT_EQ(batch, 16U);
}

TEST_F(RunnerTest, NobodyThereIsNoRound) {
  Contender gone = contender("gone");
  gone.missing = "not found";
  EXPECT_EQ(run({gone}).rounds, 0U);
}

}  // namespace
}  // namespace weir::lab
