// SPDX-License-Identifier: MIT
// os/clock.hpp — monotonic time as an interface, so that tests can set it; and how long a tick of
// arch's cycle_counter() is. Calls clock_gettime(2), arch. Allocates nothing. Thread-safe.
#pragma once

#include <cstdint>

namespace weir {

class Clock {
 public:
  virtual ~Clock() = default;

  // Nanoseconds since some point in the past; never goes back.
  [[nodiscard]] virtual std::uint64_t now_ns() noexcept = 0;
};

// The kernel's monotonic clock; lives as long as the process. About 20 ns a call.
[[nodiscard]] Clock& system_clock() noexcept;

// Ticks of cycle_counter() in a second. Where the processor does not say, the first call measures
// it against the clock, which takes 5 ms; 0 on a processor without a counter.
[[nodiscard]] std::uint64_t cycles_per_second() noexcept;

// A difference of cycle_counter() values as nanoseconds; 0 without a counter.
[[nodiscard]] std::uint64_t cycles_to_ns(std::uint64_t cycles) noexcept;

}  // namespace weir
