// SPDX-License-Identifier: MIT
#include "weir/os/text_file.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/fake_root.hpp"
#include "tests/support/process.hpp"

namespace weir {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  const test::FakeRoot root;
  root.write("/file", text);
  TextFile file(root.file("/file").c_str());
  std::vector<std::string> lines;
  while (const auto line = file.next_line()) {
    lines.emplace_back(*line);
  }
  EXPECT_FALSE(file.next_line().has_value());
  return lines;
}

using Lines = std::vector<std::string>;

TEST(TextFile, GivesLineByLineWithoutNewlines) {
  EXPECT_EQ(lines_of("one\ntwo\n\nfour\n"), (Lines{"one", "two", "", "four"}));
  EXPECT_EQ(lines_of("no newline"), (Lines{"no newline"}));
  EXPECT_EQ(lines_of(""), Lines{});
  EXPECT_EQ(lines_of("\n"), Lines{""});
}

TEST(TextFile, GoesOnAcrossTheEndOfItsBuffer) {
  std::string text;
  Lines expected;
  for (int i = 0; i < 2000; ++i) {
    expected.push_back("line " + std::to_string(i));
    text += expected.back() + "\n";
  }
  EXPECT_EQ(lines_of(text), expected);
}

TEST(TextFile, CutsALineLongerThanItsBufferAndGoesOnWithTheNext) {
  for (const std::size_t length : {4095U, 4096U, 4097U, 8192U, 20000U}) {
    const Lines lines = lines_of("a\n" + std::string(length, 'x') + "\nb\n");
    ASSERT_EQ(lines.size(), 3U) << length;
    EXPECT_EQ(lines[1], std::string(std::min<std::size_t>(length, 4096), 'x'));
    EXPECT_EQ(lines[2], "b");
  }
  EXPECT_EQ(lines_of(std::string(10000, 'x')).size(), 1U);
}

TEST(TextFile, AMissingFileHasNoLinesAndNothingIsLeftOpen) {
  const std::size_t files = test::file_count();
  {
    TextFile file("/nowhere/at/all");
    EXPECT_FALSE(file.opened());
    EXPECT_FALSE(file.next_line().has_value());
    TextFile real("/proc/self/maps");
    EXPECT_TRUE(real.opened());
    EXPECT_TRUE(real.next_line().has_value());
  }
  EXPECT_EQ(test::file_count(), files);
}

TEST(TextFile, FirstLineIsCutToTheArray) {
  const test::FakeRoot root;
  root.write("/file", "abcdefgh\nsecond\n");
  std::array<char, 5> small{};
  EXPECT_TRUE(read_first_line(root.file("/file").c_str(), small));
  EXPECT_STREQ(small.data(), "abcd");
  EXPECT_FALSE(read_first_line("/nowhere", small));
  EXPECT_STREQ(small.data(), "");
}

TEST(TextFile, NumbersAreTakenFromTheStart) {
  std::string_view text = "12kB";
  EXPECT_EQ(take_number(text), 12U);
  EXPECT_EQ(text, "kB");
  EXPECT_FALSE(take_number(text).has_value());
  EXPECT_EQ(text, "kB");
  text = "18446744073709551616";
  EXPECT_FALSE(take_number(text).has_value());

  EXPECT_EQ(number_after("AnonHugePages:      2048 kB", "AnonHugePages"), 2048U);
  EXPECT_FALSE(number_after("AnonHugePages:      2048 kB", "Anon").has_value());
  EXPECT_FALSE(number_after("Anon", "Anon").has_value());
  EXPECT_FALSE(number_after("Anon:", "Anon").has_value());
  EXPECT_FALSE(number_after("Anon:   ", "Anon").has_value());
}

}  // namespace
}  // namespace weir
