// SPDX-License-Identifier: MIT
// lab/contenders/mapping.hpp — one anonymous mapping on ordinary pages, all of them touched.
// Owns it. Calls mmap(2), madvise(2).
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

namespace weir::lab {

class Mapping {
 public:
  // base() is nullptr if the system refused.
  explicit Mapping(std::size_t size) : size_(size) {
    void* base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
      return;
    }
    base_ = static_cast<std::byte*>(base);
    static_cast<void>(::madvise(base, size, MADV_NOHUGEPAGE));  // fails where there are none
    for (std::size_t at = 0; at < size; at += 4096) {
      base_[at] = std::byte{1};
    }
  }
  ~Mapping() {
    if (base_ != nullptr) {
      ::munmap(base_, size_);
    }
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] std::byte* base() const { return base_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t size_;
};

}  // namespace weir::lab
