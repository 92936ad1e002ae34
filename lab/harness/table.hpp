// SPDX-License-Identifier: MIT
// lab/harness/table.hpp — a text table: first column to the left, the others to the right, widths
// by content. Calls fmt. Knows nothing of what it prints.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weir::lab {

class Table {
 public:
  explicit Table(std::vector<std::string> head) : head_(std::move(head)) {}

  // Missing cells are empty; more cells than columns are refused by WEIR_CHECK.
  void add(std::vector<std::string> cells);
  // A first cell and a remark that runs over the other columns.
  void add_remark(std::string first, std::string remark);

  // Lines end in newline and carry no trailing blanks.
  [[nodiscard]] std::string text() const;

 private:
  struct Line {
    std::vector<std::string> cells;
    std::string remark;
  };
  std::vector<std::string> head_;
  std::vector<Line> lines_;
};

// Columns a text takes on a terminal, for the characters this program prints (no wide ones).
[[nodiscard]] std::size_t display_width(std::string_view text);

// A number with about `digits` significant digits and no exponent: 0.34, 12.3, 1234.
[[nodiscard]] std::string number_text(double value, int digits = 3);

// 1234567 -> "1 234 567".
[[nodiscard]] std::string count_text(double value);

}  // namespace weir::lab
