// SPDX-License-Identifier: MIT
// Checks of what stands on the command line.
#include "apps/weir/command.hpp"

#include <gtest/gtest.h>

namespace weir::app {
namespace {

TEST(Command, RoundsAreAWholeNumberFromOneOn) {
  for (const char* good : {"1", "7", "1001"}) {
    EXPECT_EQ(check_rounds(good), "") << good;
  }
  for (const char* bad :
       {"0", "-1", "1002", "7.5", "seven", "", " 7", "7 ", "0x7", "18446744073709551617"}) {
    EXPECT_NE(check_rounds(bad), "") << bad;
  }
}

TEST(Command, SecondsAreMoreThanNothingAndAtMostAnHour) {
  for (const char* good : {"1", "0.5", "3600", "1e1"}) {
    EXPECT_EQ(check_seconds(good), "") << good;
  }
  for (const char* bad : {"0", "-1", "3601", "1e99", "1e999", "nan", "inf", "abc", "", "10s"}) {
    EXPECT_NE(check_seconds(bad), "") << bad;
  }
}

TEST(Command, ComplaintsNameTheValue) {
  EXPECT_NE(check_seconds("abc").find("'abc'"), std::string::npos);
  EXPECT_NE(check_rounds("0").find("'0'"), std::string::npos);
}

TEST(Command, WhatCouldNotBeWrittenEndsTheCommand) {
  EXPECT_NO_THROW(require_written(""));
  try {
    require_written("disk full");
    FAIL() << "nothing was thrown";
  } catch (const CommandError& error) {
    EXPECT_EQ(error.code(), kFailed);
    EXPECT_STREQ(error.what(), "disk full");
  }
}

}  // namespace
}  // namespace weir::app
