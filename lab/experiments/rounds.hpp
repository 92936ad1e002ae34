// SPDX-License-Identifier: MIT
// lab/experiments/rounds.hpp — what the workloads share: time of a round, the stamp in a buffer,
// counters in relation to pages, and the check that an allocator hands out different buffers. Calls
// lab/contenders/buffers.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lab/contenders/buffers.hpp"

namespace weir::lab {

using SteadyClock = std::chrono::steady_clock;

[[nodiscard]] inline double ns_between(SteadyClock::time_point from, SteadyClock::time_point to) {
  return std::chrono::duration<double, std::nano>(to - from).count();
}

// The value is taken to be used and memory to be changed: nothing before it is optimised away.
template <class T>
[[gnu::always_inline]] inline void keep(const T& value) noexcept {
  asm volatile("" : : "g"(&value) : "memory");
}

// A handle that its user has: what led to it happened, and memory may have changed since. Stays in
// its register.
template <class Handle>
[[gnu::always_inline]] inline void hold(const Handle& handle) noexcept {
  if constexpr (std::is_pointer_v<Handle>) {
    asm volatile("" : : "r"(handle) : "memory");
  } else if constexpr (requires { handle.get(); }) {
    asm volatile("" : : "r"(handle.get()) : "memory");
  } else {
    keep(handle);
  }
}

// Counters of weir once more, by a million pages: rounds differ in length, this does not.
inline void add_per_million(std::vector<Reading>& readings, double pages) {
  struct Rate {
    std::string_view counted;
    const char* metric;
  };
  static constexpr std::array kRates = {
      Rate{"zone_lock_acquisitions", "zone_lock_acquisitions_per_million"},
      Rate{"zone_lock_waits", "zone_lock_waits_per_million"},
      Rate{"zone_frames_crossing", "engine_frames_per_million"},
      Rate{"list_refills", "refills_per_million"},
      Rate{"list_spills", "spills_per_million"},
  };
  const std::size_t counted = readings.size();
  for (const Rate& rate : kRates) {
    for (std::size_t i = 0; i < counted; ++i) {
      if (readings[i].metric == rate.counted && pages > 0) {
        readings.push_back({rate.metric, "per million pages", 1e6 * readings[i].value / pages});
      }
    }
  }
}

// Eight bytes that only the rightful user of a buffer can have put there.
[[nodiscard]] inline std::uint64_t stamp_of(std::uint64_t sequence) noexcept {
  return (sequence + 1) * 0x9e37'79b9'7f4a'7c15U;
}
inline void write_stamp(std::byte* at, std::uint64_t sequence) noexcept {
  const std::uint64_t stamp = stamp_of(sequence);
  std::memcpy(at, &stamp, sizeof stamp);
}
[[nodiscard]] inline bool has_stamp(const std::byte* at, std::uint64_t sequence) noexcept {
  std::uint64_t stamp = 0;
  std::memcpy(&stamp, at, sizeof stamp);
  return stamp == stamp_of(sequence);
}

// Takes buffers, stamps both ends of each, finds every stamp again, gives them back. Returns what
// was wrong, or "".
template <Buffers B>
[[nodiscard]] std::string verify_distinct(B& buffers) {
  constexpr std::size_t kHeld = 256;
  constexpr std::size_t kLast = kBufferBytes - sizeof(std::uint64_t);
  std::vector<typename B::Handle> held;
  std::string fault;
  while (held.size() < kHeld) {
    auto handle = buffers.alloc();
    if (is_none<B>(handle)) {
      fault = "it ran out of buffers with " + std::to_string(held.size()) + " in use";
      break;
    }
    std::byte* const at = B::address(handle);
    write_stamp(at, held.size());
    write_stamp(at + kLast, held.size());
    held.push_back(std::move(handle));
  }
  for (std::size_t i = 0; i < held.size(); ++i) {
    std::byte* const at = B::address(held[i]);
    if (fault.empty() && (!has_stamp(at, i) || !has_stamp(at + kLast, i))) {
      fault = "it handed out memory twice: the stamp of buffer " + std::to_string(i) + " of " +
              std::to_string(held.size()) + " was overwritten";
    }
  }
  for (auto& handle : held) {
    buffers.free(std::move(handle));
  }
  return fault;
}

}  // namespace weir::lab
