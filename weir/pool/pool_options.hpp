// SPDX-License-Identifier: MIT
// pool/pool_options.hpp — what a user asks of a page pool and what can be seen of one. Calls page
// for the request flags.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weir/base/config.hpp"
#include "weir/base/counter.hpp"
#include "weir/page/page_allocator.hpp"

namespace weir {

struct PoolOptions {
  // Pages that may wait on their way home from other threads; clamped to kPoolRingMax. Enough is
  // what can be under way at once: queues, bursts and the cache of 128. What does not fit goes to
  // the page allocator (counter ring_full), which costs the zone lock now and then. With 0 the pool
  // recycles for its owner only.
  std::uint32_t ring = kPoolRingDefault;
  // What pages may be taken from. With `emergency`, single pages out of the reserve are served when
  // nothing else is left; they go back to the allocator after one use. `zero` cannot be: a page
  // that comes home is as its user left it.
  AllocFlags flags = AllocFlags::none;
  // Before the allocator refuses anybody a page, it may take those that wait in the ring. What is in the
  // private cache stays: nobody but the owner can reach it (drain()).
  bool reclaim = true;
};

// One pool at one moment; exact when its users are at rest.
struct PoolInfo {
  std::uint32_t id = 0;
  std::uint64_t generation = 0;  // the how-manieth pool with this id
  std::uint64_t in_flight = 0;   // pages that belong to the pool, wherever they are
  std::uint32_t cached = 0;      // of these: in the private cache
  std::uint32_t ring = 0;        // of these: in the return ring
  std::uint32_t ring_capacity = 0;
  bool closed = false;             // destroyed; exists until its last page is home
  std::uint64_t closed_at_ns = 0;  // by system_clock()
  PoolCounterValues counters;

  // Pages in users' hands.
  [[nodiscard]] std::uint64_t outstanding() const noexcept {
    const std::uint64_t home = std::uint64_t{cached} + ring;
    return in_flight > home ? in_flight - home : 0;
  }
};

// Every pool that exists, closed ones with pages still out included: writes the first out.size() and
// returns how many there are. Any thread.
std::size_t pool_list(std::span<PoolInfo> out) noexcept;

}  // namespace weir
