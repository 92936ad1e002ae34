// SPDX-License-Identifier: MIT
// lab/experiments/own_zone.hpp — a zone that lives for one round. While it is open it is the only one of
// the process, and so the default zone, which releases find first: whoever opened theirs earlier would
// otherwise be ahead of the others by that. Calls page/page_allocator.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "weir/page/page_allocator.hpp"

namespace weir::lab {

class OwnZone {
 public:
  OwnZone(Options options, std::uint64_t frames) : options_(options) {
    options_.capacity = bytes(PageCount{frames});
  }

  // What was wrong, or "". Closes the one that was open.
  [[nodiscard]] std::string open() {
    try {
      pages_.emplace(options_);
      return "";
    } catch (const std::exception& error) {
      pages_.reset();
      return error.what();
    }
  }
  void close() noexcept { pages_.reset(); }
  [[nodiscard]] bool is_open() const noexcept { return pages_.has_value(); }

  // Open ones only.
  [[nodiscard]] PageAllocator& operator*() noexcept { return *pages_; }
  [[nodiscard]] const PageAllocator& operator*() const noexcept { return *pages_; }
  [[nodiscard]] PageAllocator* operator->() noexcept { return &*pages_; }
  [[nodiscard]] const PageAllocator* operator->() const noexcept { return &*pages_; }

 private:
  Options options_;
  std::optional<PageAllocator> pages_;
};

}  // namespace weir::lab
