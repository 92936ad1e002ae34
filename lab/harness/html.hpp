// SPDX-License-Identifier: MIT
// lab/harness/html.hpp — results as one self-contained page: bars with whiskers, figures, counters,
// what they mean, the machine. No script, nothing loaded from elsewhere; light and dark. Calls fmt.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "lab/harness/result.hpp"
#include "lab/harness/rows.hpp"

namespace weir::lab {

struct HtmlReport {
  std::string title;
  std::string command;             // as the user typed it
  std::string date;                // of the run
  std::vector<std::string> notes;  // sentences above the charts
  MachineCard machine;
};

[[nodiscard]] std::string html_text(const HtmlReport& report, std::span<const CaseResult> results);

// Text as it may stand between tags and in quoted attributes.
[[nodiscard]] std::string html_escape(std::string_view text);

}  // namespace weir::lab
