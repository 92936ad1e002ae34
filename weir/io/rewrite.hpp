// SPDX-License-Identifier: MIT
// io/rewrite.hpp — what one hop does to a frame: new addresses, one less to live. Calls packet. A
// frame that is not forwarded is left as it was.
#pragma once

#include <cstdint>
#include <span>

#include "weir/packet/eth.hpp"
#include "weir/packet/ip.hpp"

namespace weir {

// Addresses of the next link: from the sending port to the next hop.
struct NextHop {
  MacAddress source;
  MacAddress destination;
};

enum class Verdict : std::uint8_t {
  forward,
  malformed,  // a header is missing, cut off, or not what it says
  expired,    // time to live or hop limit was 0 or 1
};

// Ethernet, tagged or not. IPv4: time to live - 1, checksum with it; IPv6: hop limit - 1; anything
// else, ARP too: addresses only.
[[nodiscard]] inline Verdict rewrite(std::span<std::byte> frame, const NextHop& hop) noexcept {
  const std::optional<EthView> eth = EthView::parse(frame);
  if (!eth) [[unlikely]] {
    return Verdict::malformed;
  }
  if (eth->type() == EtherType::ipv4) {
    const std::optional<Ipv4View> ip = Ipv4View::parse(eth->payload());
    if (!ip) [[unlikely]] {
      return Verdict::malformed;
    }
    if (ip->ttl() <= 1) [[unlikely]] {
      return Verdict::expired;
    }
    ip->decrement_ttl();
  } else if (eth->type() == EtherType::ipv6) {
    const std::optional<Ipv6View> ip = Ipv6View::parse(eth->payload());
    if (!ip) [[unlikely]] {
      return Verdict::malformed;
    }
    if (ip->hop_limit() <= 1) [[unlikely]] {
      return Verdict::expired;
    }
    ip->decrement_hop_limit();
  }
  eth->set_destination(hop.destination);
  eth->set_source(hop.source);
  return Verdict::forward;
}

}  // namespace weir
