// SPDX-License-Identifier: MIT
// os/text_file.hpp — reads the small text files of /proc and /sys line by line, and takes numbers
// out of them. Calls open, read, close. Allocates nothing, keeps no file open after itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weir {

class TextFile {
 public:
  explicit TextFile(const char* path) noexcept;
  ~TextFile();
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  [[nodiscard]] bool opened() const noexcept { return fd_ >= 0; }
  // The next line without its newline, valid until the next call; nothing at the end. A line longer
  // than the buffer comes cut: the rest of it is skipped.
  [[nodiscard]] std::optional<std::string_view> next_line() noexcept;

 private:
  bool fill() noexcept;

  int fd_ = -1;
  std::size_t begin_ = 0;  // unread bytes are [begin_, end_)
  std::size_t end_ = 0;
  bool skipping_ = false;  // the start of [begin_, end_) belongs to a line already handed out cut
  std::array<char, 4096> buffer_;
};

// The first line of a file, cut to the size of `out`, as a C string; false when it cannot be read.
template <std::size_t N>
[[nodiscard]] bool read_first_line(const char* path, std::array<char, N>& out) noexcept {
  TextFile file(path);
  const std::optional<std::string_view> line = file.next_line();
  const std::size_t length = line ? line->copy(out.data(), N - 1) : 0;
  out[length] = '\0';
  return line.has_value();
}

// The decimal number at the start of `text`, which is advanced behind it; nothing when there is
// none or it does not fit.
[[nodiscard]] std::optional<std::uint64_t> take_number(std::string_view& text) noexcept;
// The number in "Name:   123 kB" after the given name and its colon, if the line begins with it.
[[nodiscard]] std::optional<std::uint64_t> number_after(std::string_view line,
                                                        std::string_view name) noexcept;

}  // namespace weir
