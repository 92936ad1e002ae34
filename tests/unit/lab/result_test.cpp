// SPDX-License-Identifier: MIT
// From series to ratios, rows and tables.
#include "lab/harness/result.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace weir::lab {
namespace {

Experiment experiment(bool higher_is_better) {
  Experiment e;
  e.name = "forward";
  e.metric = higher_is_better ? Metric{"rate", "packets/s", "Mpackets/s", 1e-6, true}
                              : Metric{"time", "ns", "ns a page", 1, false};
  return e;
}

ContenderResult contender(const std::string& name, Side side, const std::string& metric,
                          std::vector<double> values) {
  return {name, side, "", {{metric, "u", std::move(values)}}};
}

// Seven rounds in which weir is 1.5 times as fast as the best other contender.
CaseResult forward_result(const Experiment& e) {
  CaseResult result;
  result.experiment = &e;
  result.case_name = "mix";
  result.rounds = result.planned = 7;
  std::vector<double> drift{1e6, 2e6, 1.5e6, 1.2e6, 0.8e6, 1e6, 1.1e6};
  const auto times = [&](double factor) {
    std::vector<double> values = drift;
    for (double& value : values) {
      value *= factor;
    }
    return values;
  };
  result.contenders = {contender("weir.pool", Side::weir, "rate", times(3)),
                       contender("weir.page", Side::weir, "rate", times(4)),
                       contender("slow", Side::other, "rate", times(1)),
                       contender("fast", Side::other, "rate", times(2)),
                       contender("floor.none", Side::floor, "rate", times(9)),
                       {"gone", Side::other, "not found: package gone", {}}};
  return result;
}

const Row* find(const std::vector<Row>& rows, const std::string& who, const std::string& metric) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
    return row.contender == who && row.metric == metric;
  });
  return found == rows.end() ? nullptr : &*found;
}

TEST(Result, BestOtherOfWeirIsTheBestThatIsNotWeir) {
  const Experiment e = experiment(true);
  const CaseResult result = forward_result(e);
  EXPECT_EQ(best_other(result, result.contenders[0])->name, "fast");
  EXPECT_EQ(best_other(result, result.contenders[1])->name, "fast");
}

TEST(Result, BestOtherOfTheOthersMayBeWeirButNoFloor) {
  const Experiment e = experiment(true);
  const CaseResult result = forward_result(e);
  EXPECT_EQ(best_other(result, result.contenders[2])->name, "weir.page");
}

TEST(Result, OfTimesTheLeastIsTheBest) {
  const Experiment e = experiment(false);
  CaseResult result;
  result.experiment = &e;
  result.contenders = {contender("weir.page", Side::weir, "time", {5}),
                       contender("a", Side::other, "time", {9}),
                       contender("b", Side::other, "time", {7})};
  EXPECT_EQ(best_other(result, result.contenders[0])->name, "b");
}

TEST(Result, AloneThereIsNoOther) {
  const Experiment e = experiment(true);
  CaseResult result;
  result.experiment = &e;
  result.contenders = {contender("weir.pool", Side::weir, "rate", {5}),
                       {"gone", Side::other, "not found", {}}};
  EXPECT_EQ(best_other(result, result.contenders[0]), nullptr);
}

TEST(Result, RowsHoldEverySeriesAndTheRatios) {
  const Experiment e = experiment(true);
  CaseResult result = forward_result(e);
  result.contenders[0].series.push_back({"zone_lock_acquisitions", "count", {1, 2, 3, 4, 5, 6, 7}});
  const std::vector<Row> rows = rows_of(result);

  const Row* rate = find(rows, "weir.pool", "rate");
  ASSERT_NE(rate, nullptr);
  EXPECT_EQ(rate->experiment, "forward");
  EXPECT_EQ(rate->case_name, "mix");
  EXPECT_DOUBLE_EQ(rate->median, 3.3e6);
  EXPECT_DOUBLE_EQ(rate->low, 2.4e6);
  EXPECT_DOUBLE_EQ(rate->high, 6e6);
  EXPECT_EQ(rate->rounds, 7U);

  const Row* holds = find(rows, "weir.pool", "zone_lock_acquisitions");
  ASSERT_NE(holds, nullptr);
  EXPECT_EQ(holds->median, 4);

  const Row* ratio = find(rows, "weir.pool", "ratio_to_best_other");
  ASSERT_NE(ratio, nullptr);
  EXPECT_DOUBLE_EQ(ratio->median, 1.5);
  EXPECT_DOUBLE_EQ(ratio->low, 1.5);
  EXPECT_DOUBLE_EQ(ratio->high, 1.5);
  EXPECT_EQ(ratio->unit, "ratio");
  ASSERT_NE(find(rows, "weir.pool", "ratio_to_slow"), nullptr);
  EXPECT_DOUBLE_EQ(find(rows, "weir.pool", "ratio_to_slow")->median, 3);
  EXPECT_NE(find(rows, "weir.pool", "ratio_to_floor.none"), nullptr);
  EXPECT_EQ(find(rows, "slow", "ratio_to_fast"), nullptr);
  EXPECT_EQ(find(rows, "floor.none", "ratio_to_best_other"), nullptr);
}

