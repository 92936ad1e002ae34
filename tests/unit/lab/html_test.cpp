// SPDX-License-Identifier: MIT
#include "lab/harness/html.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weir::lab {
namespace {

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++n;
  }
  return n;
}

struct HtmlReportTest : testing::Test {
  Experiment experiment;
  CaseResult result;
  HtmlReport report{"weir <demo>",
                    "weir demo --capture 'a&b'",
                    "2026-01-31 12:00 UTC",
                    {"A sentence."},
                    {"A CPU", 2, "6.1", "GNU", "Release", "abc", {{"lists", "locked"}}}};

  HtmlReportTest() {
    experiment.name = "forward";
    experiment.metric = {"rate", "packets/s", "Mpackets/s", 1e-6, true};
    experiment.meaning = "What it means.";
    result.experiment = &experiment;
    result.case_name = "mix";
    result.rounds = result.planned = 7;
    const std::vector<double> rates{1e6, 2e6, 3e6, 4e6, 5e6, 6e6, 7e6};
    result.contenders = {
        {"weir.pool",
         Side::weir,
         "",
         {{"rate", "packets/s", rates}, {"zone_lock_acquisitions", "count", rates}}},
        {"glibc", Side::other, "", {{"rate", "packets/s", rates}}},
        {"tcmalloc", Side::other, "not found: package <x>", {}}};
  }
};

TEST_F(HtmlReportTest, HasABarAndAWhiskerForEachContenderWithFigures) {
  const std::string page = html_text(report, {&result, 1});
  EXPECT_EQ(count(page, "<rect"), 2U);
  EXPECT_EQ(count(page, "class=\"whisker\""), 2U);
  EXPECT_EQ(count(page, "<rect class=\"weir\""), 1U);
}

TEST_F(HtmlReportTest, NamesMissingContendersMachineCountersAndMeaning) {
  const std::string page = html_text(report, {&result, 1});
  for (const char* part : {"not found: package &lt;x&gt;", "A CPU", "locked", "A sentence.",
                           "What it means.", "zone_lock_acquisitions", "2026-01-31 12:00 UTC"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
}

TEST_F(HtmlReportTest, TextOfOthersIsEscaped) {
  const std::string page = html_text(report, {&result, 1});
  EXPECT_EQ(page.find("<demo>"), std::string::npos);
  EXPECT_NE(page.find("weir &lt;demo&gt;"), std::string::npos);
  EXPECT_NE(page.find("&#39;a&amp;b&#39;"), std::string::npos);
  EXPECT_EQ(html_escape("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
}

TEST_F(HtmlReportTest, LoadsNothingFromElsewhereAndRunsNothing) {
  const std::string page = html_text(report, {&result, 1});
  EXPECT_EQ(page.find("http"), std::string::npos);
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("src="), std::string::npos);
  EXPECT_EQ(page.find("@import"), std::string::npos);
  EXPECT_NE(page.find("prefers-color-scheme: dark"), std::string::npos);
}

// Elements that hold others are closed as often as opened; enough to find a forgotten end tag.
TEST_F(HtmlReportTest, TagsAreBalanced) {
  const std::string page = html_text(report, {&result, 1});
  for (const std::string tag : {"html", "body", "main", "section", "table", "tr", "td", "th", "svg",
                                "text", "details", "dl", "dd", "h1", "h2", "p"}) {
    const std::size_t open = count(page, "<" + tag + ">") + count(page, "<" + tag + " ");
    EXPECT_EQ(open, count(page, "</" + tag + ">")) << tag;
    EXPECT_GT(open, 0U) << tag;
  }
}

TEST_F(HtmlReportTest, BarsStayInsideTheChart) {
  const std::string page = html_text(report, {&result, 1});
  const auto number_after = [&](const char* name, std::size_t from) {
    return std::stod(page.substr(page.find(name, from) + std::string(name).size()));
  };
  std::size_t bars = 0;
  for (std::size_t at = page.find("<rect"); at != std::string::npos;
       at = page.find("<rect", at + 1)) {
    const double width = number_after(" width=\"", at);
    EXPECT_GT(width, 0);
    EXPECT_LE(number_after(" x=\"", at) + width, 760);
    ++bars;
  }
  EXPECT_EQ(bars, 2U);
}

TEST_F(HtmlReportTest, FarApartTimesAreDrawnOnALogarithmicScaleAndItSaysSo) {
  experiment.metric = {"rate", "ns", "ns", 1, false};
  EXPECT_EQ(html_text(report, {&result, 1}).find("Logarithmic"), std::string::npos);
  result.contenders[1].series[0].values.assign(7, 1e4);
  EXPECT_NE(html_text(report, {&result, 1}).find("Logarithmic"), std::string::npos);
}

TEST_F(HtmlReportTest, RatesAreAlwaysDrawnFromZero) {
  result.contenders[1].series[0].values.assign(7, 1e4);
  EXPECT_EQ(html_text(report, {&result, 1}).find("Logarithmic"), std::string::npos);
}

TEST_F(HtmlReportTest, ACaseCutShortSaysSo) {
  result.rounds = 3;
  EXPECT_NE(html_text(report, {&result, 1}).find("3 of 7 rounds"), std::string::npos);
}

TEST_F(HtmlReportTest, ACaseWithoutAnyFiguresIsStillAPage) {
  result.contenders = {{"tcmalloc", Side::other, "not found", {}}};
  const std::string page = html_text(report, {&result, 1});
  EXPECT_EQ(page.find("<svg"), std::string::npos);
  EXPECT_NE(page.find("not found"), std::string::npos);
}

}  // namespace
}  // namespace weir::lab
