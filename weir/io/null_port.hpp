// SPDX-License-Identifier: MIT
// io/null_port.hpp — a port over nothing: receives no packet, swallows what is sent. Calls
// io/port. One thread.
#pragma once

#include <cstddef>
#include <span>

#include "weir/base/counter.hpp"
#include "weir/io/port.hpp"

namespace weir {

template <PacketSource Source>
class NullPort {
 public:
  using Packet = typename Source::Packet;

  explicit NullPort(Source& source) noexcept : source_(source) {}

  std::size_t rx_burst(std::span<Packet> /*slots*/) noexcept { return 0; }
  std::size_t tx_burst(std::span<Packet> packets) noexcept {
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

  [[nodiscard]] const IoCounters& counters() const noexcept { return counters_; }

 private:
  Source& source_;
  std::size_t sent_ = 0;  // since the last reap
  IoCounters counters_;
};

static_assert(Port<NullPort<PoolPacketSource>>);
static_assert(!FinitePort<NullPort<PoolPacketSource>>);
static_assert(!Port<int> && !Port<PoolPacketSource>);

}  // namespace weir
