// SPDX-License-Identifier: MIT
// pool/recycle_ring.hpp — a bounded ring of page indexes on their way home. Calls os/lock, zone.
// Many producers, one after the other under the lock that lies here; one consumer without a lock.
// Never drops a reference: what does not fit stays the caller's.
//
//   slots  | . . 7 9 4 . . . |   head = next to pop, tail = next to push; both only grow
//               ^head ^tail      example: capacity 3, head 10, tail 13 -> full
#pragma once

#include <algorithm>
#include <bit>
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

  [[nodiscard]] Lock& producer_lock() noexcept { return lock_; }

  // Room for exactly `capacity` pages, 0 being none; false when there is no memory. Only while
  // nobody uses the ring, or under the lock with no consumer.
  [[nodiscard]] bool open(std::uint32_t capacity) noexcept {
    close();
    if (capacity != 0) {
      const std::uint32_t slots = std::bit_ceil(capacity);
      slots_ = new (std::nothrow) PageIndex[slots];
      if (slots_ == nullptr) {
        return false;
      }
      mask_ = slots - 1;
    }
    capacity_ = capacity;
    return true;
  }
  // Under the same conditions; the ring must be empty.
  void close() noexcept {
    delete[] slots_;
    slots_ = nullptr;
    capacity_ = mask_ = head_seen_ = 0;
    head_.store(0, memory_order_relaxed);
    tail_.store(0, memory_order_relaxed);
  }

  // How many of n pages fit. Under the lock.
  [[nodiscard]] std::uint32_t room(std::uint32_t n) noexcept {
    const std::uint32_t tail = tail_.load(memory_order_relaxed);
    if (capacity_ - (tail - head_seen_) < n) {
      // pairs: pop release — the consumer has read the slots before they are written again
      head_seen_ = head_.load(memory_order_acquire);
    }
    return std::min(n, capacity_ - (tail - head_seen_));
  }
  // Takes n pages, at most what room() said under this same hold of the lock.
  void push(Page* const* pages, std::uint32_t n) noexcept {
    const std::uint32_t tail = tail_.load(memory_order_relaxed);
    for (std::uint32_t i = 0; i < n; ++i) {
      slots_[(tail + i) & mask_] = index_of(pages[i]);
    }
    // pairs: pop acquire — the pages and what their last users did to them
    tail_.store(tail + n, memory_order_release);
  }

  // Up to `most` pages, the oldest first. The consumer.
  std::uint32_t pop(Page** out, std::uint32_t most) noexcept {
    const std::uint32_t head = head_.load(memory_order_relaxed);
    // pairs: push release
    const std::uint32_t n = std::min(most, tail_.load(memory_order_acquire) - head);
    for (std::uint32_t i = 0; i < n; ++i) {
      out[i] = page_at(slots_[(head + i) & mask_]);
    }
    // pairs: push acquire
    head_.store(head + n, memory_order_release);
    return n;
  }

  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  // Any thread; exact when both sides are at rest, between 0 and capacity otherwise.
  [[nodiscard]] std::uint32_t size() const noexcept {
    const std::uint32_t head = head_.load(memory_order_relaxed);
    const std::uint32_t tail = tail_.load(memory_order_relaxed);
    return std::min(tail - head, capacity_);
  }

 private:
  // The consumer's line; producers look at it only when the ring seems full.
  alignas(kNoFalseSharing) Atomic<std::uint32_t> head_{0};
  // The producers' line; the consumer looks at it once a refill.
  alignas(kNoFalseSharing) Lock lock_;
  Atomic<std::uint32_t> tail_{0};
  std::uint32_t head_seen_ = 0;  // a head of some earlier moment; under the lock
  std::uint32_t capacity_ = 0;
  std::uint32_t mask_ = 0;
  PageIndex* slots_ = nullptr;
};

}  // namespace weir
