// SPDX-License-Identifier: MIT
// apps/weir/output.hpp — where results go: text to standard output unless JSON takes it, JSON and
// HTML to files. Paths the user named are tried before the work begins. Calls lab/harness.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "lab/harness/output_file.hpp"
#include "lab/harness/result.hpp"
#include "lab/harness/rows.hpp"

namespace CLI {
class App;
}

namespace weir::app {

class Output {
 public:
  // "--json [FILE]".
  void add_json(CLI::App& app);
  // "--html FILE", and with a default name also "--no-html".
  void add_html(CLI::App& app, const std::string& default_name);

  // Opens what the user named; throws CommandError(kBadUsage) for what cannot be written.
  void open();

  // For people: not at all while JSON goes to standard output.
  void print(std::string_view text) const;
  // Where progress goes: never among JSON.
  [[nodiscard]] std::FILE* progress_stream() const;
  [[nodiscard]] bool progress_on_terminal() const;

  // To wherever --json said; nothing without it.
  void write_json(const std::string& text);
  [[nodiscard]] bool wants_json() const { return json_asked_; }
  [[nodiscard]] const std::string& json_path() const { return json_path_; }

  [[nodiscard]] bool wants_html() const { return !html_path_.empty(); }
  [[nodiscard]] const std::string& html_path() const { return html_path_; }
  void write_html(const std::string& text);

 private:
  [[nodiscard]] bool json_to_stdout() const { return json_asked_ && json_path_.empty(); }

  bool json_asked_ = false;
  std::string json_path_;  // empty: standard output
  std::string html_path_;  // empty: none
  bool html_named_ = false;
  lab::OutputFile json_file_;
  lab::OutputFile html_file_;
};

// The command line as it was typed, for reports and for starting again. Set once by main().
void set_command_line(char** argv);
[[nodiscard]] std::string command_line();
[[nodiscard]] char** command_arguments();

// Now, UTC: "2026-01-31 12:34 UTC".
[[nodiscard]] std::string date_text();

}  // namespace weir::app
