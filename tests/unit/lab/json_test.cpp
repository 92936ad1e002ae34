// SPDX-License-Identifier: MIT
// The schema "weir/1", field by field.
#include "lab/harness/json.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace weir::lab {
namespace {

using Json = nlohmann::ordered_json;

const MachineCard kCard{"Some CPU",
                        2,
                        "6.1.0",
                        "GNU 12.2.0",
                        "Release",
                        "0123456789ab",
                        {{"lists", "locked"}, {"page size", "4 KiB"}}};
const Row kRow{"forward", "mix", "weir.pool", "rate", "packets/s", 1.5, 1, 2, 7};

std::set<std::string> keys(const Json& object) {
  std::set<std::string> names;
  for (const auto& item : object.items()) {
    names.insert(item.key());
  }
  return names;
}

TEST(Json, DocumentHasSchemaMachineAndRowsAndNothingElse) {
  const Json document = to_json(kCard, std::vector<Row>{kRow});
  EXPECT_EQ(keys(document), (std::set<std::string>{"schema", "machine", "rows"}));
  EXPECT_EQ(document["schema"], "weir/1");
  EXPECT_EQ(keys(document["machine"]), (std::set<std::string>{"cpu", "cpus", "kernel", "compiler",
                                                              "build", "commit", "modes"}));
  EXPECT_EQ(document["machine"]["cpus"], 2);
  EXPECT_EQ(document["machine"]["modes"]["lists"], "locked");
}

TEST(Json, ARowHasNineFields) {
  const Json document = to_json(kCard, std::vector<Row>{kRow});
  ASSERT_EQ(document["rows"].size(), 1U);
  const Json& row = document["rows"][0];
  EXPECT_EQ(keys(row), (std::set<std::string>{"experiment", "case", "contender", "metric", "unit",
                                              "median", "low", "high", "rounds"}));
  EXPECT_EQ(row["experiment"], "forward");
  EXPECT_EQ(row["case"], "mix");
  EXPECT_EQ(row["contender"], "weir.pool");
  EXPECT_EQ(row["metric"], "rate");
  EXPECT_EQ(row["unit"], "packets/s");
  EXPECT_EQ(row["median"], 1.5);
  EXPECT_EQ(row["low"], 1.0);
  EXPECT_EQ(row["high"], 2.0);
  EXPECT_EQ(row["rounds"], 7);
}

TEST(Json, WithoutRowsTheListIsEmptyNotAbsent) {
  const Json document = to_json(kCard, {});
  EXPECT_TRUE(document["rows"].is_array());
  EXPECT_TRUE(document["rows"].empty());
  EXPECT_TRUE(to_json({}, {})["machine"]["modes"].is_object());
}

TEST(Json, TextCanBeReadBackAndKeepsTheOrderOfFields) {
  const Json document = to_json(kCard, std::vector<Row>{kRow, kRow});
  const std::string text = json_text(document);
  EXPECT_EQ(Json::parse(text), document);
  EXPECT_EQ(text.back(), '\n');
  EXPECT_LT(text.find("\"schema\""), text.find("\"machine\""));
  EXPECT_LT(text.find("\"machine\""), text.find("\"rows\""));
}

TEST(Json, BytesThatAreNoUtf8AreReplaced) {
  Row row = kRow;
  row.case_name = "mix\xff";
  const Json back = Json::parse(json_text(to_json(kCard, std::vector<Row>{row})));
  EXPECT_EQ(back["rows"][0]["case"], "mix\xef\xbf\xbd");
}

TEST(JsonDeathTest, AFigureIsFinite) {
  Row row = kRow;
  row.high = std::numeric_limits<double>::infinity();
  EXPECT_DEATH(static_cast<void>(to_json(kCard, std::vector<Row>{row})), "a figure is finite");
}

}  // namespace
}  // namespace weir::lab
