// SPDX-License-Identifier: MIT
// page/alloc_flags.hpp — what a request may do beyond the ordinary. Calls nothing.
#pragma once

namespace weir {

// Combine with |.
enum class AllocFlags : unsigned char {
  none = 0,
  zero = 1,     // the page reads as zero
  no_wait = 2,  // may be refused while frames lie on other CPUs' lists or in other threads' hands,
                // asks no owner of a cache to give some up, and has no pages carried elsewhere
  emergency = 4,  // may take the reserve; a page that came out of it says so: is_emergency()
  no_reclaim =
      8,  // calls nobody back: neither reclaimers, movers nor limit watches. For signal handlers
  exact = 16,  // bulk requests: all or nothing. Without meaning for others
};
[[nodiscard]] constexpr AllocFlags operator|(AllocFlags a, AllocFlags b) noexcept {
  return static_cast<AllocFlags>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
[[nodiscard]] constexpr AllocFlags without(AllocFlags flags, AllocFlags bits) noexcept {
  return static_cast<AllocFlags>(static_cast<unsigned>(flags) & ~static_cast<unsigned>(bits));
}
[[nodiscard]] constexpr bool has(AllocFlags flags, AllocFlags bit) noexcept {
  return (static_cast<unsigned>(flags) & static_cast<unsigned>(bit)) != 0;
}

}  // namespace weir
