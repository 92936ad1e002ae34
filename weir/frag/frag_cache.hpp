// SPDX-License-Identifier: MIT
// frag/frag_cache.hpp — FragCache cuts byte ranges off a page, upward. Calls page. Owns the page it
// cuts from and a stock of references on it; what it cut belongs to whoever holds the FragRef.
//
//   page     | fragment | gap | fragment |  ...  free  ...  |
//            0                           ^ offset           ^ size      example: 32 KiB, 100 then
//   word     stock = references not yet handed out + fragments out      64-aligned 200 -> offset 328
//
// The stock is taken with one atomic addition when a page is taken; handing a fragment out is a
// decrement of a plain number. When the page is used up, one subtraction settles what is left.
//
// One cache belongs to one thread (or to whoever else serialises its calls): alloc() and drain()
// only from there; fragments are dropped from any thread. Checked builds report another thread's
// call; drain() ends the binding, so that a cache can be handed on. For the same reason it is no
// reclaimer: it holds one page at most, which nobody but its owner can let go of, by drain().
#pragma once

#include <cstddef>
#include <cstdint>

#include "weir/base/atomic.hpp"
#include "weir/base/bits.hpp"
#include "weir/base/config.hpp"
#include "weir/base/counter.hpp"
#include "weir/base/hot.hpp"
#include "weir/base/types.hpp"
#include "weir/frag/frag_ref.hpp"
#include "weir/page/page_allocator.hpp"

namespace weir {

class FragCache {
 public:
  // The allocator must outlive the cache, not its fragments. flags: what a page may be taken from;
  // a page out of the reserve is used once and given back. Throws std::invalid_argument for
  // AllocFlags::zero: a page used again in place is as its users left it.
  explicit FragCache(PageAllocator& pages, AllocFlags flags = AllocFlags::none);
  // Any thread, when the cache is at rest. Fragments stay valid.
  ~FragCache();
  FragCache(const FragCache&) = delete;
  FragCache& operator=(const FragCache&) = delete;

  // `bytes` bytes at a multiple of `align`, or empty: no memory, or a request that cannot be (zero,
  // more than 32 KiB, alignment no power of two or above 4096), which changes nothing. Fragments
  // of one page ascend. Above 4096 bytes a 32 KiB page must be free.
  [[nodiscard]] WEIR_HOT FragRef alloc(std::size_t bytes, Align align = Align{1}) noexcept {
    if constexpr (kAudit) {
      check_thread();
    }
    if (!is_power_of_two(align.value) || align.value > kFrameBytes) [[unlikely]] {
      return refuse();
    }
    // size_ is a multiple of every alignment allowed, so start <= size_. One comparison turns away
    // zero, what does not fit, what is far too large, and a cache without page.
    const std::size_t offset = offset_.load(memory_order_relaxed);
    const std::size_t start = align_up(offset, align.value);
    if (bytes - 1 >= size_ - start) [[unlikely]] {
      return alloc_slow(bytes);
    }
    return cut(offset, start, bytes);
  }

  // Gives the page back; fragments out keep theirs. The owner.
  void drain() noexcept;

  // Memory the cache itself holds now: its page, or nothing.
  [[nodiscard]] Bytes held() const noexcept { return Bytes{size_}; }
  // The page it cuts from now, or nullptr.
  [[nodiscard]] const Page* page() const noexcept { return page_; }
  // The page is smaller than usual or out of the reserve: used up, it will not be used again.
  [[nodiscard]] bool degraded() const noexcept { return degraded_; }
  // Sums since the cache was made. Any thread; exact when the owner is at rest.
  [[nodiscard]] FragCounterValues counters() const noexcept;

 private:
  // References taken with a page: a fragment has at least one byte, so they outlast it by one.
  static constexpr std::uint32_t kStock = static_cast<std::uint32_t>(kFragPageBytes) + 1;
  static constexpr Order kLargeOrder{3};
  static_assert(bytes(kLargeOrder) == Bytes{kFragPageBytes});
  static_assert(kStock < kMaxRefs);

  [[nodiscard]] WEIR_HOT FragRef cut(std::size_t offset, std::size_t start,
                                     std::size_t size) noexcept {
    if (start != offset) {
      counters_.gap_bytes.add(start - offset);
    }
    offset_.store(static_cast<std::uint32_t>(start + size), memory_order_relaxed);
    stock_.store(stock_.load(memory_order_relaxed) - 1, memory_order_relaxed);
    return {page_, base_ + start, static_cast<std::uint32_t>(size)};
  }

  WEIR_COLD FragRef alloc_slow(std::size_t size) noexcept;
  WEIR_COLD FragRef refuse() noexcept;
  [[nodiscard]] bool renew(std::size_t size) noexcept;
  void install(Page* page) noexcept;
  void retire() noexcept;
  void settle_counters() noexcept;
  WEIR_COLD void check_thread() noexcept;

  // All written by the owner; the atomic ones are read by counters() from anywhere.
  std::byte* base_ = nullptr;
  Page* page_ = nullptr;
  std::uint32_t size_ = 0;  // 0 without page: then nothing fits
  Atomic<std::uint32_t> offset_{0};
  Atomic<std::uint32_t> stock_{kStock};  // F1: fragments cut from this page == kStock - stock_
  bool degraded_ = false;

  PageAllocator& pages_;
  const AllocFlags flags_;
  FragCounters counters_;      // allocated, allocated_bytes: without the page in hand
  std::uintptr_t thread_ = 0;  // checked builds: who uses the cache; 0 = nobody yet
};

}  // namespace weir
