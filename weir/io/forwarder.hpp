// SPDX-License-Identifier: MIT
// io/forwarder.hpp — Forwarder moves packets from one port to another and rewrites them on the way;
// reap_until() is the completion side's loop. Calls io/port, io/rewrite. One thread each. Every
// packet it does not forward is counted by cause and its buffer goes home.
//
//   rx  --burst-->  rewrite  --burst-->  tx ... full? the packets wait here, and nothing is received
//                      |                        until they are gone (wait), or are dropped (drop)
//                      +-- malformed, expired --> home
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>

#include "weir/arch/cpu.hpp"
#include "weir/base/atomic.hpp"
#include "weir/base/counter.hpp"
#include "weir/io/port.hpp"
#include "weir/io/rewrite.hpp"
#include "weir/packet/burst.hpp"

namespace weir {

// What happens to packets when the send ring is full.
enum class WhenFull : unsigned char { wait, drop };

struct ForwarderOptions {
  NextHop hop;
  WhenFull when_full = WhenFull::wait;
  bool reap = false;  // also end what was sent, where no other thread does
};

// Lets others run when there has been nothing to do for a while.
class IdleBackoff {
 public:
  void worked() noexcept { idle_ = 0; }
  void idle() noexcept {
    if (idle_ < kPauses) {
      ++idle_;
      cpu_pause();
    } else {
      std::this_thread::yield();
    }
  }

 private:
  static constexpr unsigned kPauses = 64;
  unsigned idle_ = 0;
};

template <Port Rx, Port Tx>
requires std::same_as<typename Rx::Packet, typename Tx::Packet>
class Forwarder {
 public:
  using Packet = typename Rx::Packet;

  // The ports must outlive the forwarder.
  Forwarder(Rx& rx, Tx& tx, const ForwarderOptions& options) noexcept
      : rx_(rx), tx_(tx), options_(options) {}
  ~Forwarder() { give_up(); }
  Forwarder(const Forwarder&) = delete;
  Forwarder& operator=(const Forwarder&) = delete;

  // One burst, without ever waiting: packets that got further, received or sent. 0: nothing to do,
  // or the send ring is full.
  std::size_t poll_once() noexcept {
    if (options_.reap) {
      static_cast<void>(tx_.reap());
    }
    std::size_t moved = 0;
    if (!burst_.empty()) {
      moved = send();
      if (!burst_.empty()) {
        return moved;
      }
    }
    const std::size_t received = rx_.rx_burst(burst_.room());
    if (received == 0) {
      return moved;
    }
    burst_.grow(received);
    rewrite_all();
    static_cast<void>(send());
    if (!burst_.empty()) [[unlikely]] {
      counters_.tx_waits.add(1);
    }
    return moved + received;
  }

  // Until `stop`, or, when the receiving port comes to an end by itself, until all is sent. Packets
  // that wait when it stops are dropped.
  void run(const Atomic<bool>& stop) noexcept {
    IdleBackoff backoff;
    // relaxed: the flag carries no data.
    while (!stop.load(memory_order_relaxed)) {
      if (poll_once() != 0) {
        backoff.worked();
      } else if (done()) {
        break;
      } else {
        backoff.idle();
      }
    }
    give_up();
  }

  // The receiving port has ended and nothing waits here.
  [[nodiscard]] bool done() const noexcept {
    if constexpr (FinitePort<Rx>) {
      return rx_.finished() && burst_.empty();
    } else {
      return false;
    }
  }
  // Packets that wait for room in the send ring.
  [[nodiscard]] std::size_t waiting() const noexcept { return burst_.size(); }

  // Drops and waits by cause; what was received and sent the ports know.
  [[nodiscard]] const IoCounters& counters() const noexcept { return counters_; }

 private:
  // Packets that stay behind are taken out of the burst, the others close up.
  void rewrite_all() noexcept {
    const std::span<Packet> packets = burst_.packets();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < packets.size(); ++i) {
      const Verdict verdict =
          rewrite(std::span<std::byte>(packets[i].data(), packets[i].size()), options_.hop);
      if (verdict != Verdict::forward) [[unlikely]] {
        drop(packets.subspan(i, 1),
             verdict == Verdict::malformed ? counters_.drop_malformed : counters_.drop_ttl);
        continue;
      }
      if (kept != i) [[unlikely]] {
        packets[kept] = std::move(packets[i]);
      }
      ++kept;
    }
    burst_.drop_back(packets.size() - kept);
  }

  std::size_t send() noexcept {
    const std::size_t sent = tx_.tx_burst(burst_.packets());
    burst_.drop_front(sent);
    if (!burst_.empty() && options_.when_full == WhenFull::drop) [[unlikely]] {
      give_up();
    }
    return sent;
  }

  void give_up() noexcept {
    const std::size_t n = burst_.size();
    if (n != 0) {
      drop(burst_.packets(), counters_.drop_tx_full);
      burst_.drop_front(n);
    }
  }

  void drop(std::span<Packet> packets, Counter& cause) noexcept {
    rx_.free_burst(packets);
    cause.add(packets.size());
  }

  Rx& rx_;
  Tx& tx_;
  const ForwarderOptions options_;
  Burst<Packet> burst_;
  IoCounters counters_;
};

// Ends what the port sent, until `stop` and then until nothing is left. Returns how many packets.
template <Port P>
std::uint64_t reap_until(P& port, const Atomic<bool>& stop) noexcept {
  IdleBackoff backoff;
  std::uint64_t reaped = 0;
  for (;;) {
    // Read before reaping: what was sent before the flag went up is then found.
    const bool last =
        stop.load(memory_order_acquire);  // pairs: whoever sets the flag after sending
    const std::size_t n = port.reap();
    reaped += n;
    if (n != 0) {
      backoff.worked();
    } else if (last) {
      return reaped;
    } else {
      backoff.idle();
    }
  }
}

}  // namespace weir
