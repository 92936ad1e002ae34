// SPDX-License-Identifier: MIT
#include "lab/harness/table.hpp"

#include <gtest/gtest.h>

namespace weir::lab {
namespace {

TEST(Table, ColumnsStandUnderEachOther) {
  Table table({"name", "ns", "low"});
  table.add({"weir.pool", "12.5", "9"});
  table.add({"x", "3"});
  EXPECT_EQ(table.text(),
            "name         ns  low\n"
            "weir.pool  12.5    9\n"
            "x             3\n");
}

TEST(Table, ARemarkRunsOverTheOtherColumns) {
  Table table({"name", "ns"});
  table.add({"weir.pool", "12.5"});
  table.add_remark("tcmalloc", "not found: package libtcmalloc-minimal4");
  EXPECT_EQ(table.text(),
            "name         ns\n"
            "weir.pool  12.5\n"
            "tcmalloc   not found: package libtcmalloc-minimal4\n");
}

TEST(Table, LettersCountNotBytes) {
  EXPECT_EQ(display_width("µs"), 2U);
  Table table({"a", "µs"});
  table.add({"x", "10"});
  EXPECT_EQ(table.text(), "a  µs\nx  10\n");
}

TEST(TableDeathTest, MoreCellsThanColumnsAreRefused) {
  Table table({"a"});
  EXPECT_DEATH(table.add({"1", "2"}), "no more cells");
}

TEST(Numbers, AboutThreeDigitsAndNoExponent) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(0.3456), "0.346");
  EXPECT_EQ(number_text(12.34), "12.3");
  EXPECT_EQ(number_text(1234.6), "1235");
  EXPECT_EQ(number_text(0.000123), "0.000123");
  EXPECT_EQ(number_text(-2.5), "-2.50");
  EXPECT_EQ(number_text(999.9), "1000");
}

TEST(Numbers, CountsAreGroupedByThousands) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(1000), "1 000");
  EXPECT_EQ(count_text(12345678), "12 345 678");
  EXPECT_EQ(count_text(-123456), "-123 456");
}

}  // namespace
}  // namespace weir::lab
