// SPDX-License-Identifier: MIT
// pool/page_pool.hpp — PagePool: single frames that come back to where they are received, from
// whichever thread lets go of them. Calls page, pool/pool_block. Never frees a page in users' hands.
//
//                    get                              put, by the owner
//   allocator  ==>  [ cache 128 ]  <---------------------------------------  user
//       64 at once      ^  64 at once                 put, by others          |
//       ^               +-------------  [ return ring ]  <-------------------+
//       +------------------------------------ what the ring has no room for --+
//
//   weir::PagePool pool{pages, {.ring = 1024}};
//   weir::PoolRef rx = pool.get();          // dropped anywhere, it comes back to this pool
//
// Owner is the thread of the first get. The cache is the owner's alone: get() by another thread is
// served by the allocator. To move a pool to another thread, the old owner calls release_owner() (or
// is otherwise known to be done) before the new one calls adopt_owner().
//
// A pool may be destroyed while pages are out, while other threads put some of them, and by any
// thread; but not while its owner is inside a call, a put included: an owner in another thread
// calls release_owner() first. Pages that come home later go to the allocator, and with the last one
// the pool disappears from pool_list(). A pool must not outlive its PageAllocator; its pages may.
//
// No call here is async-signal-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weir/base/hot.hpp"
#include "weir/page/page_allocator.hpp"
#include "weir/pool/pool_block.hpp"
#include "weir/pool/pool_options.hpp"
#include "weir/pool/pool_ref.hpp"

namespace weir {

class PagePool {
 public:
  // Throws std::invalid_argument for options that cannot be (AllocFlags::zero), std::system_error
  // when there are kMaxPools pools already or no memory for the ring.
  explicit PagePool(PageAllocator& pages, const PoolOptions& options = {});
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // A page with what its last user left in it, or empty when there is no memory. The owner; other
  // threads are served too, slowly.
  [[nodiscard]] WEIR_HOT PoolRef get() noexcept { return PoolRef{get_page()}; }
  // The same with the reference in the caller's care: end it with put().
  [[nodiscard]] WEIR_HOT Page* get_page() noexcept {
    PoolBlock& block = *block_;
    if (enter_owner_section(block)) [[likely]] {
      const std::uint32_t cached = block.cached.load(memory_order_relaxed);
      if (cached != 0) [[likely]] {
        Page* page = block.cache[cached - 1];
        block.cached.store(cached - 1, memory_order_relaxed);
        block.counters.from_cache.add(1);
        unpark(page);
        leave_owner_section(block);
        return page;
      }
      leave_owner_section(block);
    }
    return get_slow();
  }
  // Fills `out` from its start, whatever is in it; returns how many pages there were.
  [[nodiscard]] std::size_t get_bulk(std::span<Page*> out) noexcept;

  // Drops one reference of a page of any pool, or of none: see pool_put(). Any thread.
  static void put(Page* page) noexcept { pool_put(page); }
  static void put_bulk(std::span<Page* const> pages) noexcept {
    pool_put_bulk(pages.data(), pages.size());
  }

  // Makes the calling thread the owner. Whatever the owner before did must happen before.
  void adopt_owner() noexcept;
  // The owner gives the pool up: from now on its puts go through the ring like everybody's. The
  // next thread that gets becomes the owner. Reported when called by another thread.
  void release_owner() noexcept;
  // Gives the pages in cache and ring back to the allocator. The owner; nothing for others.
  void drain() noexcept;

  // Options as they stand after clamping.
  [[nodiscard]] const PoolOptions& effective() const noexcept { return options_; }
  // Any thread.
  [[nodiscard]] PoolInfo info() const noexcept;
  [[nodiscard]] std::uint64_t in_flight() const noexcept { return info().in_flight; }

 private:
  WEIR_COLD Page* get_slow() noexcept;
  [[nodiscard]] bool enter_or_bind() noexcept;
  [[nodiscard]] bool refill() noexcept;
  [[nodiscard]] Page* get_elsewhere() noexcept;
  [[nodiscard]] std::size_t get_bulk_elsewhere(std::span<Page*> out) noexcept;
  [[nodiscard]] std::size_t fetch(std::span<Page*> out) noexcept;

  PoolBlock* block_;
  PageAllocator& pages_;
  PoolOptions options_;
  Reclaimer reclaimer_;
};

}  // namespace weir
