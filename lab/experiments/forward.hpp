// SPDX-License-Identifier: MIT
// lab/experiments/forward.hpp — the main job: the lead replays a capture through a forwarder into a
// transmit ring, the follower completes. One template for every contender. Calls io, packet.
//
//   lead      PcapPort (alloc, copy) -> stamp -> Forwarder (MACs, TTL, checksum) -> MemoryPort ring
//   follower  collect -> touch each, verify some -> free in bursts
//
// The stamp is the packet's number in the eight bytes behind it, where a wire carries its frame
// check sequence: the line is in the cache from the copy. From it the follower knows which frame of
// the capture must have arrived, whatever was dropped before.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lab/contenders/buffers.hpp"
#include "lab/experiments/packet_source.hpp"
#include "lab/experiments/rounds.hpp"
#include "lab/harness/crew.hpp"
#include "lab/harness/trial.hpp"
#include "weir/io/capture.hpp"
#include "weir/io/forwarder.hpp"
#include "weir/io/memory_port.hpp"
#include "weir/io/pcap_port.hpp"
#include "weir/packet/burst.hpp"

namespace weir::lab {

inline constexpr std::size_t kStampBytes = sizeof(std::uint64_t);

// The receiving port, stamping what it received.
template <class Source>
class StampingPort {
 public:
  using Packet = typename Source::Packet;

  StampingPort(Source& source, const Capture& capture)
      : port_(source, &capture, Replay::loop), room_(source.room()) {}

  std::size_t rx_burst(std::span<Packet> slots) noexcept {
    const std::size_t n = port_.rx_burst(slots);
    for (Packet& packet : slots.first(n)) {
      if (packet.size() + kStampBytes <= room_) [[likely]] {
        std::memcpy(packet.data() + packet.size(), &next_, kStampBytes);
      }
      ++next_;
    }
    return n;
  }
  std::size_t tx_burst(std::span<Packet> packets) noexcept { return port_.tx_burst(packets); }
  std::size_t reap() noexcept { return port_.reap(); }
  void free_burst(std::span<Packet> packets) noexcept { port_.free_burst(packets); }

  [[nodiscard]] std::uint64_t received() const noexcept { return next_; }
  [[nodiscard]] const IoCounters& counters() const noexcept { return port_.counters(); }

 private:
  PcapPort<Source> port_;
  std::uint32_t room_;
  std::uint64_t next_ = 0;
};

// What the follower knows of the packets: their order, and what must be in them.
class ArrivalCheck {
 public:
  ArrivalCheck(const Capture& capture, const NextHop& hop, std::uint32_t room)
      : hop_(hop), room_(room) {
    for (const Capture::Frame frame : capture.frames()) {
      if (frame.size() <= room) {  // the others are never received
        frames_.push_back(frame);
      }
    }
  }

  [[nodiscard]] bool empty() const noexcept { return frames_.empty(); }

  // The stamp alone: later than every one before it. One cache line of the packet.
  void check_order(const std::byte* data, std::uint32_t size) noexcept {
    if (size + kStampBytes > room_) {
      return;
    }
    const std::uint64_t number = stamp(data, size);
    if (number < next_ || frames_[number % frames_.size()].size() != size) [[unlikely]] {
      fail(number, "is out of order");
    }
    next_ = number + 1;
  }
  // All bytes.
  void check_bytes(const std::byte* data, std::uint32_t size) {
    if (size + kStampBytes > room_ || !fault_.empty()) {
      return;
    }
    const std::uint64_t number = stamp(data, size);
    const Capture::Frame frame = frames_[number % frames_.size()];
    expected_.assign(frame.begin(), frame.end());
    if (frame.size() != size || rewrite(expected_, hop_) != Verdict::forward ||
        std::memcmp(expected_.data(), data, size) != 0) {
      fail(number, "is not what was sent");
    }
  }

  [[nodiscard]] const std::string& fault() const noexcept { return fault_; }

 private:
  [[nodiscard]] static std::uint64_t stamp(const std::byte* data, std::uint32_t size) noexcept {
    std::uint64_t number = 0;
    std::memcpy(&number, data + size, kStampBytes);
    return number;
  }
  void fail(std::uint64_t number, const char* how) {
    if (fault_.empty()) {
      fault_ = "packet " + std::to_string(number) + " " + how +
               ": its buffer was handed out twice or changed on the way";
    }
  }

  NextHop hop_;
  std::uint32_t room_;
  std::vector<Capture::Frame> frames_;
  std::vector<std::byte> expected_;
  std::uint64_t next_ = 0;
  std::string fault_;
};

template <Buffers B>
class ForwardTrial final : public Trial {
 public:
  ForwardTrial(std::shared_ptr<B> buffers, const Capture& capture)
      : buffers_(std::move(buffers)),
        source_(PacketSourceOf<B>::make(*buffers_)),
        rx_(source_, capture),
        tx_(source_, {.rx_ring = 1, .tx_ring = kRing}),
        forwarder_(rx_, tx_, {.hop = kHop}),
        check_(capture, kHop, source_.room()) {}

