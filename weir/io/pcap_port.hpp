// SPDX-License-Identifier: MIT
// io/pcap_port.hpp — a port over capture files: receives by replaying one, sends by writing one.
// Calls io/capture, io/port. One thread.
//
// Each frame is copied into a fresh packet, as a device would. A frame that finds no buffer is not
// consumed: a replay loses nothing, it waits. What is sent is written, if there is a file, and its
// buffer goes home at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "weir/base/counter.hpp"
#include "weir/io/capture.hpp"
#include "weir/io/port.hpp"

namespace weir {

enum class Replay : unsigned char { once, loop };

template <PacketSource Source>
class PcapPort {
 public:
  using Packet = typename Source::Packet;

  // Source, capture and writer must outlive the port. Without capture nothing is received, without
  // writer what is sent is only counted.
  PcapPort(Source& source, const Capture* capture, Replay replay,
           CaptureWriter* writer = nullptr) noexcept
      : source_(source), capture_(capture), writer_(writer), replay_(replay) {}
  PcapPort(Source& source, CaptureWriter& writer) noexcept
      : PcapPort(source, nullptr, Replay::once, &writer) {}

  std::size_t rx_burst(std::span<Packet> slots) noexcept {
    const std::size_t want = std::min(slots.size(), frames_left());
    if (want == 0) {
      return 0;
    }
    const std::size_t got = source_.alloc_burst(slots.first(want));
    if (got < want) {
      counters_.no_buffer.add(1);
    }
    const std::size_t received = fill(slots.first(got));
    if (received < got) [[unlikely]] {
      source_.free_burst(slots.subspan(received, got - received));
    }
    counters_.received.add(received);
    return received;
  }

  std::size_t tx_burst(std::span<Packet> packets) noexcept {
    if (writer_ != nullptr) {
      for (Packet& packet : packets) {
        writer_->write(Capture::Frame(packet.data(), packet.size()));
      }
    }
    source_.free_burst(packets);
    counters_.transmitted.add(packets.size());
    sent_ += packets.size();
    return packets.size();
  }
  std::size_t reap() noexcept {
    const std::size_t n = sent_;
    sent_ = 0;
    counters_.completed.add(n);
    return n;
  }
  void free_burst(std::span<Packet> packets) noexcept { source_.free_burst(packets); }

  // Nothing more will be received.
  [[nodiscard]] bool finished() const noexcept { return frames_left() == 0; }
  // Times the whole capture was replayed.
  [[nodiscard]] std::uint64_t rounds() const noexcept { return rounds_; }

  [[nodiscard]] const IoCounters& counters() const noexcept { return counters_; }

 private:
  // Frames until the replay ends; in a loop, until this call should come to an end.
  [[nodiscard]] std::size_t frames_left() const noexcept {
    if (capture_ == nullptr) {
      return 0;
    }
    return replay_ == Replay::loop ? capture_->size() : capture_->size() - next_;
  }

  // Copies the next frames into these packets; frames that are too long are passed over.
  std::size_t fill(std::span<Packet> packets) noexcept {
    const std::uint32_t room = source_.room();
    std::size_t filled = 0;
    std::size_t bytes = 0;
    for (std::size_t left = frames_left(); filled < packets.size() && left != 0; --left) {
      const Capture::Frame frame = capture_->frame(next_);
      if (++next_ == capture_->size()) {
        ++rounds_;
        next_ = replay_ == Replay::loop ? 0 : next_;
      }
      if (frame.size() > room) [[unlikely]] {
        counters_.drop_too_long.add(1);
        continue;
      }
      Packet& packet = packets[filled++];
      if (!frame.empty()) {
        std::memcpy(packet.data(), frame.data(), frame.size());
      }
      packet.set_size(static_cast<std::uint32_t>(frame.size()));
      bytes += frame.size();
    }
    counters_.received_bytes.add(bytes);
    return filled;
  }

  Source& source_;
  const Capture* capture_;
  CaptureWriter* writer_;
  Replay replay_;
  std::size_t next_ = 0;
  std::uint64_t rounds_ = 0;
  std::size_t sent_ = 0;  // since the last reap
  IoCounters counters_;
};

static_assert(FinitePort<PcapPort<PoolPacketSource>>);

}  // namespace weir