TEST(Result, AMissingContenderHasNoRowButALineInTheTable) {
  const Experiment e = experiment(true);
  const CaseResult result = forward_result(e);
  for (const Row& row : rows_of(result)) {
    EXPECT_NE(row.contender, "gone");
  }
  EXPECT_NE(table_of(result).find("not found: package gone"), std::string::npos);
}

TEST(Result, DetailsStandInTablesOfTheirOwn) {
  Experiment e = experiment(true);
  e.details = {{"by level", {{"first", "l1"}, {"second", "l2"}}}};
  CaseResult result = forward_result(e);
  for (ContenderResult& contender : result.contenders) {
    if (contender.name == "weir.pool") {
      contender.series.push_back({"l1", "ns", {3, 5, 4}});
    }
  }
  const std::string text = table_of(result);
  EXPECT_NE(text.find("by level"), std::string::npos) << text;
  const std::string table = text.substr(text.find("by level"));
  EXPECT_NE(table.find("first  second\n"), std::string::npos) << table;
  EXPECT_NE(table.find(" 4.00       -\n"), std::string::npos) << table;
  EXPECT_EQ(table.find("gone"), std::string::npos) << table;
}

TEST(Result, TheControlLoopIsARowOfItsOwn) {
  const Experiment e = experiment(true);
  CaseResult result = forward_result(e);
  EXPECT_EQ(find(rows_of(result), "floor.arithmetic", "time"), nullptr);
  result.control_ns = {1, 2, 3};
  const std::vector<Row> rows = rows_of(result);
  ASSERT_NE(find(rows, "floor.arithmetic", "time"), nullptr);
  EXPECT_EQ(find(rows, "floor.arithmetic", "time")->median, 2);
}

TEST(Result, ARunIsNoisyWhenTheControlLoopVaries) {
  const Experiment e = experiment(true);
  CaseResult result = forward_result(e);
  result.control_ns.assign(50, 1.0);
  EXPECT_FALSE(result.noisy());
  EXPECT_EQ(table_of(result).find("noisy"), std::string::npos);
  std::fill(result.control_ns.begin(), result.control_ns.begin() + 20, 1.2);
  EXPECT_TRUE(result.noisy());
  EXPECT_NE(table_of(result).find("noisy"), std::string::npos);
}

TEST(Result, RoundsThatDifferByMoreThanTwoAreNotToBeQuoted) {
  const Experiment e = experiment(true);
  CaseResult result = forward_result(e);
  EXPECT_NE(table_of(result).find("rounds of 5 of the contenders"), std::string::npos);
  for (ContenderResult& c : result.contenders) {
    for (Series& series : c.series) {
      series.values.assign(7, 1e6);
    }
  }
  EXPECT_EQ(table_of(result).find("Busy machine"), std::string::npos);
}

TEST(Result, TableShowsTheUnitForPeopleAndTheInterval) {
  const Experiment e = experiment(true);
  const std::string table = table_of(forward_result(e));
  EXPECT_NE(table.find("Mpackets/s"), std::string::npos);
  EXPECT_NE(table.find("3.30"), std::string::npos);
  EXPECT_NE(table.find("1.50 (1.50 to 1.50)"), std::string::npos);
}

TEST(Result, TableSetsWeirAgainstTheReferencesThatHaveFigures) {
  Experiment e = experiment(true);
  EXPECT_EQ(table_of(forward_result(e)).find("ratio to"), std::string::npos);
  e.references = {"slow", "floor.none", "gone", "never heard of"};
  const std::string table = table_of(forward_result(e));
  EXPECT_NE(table.find("ratio to (median, 95 %)"), std::string::npos);
  EXPECT_NE(table.find("3.00 (3.00 to 3.00)  0.33 (0.33 to 0.33)"), std::string::npos) << table;
  EXPECT_NE(table.find("4.00 (4.00 to 4.00)  0.44 (0.44 to 0.44)"), std::string::npos) << table;
  EXPECT_EQ(table.find("never heard of"), std::string::npos);
}

TEST(Result, BestOfANamedFewIsTheBestThatHasFigures) {
  const Experiment e = experiment(true);
  const CaseResult result = forward_result(e);
  const std::vector<std::string> some{"gone", "slow", "nobody", "fast"};
  ASSERT_NE(best_of(result, some), nullptr);
  EXPECT_EQ(best_of(result, some)->name, "fast");
  const std::vector<std::string> none{"gone", "nobody"};
  EXPECT_EQ(best_of(result, none), nullptr);
}

TEST(Result, SumOfASeriesThatIsNotThereIsZero) {
  const Experiment e = experiment(true);
  const CaseResult result = forward_result(e);
  EXPECT_EQ(result.contenders[0].sum("nothing"), 0);
  EXPECT_DOUBLE_EQ(result.contenders[2].sum("rate"), 8.6e6);
}

TEST(Result, RatioOfFewRoundsSaysSo) {
  EXPECT_EQ(ratio_text({1.234, Interval{1.1, 1.4}, {1, 2}, 9}), "1.23 (1.10 to 1.40)");
  EXPECT_EQ(ratio_text({1.234, std::nullopt, {1, 2}, 3}), "1.23 (too few rounds)");
}

}  // namespace
}  // namespace weir::lab
