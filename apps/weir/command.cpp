// SPDX-License-Identifier: MIT
// apps/weir/command.cpp — what subcommands share.
#include "apps/weir/command.hpp"

#include <fmt/format.h>

#include <charconv>

#include "lab/harness/plan.hpp"

namespace weir::app {

Options with_environment(Options options) {
  const OptionProblem problem = options_from_environment(options);
  if (problem.code != Errc::ok) {
    throw CommandError(kBadUsage, problem.line.data());
  }
  return options;
}

namespace {

constexpr double kLongestSeconds = 3600;

// All of the text is one number.
template <class Number>
bool read(const std::string& text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, number);
  return problem == std::errc{} && rest == end;
}

}  // namespace

std::string check_rounds(const std::string& text) {
  std::size_t rounds = 0;
  return read(text, rounds) && rounds >= 1 && rounds <= lab::kMostRounds
             ? ""
             : fmt::format("'{}' is no number of rounds; give one from 1 to {}", text,
                           lab::kMostRounds);
}

std::string check_seconds(const std::string& text) {
  double seconds = 0;
  return read(text, seconds) && seconds > 0 && seconds <= kLongestSeconds
             ? ""
             : fmt::format("'{}' is no number of seconds; give more than 0 and at most {}", text,
                           kLongestSeconds);
}

void require_written(const std::string& problem) {
  if (!problem.empty()) {
    throw CommandError(kFailed, problem);
  }
}

}  // namespace weir::app
