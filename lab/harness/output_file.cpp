// SPDX-License-Identifier: MIT
// lab/harness/output_file.cpp — files for results.
#include "lab/harness/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace weir::lab {

OutputFile::~OutputFile() {
  if (fd_ >= 0) {
    ::close(fd_);
    if (created_) {
      ::unlink(path_.c_str());
    }
  }
}

std::string OutputFile::open(const std::string& path) {
  path_ = path;
  // Exclusively first: only then is it known that the file is ours to remove again.
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  created_ = fd_ >= 0;
  if (fd_ < 0 && errno == EEXIST) {
    fd_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  }
  return fd_ >= 0 ? std::string{}
                  : fmt::format("cannot write {}: {}; name a file in a directory you may write to",
                                path, std::strerror(errno));
}

std::string OutputFile::write(std::string_view text) {
  struct stat status {};
  if (::fstat(fd_, &status) == 0 && S_ISREG(status.st_mode) && ::ftruncate(fd_, 0) != 0) {
    return fmt::format("cannot write {}: {}", path_, std::strerror(errno));
  }
  created_ = false;
  while (!text.empty()) {
    const ssize_t n = ::write(fd_, text.data(), text.size());
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return fmt::format("cannot write {}: {}", path_, std::strerror(n < 0 ? errno : EIO));
    }
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  const int failed = ::close(fd_) == 0 ? 0 : errno;
  fd_ = -1;
  return failed == 0 ? std::string{}
                     : fmt::format("cannot write {}: {}", path_, std::strerror(failed));
}

std::string write_stdout(std::string_view text) {
  const std::size_t n = std::fwrite(text.data(), 1, text.size(), stdout);
  if (n != text.size() || std::fflush(stdout) != 0) {
    return fmt::format("cannot write to standard output: {}", std::strerror(errno));
  }
  return {};
}

}  // namespace weir::lab
