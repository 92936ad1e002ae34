// SPDX-License-Identifier: MIT
// io/memory_port.hpp — a port over two rings in memory: frames in, packets out. Calls io/spsc_ring,
// io/port. Needs no privilege and no device; the peer at the other end of the rings is a test, a
// benchmark, or nobody.
//
//   peer    inject(frames) ==> [ receive ring ]   ==> rx_burst: each frame copied into a packet
//   peer    reap or collect <== [ completion ring ] <== tx_burst
//
// Three sides, each one thread at a time: the peer that injects; the one that receives and sends;
// the one that reaps or collects.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>

#include "weir/base/config.hpp"
#include "weir/base/counter.hpp"
#include "weir/io/port.hpp"
#include "weir/io/spsc_ring.hpp"
#include "weir/packet/burst.hpp"

namespace weir {

// Somebody else's bytes.
using FrameView = std::span<const std::byte>;

struct MemoryPortOptions {
  std::size_t rx_ring = 1024;  // frames; rounded up to a power of two
  std::size_t tx_ring = 1024;  // packets sent and not yet reaped; rounded up to a power of two
};

template <PacketSource Source>
class MemoryPort {
 public:
  using Packet = typename Source::Packet;

  // The source must outlive the port. Throws std::bad_alloc.
  explicit MemoryPort(Source& source, const MemoryPortOptions& options = {})
      : source_(source), incoming_(options.rx_ring), outgoing_(options.tx_ring) {}
  // With every side at rest; packets not yet reaped are freed.
  ~MemoryPort() {
    while (reap() != 0) {
    }
  }
  MemoryPort(const MemoryPort&) = delete;
  MemoryPort& operator=(const MemoryPort&) = delete;

  // The peer: hands in the first of these frames, as many as fit; returns how many. Their bytes
  // must stay until they have been received.
  std::size_t inject(std::span<FrameView> frames) noexcept { return incoming_.push_burst(frames); }

  // A frame that finds no buffer stays in the ring.
  std::size_t rx_burst(std::span<Packet> slots) noexcept {
    std::array<FrameView, kBurstPackets> frames;
    const std::size_t want = std::min({slots.size(), frames.size(), incoming_.ready()});
    if (want == 0) {
      return 0;
    }
    const std::size_t got = source_.alloc_burst(slots.first(want));
    if (got < want) {
      counters_.no_buffer.add(1);
    }
    std::size_t received = 0;
    std::size_t bytes = 0;
    const std::size_t taken = incoming_.pop_burst(std::span(frames).first(got));
    for (const FrameView& frame : std::span(frames).first(taken)) {
      if (frame.size() > source_.room()) [[unlikely]] {
        counters_.drop_too_long.add(1);
        continue;
      }
      Packet& packet = slots[received++];
      if (!frame.empty()) {
        std::memcpy(packet.data(), frame.data(), frame.size());
      }
      packet.set_size(static_cast<std::uint32_t>(frame.size()));
      bytes += frame.size();
    }
    if (received < got) [[unlikely]] {
      source_.free_burst(slots.subspan(received, got - received));
    }
    counters_.received.add(received);
    counters_.received_bytes.add(bytes);
    return received;
  }

  std::size_t tx_burst(std::span<Packet> packets) noexcept {
    const std::size_t n = outgoing_.push_burst(packets);
    counters_.transmitted.add(n);
    return n;
  }

  // Frees up to a burst of sent packets. Any one thread.
  std::size_t reap() noexcept {
    const std::size_t n = outgoing_.pop_burst(reaped_);
    if (n != 0) {
      source_.free_burst(std::span(reaped_).first(n));
      completion_counters_.completed.add(n);
    }
    return n;
  }
  // The same, but the packets go to the caller: empty slots are filled from the first on.
  std::size_t collect(std::span<Packet> slots) noexcept {
    const std::size_t n = outgoing_.pop_burst(slots);
    completion_counters_.completed.add(n);
    return n;
  }

  void free_burst(std::span<Packet> packets) noexcept { source_.free_burst(packets); }

  // Packets sent and not yet reaped. Any thread.
  [[nodiscard]] std::size_t in_tx_ring() const noexcept { return outgoing_.size(); }
  [[nodiscard]] std::size_t tx_capacity() const noexcept { return outgoing_.capacity(); }
  [[nodiscard]] std::size_t rx_capacity() const noexcept { return incoming_.capacity(); }

  // Of receiving and sending, and of completion; summed by whoever shows them.
  [[nodiscard]] const IoCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] const IoCounters& completion_counters() const noexcept {
    return completion_counters_;
  }

 private:
  Source& source_;
  SpscRing<FrameView> incoming_;
  SpscRing<Packet> outgoing_;
  alignas(kNoFalseSharing) IoCounters counters_;
  alignas(kNoFalseSharing) IoCounters completion_counters_;
  std::array<Packet, kBurstPackets> reaped_{};
};

static_assert(Port<MemoryPort<PoolPacketSource>>);

}  // namespace weir
