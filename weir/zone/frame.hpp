// SPDX-License-Identifier: MIT
// zone/frame.hpp — the descriptor of a frame, `Page`, and its state table. Calls base only.
//
// One descriptor of 32 bytes a frame, in one table of the process. The descriptor of a block's
// first frame describes the whole block; the others say only that they are inside it.
//
//   | word 4 | order 1 | state 1 | zone 2 | next 4 | prev 4 | owner 8 | private 8 |
//
//   state     meaning                                        written by
//   kAbsent   no frame of a zone                             frame table
//   kInner    inside a larger block, free or taken           engine, under the zone lock
//   kFree     head of a block on a free list of the engine   engine, under the zone lock
//   kIsolated head of a free block in a pageblock that is    engine, under the zone lock
//             withheld
//   kUnmerged single frame free in the engine, which has not  engine, under the zone lock; whole
//             looked for its buddy                           clusters by their giver, before
//   kTaken    head of a block that left the engine           engine, under the zone lock
//   kLive     kTaken and in a user's hands; checked builds   page layer, whoever owns the page
//
// Between engine and user a frame lies on a per-CPU list or in a cluster: no descriptor is touched
// there, it stays kTaken. So a frame is kTaken or kLive only if it heads a block outside the engine.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "weir/base/atomic.hpp"
#include "weir/base/types.hpp"

namespace weir {

enum class FrameState : std::uint8_t {
  kAbsent,
  kInner,
  kFree,
  kTaken,
  kLive,
  kUnmerged,
  kIsolated
};

[[nodiscard]] constexpr const char* state_name(FrameState state) noexcept {
  switch (state) {
    case FrameState::kAbsent:
      return "absent";
    case FrameState::kInner:
      return "inner";
    case FrameState::kFree:
      return "free";
    case FrameState::kTaken:
      return "taken";
    case FrameState::kLive:
      return "live";
    case FrameState::kUnmerged:
      return "free, not merged";
    case FrameState::kIsolated:
      return "free, withheld";
  }
  return "unknown";
}

// The word of references and flags. Value 1 — one owner, order 0, no flag — is what a frame holds
// while it is free, so that taking and releasing an ordinary page writes nothing.
inline constexpr std::uint32_t kRefMask = (1U << 24) - 1;
inline constexpr std::uint32_t kMaxRefs = 1U << 23;  // the rest is headroom for racing increments
inline constexpr std::uint32_t kHighOrderFlag = 1U << 24;  // order above 0
inline constexpr std::uint32_t kReserveFlag = 1U << 25;    // came out of the reserve
inline constexpr std::uint32_t kPoolFlag = 1U << 26;       // belongs to a page pool
inline constexpr std::uint32_t kMovableFlag = 1U << 27;    // its owner has said how to move it
inline constexpr std::uint32_t kSoleOwner = 1;

// What an engine writes into the word of a block that it hands out, and order 0 when it has it back. Stored,
// not added: a frame in the engine has a sole owner and no flag, and nobody takes a reference on what does
// not bear the mark of movable pages (page/compaction.cpp, hold).
[[nodiscard]] constexpr std::uint32_t word_of_order(Order order) noexcept {
  return order.value > 0 ? kSoleOwner | kHighOrderFlag : kSoleOwner;
}

struct alignas(32) Page {
  Atomic<std::uint32_t> word{kSoleOwner};  // see page/ref_count.hpp
  Atomic<std::uint8_t> order{0};           // of the block this frame heads; written by the engine
  Atomic<FrameState> state{FrameState::kAbsent};
  std::uint16_t zone = 0;    // id of the zone; constant while the zone lives; 0 = none
  PageIndex next = kNoPage;  // free: the engine's list; live: the owner's (PageList)
  PageIndex prev = kNoPage;  // free: the engine's list
  std::uint64_t owner = 0;  // pool id and generation with kPoolFlag, the mover's with kMovableFlag;
                            // free, order 9 and 10: marks of trimmed pageblocks (BuddyEngine I7)
  std::uint64_t private_word = 0;  // the owner's, free to use while the page is live
};
static_assert(sizeof(Page) == 32);

// The descriptors of a block that is out and becomes two of this order. What else the lower word says stays;
// all inside say kInner already.
inline void split_head(Page* lower, Order half) noexcept {
  Page* const upper = lower + frames_in(half);
  lower->order.store(static_cast<std::uint8_t>(half.value), memory_order_relaxed);
  upper->order.store(static_cast<std::uint8_t>(half.value), memory_order_relaxed);
  upper->state.store(FrameState::kTaken, memory_order_relaxed);
  upper->word.store(word_of_order(half), memory_order_relaxed);
  if (half.value == 0) {
    lower->word.fetch_and(~kHighOrderFlag, memory_order_relaxed);
  }
}

// The first eight bytes of a descriptor as one value: references, flags, order, state and zone. One
// load and one comparison tell a release that it has the sole owner's ordinary page of a known zone,
// whose descriptor it need not write. Little-endian, like both processors weir is built for.
static_assert(offsetof(Page, word) == 0 && offsetof(Page, order) == 4 &&
              offsetof(Page, state) == 5 && offsetof(Page, zone) == 6);
static_assert(std::endian::native == std::endian::little);
[[nodiscard]] inline std::uint64_t head_of(const Page* page) noexcept {
  return load_wide_acquire(page);  // pairs: unref_slow release, as every load of the word
}
// What head_of() is for an ordinary page that has left the engine; no page of zone 0 exists.
[[nodiscard]] constexpr std::uint64_t ordinary_head(std::uint16_t zone) noexcept {
  return std::uint64_t{zone} << 48 |
         std::uint64_t{static_cast<std::uint8_t>(FrameState::kTaken)} << 40 | kSoleOwner;
}
// Whether it is that for some zone, and for which.
[[nodiscard]] constexpr bool is_ordinary(std::uint64_t head) noexcept {
  return head << 16 == ordinary_head(0) << 16;
}
[[nodiscard]] constexpr std::uint16_t zone_in(std::uint64_t head) noexcept {
  return static_cast<std::uint16_t>(head >> 48);
}
static_assert(is_ordinary(ordinary_head(7)) && zone_in(ordinary_head(7)) == 7);

}  // namespace weir
