// SPDX-License-Identifier: MIT
// apps/weir/command.hpp — what main() and the subcommands share: how a command is added, how it
// fails. One file a subcommand; none of them writes to standard error but through CommandError and
// the progress line.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

#include "weir/os/options.hpp"

namespace CLI {
class App;
}

namespace weir::app {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;    // the work failed
inline constexpr int kBadUsage = 2;  // the command line, or a file it names, is wrong

// Ends a command: main() prints "weir: <line>" and returns the code.
class CommandError : public std::runtime_error {
 public:
  CommandError(int code, const std::string& line) : std::runtime_error(line), code_(code) {}
  [[nodiscard]] int code() const { return code_; }

 private:
  int code_;
};

// The command that was chosen; returns kDone or kFailed.
using Action = std::function<int()>;

// Each adds its subcommand and sets `chosen` when it is the one.
void add_demo(CLI::App& app, Action& chosen);
void add_lab(CLI::App& app, Action& chosen);
void add_info(CLI::App& app, Action& chosen);
void add_map(CLI::App& app, Action& chosen);

// `options` changed by WEIR_OPTIONS; bad text ends the command.
[[nodiscard]] Options with_environment(Options options);

// Checks for CLI11: a whole number of rounds; seconds, more than 0 and at most an hour.
[[nodiscard]] std::string check_rounds(const std::string& text);
[[nodiscard]] std::string check_seconds(const std::string& text);

// Throws CommandError(kFailed) unless the line is empty.
void require_written(const std::string& problem);

}  // namespace weir::app
