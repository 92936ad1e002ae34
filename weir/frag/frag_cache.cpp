// SPDX-License-Identifier: MIT
#include "weir/frag/frag_cache.hpp"

#include <stdexcept>

#include "weir/base/check.hpp"
#include "weir/base/report.hpp"
#include "weir/percpu/twin_lock.hpp"

namespace weir {

FragCache::FragCache(PageAllocator& pages, AllocFlags flags) : pages_(pages), flags_(flags) {
  if (has(flags, AllocFlags::zero)) {
    throw std::invalid_argument("FragCache: fragments cannot be zeroed; clear them yourself");
  }
}

FragCache::~FragCache() {
  if (page_ != nullptr) {
    retire();
  }
}

void FragCache::drain() noexcept {
  if constexpr (kAudit) {
    check_thread();
    thread_ = 0;
  }
  if (page_ != nullptr) {
    retire();
  }
}

FragRef FragCache::refuse() noexcept {
  counters_.refusals.add(1);
  return {};
}

FragRef FragCache::alloc_slow(std::size_t size) noexcept {
  if (size == 0 || size > kFragPageBytes || !renew(size)) {
    return refuse();
  }
  // A fresh page begins at offset 0, which every alignment divides.
  return cut(0, 0, size);
}

// Leaves a page in hand from whose start `size` bytes can be cut, or false.
bool FragCache::renew(std::size_t size) noexcept {
  const bool small_page_would_do = size <= kFrameBytes;
  if (page_ != nullptr && (small_page_would_do || size_ == kFragPageBytes)) {
    // Everybody is back when the count is what the cache itself holds. Nobody else can raise it
    // then: only a holder takes further references.
    const std::uint32_t stock = stock_.load(memory_order_relaxed);
    // pairs: unref_slow release — what users of the fragments did happens before their bytes are
    // cut again
    const std::uint32_t count = page_->word.load(memory_order_acquire) & kRefMask;
    if (count == stock && !degraded_ && ref(page_, kStock - stock)) {
      settle_counters();
      offset_.store(0, memory_order_relaxed);
      stock_.store(kStock, memory_order_relaxed);
      counters_.pages_reused.add(1);
      return true;
    }
  }
  if (page_ != nullptr && small_page_would_do) {
    retire();
  }
  // An attempt only: a shortage of large blocks is no reason to stop everybody else, and the
  // reserve is for those who need one frame.
  Page* page = pages_.alloc_page(kLargeOrder, AllocFlags::no_wait | AllocFlags::no_reclaim);
  if (page == nullptr && small_page_would_do) {
    page = pages_.alloc_page(Order{0}, flags_);
    if (page != nullptr) {
      counters_.small_pages.add(1);
    }
  }
  if (page == nullptr) {
    return false;  // a page in hand that was too short for this request stays in use
  }
  if (page_ != nullptr) {
    retire();
  }
  install(page);
  return true;
}

void FragCache::install(Page* page) noexcept {
  // Added, never stored: somebody may be looking at the word.
  [[maybe_unused]] const bool taken = ref(page, kStock - 1);
  WEIR_ASSERT(taken, "FragCache: a fresh page takes the stock");
  page_ = page;
  base_ = address_of(page);
  size_ = static_cast<std::uint32_t>(bytes(order_of(page)).value);
  degraded_ = size_ != kFragPageBytes || is_emergency(page);
  offset_.store(0, memory_order_relaxed);
  stock_.store(kStock, memory_order_relaxed);
  counters_.pages_taken.add(1);
  counters_.page_bytes.add(size_);
}

// Lets go of the page: the last fragment out gives it back, or this call when none is.
void FragCache::retire() noexcept {
  settle_counters();
  Page* page = page_;
  const std::uint32_t stock = stock_.load(memory_order_relaxed);
  page_ = nullptr;
  base_ = nullptr;
  size_ = 0;
  degraded_ = false;
  offset_.store(0, memory_order_relaxed);
  stock_.store(kStock, memory_order_relaxed);
  unref_many(page, stock);
}

void FragCache::settle_counters() noexcept {
  counters_.allocated.add(kStock - stock_.load(memory_order_relaxed));
  counters_.allocated_bytes.add(offset_.load(memory_order_relaxed));
}

FragCounterValues FragCache::counters() const noexcept {
  FragCounterValues sum = values_of(counters_);
  sum.allocated += kStock - stock_.load(memory_order_relaxed);
  sum.allocated_bytes += offset_.load(memory_order_relaxed);
  return sum;
}

void FragCache::check_thread() noexcept {
  const std::uintptr_t self = thread_token();
  if (thread_ == 0) {
    thread_ = self;
  } else if (thread_ != self) {
    report_wrong_thread("a FragCache");
  }
}

}  // namespace weir
