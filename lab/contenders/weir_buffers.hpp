// SPDX-License-Identifier: MIT
// lab/contenders/weir_buffers.hpp — weir's own ways to a buffer as contenders: plain pages, owners
// of pages, bare indexes, fragments, a page pool; and the counters of the zone beneath them. Calls
// weir's public headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lab/contenders/buffers.hpp"
#include "lab/contenders/page_trace.hpp"
#include "lab/experiments/packet_source.hpp"
#include "weir/frag/frag_cache.hpp"
#include "weir/page/page_allocator.hpp"
#include "weir/pool/page_pool.hpp"

namespace weir::lab {

// Readings of a zone over one round, from two looks at its counters.
class ZoneReadings {
 public:
  explicit ZoneReadings(const PageAllocator& pages) : pages_(pages) {}
  void begin() noexcept { before_ = look(); }
  void end(std::vector<Reading>& readings) const {
    const Look now = look();
    const double holds = now.holds - before_.holds;
    const double crossing = now.crossing - before_.crossing;
    readings.push_back({"zone_lock_acquisitions", "count", holds});
    readings.push_back({"zone_lock_waits", "count", now.waits - before_.waits});
    readings.push_back({"zone_frames_crossing", "frames", crossing});
    readings.push_back({"zone_lock_bound", "count", 2 * crossing / kClusterFrames});
    if (holds > 0) {
      readings.push_back({"zone_frames_per_hold", "frames", (now.moved - before_.moved) / holds});
    }
    readings.push_back({"list_refills", "count", now.refills - before_.refills});
    readings.push_back({"list_spills", "count", now.spills - before_.spills});
  }

 private:
  struct Look {
    double holds = 0, waits = 0, moved = 0, crossing = 0, refills = 0, spills = 0;
  };
  [[nodiscard]] Look look() const noexcept {
    const ZoneCounters& c = pages_.zone().zone().counters();
    const PercpuCounterValues lists = pages_.zone().percpu_counters();
    return {static_cast<double>(c.lock_acquisitions.get()),
            static_cast<double>(c.lock_waits.get()),
            static_cast<double>(c.lock_frames.get()),
            static_cast<double>(c.taken.get() + c.given.get()),
            static_cast<double>(lists.refills),
            static_cast<double>(lists.spills)};
  }

  const PageAllocator& pages_;
  Look before_;
};

// The reference is in the caller's care: what drivers keep.
class PageBuffers {
 public:
  using Handle = Page*;

  // `trace`: where its order is left for others to follow.
  explicit PageBuffers(std::shared_ptr<PageAllocator> pages,
                       std::shared_ptr<PageTrace> trace = std::make_shared<PageTrace>())
      : pages_(std::move(pages)), zone_(*pages_), trace_(std::move(trace)) {}

  [[gnu::always_inline]] Handle alloc() noexcept { return pages_->alloc_page(); }
  [[gnu::always_inline]] void free(Handle page) noexcept { unref(page); }
  [[gnu::always_inline]] std::size_t alloc_bulk(std::span<Handle> many) noexcept {
    return pages_->alloc_burst(many);
  }
  [[gnu::always_inline]] void free_bulk(std::span<Handle> many) noexcept { weir::free_burst(many); }
  static std::byte* address(Handle page) noexcept { return address_of(page); }

  void enter_thread() noexcept {}
  void begin_round() noexcept { zone_.begin(); }
  void end_round(std::vector<Reading>& readings) const {
    zone_.end(readings);
    if (const std::vector<std::uint32_t> traced = trace_->pages(); !traced.empty()) {
      readings.push_back({"distinct_pages", "pages", static_cast<double>(distinct(traced))});
    }
  }

  // Notes that these pages were handed out, in this order.
  void record(std::span<const Handle> pages) {
    const std::byte* const base = pages_->effective().extent.base;
    for (const Handle page : pages) {
      trace_->record(static_cast<std::uint32_t>((address(page) - base) >> kFrameShift));
    }
  }

 private:
  std::shared_ptr<PageAllocator> pages_;
  ZoneReadings zone_;
  std::shared_ptr<PageTrace> trace_;
};

// Owners: the count of references is looked at whenever one ends.
class PageRefBuffers {
 public:
  using Handle = PageRef;
  using Wire = Page*;
  static constexpr bool kPagesOnly = true;

  explicit PageRefBuffers(std::shared_ptr<PageAllocator> pages)
      : pages_(std::move(pages)), zone_(*pages_) {}

  [[gnu::always_inline]] Handle alloc() noexcept { return pages_->alloc(); }
  [[gnu::always_inline]] void free(Handle page) noexcept { page.reset(); }
  [[gnu::always_inline]] std::size_t alloc_bulk(std::span<Handle> many) noexcept {
    return pages_->alloc_bulk(many);
  }
  [[gnu::always_inline]] void free_bulk(std::span<Handle> many) noexcept { weir::free_bulk(many); }
  static std::byte* address(const Handle& page) noexcept { return page.data(); }
  static bool is_none(const Handle& page) noexcept { return page.empty(); }
  static Wire detach(Handle& page) noexcept { return page.detach(); }
  static Handle attach(Wire page) noexcept { return Handle{page}; }

  void enter_thread() noexcept {}
  void begin_round() noexcept { zone_.begin(); }
  void end_round(std::vector<Reading>& readings) const { zone_.end(readings); }

