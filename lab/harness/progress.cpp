// SPDX-License-Identifier: MIT
// lab/harness/progress.cpp — the progress line.
#include "lab/harness/progress.hpp"

#include <fmt/format.h>

namespace weir::lab {

Progress::Progress(std::FILE* stream, bool terminal, std::size_t steps)
    : stream_(stream),
      terminal_(terminal),
      steps_(steps),
      start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() { clear(); }

std::chrono::seconds Progress::remaining() const {
  if (done_ == 0 || done_ >= steps_) {
    return std::chrono::seconds{0};
  }
  const auto spent = std::chrono::steady_clock::now() - start_;
  return std::chrono::ceil<std::chrono::seconds>(spent / done_ * (steps_ - done_));
}

void Progress::begin(const std::string& where, const std::string& contender) {
  if (stream_ == nullptr || !terminal_) {
    return;
  }
  const std::string left = done_ == 0 ? "" : fmt::format(", {} s left", remaining().count());
  fmt::print(stream_, "\r\033[K{}: {} ({} %{})", where, contender,
             steps_ == 0 ? 100 : 100 * done_ / steps_, left);
  std::fflush(stream_);
  line_open_ = true;
}

void Progress::round(const std::string& where) {
  if (stream_ == nullptr || terminal_) {
    return;
  }
  fmt::print(stream_, "{}: done, {} s left\n", where, remaining().count());
  std::fflush(stream_);
}

void Progress::clear() {
  if (line_open_) {
    fmt::print(stream_, "\r\033[K");
    std::fflush(stream_);
    line_open_ = false;
  }
}

}  // namespace weir::lab
