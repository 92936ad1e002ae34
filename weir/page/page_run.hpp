// SPDX-License-Identifier: MIT
// page/page_run.hpp — PageRun, the move-only owner of any number of frames one after the other. Calls
// page/ref_count, zone/frame_table. Made by PageAllocator::alloc_exact()
// and alloc_contiguous().
//
// A run is made of naturally aligned blocks, each a page with a reference of its own, so that page_of() of
// an address inside leads to the block that it is in:
//
//   example: 11 frames from a multiple of 16 on   | order 3 | order 1 | order 0 |
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "weir/base/types.hpp"
#include "weir/page/ref_count.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir {

class [[nodiscard]] PageRun {
 public:
  PageRun() = default;
  // Takes over a reference of each block of the run.
  PageRun(Page* first, PageCount frames) noexcept : first_(first), frames_(frames) {}
  PageRun(PageRun&& other) noexcept
      : first_(std::exchange(other.first_, nullptr)),
        frames_(std::exchange(other.frames_, PageCount{})) {}
  PageRun& operator=(PageRun&& other) noexcept {
    if (this != &other) {
      reset();
      first_ = std::exchange(other.first_, nullptr);
      frames_ = std::exchange(other.frames_, PageCount{});
    }
    return *this;
  }
  PageRun(const PageRun&) = delete;
  PageRun& operator=(const PageRun&) = delete;
  ~PageRun() { reset(); }

  // True when it owns nothing: a request that found no such run.
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  explicit operator bool() const noexcept { return first_ != nullptr; }

  // The first block; nullptr when empty.
  [[nodiscard]] Page* get() const noexcept { return first_; }
  // First byte. Must not be empty.
  [[nodiscard]] std::byte* data() const noexcept { return address_of(first_); }
  [[nodiscard]] PageCount frames() const noexcept { return frames_; }
  [[nodiscard]] Bytes size() const noexcept { return bytes(frames_); }

  // Drops the reference of each block. Any thread.
  void reset() noexcept;

 private:
  Page* first_ = nullptr;
  PageCount frames_;
};

}  // namespace weir
