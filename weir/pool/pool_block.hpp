// SPDX-License-Identifier: MIT
// pool/pool_block.hpp — what a page pool consists of, in a table that never goes away, and the way
// of a page back into it. Calls page. PagePool is the handle; a page finds its block by the tag in
// its descriptor, also after the handle is gone.
//
//   page->owner = tag | generation 52 | id 12 |      page->word = references | kPoolFlag
//
// Who writes what:
//   the owner          cache, cached, counters: no lock, no atomic instruction
//   owner and others   the ring, phase, returns: under the ring's lock, a burst at a time
// A block is type-stable: the last thing any thread does to it is to release that lock. So it does
// not matter that the pool may be gone, or be another one, right afterwards.
//
// P1: pages in flight == counters.from_allocator + returns.from_allocator - returns.left_pool.
// P2: a page in cache or ring has no user: its word is kSoleOwner | kPoolFlag.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "weir/base/atomic.hpp"
#include "weir/base/config.hpp"
#include "weir/base/counter.hpp"
#include "weir/base/hot.hpp"
#include "weir/base/report.hpp"
#include "weir/page/ref_count.hpp"
#include "weir/percpu/twin_lock.hpp"
#include "weir/pool/recycle_ring.hpp"
#include "weir/zone/frame.hpp"

namespace weir {

inline constexpr unsigned kPoolIdBits = 12;
inline constexpr std::uint32_t kMaxPools = 1U << kPoolIdBits;

enum class PoolPhase : std::uint8_t {
  kFree,     // nobody's; may be claimed
  kOpen,     // a PagePool stands before it
  kClosing,  // its PagePool is emptying cache and ring: nothing is recycled any more
  kClosed,   // whoever brings the pages in flight to zero frees it
};

// Places where a test may hold a thread; hook builds only.
enum class PoolPause : unsigned char {
  ring_written,   // pages are in the ring, its lock is still held
  owner_section,  // the owner found itself to be the owner and is about to use the cache
};
inline Atomic<void (*)(PoolPause) noexcept> g_pool_pause{nullptr};
WEIR_HOT void pool_pause(PoolPause place) noexcept {
  if constexpr (kTestHooks) {
    // pairs: whatever the test that sets it does before
    if (auto* pause = g_pool_pause.load(memory_order_acquire)) {
      pause(place);
    }
  }
}

struct alignas(kNoFalseSharing) PoolBlock {
  // Read by everybody, written when the pool changes hands.
  Atomic<std::uintptr_t> owner{0};  // thread_token() of the owner; 0 = none yet, or none any more
  std::uint64_t tag = 0;            // written under the lock while no page refers to the block

  // The owner's.
  alignas(kNoFalseSharing) Atomic<std::uint32_t> cached{0};  // others read it for statistics
  Atomic<bool> busy{false};  // checked builds: the owner is using the cache
  PoolCounters counters;
  Page* cache[kPoolCachePages] = {};

  RecycleRing ring;

  // Under the ring's lock.
  PoolPhase phase = PoolPhase::kFree;
  PoolCounters returns;
  std::uint64_t closed_at_ns = 0;

  [[nodiscard]] std::uint32_t id() const noexcept {
    return static_cast<std::uint32_t>(tag & (kMaxPools - 1));
  }
};

// Room for kMaxPools blocks: zero pages of the program until a pool comes to stand on them.
alignas(PoolBlock) extern std::byte g_pool_blocks[];

[[nodiscard]] WEIR_HOT PoolBlock& pool_block(std::uint64_t tag) noexcept {
  std::byte* where = g_pool_blocks + (tag & (kMaxPools - 1)) * sizeof(PoolBlock);
  return *std::launder(reinterpret_cast<PoolBlock*>(where));
}

// A page comes to rest in cache or ring. In checked builds one that rests already is reported; in
// others a second put goes unnoticed until the page leaves the pool a second time.
WEIR_HOT void park(Page* page) noexcept {
  if constexpr (kCheckedDrops) {
    if (page->state.exchange(FrameState::kTaken, memory_order_relaxed) != FrameState::kLive) {
      report_double_free(index_of(page), "in its pool");
    }
  }
}
// A page leaves cache or ring for a user or for the allocator.
WEIR_HOT void unpark(Page* page) noexcept {
  if constexpr (kCheckedDrops) {
    page->state.store(FrameState::kLive, memory_order_relaxed);
  }
}

inline void park_all(Page* const* pages, std::size_t n) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    park(pages[i]);
  }
}
inline void unpark_all(Page* const* pages, std::size_t n) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    unpark(pages[i]);
  }
}

// The owner's private part may be used by this thread, now and until leave_owner_section().
[[nodiscard]] WEIR_HOT bool enter_owner_section(PoolBlock& block) noexcept {
  if (block.owner.load(memory_order_relaxed) != thread_token()) {
    return false;
  }
  if constexpr (kAudit) {
    block.busy.store(true, memory_order_seq_cst);                    // pairs: unbind_owner seq_cst
    if (block.owner.load(memory_order_seq_cst) != thread_token()) {  // pairs: unbind_owner seq_cst
      block.busy.store(false, memory_order_relaxed);
      return false;
    }
  }
  pool_pause(PoolPause::owner_section);
  return true;
}
WEIR_HOT void leave_owner_section(PoolBlock& block) noexcept {
  if constexpr (kAudit) {
    block.busy.store(false, memory_order_release);  // pairs: unbind_owner seq_cst
  }
}

// Takes home a page without users, from any thread: when the caller is not the owner, or its cache
// is full. (Pages out of the reserve do not come here: pool_page_hook() takes them out of the pool.)
[[gnu::noinline]] void recycle_slow(PoolBlock& block, Page* page) noexcept;

// Takes home a page whose word was seen as kSoleOwner | kPoolFlag.
WEIR_HOT void recycle(Page* page) noexcept {
  PoolBlock& block = pool_block(page->owner);
  if (enter_owner_section(block)) {
    const std::uint32_t cached = block.cached.load(memory_order_relaxed);
    if (cached < kPoolCachePages) [[likely]] {
      park(page);
      block.cache[cached] = page;
      block.cached.store(cached + 1, memory_order_relaxed);
      block.counters.to_cache.add(1);
      leave_owner_section(block);
      return;
    }
    leave_owner_section(block);
  }
  recycle_slow(block, page);
}

// Drops a reference on a page of whatever kind; the last one on a page of a pool takes it home.
// The same as unref(), with the pages of pools put first. Any thread; not in a signal handler when
// the page may be a pool's. nullptr is ignored.
WEIR_HOT void pool_put(Page* page) noexcept {
  // pairs: unref_slow release — what earlier owners wrote happens before the page's next use
  if (page != nullptr && page->word.load(memory_order_acquire) == (kSoleOwner | kPoolFlag))
      [[likely]] {
    recycle(page);
    return;
  }
  unref(page);
}

// The same for many: pages of several pools and of none, in any order. The ring lock is taken
// once for each run of pages of one pool.
void pool_put_bulk(Page* const* pages, std::size_t n) noexcept;

}  // namespace weir
