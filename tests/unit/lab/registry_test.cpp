// SPDX-License-Identifier: MIT
// What stands in the registries of experiments and contenders.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "lab/contenders/contenders.hpp"
#include "lab/experiments/experiments.hpp"

namespace weir::lab {
namespace {

TEST(Experiments, HaveDifferentNamesAndTellWhatTheyAsk) {
  std::set<std::string> names;
  for (const Experiment& experiment : experiments()) {
    EXPECT_TRUE(names.insert(experiment.name).second) << experiment.name;
    EXPECT_TRUE(experiment.question.ends_with("?")) << experiment.name;
    EXPECT_FALSE(experiment.source.empty()) << experiment.name;
    EXPECT_FALSE(experiment.expected.empty()) << experiment.name;
    EXPECT_FALSE(experiment.meaning.empty()) << experiment.name;
    EXPECT_FALSE(experiment.cases.empty()) << experiment.name;
  }
  EXPECT_EQ(names, (std::set<std::string>{"forward", "pair", "bulk", "cross"}));
}

TEST(Experiments, AreFoundByName) {
  ASSERT_NE(find_experiment("cross"), nullptr);
  EXPECT_EQ(find_experiment("cross")->name, "cross");
  EXPECT_EQ(find_experiment("list"), nullptr);  // the word of `weir lab list`
  EXPECT_EQ(find_experiment(""), nullptr);
}

struct ContendersTest : testing::Test {
  const std::vector<Contender> contenders = find_contenders(lab_options());
};

TEST_F(ContendersTest, AllThatExperimentsNameAreThereFoundOrMissing) {
  for (const Experiment& experiment : experiments()) {
    for (const std::string& name : experiment.contenders) {
      EXPECT_NE(find_contender(contenders, name), nullptr) << experiment.name << ": " << name;
    }
  }
}

TEST_F(ContendersTest, NoneIsLeftOutOfEveryExperiment) {
  for (const Contender& contender : contenders) {
    bool used = false;
    for (const Experiment& experiment : experiments()) {
      for (const std::string& name : experiment.contenders) {
        used = used || name == contender.name;
      }
    }
    EXPECT_TRUE(used) << contender.name;
  }
}

TEST_F(ContendersTest, AMissingOneNamesItsPackage) {
  for (const Contender& contender : contenders) {
    if (!contender.missing.empty()) {
      EXPECT_NE(contender.missing.find("package"), std::string::npos) << contender.name;
    }
    EXPECT_FALSE(contender.about.empty()) << contender.name;
  }
}

TEST_F(ContendersTest, WeirsOwnCarryItsName) {
  for (const Contender& contender : contenders) {
    EXPECT_EQ(contender.side == Side::weir, contender.name.starts_with("weir.")) << contender.name;
    EXPECT_EQ(contender.side == Side::floor, contender.name.starts_with("floor."))
        << contender.name;
  }
}

TEST_F(ContendersTest, ThoseThatAreFoundWork) {
  for (const Contender& contender : contenders) {
    if (!contender.missing.empty() || contender.name.starts_with("dpdk")) {
      continue;  // DPDK binds threads for the life of the process: the command's tests run it
    }
    const TrialOrProblem made = contender.make({Workload::pair, nullptr, kLabBuffers});
    ASSERT_NE(made.trial, nullptr) << contender.name << ": " << made.problem;
    made.trial->prepare({std::chrono::milliseconds{1}, false});
    made.trial->lead();
    EXPECT_EQ(made.trial->collect().fault, "") << contender.name;
  }
}

}  // namespace
}  // namespace weir::lab
