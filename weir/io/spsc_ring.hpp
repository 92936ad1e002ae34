// SPDX-License-Identifier: MIT
// io/spsc_ring.hpp — a bounded ring between one producer thread and one consumer thread. Calls
// base. Owns what is in it; what it refuses stays the caller's. Never waits.
//
//   slots  | . . c d e . . . |   head = next to pop, tail = next to push; both only grow, so the
//               ^head ^tail      index of a slot is their low bits and size is tail - head
//
// Each side keeps the other's position as it last saw it, and looks again only when that says full
// or empty: a burst costs at most one line from the other CPU beside the slots themselves. A slot
// holds an object only while it is between head and tail; the consumer does not write what it reads.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "weir/base/atomic.hpp"
#include "weir/base/config.hpp"
#include "weir/base/hot.hpp"

namespace weir {

template <class T>
class SpscRing {
  static_assert(std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T>);

 public:
  // At least this capacity: the next power of two, read back with capacity(). Throws
  // std::bad_alloc.
  explicit SpscRing(std::size_t capacity)
      : mask_(std::bit_ceil(std::max<std::size_t>(capacity, 1)) - 1), slots_(new Slot[mask_ + 1]) {}
  // With both sides at rest.
  ~SpscRing() {
    const std::size_t tail = tail_.load(memory_order_relaxed);
    for (std::size_t head = head_.load(memory_order_relaxed); head != tail; ++head) {
      std::destroy_at(object(head));
    }
  }
  SpscRing(const SpscRing&) = delete;
  SpscRing& operator=(const SpscRing&) = delete;

  [[nodiscard]] std::size_t capacity() const noexcept { return mask_ + 1; }
  // Any thread; exact when both sides are at rest, at most capacity() otherwise.
  [[nodiscard]] std::size_t size() const noexcept {
    const std::size_t head = head_.load(memory_order_relaxed);
    return std::min(tail_.load(memory_order_relaxed) - head, capacity());
  }

  // The producer: moves the first objects in, as many as there is room for; returns how many.
  std::size_t push_burst(std::span<T> objects) noexcept {
    const std::size_t tail = tail_.load(memory_order_relaxed);
    if (capacity() - (tail - head_seen_) < objects.size()) {
      // pairs: pop_burst release — the consumer has read the slots before they are written again
      head_seen_ = head_.load(memory_order_acquire);
    }
    const std::size_t n = std::min(objects.size(), capacity() - (tail - head_seen_));
    for (std::size_t i = 0; i < n; ++i) {
      std::construct_at(object(tail + i), std::move(objects[i]));
    }
    tail_.store(tail + n, memory_order_release);  // pairs: pop_burst acquire
    return n;
  }
  bool push(T&& one) noexcept { return push_burst(std::span(&one, 1)) == 1; }

  // The consumer: moves up to out.size() objects out, the oldest first; returns how many.
  std::size_t pop_burst(std::span<T> out) noexcept {
    const std::size_t head = head_.load(memory_order_relaxed);
    if (tail_seen_ - head < out.size()) {
      tail_seen_ = tail_.load(memory_order_acquire);  // pairs: push_burst release
    }
    const std::size_t n = std::min(out.size(), tail_seen_ - head);
    for (std::size_t i = 0; i < n; ++i) {
      T* slot = object(head + i);
      out[i] = std::move(*slot);
      std::destroy_at(slot);
    }
    head_.store(head + n, memory_order_release);  // pairs: push_burst acquire
    return n;
  }

  // The consumer: objects there now, at least.
  [[nodiscard]] std::size_t ready() noexcept {
    tail_seen_ = tail_.load(memory_order_acquire);  // pairs: push_burst release
    return tail_seen_ - head_.load(memory_order_relaxed);
  }

 private:
  struct Slot {
    alignas(T) std::byte bytes[sizeof(T)];
  };
  [[nodiscard]] WEIR_HOT T* object(std::size_t position) noexcept {
    return std::launder(reinterpret_cast<T*>(slots_[position & mask_].bytes));
  }

  const std::size_t mask_;
  const std::unique_ptr<Slot[]> slots_;
  // The producer's.
  alignas(kNoFalseSharing) Atomic<std::size_t> tail_{0};
  std::size_t head_seen_ = 0;
  // The consumer's.
  alignas(kNoFalseSharing) Atomic<std::size_t> head_{0};
  std::size_t tail_seen_ = 0;
};

}  // namespace weir
