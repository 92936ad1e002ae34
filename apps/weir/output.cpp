// SPDX-License-Identifier: MIT
// apps/weir/output.cpp — where results go.
#include "apps/weir/output.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <ctime>

#include "apps/weir/command.hpp"

namespace weir::app {

namespace {

char** g_arguments = nullptr;

}  // namespace

void Output::add_json(CLI::App& app) {
  // A value is optional, which CLI11 expresses by a list of none or one.
  app.add_option_function<std::vector<std::string>>(
         "--json",
         [this](const std::vector<std::string>& values) {
           json_asked_ = true;
           json_path_ = values.empty() || values.front() == "-" ? "" : values.front();
         },
         "Write results as JSON (schema weir/1) to FILE, or to standard output without FILE")
      ->type_name("[FILE]")
      ->expected(0, 1)
      ->trigger_on_parse();
}

void Output::add_html(CLI::App& app, const std::string& default_name) {
  html_path_ = default_name;
  auto* html =
      app.add_option_function<std::string>(
             "--html",
             [this](const std::string& path) {
               html_path_ = path;
               html_named_ = true;
             },
             default_name.empty() ? "Write a report page to FILE"
                                  : "Write the report page to FILE instead of " + default_name)
          ->type_name("FILE");
  if (!default_name.empty()) {
    app.add_flag_callback(
           "--no-html", [this] { html_path_.clear(); }, "Write no report page")
        ->excludes(html);
  }
}

void Output::open() {
  if (json_asked_ && !json_path_.empty() && json_path_ == html_path_) {
    throw CommandError(
        kBadUsage, "--json and --html name the same file '" + json_path_ + "'; give each its own");
  }
  if (json_asked_ && !json_path_.empty()) {
    if (const std::string problem = json_file_.open(json_path_); !problem.empty()) {
      throw CommandError(kBadUsage, problem);
    }
  }
  if (html_named_ && !html_path_.empty()) {
    if (const std::string problem = html_file_.open(html_path_); !problem.empty()) {
      throw CommandError(kBadUsage, problem);
    }
  }
}

void Output::print(std::string_view text) const {
  if (!json_to_stdout()) {
    require_written(lab::write_stdout(text));
  }
}

std::FILE* Output::progress_stream() const { return json_to_stdout() ? stderr : stdout; }

bool Output::progress_on_terminal() const { return ::isatty(::fileno(progress_stream())) == 1; }

void Output::write_json(const std::string& text) {
  if (!json_asked_) {
    return;
  }
  require_written(json_to_stdout() ? lab::write_stdout(text) : json_file_.write(text));
}

void Output::write_html(const std::string& text) {
  if (!wants_html()) {
    return;
  }
  if (!html_file_.is_open()) {  // the default name: nobody asked for it, so nobody is stopped by it
    require_written(html_file_.open(html_path_));
  }
  require_written(html_file_.write(text));
}

void set_command_line(char** argv) { g_arguments = argv; }

std::string command_line() {
  std::string line = "weir";
  if (g_arguments != nullptr && *g_arguments != nullptr) {
    for (char** word = g_arguments + 1; *word != nullptr; ++word) {
      line += ' ';
      line += *word;
    }
  }
  return line;
}

char** command_arguments() { return g_arguments; }

std::string date_text() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &utc);
  return {text.data(), length};
}

}  // namespace weir::app
