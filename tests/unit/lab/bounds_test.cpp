// SPDX-License-Identifier: MIT
// Bounds: read, decided by the interval, reported.
#include "lab/harness/bounds.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/harness/control.hpp"

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

// ---- other metrics, figures, at least, spread ----

TEST_F(BoundsTest, OfAnotherMetricAFigureOrAtLeastAreRead) {
  const BoundsOrProblem parsed = parse_bounds(R"({"schema": "weir-bounds/1", "bounds": [
    {"experiment": "e", "case": "c", "contender": "w", "metric": "whole", "at_least": 25},
    {"experiment": "e", "case": "c", "contender": "w", "references": ["a"], "metric": "t",
     "at_most": 1, "or_spread": true}]})");
  ASSERT_EQ(parsed.problem, "");
  ASSERT_EQ(parsed.bounds.size(), 2U);
  EXPECT_EQ(parsed.bounds[0].metric, "whole");
  EXPECT_EQ(parsed.bounds[0].at_least, 25);
  EXPECT_EQ(parsed.bounds[0].limit(), 25);
  EXPECT_TRUE(parsed.bounds[0].references.empty());
  EXPECT_EQ(parsed.bounds[1].limit(), 1);
  EXPECT_TRUE(parsed.bounds[1].or_spread);
  EXPECT_FALSE(parsed.bounds[0].or_spread);
}

TEST_F(BoundsTest, OneThatSaysTooLittleOrTooMuchIsRefused) {
  for (const char* rest : {
           R"("at_most": 1)",                                             // of what?
           R"("metric": "m", "at_most": 1, "at_least": 1)",               // which?
           R"("metric": "m", "at_least": 0)",                             // nothing
           R"("metric": "m", "at_most": 1, "or_spread": true)",           // whose?
           R"("references": [], "metric": "m", "at_most": 1)",            // forgotten
           R"("references": ["a"], "metric": 1, "at_most": 1)",           // no name
           R"("references": ["a"], "at_most": 1, "or_spread": "always")"  // no truth
       }) {
    const std::string text =
        std::string{R"({"schema": "weir-bounds/1", "bounds": [{"experiment": "e", "case": "c",)"
                    R"("contender": "w", )"} +
        rest + "}]}";
    EXPECT_NE(parse_bounds(text).problem, "") << rest;
  }
}

TEST_F(BoundsTest, AtLeastIsDecidedFromTheOtherSide) {
  const PairedRatio ratio{0.5, Interval{0.4, 0.6}, {0.1, 0.9}, 11};
  EXPECT_EQ(decide_least(ratio, 0.4), Verdict::met);
  EXPECT_EQ(decide_least(ratio, 0.41), Verdict::undecided);
  EXPECT_EQ(decide_least(ratio, 0.6), Verdict::undecided);
  EXPECT_EQ(decide_least(ratio, 0.61), Verdict::not_met);
  EXPECT_EQ(decide_least({0.5, std::nullopt, {0.5, 0.5}, 5}, 0.1), Verdict::undecided);
}

TEST_F(BoundsTest, AFigureIsHeldAgainstItsBoundByItself) {
  result.contenders[0].series.push_back({"whole", "percent", {26, 27, 26, 28, 26, 26, 29}});
  Bound bound{"pairs", "4k", "weir.page", {}, 0, 26, "whole"};
  const auto check_it = [&] { return check_bounds({&bound, 1}, {&result, 1}).front(); };
  EXPECT_EQ(check_it().verdict, Verdict::met);
  EXPECT_EQ(check_it().reference, "");
  EXPECT_EQ(check_it().ratio->median, 26);
  EXPECT_EQ(check_it().ratio->interval->high, 29);
  bound.at_least = 28;
  EXPECT_EQ(check_it().verdict, Verdict::undecided);
  bound.at_least = 30;
  EXPECT_EQ(check_it().verdict, Verdict::not_met);
  const BoundCheck missed = check_it();
  EXPECT_NE(bounds_table({&missed, 1}).find("weir.page, whole  at least 30"), std::string::npos)
      << bounds_table({&missed, 1});
  const nlohmann::ordered_json json = bounds_to_json({&missed, 1});
  EXPECT_EQ(json[0]["at_least"], 30);
  EXPECT_EQ(json[0]["metric"], "whole");
  EXPECT_FALSE(json[0].contains("at_most"));
  bound.metric = "gone";
  EXPECT_EQ(check_it().verdict, Verdict::undecided);
}

