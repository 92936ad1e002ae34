// SPDX-License-Identifier: MIT
#include "weir/os/text_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace weir {

TextFile::TextFile(const char* path) noexcept : fd_(::open(path, O_RDONLY | O_CLOEXEC)) {}

TextFile::~TextFile() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

// Moves what is unread to the front and reads more behind it; false when nothing came.
bool TextFile::fill() noexcept {
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  ssize_t got = 0;
  do {
    got = ::read(fd_, buffer_.data() + end_, buffer_.size() - end_);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) {
    return false;
  }
  end_ += static_cast<std::size_t>(got);
  return true;
}

std::optional<std::string_view> TextFile::next_line() noexcept {
  if (fd_ < 0) {
    return std::nullopt;
  }
  for (;;) {
    const std::string_view unread(buffer_.data() + begin_, end_ - begin_);
    const std::size_t newline = unread.find('\n');
    if (newline != std::string_view::npos) {
      begin_ += newline + 1;
      if (!skipping_) {
        return unread.substr(0, newline);
      }
      skipping_ = false;  // that was the rest of a line handed out cut
      continue;
    }
    if (skipping_ || unread.size() == buffer_.size()) {
      begin_ = end_;
      if (!skipping_) {
        skipping_ = true;
        return unread;
      }
    }
    if (!fill()) {
      const std::string_view last(buffer_.data() + begin_, end_ - begin_);
      begin_ = end_;
      return last.empty() ? std::nullopt : std::optional(last);
    }
  }
}

std::optional<std::uint64_t> take_number(std::string_view& text) noexcept {
  std::uint64_t number = 0;
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc{}) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return number;
}

std::optional<std::uint64_t> number_after(std::string_view line, std::string_view name) noexcept {
  if (!line.starts_with(name) || !line.substr(name.size()).starts_with(':')) {
    return std::nullopt;
  }
  line.remove_prefix(name.size() + 1);
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  return take_number(line);
}

}  // namespace weir
