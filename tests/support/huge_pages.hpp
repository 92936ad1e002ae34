// SPDX-License-Identifier: MIT
// tests/support/huge_pages.hpp — explicit huge pages for the length of a test, where the machine and
// the user's rights allow it. Puts the old number back. Test processes take turns by a file lock.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace weir::test {

class HugePages {
 public:
  explicit HugePages(unsigned long wanted) {
    lock_ = ::open("/tmp/weir-test-huge-pages.lock", O_CREAT | O_RDWR | O_CLOEXEC, 0666);
    if (lock_ >= 0) {
      static_cast<void>(::flock(lock_, LOCK_EX));
    }
    std::ifstream{kFile} >> before_;
    std::ofstream{kFile} << before_ + wanted << std::flush;
    unsigned long now = 0;
    std::ifstream{kFile} >> now;
    available_ = now >= before_ + wanted;
  }
  ~HugePages() {
    std::ofstream{kFile} << before_ << std::flush;
    if (lock_ >= 0) {
      ::close(lock_);
    }
  }
  HugePages(const HugePages&) = delete;
  HugePages& operator=(const HugePages&) = delete;

  // False without the right to reserve, or when memory is too scattered.
  [[nodiscard]] bool available() const { return available_; }

 private:
  static constexpr const char* kFile = "/proc/sys/vm/nr_hugepages";
  int lock_ = -1;
  unsigned long before_ = 0;
  bool available_ = false;
};

}  // namespace weir::test
