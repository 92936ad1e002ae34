// SPDX-License-Identifier: MIT
// io/port.hpp — the concept Port: where packets enter and leave. Calls packet. Ports are templates
// on the packet source, so that a foreign buffer type costs no more than weir's own.
//
//   rx_burst    fills empty slots from the first on; returns how many. The receive side.
//   tx_burst    takes the first n of these packets, moved out; the rest stays the caller's. The send
//               side; the thread that receives.
//   reap        ends packets that were sent: their buffers go home. Returns how many. The completion
//               side; may be another thread where the port says so.
//   free_burst  takes back packets that go nowhere. Any thread.
//
// Each side has counters of its own, because a counter has one writer.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

#include "weir/packet/packet_source.hpp"

namespace weir {

template <class P>
concept Port = PacketLike<typename P::Packet> &&
    requires(P port, std::span<typename P::Packet> packets) {
  { port.rx_burst(packets) } -> std::same_as<std::size_t>;
  { port.tx_burst(packets) } -> std::same_as<std::size_t>;
  { port.reap() } -> std::same_as<std::size_t>;
  { port.free_burst(packets) } -> std::same_as<void>;
};

// A port whose input ends by itself.
template <class P>
concept FinitePort = Port<P> && requires(const P port) {
  { port.finished() } -> std::same_as<bool>;
};

}  // namespace weir
