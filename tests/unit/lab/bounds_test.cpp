// SPDX-License-Identifier: MIT
// Bounds: read, decided by the interval, reported.
#include "lab/harness/bounds.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace weir::lab {
namespace {

constexpr const char* kDocument = R"({"schema": "weir-bounds/1", "bounds": [
  {"experiment": "pairs", "case": "4k", "contender": "weir.page", "references": ["a", "b"],
   "at_most": 0.5}]})";

struct BoundsTest : testing::Test {
  Experiment experiment;
  CaseResult result;
  std::vector<double> drift{10, 20, 15, 12, 8, 10, 11};

  BoundsTest() {
    experiment.name = "pairs";
    experiment.metric = {"time", "ns", "ns a pair", 1, false};
    result.experiment = &experiment;
    result.case_name = "4k";
    result.rounds = result.planned = drift.size();
    add("weir.page", Side::weir, 1);
    add("a", Side::other, 4);
    add("b", Side::other, 2.5);
  }
  void add(const std::string& name, Side side, double factor) {
    std::vector<double> values = drift;
    for (double& value : values) {
      value *= factor;
    }
    result.contenders.push_back({name, side, "", {{"time", "ns", std::move(values)}}});
  }
  BoundCheck check(double at_most, std::vector<std::string> references = {"a", "b"}) const {
    const Bound bound{"pairs", "4k", "weir.page", std::move(references), at_most};
    return check_bounds({&bound, 1}, {&result, 1}).front();
  }
};

TEST_F(BoundsTest, AreReadFromADocument) {
  const BoundsOrProblem parsed = parse_bounds(kDocument);
  ASSERT_EQ(parsed.problem, "");
  ASSERT_EQ(parsed.bounds.size(), 1U);
  const Bound& bound = parsed.bounds.front();
  EXPECT_EQ(bound.experiment, "pairs");
  EXPECT_EQ(bound.case_name, "4k");
  EXPECT_EQ(bound.contender, "weir.page");
  EXPECT_EQ(bound.references, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(bound.at_most, 0.5);
}

TEST_F(BoundsTest, ADocumentThatIsNoneIsRefusedWithTheReason) {
  const std::string good = kDocument;
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = good;
    return changed.replace(changed.find(from), from.size(), to);
  };
  for (const std::string& text :
       {std::string{}, std::string{"{"}, std::string{"[]"}, with("weir-bounds/1", "weir-bounds/2"),
        with("\"at_most\"", "\"most\""), with("0.5", "\"0.5\""), with("0.5", "0"),
        with("0.5", "-1"), with("[\"a\", \"b\"]", "[]"), with("[\"a\", \"b\"]", "\"a\"")}) {
    const BoundsOrProblem parsed = parse_bounds(text);
    EXPECT_NE(parsed.problem, "") << text;
    EXPECT_TRUE(parsed.bounds.empty()) << text;
  }
}

TEST_F(BoundsTest, TheIntervalDecides) {
  const PairedRatio ratio{0.5, Interval{0.4, 0.6}, {0.1, 0.9}, 11};
  EXPECT_EQ(decide(ratio, 0.6), Verdict::met);
  EXPECT_EQ(decide(ratio, 0.59), Verdict::undecided);
  EXPECT_EQ(decide(ratio, 0.4), Verdict::undecided);
  EXPECT_EQ(decide(ratio, 0.39), Verdict::not_met);
}

TEST_F(BoundsTest, WithoutAnIntervalNothingIsDecided) {
  const PairedRatio ratio{0.5, std::nullopt, {0.5, 0.5}, 5};
  EXPECT_EQ(decide(ratio, 100), Verdict::undecided);
  EXPECT_EQ(decide(ratio, 0.01), Verdict::undecided);
}

TEST_F(BoundsTest, TheBestReferenceIsTheOneToBeat) {
  const BoundCheck one = check(0.41);
  EXPECT_EQ(one.reference, "b");
  ASSERT_TRUE(one.ratio.has_value());
  EXPECT_DOUBLE_EQ(one.ratio->median, 0.4);
  EXPECT_EQ(one.verdict, Verdict::met);
  EXPECT_EQ(one.why, "");
  EXPECT_EQ(check(0.3).verdict, Verdict::not_met);
  EXPECT_EQ(check(0.3, {"a"}).verdict, Verdict::met);
}

TEST_F(BoundsTest, AMissingReferenceLeavesTheOthers) {
  EXPECT_EQ(check(0.3, {"a", "gone"}).verdict, Verdict::met);
  const BoundCheck none = check(0.3, {"gone"});
  EXPECT_EQ(none.verdict, Verdict::undecided);
  EXPECT_NE(none.why.find("gone"), std::string::npos);
  EXPECT_FALSE(none.ratio.has_value());
}

TEST_F(BoundsTest, AContenderWithoutFiguresIsUndecided) {
  result.contenders.front().series.clear();
  const BoundCheck one = check(0.3);
  EXPECT_EQ(one.verdict, Verdict::undecided);
  EXPECT_NE(one.why.find("weir.page"), std::string::npos);
}

TEST_F(BoundsTest, ANoisyRunIsSaidToHaveBeenNoisy) {
  result.control_ns = {1, 1, 1, 2, 2, 2};
  const BoundCheck one = check(0.41);
  EXPECT_EQ(one.verdict, Verdict::met);
  EXPECT_EQ(one.why, "in a noisy run");
}

TEST_F(BoundsTest, ACaseThatDidNotRunIsSaidNotToHaveRun) {
  result.case_name = "other";
  EXPECT_EQ(check(0.3).verdict, Verdict::not_run);
}

TEST_F(BoundsTest, ALineABoundSaysTheVerdict) {
  const std::vector<BoundCheck> checks{check(0.41), check(0.3), check(0.3, {"gone"})};
  const std::string table = bounds_table(checks);
  EXPECT_NE(table.find("pairs 4k: weir.page"), std::string::npos) << table;
  EXPECT_NE(table.find("0.40 (0.40 to 0.40)"), std::string::npos) << table;
  EXPECT_NE(table.find(" met\n"), std::string::npos) << table;
  EXPECT_NE(table.find("not met\n"), std::string::npos) << table;
  EXPECT_NE(table.find("not decided by this run: gone has no figures"), std::string::npos) << table;
}

TEST_F(BoundsTest, AreReportedAsJson) {
  const std::vector<BoundCheck> checks{check(0.41), check(0.3, {"gone"})};
  const nlohmann::ordered_json list = bounds_to_json(checks);
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0]["verdict"], "met");
  EXPECT_EQ(list[0]["reference"], "b");
  EXPECT_DOUBLE_EQ(list[0]["median"].get<double>(), 0.4);
  EXPECT_EQ(list[0]["rounds"], 7);
  EXPECT_EQ(list[1]["verdict"], "not decided by this run");
  EXPECT_FALSE(list[1].contains("median"));
}

}  // namespace
}  // namespace weir::lab