  void prepare(const RoundSetup& setup) override {
    setup_ = setup;
    completed_ = 0;
    no_buffer_before_ = rx_.counters().no_buffer.get();
    stop_.store(false, std::memory_order_relaxed);
    buffers_->begin_round();
  }

  void lead() override {
    constexpr unsigned kPolls = 8;  // between looks at the clock
    buffers_->enter_thread();
    Waiter waiter(setup_.one_cpu);
    start_ = SteadyClock::now();
    const auto deadline = start_ + setup_.duration;
    do {
      for (unsigned i = 0; i < kPolls; ++i) {
        if (forwarder_.poll_once() == 0) {
          waiter.wait();
        }
      }
    } while (SteadyClock::now() < deadline);
    stop_.store(true, std::memory_order_release);  // pairs: follow acquire
  }

  void follow() override {
    buffers_->enter_thread();
    Waiter waiter(setup_.one_cpu);
    std::array<Packet, kBurstPackets> burst;
    for (;;) {
      // pairs: lead release. Read before the ring: an empty ring after it stays empty.
      const bool last = stop_.load(std::memory_order_acquire);
      const std::size_t n = tx_.collect(burst);
      if (n != 0) {
        complete(std::span{burst}.first(n));
      } else if (last) {
        break;
      } else {
        waiter.wait();
      }
    }
    end_ = SteadyClock::now();
  }

  [[nodiscard]] bool two_sided() const override { return true; }

  Outcome collect() override {
    Outcome outcome;
    outcome.fault = fault();
    if (!outcome.fault.empty()) {
      return outcome;
    }
    const auto packets = static_cast<double>(completed_);
    const double ns = ns_between(start_, end_);
    const std::uint64_t no_buffer = rx_.counters().no_buffer.get() - no_buffer_before_;
    outcome.readings = {{"rate", "packets/s", 1e9 * packets / ns},
                        {"time", "ns", ns / packets},
                        {"packets", "count", packets},
                        {"polls_without_buffer", "count", static_cast<double>(no_buffer)}};
    buffers_->end_round(outcome.readings);
    return outcome;
  }

 private:
  using Source = typename PacketSourceOf<B>::type;
  using Packet = typename Source::Packet;
  using Rx = StampingPort<Source>;
  using Tx = MemoryPort<Source>;

  static constexpr std::size_t kRing = 1024;
  // Locally administered addresses of nobody.
  static constexpr NextHop kHop{MacAddress{{0x02, 0, 0, 0, 0, 0x01}},
                                MacAddress{{0x02, 0, 0, 0, 0, 0x02}}};
  static constexpr std::uint64_t kBurstsBetweenBytes = 16;
  static constexpr std::uint64_t kBurstsAllChecked = 256;  // part of the warm-up

  void complete(std::span<Packet> packets) {
    for (Packet& packet : packets) {  // what a completion looks at
      keep(*static_cast<volatile std::byte*>(packet.data()));
    }
    // One packet of each burst, every place in turn.
    Packet& sample = packets[++bursts_ % packets.size()];
    check_.check_order(sample.data(), sample.size());
    if (bursts_ < kBurstsAllChecked || bursts_ % kBurstsBetweenBytes == 0) {
      check_.check_bytes(sample.data(), sample.size());
    }
    source_.free_burst(packets);
    completed_ += packets.size();
    all_completed_ += packets.size();
  }

  [[nodiscard]] std::string fault() const {
    if (check_.empty()) {
      return "no frame of the capture fits into its buffers";
    }
    if (!check_.fault().empty()) {
      return check_.fault();
    }
    if (completed_ == 0) {
      return "it forwarded nothing; every frame of the capture is malformed or expired, or it has "
             "no buffers";
    }
    const IoCounters& drops = forwarder_.counters();
    const std::uint64_t gone = all_completed_ + drops.drop_malformed.get() + drops.drop_ttl.get() +
                               drops.drop_tx_full.get() + forwarder_.waiting();
    if (gone != rx_.received()) {
      return "of " + std::to_string(rx_.received()) + " packets received " + std::to_string(gone) +
             " were accounted for";
    }
    return "";
  }

  std::shared_ptr<B> buffers_;
  Source source_;
  Rx rx_;
  Tx tx_;
  Forwarder<Rx, Tx> forwarder_;
  RoundSetup setup_;
  std::atomic<bool> stop_{false};
  std::uint64_t no_buffer_before_ = 0;
  SteadyClock::time_point start_;
  // The follower's.
  alignas(kNoFalseSharing) ArrivalCheck check_;
  SteadyClock::time_point end_;
  std::uint64_t bursts_ = 0;
  std::uint64_t completed_ = 0;      // in this round
  std::uint64_t all_completed_ = 0;  // in all rounds
};

}  // namespace weir::lab
