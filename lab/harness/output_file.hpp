// SPDX-License-Identifier: MIT
// lab/harness/output_file.hpp — a file for results: opened before the work, so that a path that
// cannot be written is found at once, and changed only when there is something to write.
// Owns its descriptor; a file it created and never wrote is removed.
#pragma once

#include <string>
#include <string_view>

namespace weir::lab {

class OutputFile {
 public:
  // open() was not called yet.
  OutputFile() = default;
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Both return an empty text, or one line that says what is wrong with which path.
  [[nodiscard]] std::string open(const std::string& path);
  // Replaces what the file held.
  [[nodiscard]] std::string write(std::string_view text);

  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_ = -1;
  bool created_ = false;
};

// Everything to standard output, flushed; an empty text or what went wrong.
[[nodiscard]] std::string write_stdout(std::string_view text);

}  // namespace weir::lab
