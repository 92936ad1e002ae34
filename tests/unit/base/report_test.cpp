// SPDX-License-Identifier: MIT
#include "weir/base/report.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>

#include "tests/support/process.hpp"
#include "weir/base/check.hpp"

namespace weir {
namespace {

struct Case {
  Finding finding;
  std::function<void()> die;
  std::string line;  // a regular expression for all of it
};

const Case kCases[] = {
    {Finding::check_failed, [] { report_check_failed("a == b", "Zone I1", "zone.cpp", 7); },
     "weir: fatal: check failed: Zone I1 \\(a == b\\) at zone.cpp:7"},
    {Finding::double_free, [] { report_double_free(PageIndex{17}, "free"); },
     "weir: fatal: double free: page 17 is already free \\(state free\\)"},
    {Finding::foreign_pointer,
     [] { report_foreign_pointer(reinterpret_cast<void*>(0x1234000), "page_of"); },
     "weir: fatal: foreign pointer: page_of: 0x1234000 is no memory of weir"},
    {Finding::tail_free, [] { report_tail_free(PageIndex{3}, "free"); },
     "weir: fatal: free of a tail: free: frame 3 is inside a page, not its start"},
    {Finding::wrong_order, [] { report_wrong_order(PageIndex{8}, Order{2}, Order{3}); },
     "weir: fatal: wrong order: page 8 has order 3, not 2"},
    {Finding::reference_underflow, [] { report_reference_underflow(PageIndex{9}); },
     "weir: fatal: reference underflow: page 9: a reference was dropped that nobody held"},
    {Finding::reference_overflow, [] { report_reference_overflow(PageIndex{9}, 4000000000U); },
     "weir: fatal: reference overflow: page 9 has 4000000000 references, no more fit"},
    {Finding::wrong_thread, [] { report_wrong_thread("frag cache"); },
     "weir: fatal: wrong thread: frag cache is used from a thread that does not own it"},
    {Finding::corrupt_list, [] { report_corrupt_list(PageIndex{11}, "free list of order 2"); },
     "weir: fatal: corrupt list: free list of order 2 is damaged at page 11"},
};

// After the line comes nothing, unless an emulator adds that the process was killed.
const std::string kEnd = test::emulated() ? "(\n?qemu: [^\n]*\n)?$" : "$";

// Runs in the dying child: proves that a handler was called, and with what.
void leave_with_finding(Finding finding, const char* line) {
  std::fprintf(stderr, "handler %u [%s]", static_cast<unsigned>(finding), line);
  std::_Exit(40 + static_cast<int>(finding));
}

void look_and_return(Finding, const char* line) { std::fprintf(stderr, "seen [%s]", line); }

TEST(ReportDeathTest, EachFindingIsOneLineOnStandardErrorAndAborts) {
  for (const Case& one : kCases) {
    EXPECT_EXIT(one.die(), testing::KilledBySignal(SIGABRT), "^" + one.line + "\n" + kEnd)
        << finding_name(one.finding);
  }
}

TEST(ReportDeathTest, EachFindingReachesTheHandlerWithItsNameAndLine) {
  for (const Case& one : kCases) {
    const int number = static_cast<int>(one.finding);
    EXPECT_EXIT(
        {
          set_report_handler(leave_with_finding);
          one.die();
        },
        testing::ExitedWithCode(40 + number),
        "^handler " + std::to_string(number) + " \\[" + one.line + "\\]$")
        << finding_name(one.finding);
  }
}

TEST(ReportDeathTest, AbortsWhenTheHandlerReturnsAndPrintsNothingItself) {
  EXPECT_EXIT(
      {
        set_report_handler(look_and_return);
        report_wrong_thread("pool");
      },
      testing::KilledBySignal(SIGABRT),
      "^seen \\[weir: fatal: wrong thread: pool [^\n]*\\]" + kEnd);
}

TEST(ReportDeathTest, ALongTextIsCutToOneLine) {
  const std::string object(2000, 'o');
  EXPECT_EXIT(report_wrong_thread(object.c_str()), testing::KilledBySignal(SIGABRT),
              "^weir: fatal: wrong thread: o+\n" + kEnd);
}

TEST(ReportDeathTest, WorksWhenNoMemoryCanBeHad) {
  if (test::kSanitized || test::emulated()) GTEST_SKIP() << "limits cannot be set here";
  EXPECT_EXIT(
      {
        rlimit none;
        none.rlim_cur = none.rlim_max = 0;
        setrlimit(RLIMIT_AS, &none);
        report_double_free(PageIndex{1}, "free");
      },
      testing::KilledBySignal(SIGABRT), "^weir: fatal: double free: [^\n]*\n$");
}

TEST(Report, CasesCoverEveryFinding) {
  std::set<Finding> covered;
  std::set<std::string> names;
  for (const Case& one : kCases) {
    covered.insert(one.finding);
    names.insert(finding_name(one.finding));
  }
  const auto findings = static_cast<std::size_t>(Finding::corrupt_list) + 1;
  EXPECT_EQ(covered.size(), findings);
  EXPECT_EQ(names.size(), findings);
  EXPECT_STREQ(finding_name(static_cast<Finding>(findings)), "unknown finding");
}

TEST(Report, SettingAHandlerReturnsTheOneBefore) {
  EXPECT_EQ(set_report_handler(look_and_return), nullptr);
  EXPECT_EQ(set_report_handler(leave_with_finding), &look_and_return);
  EXPECT_EQ(set_report_handler(nullptr), &leave_with_finding);
}

TEST(Report, ANoticeIsToldOnce) {
  bool told = false;
  bool other = false;
  testing::internal::CaptureStderr();
  notice_once(told, "no huge pages");
  notice_once(told, "no huge pages");
  notice_once(other, "no rseq");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "weir: notice: no huge pages\nweir: notice: no rseq\n");
  EXPECT_TRUE(told);
}

TEST(CheckDeathTest, AFailedCheckNamesConditionInvariantAndPlace) {
  EXPECT_EXIT(WEIR_CHECK(1 + 1 == 3, "arithmetic holds"), testing::KilledBySignal(SIGABRT),
              "check failed: arithmetic holds \\(1 \\+ 1 == 3\\) at .*report_test.cpp:[0-9]+");
}

TEST(Check, APassedCheckEvaluatesItsConditionOnce) {
  int evaluated = 0;
  WEIR_CHECK(++evaluated == 1, "once");
  EXPECT_EQ(evaluated, 1);
}

TEST(CheckDeathTest, AnAssertIsFatalInCheckedBuildsAndNotEvaluatedInOthers) {
  int evaluated = 0;
  if constexpr (kAudit) {
    EXPECT_EXIT(WEIR_ASSERT(++evaluated == 0, "assert"), testing::KilledBySignal(SIGABRT),
                "assert");
    WEIR_ASSERT(++evaluated == 1, "assert");
    EXPECT_EQ(evaluated, 1);
  } else {
    WEIR_ASSERT(++evaluated == 0, "assert");
    WEIR_AUDIT(++evaluated == 0, "audit");
    EXPECT_EQ(evaluated, 0);
  }
}

}  // namespace
}  // namespace weir
