// SPDX-License-Identifier: MIT
// lab/contenders/buffers.hpp — what an allocator must offer to take part: single buffers and bulk,
// by handles. The workloads of lab/experiments are templates over it, so that between contenders
// only these calls differ. Calls the C++ library only.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "lab/harness/trial.hpp"

namespace weir::lab {

// Every contender hands out buffers of one size: a frame.
inline constexpr std::size_t kBufferBytes = 4096;
// What a ring between two CPUs carries at once, and the bulk calls of the forwarder.
inline constexpr std::size_t kBurst = 64;

// Single calls are inlined by attribute, so that the loop of `pairs` is that of no one more than of
// another. A handle may be an owner that only moves; Handle{} is "none". alloc and alloc_bulk are called by
// one thread at a time; free and free_bulk by any, also at the same time as those. alloc_bulk returns
// how many leading places it filled; what free_bulk was given may be anything afterwards.
template <class B>
concept Buffers = requires(B& b, typename B::Handle h, std::span<typename B::Handle> many,
                           std::vector<Reading>& readings) {
  { b.alloc() }
  noexcept->std::same_as<typename B::Handle>;
  { b.free(std::move(h)) }
  noexcept;
  { b.alloc_bulk(many) }
  noexcept->std::same_as<std::size_t>;
  { b.free_bulk(many) }
  noexcept;
  { B::address(std::as_const(h)) }
  noexcept->std::same_as<std::byte*>;
  {b.enter_thread()};       // first thing a measuring thread does in a round
  {b.begin_round()};        // what is counted begins; by the thread that allocates, or at rest
  {b.end_round(readings)};  // counters since then
};

// True for a handle of no buffer.
template <Buffers B>
[[nodiscard, gnu::always_inline]] inline bool is_none(const typename B::Handle& handle) noexcept {
  if constexpr (requires { B::is_none(handle); }) {
    return B::is_none(handle);
  } else {
    return handle == typename B::Handle{};
  }
}

// How a buffer travels through shared memory: as its handle, or as what an owner that only moves
// detaches to. Such a contender has `Wire`, `Wire detach(Handle&)` and `Handle attach(Wire)`.
template <class B>
struct WireOf {
  using type = typename B::Handle;
};
template <class B>
requires requires { typename B::Wire; }
struct WireOf<B> {
  using type = typename B::Wire;
};

// The forwarder keeps handles in packets, as plain values.
template <class B>
inline constexpr bool kForwards = std::is_trivially_copyable_v<typename B::Handle> && !requires {
  B::kPagesOnly;
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
