// SPDX-License-Identifier: MIT
// packet/burst.hpp — a fixed array of packets, filled behind and emptied in front. Calls nothing.
// Owns what is between; of packets that were moved out it knows nothing any more.
//
//   slots  | gone | packets() | room() |     what is sent is dropped in front; when all is gone the
//                 ^ first     ^ end          whole array is room again
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <utility>

namespace weir {

// Packets moved at once between port, forwarder and pool: 32 frames of 1514 bytes still fit into a
// first-level cache with something to spare.
inline constexpr std::size_t kBurstPackets = 32;

template <class P, std::size_t N = kBurstPackets>
class Burst {
  static_assert(N != 0);

 public:
  [[nodiscard]] static constexpr std::size_t capacity() noexcept { return N; }
  [[nodiscard]] bool empty() const noexcept { return first_ == end_; }
  [[nodiscard]] std::size_t size() const noexcept { return end_ - first_; }
  // No room behind, whatever went in front.
  [[nodiscard]] bool full() const noexcept { return end_ == N; }

  [[nodiscard]] std::span<P> packets() noexcept {
    return std::span(slots_).subspan(first_, size());
  }
  [[nodiscard]] std::span<P> room() noexcept { return std::span(slots_).subspan(end_); }

  // The first n slots of room() have been filled.
  void grow(std::size_t n) noexcept { end_ += n < N - end_ ? n : N - end_; }
  // False, and the packet stays the caller's, when there is no room.
  bool push(P&& packet) noexcept {
    if (full()) {
      return false;
    }
    slots_[end_++] = std::move(packet);
    return true;
  }
  // The first n of packets() have been moved out.
  void drop_front(std::size_t n) noexcept {
    first_ += n < size() ? n : size();
    if (first_ == end_) {
      first_ = end_ = 0;
    }
  }
  // So have the last n.
  void drop_back(std::size_t n) noexcept {
    end_ -= n < size() ? n : size();
    if (first_ == end_) {
      first_ = end_ = 0;
    }
  }

 private:
  std::array<P, N> slots_{};
  std::size_t first_ = 0;
  std::size_t end_ = 0;
};

}  // namespace weir
