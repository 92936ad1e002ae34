// SPDX-License-Identifier: MIT
// packet/ip.hpp — views of the IPv4 and IPv6 header, as far as a forwarder needs them. Calls
// packet/checksum, packet/eth. Reads no byte beyond what it is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "weir/packet/checksum.hpp"
#include "weir/packet/eth.hpp"

namespace weir {

class Ipv4View {
 public:
  static constexpr std::size_t kLeastHeaderBytes = 20;

  // nullopt when this is no IPv4 header, or not a whole one. The checksum is not looked at.
  [[nodiscard]] static std::optional<Ipv4View> parse(std::span<std::byte> bytes) noexcept {
    if (bytes.size() < kLeastHeaderBytes) {
      return std::nullopt;
    }
    const auto first = std::to_integer<unsigned>(bytes[0]);
    const std::size_t length = std::size_t{first & 0xf} * 4;
    if (first >> 4 != 4 || length < kLeastHeaderBytes || length > bytes.size()) {
      return std::nullopt;
    }
    return Ipv4View{bytes.first(length)};
  }

  [[nodiscard]] std::span<const std::byte> header() const noexcept { return header_; }
  [[nodiscard]] std::uint8_t ttl() const noexcept {
    return std::to_integer<std::uint8_t>(header_[kTtlAt]);
  }
  [[nodiscard]] std::uint16_t stored_checksum() const noexcept {
    return load_be16(&header_[kChecksumAt]);
  }
  // The header, checksum included, sums up as it must.
  [[nodiscard]] bool checksum_right() const noexcept { return checksum(header_) == 0; }

  // One hop: the time to live goes down and the checksum with it, so that a wrong one stays as
  // wrong as it was. The time to live must not be 0.
  void decrement_ttl() const noexcept {
    // The word under the checksum is time to live and, below it, protocol.
    const std::uint16_t before = load_be16(&header_[kTtlAt]);
    const auto after = static_cast<std::uint16_t>(before - 0x0100);
    store_be16(&header_[kChecksumAt], checksum_update(stored_checksum(), before, after));
    store_be16(&header_[kTtlAt], after);
  }

 private:
  static constexpr std::size_t kTtlAt = 8;
  static constexpr std::size_t kChecksumAt = 10;

  explicit Ipv4View(std::span<std::byte> header) noexcept : header_(header) {}

  std::span<std::byte> header_;
};

class Ipv6View {
 public:
  static constexpr std::size_t kHeaderBytes = 40;

  // nullopt when this is no IPv6 header, or not a whole one.
  [[nodiscard]] static std::optional<Ipv6View> parse(std::span<std::byte> bytes) noexcept {
    if (bytes.size() < kHeaderBytes || std::to_integer<unsigned>(bytes[0]) >> 4 != 6) {
      return std::nullopt;
    }
    return Ipv6View{bytes.first(kHeaderBytes)};
  }

  [[nodiscard]] std::uint8_t hop_limit() const noexcept {
    return std::to_integer<std::uint8_t>(header_[kHopLimitAt]);
  }
  // One hop. The limit must not be 0.
  void decrement_hop_limit() const noexcept {
    header_[kHopLimitAt] = static_cast<std::byte>(hop_limit() - 1);
  }

 private:
  static constexpr std::size_t kHopLimitAt = 7;

  explicit Ipv6View(std::span<std::byte> header) noexcept : header_(header) {}

  std::span<std::byte> header_;
};

}  // namespace weir