 private:
  std::shared_ptr<PageAllocator> pages_;
  ZoneReadings zone_;
};

// By index, from the zone behind the facade: lists hold pointers, so a conversion more on each side.
class IndexBuffers {
 public:
  using Handle = PageIndex;
  static constexpr bool kPagesOnly = true;

  explicit IndexBuffers(std::shared_ptr<PageAllocator> pages)
      : pages_(std::move(pages)), zone_(*pages_) {}

  [[gnu::always_inline]] Handle alloc() noexcept { return pages_->zone().alloc(Order{0}, {}); }
  [[gnu::always_inline]] void free(Handle page) noexcept { pages_->zone().free(page, Order{0}); }
  [[gnu::always_inline]] std::size_t alloc_bulk(std::span<Handle> many) noexcept {
    return pages_->zone().alloc_bulk(many.data(), many.size(), {});
  }
  [[gnu::always_inline]] void free_bulk(std::span<Handle> many) noexcept {
    pages_->zone().free_bulk(many.data(), many.size());
  }
  static std::byte* address(Handle page) noexcept { return address_of(page); }
  static bool is_none(Handle page) noexcept { return page == kNoPage; }

  void enter_thread() noexcept {}
  void begin_round() noexcept { zone_.begin(); }
  void end_round(std::vector<Reading>& readings) const { zone_.end(readings); }

 private:
  std::shared_ptr<PageAllocator> pages_;
  ZoneReadings zone_;
};

// A fragment by its page and address: what a driver keeps of it.
struct FragHandle {
  Page* page = nullptr;
  std::byte* data = nullptr;
  friend bool operator==(FragHandle, FragHandle) = default;
};

class FragBuffers : public OneByOne<FragBuffers> {
 public:
  using Handle = FragHandle;

  explicit FragBuffers(std::shared_ptr<PageAllocator> pages)
      : pages_(std::move(pages)), zone_(*pages_), cache_(*pages_) {}

  [[gnu::always_inline]] Handle alloc() noexcept {
    FragRef fragment = cache_.alloc(kBufferBytes);
    std::byte* const data = fragment.data();
    return {fragment.detach(), data};
  }
  [[gnu::always_inline]] void free(Handle fragment) noexcept { unref(fragment.page); }
  static std::byte* address(Handle fragment) noexcept { return fragment.data; }

  void enter_thread() noexcept {}
  void begin_round() noexcept { zone_.begin(); }
  void end_round(std::vector<Reading>& readings) const { zone_.end(readings); }
  [[nodiscard]] FragCache& cache() noexcept { return cache_; }

 private:
  std::shared_ptr<PageAllocator> pages_;
  ZoneReadings zone_;
  FragCache cache_;
};

// Packets in fragments of 2 KiB, as a receiver cuts them.
template <>
struct PacketSourceOf<FragBuffers> {
  using type = FragPacketSource;
  static type make(FragBuffers& buffers) { return type(buffers.cache()); }
};

// Readings of a pool over one round.
class PoolReadings {
 public:
  explicit PoolReadings(const PagePool& pool) : pool_(pool) {}
  void begin() noexcept { before_ = pool_.info().counters; }
  void end(std::vector<Reading>& readings) const {
    const PoolCounterValues now = pool_.info().counters;
    const auto add = [&](const char* metric, std::uint64_t after, std::uint64_t before) {
      readings.push_back({metric, "pages", static_cast<double>(after - before)});
    };
    add("pool_from_cache", now.from_cache, before_.from_cache);
    add("pool_from_ring", now.from_ring, before_.from_ring);
    add("pool_from_allocator", now.from_allocator, before_.from_allocator);
    add("pool_ring_full", now.ring_full, before_.ring_full);
  }

 private:
  const PagePool& pool_;
  PoolCounterValues before_{};
};

// The pool's owner is the thread that gets first: the lead.
class PoolBuffers {
 public:
  using Handle = Page*;

  explicit PoolBuffers(std::shared_ptr<PageAllocator> pages)
      : pages_(std::move(pages)), zone_(*pages_), pool_(*pages_), readings_(pool_) {}

  [[gnu::always_inline]] Handle alloc() noexcept { return pool_.get_page(); }
  [[gnu::always_inline]] void free(Handle page) noexcept { PagePool::put(page); }
  [[gnu::always_inline]] std::size_t alloc_bulk(std::span<Handle> many) noexcept {
    return pool_.get_bulk(many);
  }
  [[gnu::always_inline]] void free_bulk(std::span<Handle> many) noexcept {
    PagePool::put_bulk(many);
  }
  static std::byte* address(Handle page) noexcept { return address_of(page); }

  void enter_thread() noexcept {}
  void begin_round() noexcept {
    zone_.begin();
    readings_.begin();
  }
  void end_round(std::vector<Reading>& readings) const {
    zone_.end(readings);
    readings_.end(readings);
  }
  [[nodiscard]] PagePool& pool() noexcept { return pool_; }

 private:
  std::shared_ptr<PageAllocator> pages_;
  ZoneReadings zone_;
  PagePool pool_;
  PoolReadings readings_;
};

template <>
struct PacketSourceOf<PoolBuffers> {
  using type = PoolPacketSource;
  static type make(PoolBuffers& buffers) { return type(buffers.pool()); }
};

}  // namespace weir::lab
