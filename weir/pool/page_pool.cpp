// SPDX-License-Identifier: MIT
#include "weir/pool/page_pool.hpp"

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "weir/base/report.hpp"
#include "weir/os/lock.hpp"
#include "weir/pool/pool_table.hpp"

namespace weir {
namespace {

PoolOptions clamped(PoolOptions options) {
  if (has(options.flags, AllocFlags::zero)) {
    throw std::invalid_argument("PagePool: pages of a pool cannot be zeroed; clear them yourself");
  }
  if (options.ring > kPoolRingMax) {
    static bool told = false;
    notice_once(told, "a page pool's ring was clamped to 16384 pages");
    options.ring = kPoolRingMax;
  }
  return options;
}

// Marks fresh pages as belonging to the pool. They have no other user, but somebody may be looking
// at the word, so the flag is added, not stored.
void enter_pool(std::uint64_t tag, Page* const* pages, std::size_t n) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    pages[i]->owner = tag;
    pages[i]->word.fetch_or(kPoolFlag, memory_order_relaxed);
  }
}

}  // namespace

PagePool::PagePool(PageAllocator& pages, const PoolOptions& options)
    : block_(nullptr),
      pages_(pages),
      options_(clamped(options)),
      reclaimer_(
          [](void* pool, PageCount needed, Order) noexcept {
            return give_up_ring(*static_cast<PagePool*>(pool)->block_, needed.value);
          },
          this) {
  bool full = false;
  block_ = claim_pool_block(options_.ring, full);
  if (block_ == nullptr) {
    throw std::system_error(
        full ? EMFILE : ENOMEM, std::generic_category(),
        full ? "PagePool: too many page pools (4096)" : "PagePool: no memory for the return ring");
  }
  if (options_.reclaim) {
    pages_.add_reclaimer(reclaimer_);
  }
}

PagePool::~PagePool() {
  reclaimer_.remove();
  unbind_owner(*block_);
  close_pool(*block_);
}

// enter_owner_section(), after making this thread the owner if there is none.
bool PagePool::enter_or_bind() noexcept {
  if (enter_owner_section(*block_)) [[likely]] {
    return true;
  }
  std::uintptr_t none = 0;
  // pairs: release_owner release — the cache as the last owner left it
  return block_->owner.compare_exchange_strong(none, thread_token(), memory_order_acquire,
                                               memory_order_relaxed) &&
         enter_owner_section(*block_);
}

void PagePool::adopt_owner() noexcept { block_->owner.store(thread_token(), memory_order_relaxed); }

void PagePool::release_owner() noexcept {
  std::uintptr_t self = thread_token();
  // pairs: enter_or_bind acquire
  if (!block_->owner.compare_exchange_strong(self, 0, memory_order_release, memory_order_relaxed)) {
    if (self != 0) {
      report_wrong_thread("a PagePool given up");
    }
  }
}

void PagePool::drain() noexcept {
  if (enter_owner_section(*block_)) {
    empty_pool(*block_);
    leave_owner_section(*block_);
  }
}

PoolInfo PagePool::info() const noexcept {
  LockGuard guard(block_->ring.lock());
  return pool_info_locked(*block_);
}

Page* PagePool::get_slow() noexcept {
  if (!enter_or_bind()) {
    return get_elsewhere();
  }
  // A new owner may find pages of the one before.
  const bool any = block_->cached.load(memory_order_relaxed) != 0 || refill();
  if (!any) {
    block_->counters.no_page.add(1);
  }
  leave_owner_section(*block_);
  return any ? get_page() : nullptr;
}

std::size_t PagePool::get_bulk(std::span<Page*> out) noexcept {
  PoolBlock& block = *block_;
  if (!enter_or_bind()) {
    return get_bulk_elsewhere(out);
  }
  std::size_t done = 0;
  while (done < out.size()) {
    const std::uint32_t cached = block.cached.load(memory_order_relaxed);
    if (cached == 0) {
      if (!refill()) {
        block.counters.no_page.add(1);
        break;
      }
      continue;
    }
    const std::uint32_t n =
        static_cast<std::uint32_t>(std::min<std::size_t>(cached, out.size() - done));
    std::copy_n(block.cache + (cached - n), n, out.data() + done);
    block.cached.store(cached - n, memory_order_relaxed);
    block.counters.from_cache.add(n);
    unpark_all(out.data() + done, n);
    done += n;
  }
  leave_owner_section(block);
  return done;
}

// Fills the owner's empty cache: from the ring, else from the allocator. False when both are empty.
bool PagePool::refill() noexcept {
  PoolBlock& block = *block_;
  std::uint32_t n = 0;
  if (block.ring.size() != 0) {
    LockGuard guard(block.ring.lock());
    n = block.ring.pop(block.cache, kPoolRefillPages);
  }
  if (n != 0) {
    block.counters.from_ring.add(n);
  } else {
    n = static_cast<std::uint32_t>(fetch(std::span(block.cache, kPoolRefillPages)));
    if (n == 0) {
      return false;
    }
    block.counters.refills.add(1);
    // Counted in before anybody can take one and count it out.
    block.counters.from_allocator.add(n);
    park_all(block.cache, n);
  }
  block.cached.store(n, memory_order_relaxed);
  return true;
}

// Pages from the allocator, made this pool's, at the start of `out`. Not counted yet.
std::size_t PagePool::fetch(std::span<Page*> out) noexcept {
  std::fill(out.begin(), out.end(), nullptr);
  const AllocFlags ordinary = without(options_.flags, AllocFlags::emergency | AllocFlags::exact);
  std::size_t n = pages_.alloc_bulk(out, ordinary);
  if (n == 0 && has(options_.flags, AllocFlags::emergency)) {
    // One at a time: a cache full of the reserve would help nobody.
    out[0] = pages_.alloc_page(Order{0}, options_.flags);
    n = out[0] != nullptr ? 1 : 0;
  }
  enter_pool(block_->tag, out.data(), n);
  return n;
}

Page* PagePool::get_elsewhere() noexcept {
  Page* page = nullptr;
  static_cast<void>(get_bulk_elsewhere(std::span(&page, 1)));
  return page;
}

std::size_t PagePool::get_bulk_elsewhere(std::span<Page*> out) noexcept {
  if (out.empty()) {
    return 0;
  }
  const std::size_t n = fetch(out);
  LockGuard guard(block_->ring.lock());
  block_->returns.from_allocator.add(n);
  block_->returns.elsewhere.add(n);
  if (n < out.size()) {
    block_->returns.no_page.add(1);
  }
  return n;
}

}  // namespace weir
