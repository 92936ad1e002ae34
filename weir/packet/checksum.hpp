// SPDX-License-Identifier: MIT
// packet/checksum.hpp — the Internet checksum (RFC 1071) in full and by difference (RFC 1624).
// Calls nothing. Values are as a reader of the header says them, the first byte being the higher.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weir {

// Folds a sum of 16-bit words with its carries.
[[nodiscard]] constexpr std::uint16_t fold_checksum(std::uint64_t sum) noexcept {
  while (sum >> 16 != 0) {
    sum = (sum & 0xffff) + (sum >> 16);
  }
  return static_cast<std::uint16_t>(sum);
}

// Of these bytes, an odd last one being followed by zero. Over bytes that contain their own right
// checksum the result is 0.
[[nodiscard]] constexpr std::uint16_t checksum(std::span<const std::byte> bytes) noexcept {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = std::to_integer<std::uint64_t>(bytes[i]);
    sum += (i % 2 == 0) ? byte << 8 : byte;
  }
  return static_cast<std::uint16_t>(~fold_checksum(sum));
}

// The checksum after one 16-bit word under it changed: HC' = ~(~HC + ~m + m'). Unlike the older
// formula it never makes 0xffff out of a header that sums to 0.
[[nodiscard]] constexpr std::uint16_t checksum_update(std::uint16_t old_checksum,
                                                      std::uint16_t old_word,
                                                      std::uint16_t new_word) noexcept {
  const std::uint64_t sum = std::uint64_t{static_cast<std::uint16_t>(~old_checksum)} +
                            static_cast<std::uint16_t>(~old_word) + new_word;
  return static_cast<std::uint16_t>(~fold_checksum(sum));
}
// The example of RFC 1624, section 4.
static_assert(checksum_update(0xdd2f, 0x5555, 0x3285) == 0x0000);

}  // namespace weir
