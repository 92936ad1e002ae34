// SPDX-License-Identifier: MIT
// lab/contenders/buffers.hpp — what an allocator must offer to take part: single buffers and bulk,
// by handles. The workloads of lab/experiments are templates over it, so that between contenders
// only these calls differ. Calls the C++ library only.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

#include "lab/harness/trial.hpp"

namespace weir::lab {

// Every contender hands out buffers of one size: a frame.
inline constexpr std::size_t kBufferBytes = 4096;
// A burst, and the size of bulk calls.
inline constexpr std::size_t kBurst = 64;

// Handle{} is "none". alloc and alloc_bulk are called by one thread at a time; free and free_bulk by
// any, also at the same time as those. alloc_bulk returns how many leading places it filled.
template <class B>
concept Buffers = requires(B& b, typename B::Handle h, std::span<typename B::Handle> many,
                           std::vector<Reading>& readings) {
  { b.alloc() }
  noexcept->std::same_as<typename B::Handle>;
  { b.free(h) }
  noexcept;
  { b.alloc_bulk(many) }
  noexcept->std::same_as<std::size_t>;
  { b.free_bulk(many) }
  noexcept;
  { B::address(h) }
  noexcept->std::same_as<std::byte*>;
  {b.enter_thread()};       // first thing a measuring thread does in a round
  {b.begin_round()};        // before a round, nothing else runs
  {b.end_round(readings)};  // after it: counters of the round
};

// For contenders without a bulk call: a loop, as their users write it.
template <class B>
struct OneByOne {
  template <class Handle>
  std::size_t alloc_bulk(std::span<Handle> many) noexcept {
    for (std::size_t i = 0; i < many.size(); ++i) {
      many[i] = self().alloc();
      if (many[i] == Handle{}) {
        return i;
      }
    }
    return many.size();
  }
  template <class Handle>
  void free_bulk(std::span<Handle> many) noexcept {
    for (const Handle handle : many) {
      self().free(handle);
    }
  }

 private:
  B& self() noexcept { return static_cast<B&>(*this); }
};

// For contenders without state per thread and without counters.
struct Plain {
  void enter_thread() noexcept {}
  void begin_round() noexcept {}
  void end_round(std::vector<Reading>&) noexcept {}
};

}  // namespace weir::lab
