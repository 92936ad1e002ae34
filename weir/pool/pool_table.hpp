// SPDX-License-Identifier: MIT
// pool/pool_table.hpp — the life of pool blocks: claim, close, free, and looking at them. Calls
// pool/pool_block. Used by the pool layer itself.
#pragma once

#include <cstdint>
#include <span>

#include "weir/pool/pool_block.hpp"
#include "weir/pool/pool_options.hpp"

namespace weir {

// A block of a new generation with a ring of this capacity, open and without owner; nullptr when
// all are in use or there is no memory for the ring, `full` telling which.
[[nodiscard]] PoolBlock* claim_pool_block(std::uint32_t ring, bool& full) noexcept;

// No thread is the owner from here on. Reported in checked builds when the owner is using it now.
void unbind_owner(PoolBlock& block) noexcept;

// Gives the pages in cache and ring to the allocator. With the rights of the owner.
void empty_pool(PoolBlock& block) noexcept;
// Gives about `needed` pages of the ring back to the allocator, as many as there are; returns how many.
// Any thread while the pool is open. The ring's lock is only tried: its holder may be what this thread's
// signal handler has interrupted.
std::uint64_t give_up_ring(PoolBlock& block, std::uint64_t needed) noexcept;

// Ends the recycling and leaves the block to its last page. With the rights of the owner.
void close_pool(PoolBlock& block) noexcept;

// Gives pages without users, all of this pool, to the allocator for good. Any thread.
void leave_pool(PoolBlock& block, Page* const* pages, std::uint32_t n) noexcept;

// Frees a closed block without pages in flight. Under the ring lock.
void free_if_done(PoolBlock& block) noexcept;

// Pages in flight, P1. Under the ring lock: a page is counted in before anybody can count it out.
[[nodiscard]] std::uint64_t in_flight_locked(const PoolBlock& block) noexcept;

// The same and the rest. Under the ring lock.
[[nodiscard]] PoolInfo pool_info_locked(const PoolBlock& block) noexcept;

// The last reference of a page of a pool went by way of unref().
void pool_page_hook(Page* page) noexcept;

}  // namespace weir
