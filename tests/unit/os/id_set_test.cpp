// SPDX-License-Identifier: MIT
#include "weir/os/id_set.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weir {
namespace {

std::string members(const IdSet& set) {
  std::string text;
  for (std::uint32_t id = set.next(0); id != IdSet::kNone; id = set.next(id + 1)) {
    text += (text.empty() ? "" : " ") + std::to_string(id);
  }
  return text;
}

TEST(IdSet, ReadsTheKernelsLists) {
  EXPECT_EQ(members(*IdSet::parse("0")), "0");
  EXPECT_EQ(members(*IdSet::parse("0-3")), "0 1 2 3");
  EXPECT_EQ(members(*IdSet::parse("0-1,4,8-9")), "0 1 4 8 9");
  EXPECT_EQ(members(*IdSet::parse("")), "");
  EXPECT_EQ(members(*IdSet::parse("8191")), "8191");
}

TEST(IdSet, RefusesWhatIsNoList) {
  for (const char* bad : {"-", "a", "1-", "-1", "3-1", "1,", ",1", "1,,2", "1 2", "0-3x", "8192",
                          "0-99999999999999999999", "0-8192", "1--2", "0x3"}) {
    EXPECT_FALSE(IdSet::parse(bad).has_value()) << bad;
  }
}

TEST(IdSet, CountsAndEndsAtItsLargestMember) {
  IdSet set;
  EXPECT_TRUE(set.empty());
  EXPECT_EQ(set.end(), 0U);
  EXPECT_EQ(set.next(0), IdSet::kNone);
  set.insert(5);
  set.insert(900);
  EXPECT_EQ(set.count(), 2U);
  EXPECT_EQ(set.end(), 901U);
  EXPECT_EQ(set.next(6), 900U);
  EXPECT_EQ(set.next(901), IdSet::kNone);
  EXPECT_TRUE(set.contains(900));
  EXPECT_FALSE(set.contains(899));
  EXPECT_FALSE(set.contains(UINT32_MAX));
  EXPECT_EQ(set, *IdSet::parse("5,900"));
}

}  // namespace
}  // namespace weir
