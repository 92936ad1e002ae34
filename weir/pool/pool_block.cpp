// SPDX-License-Identifier: MIT
#include "weir/pool/pool_block.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "weir/base/failpoint.hpp"
#include "weir/os/lock.hpp"
#include "weir/page/page_allocator.hpp"
#include "weir/pool/pool_table.hpp"

namespace weir {

alignas(PoolBlock) constinit std::byte g_pool_blocks[kMaxPools * sizeof(PoolBlock)] = {};

namespace {

constexpr std::uint32_t kSpillPages = kPoolCachePages / 2;

enum class Parked : bool { no, yes };

// Puts the first of these pages into the ring, as many as fit; returns how many. Under the lock.
std::uint32_t push_locked(PoolBlock& block, Page* const* pages, std::uint32_t n,
                          Parked parked) noexcept {
  if (block.phase != PoolPhase::kOpen || fails(Failpoint::pool_ring)) {
    return 0;
  }
  n = block.ring.room(n);
  if (parked == Parked::no) {
    park_all(pages, n);  // before the consumer can see them
  }
  block.ring.push(pages, n);
  block.returns.to_ring.add(n);
  pool_pause(PoolPause::ring_written);
  return n;
}

// Takes home n pages of the pool `tag` by way of the ring; the surplus goes to the allocator.
void return_pages(PoolBlock& block, std::uint64_t tag, Page* const* pages,
                  std::uint32_t n) noexcept {
  std::uint32_t pushed = 0;
  {
    LockGuard guard(block.ring.lock());
    if (block.tag != tag || block.phase == PoolPhase::kFree) [[unlikely]] {
      report_double_free(index_of(pages[0]), "of a pool that is gone");
    }
    pushed = push_locked(block, pages, n, Parked::no);
    if (pushed < n && block.phase == PoolPhase::kOpen) {
      block.returns.ring_full.add(n - pushed);
    }
  }
  // Unless pages are still in hand, the block may be anybody's from here on.
  if (pushed < n) [[unlikely]] {
    leave_pool(block, pages + pushed, n - pushed);
  }
}

// Room in the owner's cache for one more: when it is full, its oldest pages go to the ring, as many
// as fit, at most half. False when the ring is full too.
bool make_room(PoolBlock& block) noexcept {
  const std::uint32_t cached = block.cached.load(memory_order_relaxed);
  if (cached < kPoolCachePages) {
    return true;
  }
  std::uint32_t pushed = 0;
  {
    LockGuard guard(block.ring.lock());
    pushed = push_locked(block, block.cache, kSpillPages, Parked::yes);
  }
  std::memmove(block.cache, block.cache + pushed, (cached - pushed) * sizeof(Page*));
  block.cached.store(cached - pushed, memory_order_relaxed);
  return pushed != 0;
}

// Takes home n pages without users, all of the pool `tag`.
void recycle_run(std::uint64_t tag, Page* const* pages, std::uint32_t n) noexcept {
  PoolBlock& block = pool_block(tag);
  if (enter_owner_section(block)) {
    const std::uint32_t cached = block.cached.load(memory_order_relaxed);
    const std::uint32_t kept = std::min(n, kPoolCachePages - cached);
    park_all(pages, kept);
    std::copy_n(pages, kept, block.cache + cached);
    block.cached.store(cached + kept, memory_order_relaxed);
    block.counters.to_cache.add(kept);
    leave_owner_section(block);
    pages += kept;
    n -= kept;
  }
  if (n != 0) {
    return_pages(block, tag, pages, n);
  }
}

[[nodiscard]] bool at_home(const Page* page, std::uint32_t word) noexcept {
  // pairs: unref_slow release — as in pool_put
  return page != nullptr && page->word.load(memory_order_acquire) == word;
}

}  // namespace

void recycle_slow(PoolBlock& block, Page* page) noexcept {
  if (enter_owner_section(block)) {
    if (make_room(block)) {
      park(page);
      const std::uint32_t cached = block.cached.load(memory_order_relaxed);
      block.cache[cached] = page;
      block.cached.store(cached + 1, memory_order_relaxed);
      block.counters.to_cache.add(1);
      leave_owner_section(block);
      return;
    }
    leave_owner_section(block);
  }
  return_pages(block, page->owner, &page, 1);
}

void pool_put_bulk(Page* const* pages, std::size_t n) noexcept {
  constexpr std::size_t kMost = 1U << 30;  // a run is counted in 32 bits
  std::size_t begin = 0;
  while (begin < n) {
    std::size_t end = begin + 1;
    if (at_home(pages[begin], kSoleOwner | kPoolFlag)) {
      const std::uint64_t tag = pages[begin]->owner;
      while (end < n && end - begin < kMost && at_home(pages[end], kSoleOwner | kPoolFlag) &&
             pages[end]->owner == tag) {
        ++end;
      }
      recycle_run(tag, pages + begin, static_cast<std::uint32_t>(end - begin));
    } else if (at_home(pages[begin], kSoleOwner)) {
      while (end < n && at_home(pages[end], kSoleOwner)) {
        ++end;
      }
      free_bulk(std::span(pages + begin, end - begin));
    } else {
      unref(pages[begin]);
    }
    begin = end;
  }
}

void leave_pool(PoolBlock& block, Page* const* pages, std::uint32_t n) noexcept {
  for (std::uint32_t i = 0; i < n; ++i) {
    // relaxed: the page has no other user; what the last one wrote came with its release.
    const std::uint32_t before = pages[i]->word.fetch_and(~kPoolFlag, memory_order_relaxed);
    if ((before & kPoolFlag) == 0) [[unlikely]] {
      report_double_free(index_of(pages[i]), "no longer of its pool");
    }
  }
  free_bulk(std::span(pages, n));
  // Counted when the allocator has them: nothing in flight means that all memory is back.
  LockGuard guard(block.ring.lock());
  block.returns.left_pool.add(n);
  free_if_done(block);
}

void pool_page_hook(Page* page) noexcept {
  if (is_emergency(page)) {
    leave_pool(pool_block(page->owner), &page, 1);
    return;
  }
  recycle(page);
}

}  // namespace weir
