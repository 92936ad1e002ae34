// SPDX-License-Identifier: MIT
// apps/weir/main.cpp — the command: reads the command line, runs one subcommand, turns every
// failure into one line on standard error and an exit code. 0 done, 1 the work failed, 2 bad usage.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>

#include "apps/weir/command.hpp"
#include "apps/weir/output.hpp"
#include "lab/harness/build_info.hpp"

namespace {

using weir::app::Action;

void complain(std::string line) {
  if (line.starts_with("weir: ")) {  // the library names itself
    line.erase(0, 6);
  }
  // One line, whatever a library or a file name put into it.
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < ' '; }, ' ');
  fmt::print(stderr, "weir: {}\n", line);
}

std::string version_text() {
  const weir::lab::BuildInfo& build = weir::lab::build_info();
  return fmt::format("weir {} ({}, {}, {})", build.version, build.commit, build.compiler,
                     build.build);
}

int run(int argc, const char* const* argv) {
  CLI::App app{"Packet memory that keeps flowing between CPUs.", "weir"};
  app.set_version_flag("--version", version_text(), "Print version, commit and compiler");
  app.require_subcommand(0, 1);  // none is told below, in better words
  app.footer(
      "'weir COMMAND --help' tells more. Exit codes: 0 done, 1 the work failed, 2 bad usage.\n"
      "WEIR_OPTIONS=\"name=value,...\" sets options of weir's allocators ('weir info').\n"
      "WEIR_LISTS=rseq, locked or off forces the form of per-CPU lists.");
  Action chosen;
  weir::app::add_demo(app, chosen);
  weir::app::add_lab(app, chosen);
  weir::app::add_info(app, chosen);
  weir::app::add_map(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    app.exit(asked);
    std::cout.flush();
    if (!std::cout || std::fflush(stdout) != 0) {
      complain("cannot write to standard output");
      return weir::app::kFailed;
    }
    return weir::app::kDone;
  } catch (const CLI::ParseError& error) {
    const auto subcommands = app.get_subcommands();
    if (subcommands.empty() && argc > 1 && argv[1][0] != '-') {
      complain(fmt::format("unknown command '{}'; 'weir --help' lists them", argv[1]));
    } else {
      complain(fmt::format("{}; see 'weir{} --help'", error.what(),
                           subcommands.empty() ? "" : " " + subcommands.front()->get_name()));
    }
    return weir::app::kBadUsage;
  }
  if (!chosen) {
    complain("no command given; 'weir --help' lists them");
    return weir::app::kBadUsage;
  }
  const int code = chosen();
  return std::fflush(stdout) == 0 ? code : weir::app::kFailed;
}

}  // namespace

int main(int argc, char** argv) {
  weir::app::set_command_line(argv);
  try {
    return run(argc, argv);
  } catch (const weir::app::CommandError& error) {
    complain(error.what());
    return error.code();
  } catch (const std::exception& error) {
    complain(error.what());
    return weir::app::kFailed;
  }
}
