// SPDX-License-Identifier: MIT
// What stands in the registries of experiments and contenders.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "lab/contenders/contenders.hpp"
#include "lab/experiments/experiments.hpp"
#include "lab/harness/bounds.hpp"
#include "lab/harness/crew.hpp"

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
  EXPECT_EQ(names,
            (std::set<std::string>{"forward", "pairs", "bulk", "cross-cpu", "engines", "merge",
                                   "low-memory", "mixed-load", "fragmentation", "compaction"}));
}

TEST(Experiments, AreFoundByName) {
  ASSERT_NE(find_experiment("cross-cpu"), nullptr);
  EXPECT_EQ(find_experiment("cross-cpu")->name, "cross-cpu");
  EXPECT_EQ(find_experiment("list"), nullptr);  // the word of `weir lab list`
  EXPECT_EQ(find_experiment(""), nullptr);
}

TEST(Experiments, NameTheirCasesByTheBatch) {
  for (const char* name : {"bulk", "cross-cpu"}) {
    const Experiment* experiment = find_experiment(name);
    ASSERT_NE(experiment, nullptr);
    std::vector<std::string> names;
    for (const Case& one : experiment->cases) {
      EXPECT_EQ(one.name, std::to_string(one.batch));
      EXPECT_LE(one.batch, kMostBatch);
      names.push_back(one.name);
    }
    EXPECT_EQ(names, (std::vector<std::string>{"1", "4", "8", "16", "32", "64", "128"}));
  }
}

TEST(Experiments, RunTwoBatchesInAQuickLab) {
  for (const char* name : {"bulk", "cross-cpu"}) {
    const std::vector<Case>& cases = find_experiment(name)->cases;
    EXPECT_EQ(std::count_if(cases.begin(), cases.end(), [](const Case& one) { return one.quick; }),
              2)
        << name;
  }
}

TEST(Experiments, AreSetAgainstContendersTheyHave) {
  for (const Experiment& experiment : experiments()) {
    const auto has = [&](const std::string& name) {
      const auto& all = experiment.contenders;
      return std::find(all.begin(), all.end(), name) != all.end();
    };
    for (const std::string& reference : experiment.references) {
      EXPECT_TRUE(has(reference)) << experiment.name << ": " << reference;
    }
    for (const Case& one : experiment.cases) {
      for (const std::string& name : one.without) {
        EXPECT_TRUE(has(name)) << experiment.name << " " << one.name << ": " << name;
      }
    }
  }
}

// A bound that names nobody would never be decided, and nobody would notice.
TEST(Bounds, OfTheRepositoryNameExperimentsCasesAndContendersThereAre) {
  std::ifstream file("lab/bounds.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const BoundsOrProblem parsed = parse_bounds(text);
  ASSERT_EQ(parsed.problem, "");
  EXPECT_FALSE(parsed.bounds.empty());
  for (const Bound& bound : parsed.bounds) {
    const Experiment* experiment = find_experiment(bound.experiment);
    ASSERT_NE(experiment, nullptr) << bound.experiment;
    if (bound.metric.empty()) {
      EXPECT_FALSE(experiment->metric.higher_is_better) << bound.experiment;
    }
    const Case* one = find_case(*experiment, bound.case_name);
    ASSERT_NE(one, nullptr) << bound.experiment << " " << bound.case_name;
    std::vector<std::string> names = bound.references;
    names.push_back(bound.contender);
    for (const std::string& name : names) {
      const auto& all = experiment->contenders;
      EXPECT_NE(std::find(all.begin(), all.end(), name), all.end()) << name;
      EXPECT_EQ(std::find(one->without.begin(), one->without.end(), name), one->without.end())
          << name;
    }
  }
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
    if (!contender.missing.empty() && contender.side != Side::floor) {
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
  Crew crew(choose_cpus());
  for (const Contender& contender : contenders) {
    if (!contender.missing.empty() || contender.name.starts_with("dpdk")) {
      continue;  // DPDK binds threads for the life of the process: the command's tests run it
    }
    const TrialOrProblem made = contender.make({Workload::pairs, nullptr, kLabBuffers});
    ASSERT_NE(made.trial, nullptr) << contender.name << ": " << made.problem;
    made.trial->prepare({std::chrono::milliseconds{1}, false});
    crew.run([&] { made.trial->lead(); }, {});
    EXPECT_EQ(made.trial->collect().fault, "") << contender.name;
  }
}

}  // namespace
}  // namespace weir::lab
