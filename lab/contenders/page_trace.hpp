// SPDX-License-Identifier: MIT
// lab/contenders/page_trace.hpp — which pages an allocator handed out last, in their order, as
// numbers within its memory. weir.page leaves its trace in the warm-up; the floors of cross-cpu
// follow it, so that both touch the same number of pages in the same order. Calls the C++ library
// only. Written by one thread while nobody reads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weir::lab {

class PageTrace {
 public:
  // Long beside what is under way between two CPUs, short beside a second-level cache.
  static constexpr std::size_t kLength = 8192;

  void clear() noexcept {
    pages_.clear();
    next_ = 0;
    ++version_;
  }
  void record(std::uint32_t page) {
    if (pages_.size() < kLength) {
      pages_.push_back(page);
    } else {
      pages_[next_] = page;
    }
    next_ = (next_ + 1) % kLength;
    ++version_;
  }

  // The oldest first.
  [[nodiscard]] std::vector<std::uint32_t> pages() const {
    std::vector<std::uint32_t> ordered = pages_;
    if (ordered.size() == kLength) {
      std::rotate(ordered.begin(), ordered.begin() + static_cast<std::ptrdiff_t>(next_),
                  ordered.end());
    }
    return ordered;
  }
  // Changes with every record.
  [[nodiscard]] std::uint64_t version() const noexcept { return version_; }

 private:
  std::vector<std::uint32_t> pages_;
  std::size_t next_ = 0;
  std::uint64_t version_ = 0;
};

[[nodiscard]] inline std::size_t distinct(std::vector<std::uint32_t> pages) {
  std::sort(pages.begin(), pages.end());
  return static_cast<std::size_t>(std::unique(pages.begin(), pages.end()) - pages.begin());
}

}  // namespace weir::lab
