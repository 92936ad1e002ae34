// SPDX-License-Identifier: MIT
// zone/frame_table.hpp — the one table of descriptors of the process, and the three ways between
// address, PageIndex and descriptor. Calls backing/granule_map, os/memory.
//
//   descriptor = table base + index              index = descriptor - table base
//   address    = window + index * 4096           in the linear part of the table
//              = chunk[index / 1024] + (index % 1024) * 4096          in the rest
//   index      = granule map (address)
//
// The window is kMaxFrames frames of address space around the first memory a zone ever had. Memory
// inside it has the index that its address says, so that address and descriptor of a page follow from
// each other without a look at memory; that is all memory in practice, for the kernel hands out
// addresses near one another. What lies elsewhere gets indexes from the last fifth of the table.
//
// The table is address space, reserved at first use (less under a tight address-space limit) and
// committed range by range. Ranges begin at multiples of the largest block,
// and index and address of a frame agree modulo that block: natural alignment in one is natural
// alignment in the other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weir/backing/granule_map.hpp"
#include "weir/base/hot.hpp"
#include "weir/base/result.hpp"
#include "weir/base/types.hpp"
#include "weir/os/memory.hpp"
#include "weir/zone/frame.hpp"

namespace weir {

namespace frame_table {

// Constant after the first reserve_range(); before it there is no page to ask about.
inline Page* g_pages = nullptr;
inline std::byte** g_chunks = nullptr;  // address of frame 0 of each chunk of kMaxBlockFrames
inline Page* g_linear_end = nullptr;    // descriptors below it are linear
// What added to 128 times the address of a linear descriptor (modulo 2^64) gives its frame's address.
inline std::uintptr_t g_linear_bias = 0;
inline constexpr std::size_t kAddressScale = kFrameBytes / sizeof(Page);

// Indexes for `size` bytes at `base` (frame-aligned). Commits and initialises the descriptors:
// frames of the range kInner with this zone id, the rest of its first and last chunk kAbsent.
// Enters the range into the granule map. Undone whole on failure. Any thread.
Result<PageIndex> reserve_range(std::byte* base, Bytes size, std::uint16_t zone);
// Takes back what reserve_range gave. No page of it may be in anybody's hands.
void release_range(PageIndex first, std::byte* base, Bytes size) noexcept;

// The frame that holds an address, or kNoPage; constant time, any address, any thread.
[[nodiscard]] PageIndex find(const void* address) noexcept;

// Frames the table has room for in this process; for `weir info`.
[[nodiscard]] std::uint64_t room() noexcept;

// Around fork(2): nobody is inside the table while the process is copied.
void lock_for_fork() noexcept;
void unlock_after_fork() noexcept;

}  // namespace frame_table

[[nodiscard]] WEIR_HOT Page* page_at(PageIndex index) noexcept {
  return frame_table::g_pages + index.value;
}
[[nodiscard]] WEIR_HOT PageIndex index_of(const Page* page) noexcept {
  return {static_cast<std::uint32_t>(page - frame_table::g_pages)};
}
namespace frame_table {
// Of a page whose memory lies outside the window: one load more.
[[nodiscard]] inline std::byte* address_in_chunk(PageIndex index) noexcept {
  return g_chunks[index.value / kMaxBlockFrames] +
         std::size_t{index.value % kMaxBlockFrames} * kFrameBytes;
}
}  // namespace frame_table

// First byte of a page; arithmetic and one predicted branch.
[[nodiscard]] WEIR_HOT std::byte* address_of(const Page* page) noexcept {
  if (page < frame_table::g_linear_end) [[likely]] {
    return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(page) *
                                            frame_table::kAddressScale +
                                        frame_table::g_linear_bias);
  }
  return frame_table::address_in_chunk(index_of(page));
}
[[nodiscard]] WEIR_HOT std::byte* address_of(PageIndex index) noexcept {
  return address_of(page_at(index));
}
// Of the block this page heads; constant while the page is live.
[[nodiscard]] WEIR_HOT Order order_of(const Page* page) noexcept {
  return Order{page->order.load(memory_order_relaxed)};
}

}  // namespace weir
