// SPDX-License-Identifier: MIT
// lab/harness/progress.hpp — tells how far the work is: one line that rewrites itself on a
// terminal, a line per round elsewhere. Calls the clock and one stream; measures nothing.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>

namespace weir::lab {

class Progress {
 public:
  // `steps`: slots of all rounds of all cases. A null stream says nothing.
  Progress(std::FILE* stream, bool terminal, std::size_t steps);
  ~Progress();  // leaves no half line behind
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Before a slot. `where`: "forward mix, round 3 of 7".
  void begin(const std::string& where, const std::string& contender);
  // After a slot.
  void end() { ++done_; }
  // After a round: the line for logs.
  void round(const std::string& where);
  // Takes the line off the terminal, before other output.
  void clear();

  // Estimated from the slots so far; zero before the first.
  [[nodiscard]] std::chrono::seconds remaining() const;

 private:
  std::FILE* stream_;
  bool terminal_;
  bool line_open_ = false;
  std::size_t steps_;
  std::size_t done_ = 0;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace weir::lab
