// SPDX-License-Identifier: MIT
// lab/experiments/packet_source.hpp — packets over any contender's buffers, so that ports and
// forwarder of weir run on all of them. Headroom and colour are those of weir's own source: between
// contenders only allocation and free differ. Calls packet/packet_source.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lab/contenders/buffers.hpp"
#include "weir/packet/packet_source.hpp"

namespace weir::lab {

// A buffer of somebody else's and the bytes in it; owns nothing, like the pointer it stands for.
template <class Handle>
class BufferPacket {
 public:
  BufferPacket() = default;
  BufferPacket(Handle handle, std::byte* data) noexcept : handle_(handle), data_(data) {}

  [[nodiscard]] Handle handle() const noexcept { return handle_; }
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  void set_size(std::uint32_t size) noexcept { size_ = size; }

 private:
  Handle handle_{};
  std::byte* data_ = nullptr;
  std::uint32_t size_ = 0;
};

template <Buffers B>
class BufferPacketSource {
 public:
  using Packet = BufferPacket<typename B::Handle>;

  explicit BufferPacketSource(B& buffers) noexcept : buffers_(buffers) {}

  std::size_t alloc_burst(std::span<Packet> slots) noexcept {
    std::array<typename B::Handle, kBurst> handles;
    const std::size_t want = std::min(slots.size(), kBurst);
    const std::size_t got = buffers_.alloc_bulk(std::span<typename B::Handle>(handles).first(want));
    for (std::size_t i = 0; i < got; ++i) {
      std::byte* const start = B::address(handles[i]);
      const auto frame = reinterpret_cast<std::uintptr_t>(start) >> kFrameShift;
      const std::size_t colour = (frame % kPacketColours) * kPacketColourStep;
      slots[i] = Packet(handles[i], start + kPacketHeadroom + colour);
    }
    return got;
  }
  void free_burst(std::span<Packet> packets) noexcept {
    std::array<typename B::Handle, kBurst> handles;
    while (!packets.empty()) {
      const std::size_t n = std::min(packets.size(), kBurst);
      for (std::size_t i = 0; i < n; ++i) {
        handles[i] = packets[i].handle();
        packets[i] = Packet();
      }
      buffers_.free_bulk(std::span<typename B::Handle>(handles).first(n));
      packets = packets.subspan(n);
    }
  }
  [[nodiscard]] std::uint32_t room() const noexcept { return kRoom; }

 private:
  static constexpr auto kRoom = static_cast<std::uint32_t>(
      kBufferBytes - kPacketHeadroom - (kPacketColours - 1) * kPacketColourStep);

  B& buffers_;
};

// Which source a contender's packets come from; weir's own have their own.
template <Buffers B>
struct PacketSourceOf {
  using type = BufferPacketSource<B>;
  static type make(B& buffers) { return type(buffers); }
};

}  // namespace weir::lab
