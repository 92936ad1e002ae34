// SPDX-License-Identifier: MIT
// Selecting what is measured.
#include "apps/weir/measure.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apps/weir/command.hpp"

namespace weir::app {
namespace {

struct SelectTest : testing::Test {
  lab::Experiment forward;
  lab::Experiment pair;
  std::vector<lab::Contender> contenders;
  std::vector<const lab::Experiment*> both{&forward, &pair};

  SelectTest() {
    forward.name = "forward";
    forward.cases = {{"mix", ""}, {"small", ""}};
    forward.contenders = {"weir.pool", "weir.page", "glibc"};
    pair.name = "pair";
    pair.cases = {{"page", ""}};
    pair.contenders = {"weir.page", "glibc"};
    for (const char* name : {"weir.pool", "weir.page", "glibc"}) {
      contenders.push_back({name, "", "", lab::Side::other, {}});
    }
  }

  // "forward/mix: weir.pool glibc" a line.
  std::vector<std::string> selected(const std::vector<std::string>& filters) {
    std::vector<std::string> lines;
    for (const Selected& one : select(both, contenders, filters)) {
      std::string line = one.experiment->name + "/" + one.one_case->name + ":";
      for (const lab::Contender* contender : one.contenders) {
        line += " " + contender->name;
      }
      lines.push_back(line);
    }
    return lines;
  }
};

using Lines = std::vector<std::string>;

TEST_F(SelectTest, WithoutFilterEverythingRuns) {
  EXPECT_EQ(selected({}),
            (Lines{"forward/mix: weir.pool weir.page glibc",
                   "forward/small: weir.pool weir.page glibc", "pair/page: weir.page glibc"}));
}

TEST_F(SelectTest, AContenderIsKeptWhereverItTakesPart) {
  EXPECT_EQ(selected({"weir.pool"}), (Lines{"forward/mix: weir.pool", "forward/small: weir.pool"}));
}

TEST_F(SelectTest, AGlobMatchesSeveral) {
  EXPECT_EQ(selected({"weir.*"}),
            (Lines{"forward/mix: weir.pool weir.page", "forward/small: weir.pool weir.page",
                   "pair/page: weir.page"}));
}

TEST_F(SelectTest, ACaseIsKeptWithAllItsContenders) {
  EXPECT_EQ(selected({"small"}), Lines{"forward/small: weir.pool weir.page glibc"});
  EXPECT_EQ(selected({"pair/page"}), Lines{"pair/page: weir.page glibc"});
  EXPECT_EQ(selected({"pair/*"}), Lines{"pair/page: weir.page glibc"});
}

TEST_F(SelectTest, SeveralFiltersAddUp) {
  EXPECT_EQ(
      selected({"pair/page", "weir.pool"}),
      (Lines{"forward/mix: weir.pool", "forward/small: weir.pool", "pair/page: weir.page glibc"}));
}

TEST_F(SelectTest, AFilterThatMatchesNothingIsBadUsageAlsoBesideOneThatDoes) {
  for (const std::vector<std::string>& filters :
       {Lines{"zz*"}, Lines{"glibc", "zz*"}, Lines{""}, Lines{"weir"}}) {
    try {
      static_cast<void>(selected(filters));
      FAIL() << "nothing was thrown for " << filters.back();
    } catch (const CommandError& error) {
      EXPECT_EQ(error.code(), kBadUsage);
    }
  }
}

TEST_F(SelectTest, MissingContendersDoNotCountAsPresent) {
  contenders[2].missing = "not found";
  const std::vector<Selected> all = select(both, contenders, {});
  EXPECT_EQ(all[0].contenders.size(), 3U);
  EXPECT_EQ(all[0].present(), 2U);
}

TEST(LoadCapture, TheRepositorysOwnIsFoundWithoutAPath) {
  const LoadedCapture loaded = load_capture("");
  EXPECT_TRUE(loaded.path.ends_with("mix.pcap"));
  EXPECT_GT(loaded.capture.size(), 1000U);
}

TEST(LoadCapture, AMissingFileIsBadUsageAndNamed) {
  try {
    static_cast<void>(load_capture("/no/such/file.pcap"));
    FAIL() << "nothing was thrown";
  } catch (const CommandError& error) {
    EXPECT_EQ(error.code(), kBadUsage);
    EXPECT_NE(std::string(error.what()).find("/no/such/file.pcap"), std::string::npos);
  }
}

}  // namespace
}  // namespace weir::app