TEST_F(BoundsTest, OfAnotherMetricTheBestIsByThatMetric) {
  const auto of = [&](std::size_t contender, double value) {
    result.contenders[contender].series.push_back(
        {"rate", "1/s", std::vector<double>(drift.size(), value)});
  };
  of(0, 30);
  of(1, 20);
  of(2, 10);  // b, which is best by time
  Bound bound{"pairs", "4k", "weir.page", {"a", "b"}, 0, 1.4, "rate"};
  const BoundCheck most = check_bounds({&bound, 1}, {&result, 1}).front();
  EXPECT_EQ(most.reference, "a");
  EXPECT_EQ(most.ratio->median, 1.5);
  EXPECT_EQ(most.verdict, Verdict::met);
  bound.at_least = 0;
  bound.at_most = 1;
  EXPECT_EQ(check_bounds({&bound, 1}, {&result, 1}).front().reference, "b");
}

TEST_F(BoundsTest, TheSpreadOfTheReferenceIsAllowedWhereItSaysSo) {
  const auto of = [&](std::size_t contender, std::vector<double> values) {
    result.contenders[contender].series.push_back({"t", "ns", std::move(values)});
  };
  of(0, {11, 11, 11, 11, 11, 11, 11});
  of(1, {10, 10, 10, 10, 10, 10, 10});
  Bound bound{"pairs", "4k", "weir.page", {"a"}, 1, 0, "t", true};
  EXPECT_EQ(check_bounds({&bound, 1}, {&result, 1}).front().verdict, Verdict::not_met);
  result.contenders[0].series.back().values = {9.9, 10.3, 10.5, 10.4, 10.5, 11, 11.2};
  result.contenders[1].series.back().values = {9.5, 9.5, 10, 10, 10, 10.5, 10.5};
  const BoundCheck spread = check_bounds({&bound, 1}, {&result, 1}).front();
  EXPECT_NEAR(spread.spread, 0.1, 1e-9);
  EXPECT_EQ(spread.verdict, Verdict::met);
  EXPECT_NEAR(bounds_to_json({&spread, 1})[0]["spread"].get<double>(), 0.1, 1e-9);
  // A reference that varies without measure excuses nothing.
  std::vector<double>& reference = result.contenders[1].series.back().values;
  const std::vector<double> steady = reference;
  reference = {5, 5, 10, 10, 10, 20, 20};
  EXPECT_EQ(check_bounds({&bound, 1}, {&result, 1}).front().spread, kNoisySpread);
  reference = steady;
  bound.or_spread = false;
  EXPECT_EQ(check_bounds({&bound, 1}, {&result, 1}).front().verdict, Verdict::not_met);
  EXPECT_EQ(check_bounds({&bound, 1}, {&result, 1}).front().spread, 0);
  bound.or_spread = true;  // and below, where at least so much is asked for
  bound.at_most = 0;
  bound.at_least = 1.1;
  EXPECT_EQ(check_bounds({&bound, 1}, {&result, 1}).front().verdict, Verdict::met);
}

TEST_F(BoundsTest, NothingIsDividedByNothing) {
  const auto of = [&](std::size_t contender, std::vector<double> values) {
    result.contenders[contender].series.push_back({"t", "ns", std::move(values)});
  };
  of(0, std::vector<double>(drift.size(), 1));
  of(1, {1, 1, 1, 0, 1, 1, 1});
  of(2, {1, 1});
  for (const char* reference : {"a", "b"}) {
    const Bound bound{"pairs", "4k", "weir.page", {reference}, 1, 0, "t"};
    const BoundCheck one = check_bounds({&bound, 1}, {&result, 1}).front();
    EXPECT_EQ(one.verdict, Verdict::undecided);
    EXPECT_FALSE(one.ratio.has_value());
    EXPECT_NE(one.why, "");
  }
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
