// SPDX-License-Identifier: MIT
// percpu/pin.hpp — a range of a zone's memory that a device or the kernel knows by its address (an AF_XDP umem, a
// registered buffer of io_uring): it is neither trimmed nor moved until this object ends. Calls CachedZone.
#pragma once

#include <cstdint>
#include <utility>

#include "weir/base/types.hpp"

namespace weir {

class CachedZone;

// Move-only. It may outlive its allocator: the zone then stays, memory and all, until the last pin has ended, as
// it does for a page that is out. In a forked child the copy counts for the child alone.
class [[nodiscard]] Pin {
 public:
  Pin() = default;
  Pin(Pin&& other) noexcept
      : zone_(std::exchange(other.zone_, nullptr)), first_(other.first_), frames_(other.frames_) {}
  Pin& operator=(Pin&& other) noexcept {
    if (this != &other) {
      release();
      zone_ = std::exchange(other.zone_, nullptr);
      first_ = other.first_;
      frames_ = other.frames_;
    }
    return *this;
  }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  ~Pin() { release(); }

  // Ends it now. Any thread; the object is empty afterwards.
  void release() noexcept;
  [[nodiscard]] explicit operator bool() const noexcept { return zone_ != nullptr; }
  // Of the range that was asked for.
  [[nodiscard]] PageIndex first() const noexcept { return first_; }
  [[nodiscard]] PageCount frames() const noexcept { return PageCount{frames_}; }

 private:
  friend class CachedZone;
  Pin(CachedZone& zone, PageIndex first, std::uint64_t frames) noexcept
      : zone_(&zone), first_(first), frames_(frames) {}

  CachedZone* zone_ =
      nullptr;  // a slot of the registry: it stays readable whatever becomes of the zone
  PageIndex first_ = kNoPage;
  std::uint64_t frames_ = 0;
};

}  // namespace weir
