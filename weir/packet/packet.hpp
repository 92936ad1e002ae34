// SPDX-License-Identifier: MIT
// packet/packet.hpp — Packet, the move-only owner of one buffer with bytes in its middle. Calls
// frag, pool, page. One representation, whatever the buffer is; dropped in any thread, it takes the
// way home of its page.
//
//   buffer  | headroom |   size   | tailroom |     example: a frame of 4096 bytes, headroom 128,
//                      ^ data                      60 bytes -> tailroom 3908
//
// An empty packet (no buffer) has no room anywhere: every call on it is harmless. So is every call
// that asks for more than there is: it changes nothing and says so.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "weir/base/hot.hpp"
#include "weir/frag/frag_ref.hpp"
#include "weir/page/page_ref.hpp"
#include "weir/pool/pool_block.hpp"
#include "weir/pool/pool_ref.hpp"

namespace weir {

class [[nodiscard]] Packet {
 public:
  Packet() = default;
  // Over a whole page, a page of a pool, or a fragment: no bytes yet, behind `headroom` (clipped to
  // the buffer). An empty reference makes an empty packet.
  explicit Packet(PageRef&& page, std::uint32_t headroom = 0) noexcept {
    if (page) {
      const auto room = static_cast<std::uint32_t>(page.size().value);
      std::byte* start = page.data();
      adopt(page.detach(), start, room, headroom);
    }
  }
  explicit Packet(PoolRef&& page, std::uint32_t headroom = 0) noexcept {
    if (page) {
      std::byte* start = page.data();
      adopt(page.detach(), start, static_cast<std::uint32_t>(kFrameBytes), headroom);
    }
  }
  explicit Packet(FragRef&& frag, std::uint32_t headroom = 0) noexcept {
    if (frag) {
      const auto room = static_cast<std::uint32_t>(frag.size());
      std::byte* start = frag.data();
      adopt(frag.detach(), start, room, headroom);
    }
  }

  Packet(Packet&& other) noexcept
      : page_(other.page_),
        data_(other.data_),
        size_(other.size_),
        headroom_(other.headroom_),
        tailroom_(other.tailroom_) {
    other.forget();
  }
  Packet& operator=(Packet&& other) noexcept {
    if (this != &other) {
      if (page_ != nullptr) {
        pool_put(page_);
      }
      page_ = other.page_;
      data_ = other.data_;
      size_ = other.size_;
      headroom_ = other.headroom_;
      tailroom_ = other.tailroom_;
      other.forget();
    }
    return *this;
  }
  Packet(const Packet&) = delete;
  Packet& operator=(const Packet&) = delete;
  ~Packet() {
    if (page_ != nullptr) {
      pool_put(page_);
    }
  }

  // The packet, which must be empty, takes over one reference on `page` and with it the bytes
  // [start, start + room) of that page.
  WEIR_HOT void adopt(Page* page, std::byte* start, std::uint32_t room,
                      std::uint32_t headroom) noexcept {
    const std::uint32_t head = std::min(headroom, room);
    page_ = page;
    data_ = start + head;
    size_ = 0;
    headroom_ = head;
    tailroom_ = room - head;
  }

  // True when it has no buffer: an allocation that found no memory.
  [[nodiscard]] bool empty() const noexcept { return page_ == nullptr; }
  explicit operator bool() const noexcept { return page_ != nullptr; }

  [[nodiscard]] Page* page() const noexcept { return page_; }
  [[nodiscard]] std::byte* data() noexcept { return data_; }
  [[nodiscard]] const std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint32_t headroom() const noexcept { return headroom_; }
  [[nodiscard]] std::uint32_t tailroom() const noexcept { return tailroom_; }

  // Makes the packet `size` bytes long from where it begins. False when there is no such room.
  bool set_size(std::size_t size) noexcept {
    const std::size_t room = std::size_t{size_} + tailroom_;
    if (size > room) [[unlikely]] {
      return false;
    }
    size_ = static_cast<std::uint32_t>(size);
    tailroom_ = static_cast<std::uint32_t>(room - size);
    return true;
  }

  // n bytes more in front: the new start, or nullptr when the headroom is shorter.
  [[nodiscard]] std::byte* prepend(std::size_t n) noexcept {
    if (n > headroom_ || empty()) [[unlikely]] {
      return nullptr;
    }
    data_ -= n;
    size_ += static_cast<std::uint32_t>(n);
    headroom_ -= static_cast<std::uint32_t>(n);
    return data_;
  }
  // n bytes more at the end: where they begin, or nullptr when the tailroom is shorter.
  [[nodiscard]] std::byte* append(std::size_t n) noexcept {
    if (n > tailroom_ || empty()) [[unlikely]] {
      return nullptr;
    }
    std::byte* where = data_ + size_;
    size_ += static_cast<std::uint32_t>(n);
    tailroom_ -= static_cast<std::uint32_t>(n);
    return where;
  }
  // n bytes fewer in front or at the end; they become room. False when there are not so many.
  bool trim_front(std::size_t n) noexcept {
    if (n > size_) [[unlikely]] {
      return false;
    }
    data_ += n;
    size_ -= static_cast<std::uint32_t>(n);
    headroom_ += static_cast<std::uint32_t>(n);
    return true;
  }
  bool trim_back(std::size_t n) noexcept {
    if (n > size_) [[unlikely]] {
      return false;
    }
    size_ -= static_cast<std::uint32_t>(n);
    tailroom_ += static_cast<std::uint32_t>(n);
    return true;
  }

  // Gives the buffer's reference to the caller, who ends it with PagePool::put().
  [[nodiscard]] WEIR_HOT Page* detach() noexcept {
    Page* page = page_;
    forget();
    return page;
  }
  void reset() noexcept { pool_put(detach()); }

 private:
  WEIR_HOT void forget() noexcept {
    page_ = nullptr;
    data_ = nullptr;
    size_ = headroom_ = tailroom_ = 0;
  }

  Page* page_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint32_t size_ = 0;
  std::uint32_t headroom_ = 0;
  std::uint32_t tailroom_ = 0;
};
static_assert(sizeof(Packet) <= 32);

}  // namespace weir
