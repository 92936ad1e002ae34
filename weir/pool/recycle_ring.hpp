// SPDX-License-Identifier: MIT
// pool/recycle_ring.hpp — the return ring of a pool: page indexes on their way home. Calls os/lock,
// zone. Producers and consumer take turns under the lock that lies here, for a burst at a time.
// Never drops a reference: what does not fit stays the caller's.
//
//   slots  | 7 9 4 2 . . . . |      pushed behind, popped from behind
//                    ^count         example: capacity 8, four pages; pop(2) gives 4 2
//
// The newest pages leave first. First in, first out would send every page of the pool round and
// round, each one gone from the caches by the time its turn comes: forwarding a capture over two
// CPUs went 1.7 times as fast when this became a stack. (A ring needs no lock for its consumer; one
// lock for 64 pages costs less than one cache miss for each.)
#pragma once

#include <algorithm>
#include <cstdint>
#include <new>

#include "weir/base/atomic.hpp"
#include "weir/base/config.hpp"
#include "weir/base/types.hpp"
#include "weir/os/lock.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir {

class RecycleRing {
 public:
  RecycleRing() = default;
  ~RecycleRing() { close(); }
  RecycleRing(const RecycleRing&) = delete;
  RecycleRing& operator=(const RecycleRing&) = delete;

  // Everything below but size() and capacity() happens under it, or while nobody uses the ring.
  [[nodiscard]] Lock& lock() noexcept { return lock_; }

  // Room for exactly `capacity` pages, 0 being none; false when there is no memory.
  [[nodiscard]] bool open(std::uint32_t capacity) noexcept {
    close();
    if (capacity != 0) {
      slots_ = new (std::nothrow) PageIndex[capacity];
      if (slots_ == nullptr) {
        return false;
      }
    }
    capacity_ = capacity;
    return true;
  }
  // The ring must be empty.
  void close() noexcept {
    delete[] slots_;
    slots_ = nullptr;
    capacity_ = 0;
    count_ = 0;
  }

  // How many of n pages fit.
  [[nodiscard]] std::uint32_t room(std::uint32_t n) const noexcept {
    return std::min(n, capacity_ - count_);
  }
  // Takes n pages, at most what room() said under this same hold of the lock.
  void push(Page* const* pages, std::uint32_t n) noexcept {
    const std::uint32_t count = count_;
    for (std::uint32_t i = 0; i < n; ++i) {
      slots_[count + i] = index_of(pages[i]);
    }
    count_ = count + n;
  }
  // The newest pages, up to `most`, the very newest last.
  std::uint32_t pop(Page** out, std::uint32_t most) noexcept {
    const std::uint32_t n = std::min<std::uint32_t>(most, count_);
    const std::uint32_t rest = count_ - n;
    for (std::uint32_t i = 0; i < n; ++i) {
      out[i] = page_at(slots_[rest + i]);
    }
    count_ = rest;
    return n;
  }

  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  // Any thread; exact when nobody is pushing or popping.
  [[nodiscard]] std::uint32_t size() const noexcept { return count_; }

 private:
  alignas(kNoFalseSharing) Lock lock_;
  Relaxed<std::uint32_t> count_;  // written under lock_
  std::uint32_t capacity_ = 0;
  PageIndex* slots_ = nullptr;
};

}  // namespace weir
