// SPDX-License-Identifier: MIT
// lab/contenders/zone_engines.hpp — the engines inside a zone, bare: frames by index over address space that
// nobody touches. What a zone adds (watermarks, counters) is left out; the lock that an engine needs is
// not. Calls zone/bitmap_engine, zone/buddy_engine, os/lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "weir/os/lock.hpp"
#include "weir/os/memory.hpp"
#include "weir/zone/bitmap_engine.hpp"
#include "weir/zone/buddy_engine.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir::lab {

// Frame numbers with descriptors, and no memory behind them.
class BareFrames {
 public:
  explicit BareFrames(std::uint64_t frames) : size_(bytes(PageCount{frames})) {
    Result<std::byte*> base = system_memory().reserve(size_, bytes(kMaxOrder));
    if (!base) {
      throw std::bad_alloc();
    }
    base_ = *base;
    Result<PageIndex> first = frame_table::reserve_range(base_, size_, kZone);
    if (!first) {
      system_memory().release(base_, size_);
      throw std::bad_alloc();
    }
    first_ = *first;
  }
  ~BareFrames() {
    frame_table::release_range(first_, base_, size_);
    system_memory().release(base_, size_);
  }
  BareFrames(const BareFrames&) = delete;
  BareFrames& operator=(const BareFrames&) = delete;
  [[nodiscard]] PageIndex first() const { return first_; }

 private:
  // No zone of the registry has it: they are counted from 1.
  static constexpr std::uint16_t kZone = 0xffff;

  Bytes size_;
  std::byte* base_ = nullptr;
  PageIndex first_{};
};

class BitmapFrames {
 public:
  explicit BitmapFrames(std::uint64_t frames) : frames_(frames) {
    if (engine_.adopt(frames_.first(), PageCount{frames}).failed()) {
      throw std::bad_alloc();
    }
  }
  [[nodiscard]] PageIndex take(Order order) noexcept { return engine_.take(order, 0, 0); }
  void give(PageIndex page, Order order) noexcept { engine_.give(page, order); }
  std::uint32_t take_many(PageIndex* out, std::uint32_t n) noexcept {
    return engine_.take_many(Order{0}, out, n, 0, 0);
  }
  void give_many(const PageIndex* pages, std::uint32_t n) noexcept {
    engine_.give_many(Order{0}, pages, n);
  }
  [[nodiscard]] std::uint64_t free_pages() const noexcept { return engine_.free_pages(); }

 private:
  BareFrames frames_;
  BitmapEngine engine_;
};

// Under a lock that nobody else takes, held once a call.
class LockedBuddyFrames {
 public:
  explicit LockedBuddyFrames(std::uint64_t frames) : frames_(frames) {
    engine_.adopt(frames_.first(), frames);
  }
  [[nodiscard]] PageIndex take(Order order) noexcept {
    const LockGuard hold(lock_);
    return engine_.take(order);
  }
  void give(PageIndex page, Order order) noexcept {
    const LockGuard hold(lock_);
    engine_.give(page, order);
  }
  std::uint32_t take_many(PageIndex* out, std::uint32_t n) noexcept {
    const LockGuard hold(lock_);
    return engine_.take_many(Order{0}, out, n);
  }
  void give_many(const PageIndex* pages, std::uint32_t n) noexcept {
    const LockGuard hold(lock_);
    engine_.give_many(Order{0}, pages, n);
  }
  [[nodiscard]] std::uint64_t free_pages() const noexcept { return engine_.free_pages(); }

 private:
  BareFrames frames_;
  Lock lock_;
  BuddyEngine engine_;
};

}  // namespace weir::lab
