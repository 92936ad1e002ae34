// SPDX-License-Identifier: MIT
// lab/experiments/batch_ring.hpp — arrays of pointers on their way from one thread to another: whole
// batches of one size, written and read where they lie, so that the ring adds as little as it can to
// what is measured. Never waits. Calls base.
//
//   | full | full | free | free |   front = next to read, back = next to write; both only grow
//     ^front        ^back
#pragma once

#include <bit>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

#include "weir/base/atomic.hpp"
#include "weir/base/config.hpp"

namespace weir::lab {

template <class T>
class BatchRing {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  // As many batches as `most` objects fill, rounded down to a power of two, at least one.
  BatchRing(std::size_t batch, std::size_t most)
      : batch_(batch),
        count_(std::bit_floor(most / batch + (most < batch ? 1 : 0))),
        slots_(static_cast<T*>(
            ::operator new[](count_* batch_ * sizeof(T), std::align_val_t{kNoFalseSharing}))) {
    std::uninitialized_value_construct_n(slots_.get(), count_ * batch_);
  }

  [[nodiscard]] std::size_t batch() const noexcept { return batch_; }
  [[nodiscard]] std::size_t batches() const noexcept { return count_; }

  // The producer: room for one batch, empty if there is none now; the same until publish().
  [[nodiscard]] std::span<T> room() noexcept {
    const std::size_t back = back_.load(memory_order_relaxed);
    if (back - front_seen_ == count_) {
      // pairs: pop release — the consumer has read the batch before it is written again
      front_seen_ = front_.load(memory_order_acquire);
    }
    return back - front_seen_ == count_ ? std::span<T>{} : at(back);
  }
  void publish() noexcept {
    // pairs: front acquire
    back_.store(back_.load(memory_order_relaxed) + 1, memory_order_release);
  }

  // The consumer: the oldest batch, empty if there is none now; the same until pop().
  [[nodiscard]] std::span<T> front() noexcept {
    const std::size_t front = front_.load(memory_order_relaxed);
    if (front == back_seen_) {
      back_seen_ = back_.load(memory_order_acquire);  // pairs: publish release
    }
    return front == back_seen_ ? std::span<T>{} : at(front);
  }
  void pop() noexcept {
    // pairs: room acquire
    front_.store(front_.load(memory_order_relaxed) + 1, memory_order_release);
  }

 private:
  struct Delete {
    void operator()(T* slots) const noexcept {
      ::operator delete[](slots, std::align_val_t{kNoFalseSharing});
    }
  };
  [[nodiscard]] std::span<T> at(std::size_t position) const noexcept {
    return {slots_.get() + (position & (count_ - 1)) * batch_, batch_};
  }

  const std::size_t batch_;
  const std::size_t count_;
  const std::unique_ptr<T[], Delete> slots_;
  // The producer's.
  alignas(kNoFalseSharing) Atomic<std::size_t> back_{0};
  std::size_t front_seen_ = 0;
  // The consumer's.
  alignas(kNoFalseSharing) Atomic<std::size_t> front_{0};
  std::size_t back_seen_ = 0;
};

}  // namespace weir::lab
