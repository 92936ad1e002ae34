// SPDX-License-Identifier: MIT
// lab/harness/table.cpp — text tables and numbers in text.
#include "lab/harness/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "weir/base/check.hpp"

namespace weir::lab {

namespace {

constexpr std::string_view kGap = "  ";

void pad(std::string& out, std::size_t columns) { out.append(columns, ' '); }

void end_line(std::string& out) {
  while (!out.empty() && out.back() == ' ') {
    out.pop_back();
  }
  out += '\n';
}

}  // namespace

std::size_t display_width(std::string_view text) {
  // Every byte that does not continue a UTF-8 sequence begins a character.
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

void Table::add(std::vector<std::string> cells) {
  WEIR_CHECK(cells.size() <= head_.size(), "a line has no more cells than the head");
  cells.resize(head_.size());
  lines_.push_back({std::move(cells), ""});
}

void Table::add_remark(std::string first, std::string remark) {
  lines_.push_back({{std::move(first)}, std::move(remark)});
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  widths.reserve(head_.size());
  for (const std::string& cell : head_) {
    widths.push_back(display_width(cell));
  }
  for (const Line& line : lines_) {
    for (std::size_t i = 0; i < line.cells.size(); ++i) {
      widths[i] = std::max(widths[i], display_width(line.cells[i]));
    }
  }
  std::string out;
  const auto print = [&](const std::vector<std::string>& cells, const std::string& remark) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::size_t rest = widths[i] - display_width(cells[i]);
      if (i != 0) {
        out += kGap;
        pad(out, rest);
      }
      out += cells[i];
      if (i == 0) {
        pad(out, rest);
      }
    }
    if (!remark.empty()) {
      out += kGap;
      out += remark;
    }
    end_line(out);
  };
  print(head_, "");
  for (const Line& line : lines_) {
    print(line.cells, line.remark);
  }
  return out;
}

std::string number_text(double value, int digits) {
  if (value == 0) {
    return "0";
  }
  const int before = static_cast<int>(std::floor(std::log10(std::fabs(value)))) + 1;
  return fmt::format("{:.{}f}", value, std::clamp(digits - before, 0, 9));
}

std::string count_text(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  const std::size_t first = digits.front() == '-' ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, 1, ' ');
  }
  return digits;
}

}  // namespace weir::lab
