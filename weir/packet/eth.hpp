// SPDX-License-Identifier: MIT
// packet/eth.hpp — the Ethernet header and the VLAN tags behind it. Calls nothing. Reads no byte
// beyond the frame it is given.
//
//   | destination 6 | source 6 | type 2 | payload          untagged
//   | destination 6 | source 6 | tpid 2 tag 2 | type 2 |   one tag; two or more: QinQ
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace weir {

struct MacAddress {
  std::array<std::uint8_t, 6> bytes{};

  friend bool operator==(const MacAddress&, const MacAddress&) = default;
};

enum class EtherType : std::uint16_t {
  ipv4 = 0x0800,
  arp = 0x0806,
  vlan = 0x8100,
  ipv6 = 0x86dd,
  qinq = 0x88a8,
};

// A 16-bit number at any address, the higher byte first.
[[nodiscard]] inline std::uint16_t load_be16(const std::byte* where) noexcept {
  return static_cast<std::uint16_t>(std::to_integer<unsigned>(where[0]) << 8 |
                                    std::to_integer<unsigned>(where[1]));
}
inline void store_be16(std::byte* where, std::uint16_t value) noexcept {
  where[0] = static_cast<std::byte>(value >> 8);
  where[1] = static_cast<std::byte>(value & 0xff);
}

// A view of a frame's Ethernet header; the bytes are somebody else's.
class EthView {
 public:
  static constexpr std::size_t kHeaderBytes = 14;
  static constexpr std::size_t kTagBytes = 4;
  static constexpr unsigned kMostTags = 8;  // more are no network's, but an attacker's

  // nullopt when the frame ends within the header or a tag, or has too many tags.
  [[nodiscard]] static std::optional<EthView> parse(std::span<std::byte> frame) noexcept {
    if (frame.size() < kHeaderBytes) {
      return std::nullopt;
    }
    std::size_t type_at = 12;
    for (unsigned tags = 0; tags <= kMostTags; ++tags) {
      const EtherType type{load_be16(frame.data() + type_at)};
      if (type != EtherType::vlan && type != EtherType::qinq) {
        return EthView{frame, type, type_at + 2, tags};
      }
      type_at += kTagBytes;
      if (frame.size() < type_at + 2) {
        return std::nullopt;
      }
    }
    return std::nullopt;
  }

  // Of what follows the tags.
  [[nodiscard]] EtherType type() const noexcept { return type_; }
  [[nodiscard]] unsigned tags() const noexcept { return tags_; }
  // Identifier of a tag, the outermost being 0; n < tags().
  [[nodiscard]] std::uint16_t vlan(unsigned n) const noexcept {
    return load_be16(frame_.data() + kHeaderBytes + n * kTagBytes) & 0x0fff;
  }
  [[nodiscard]] std::span<std::byte> payload() const noexcept {
    return frame_.subspan(payload_at_);
  }

  [[nodiscard]] MacAddress destination() const noexcept { return read_mac(0); }
  [[nodiscard]] MacAddress source() const noexcept { return read_mac(6); }
  void set_destination(const MacAddress& mac) const noexcept { write_mac(0, mac); }
  void set_source(const MacAddress& mac) const noexcept { write_mac(6, mac); }

 private:
  EthView(std::span<std::byte> frame, EtherType type, std::size_t payload_at,
          unsigned tags) noexcept
      : frame_(frame), payload_at_(payload_at), type_(type), tags_(tags) {}

  [[nodiscard]] MacAddress read_mac(std::size_t at) const noexcept {
    MacAddress mac;
    std::memcpy(mac.bytes.data(), frame_.data() + at, mac.bytes.size());
    return mac;
  }
  void write_mac(std::size_t at, const MacAddress& mac) const noexcept {
    std::memcpy(frame_.data() + at, mac.bytes.data(), mac.bytes.size());
  }

  std::span<std::byte> frame_;
  std::size_t payload_at_;
  EtherType type_;
  unsigned tags_;
};

}  // namespace weir
