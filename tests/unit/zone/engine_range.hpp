// SPDX-License-Identifier: MIT
// unit/zone/engine_range.hpp — descriptors for an engine under test: address space that nobody
// touches, entered into the frame table at a chosen place within a largest block.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "weir/os/memory.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir::test {

class EngineRange {
 public:
  // `offset`: frames between a multiple of the largest block and the first frame.
  explicit EngineRange(std::uint64_t frames, std::uint64_t offset = 0, std::uint16_t zone = 1)
      : frames_(frames), mapped_(bytes(PageCount{frames + offset})) {
    Result<std::byte*> base = system_memory().reserve(mapped_, bytes(kMaxOrder));
    if (!base) {
      throw std::runtime_error(base.error().what);
    }
    mapping_ = *base;
    base_ = mapping_ + offset * kFrameBytes;
    Result<PageIndex> first = frame_table::reserve_range(base_, size(), zone);
    if (!first) {
      system_memory().release(mapping_, mapped_);
      throw std::runtime_error(first.error().what);
    }
    first_ = *first;
  }
  ~EngineRange() {
    frame_table::release_range(first_, base_, size());
    system_memory().release(mapping_, mapped_);
  }
  EngineRange(const EngineRange&) = delete;
  EngineRange& operator=(const EngineRange&) = delete;

  [[nodiscard]] PageIndex first() const { return first_; }
  [[nodiscard]] std::uint64_t frames() const { return frames_; }
  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] Bytes size() const { return bytes(PageCount{frames_}); }
  [[nodiscard]] PageIndex frame(std::uint64_t i) const { return advance(first_, i); }

 private:
  std::uint64_t frames_;
  Bytes mapped_;
  std::byte* mapping_ = nullptr;
  std::byte* base_ = nullptr;
  PageIndex first_ = kNoPage;
};

}  // namespace weir::test
