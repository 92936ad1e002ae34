// SPDX-License-Identifier: MIT
// page/page_allocator.hpp — the facade: a source of memory, a zone over it and its per-CPU lists.
// Calls everything below. Construction throws; every other member is noexcept. No call waits for
// memory to be freed; one that would be refused waits for pages that other threads carry between
// list and zone (a few hundred instructions, unless such a thread has lost its CPU), and takes as long as
// the reclaimers that it asks.
//
//   weir::PageAllocator pages{{.capacity = 256_MiB}};
//   weir::PageRef page = pages.alloc();                  // one frame
//   weir::PageRef run = pages.alloc(weir::Order{3});     // 32 KiB, naturally aligned
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "weir/backing/extent.hpp"
#include "weir/base/types.hpp"
#include "weir/os/options.hpp"
#include "weir/page/alloc_flags.hpp"
#include "weir/page/attempt.hpp"
#include "weir/page/compaction.hpp"
#include "weir/page/limit_watch.hpp"
#include "weir/page/page_list.hpp"
#include "weir/page/page_mover.hpp"
#include "weir/page/page_ref.hpp"
#include "weir/page/page_run.hpp"
#include "weir/page/reclaim.hpp"
#include "weir/page/zone_state.hpp"
#include "weir/percpu/cached_zone.hpp"

namespace weir {

// What was really obtained; see Options for what was asked.
struct Effective {
  Options options;                    // as they stand after clamping
  PageCount managed;                  // frames of the zone
  Extent extent;                      // the first (usually only) extent
  std::uint32_t lists = 0;            // per-CPU lists
  const char* list_mode = "";         // "rseq", "locked" or "off"
  const char* list_mode_reason = "";  // how that came about
  Bytes list_memory;                  // address space of the lists; a CPU in use touches 4 KiB
  std::uint32_t cluster = 0;          // frames moved at once between list and zone
  std::uint32_t batch = 0;            // the kernel's pcp batch for such a zone
  std::uint32_t high = 0;             // order-0 pages a list starts with
  std::uint32_t high_max = 0;         // and the most that misses can earn it
  std::uint32_t depot = 0;            // frames in whole clusters that the depot keeps
  std::uint64_t cached_max = 0;       // frames that lists and depot hold together at most
  std::uint64_t watermark_min = 0, watermark_low = 0, watermark_high = 0;  // frames
};

class PageAllocator {
 public:
  // Throws std::invalid_argument for options that cannot be, std::system_error when the system
  // refuses memory; nothing is kept then.
  explicit PageAllocator(const Options& options = {});
  // Over memory the user brings: one or several frame-aligned pieces, which stay the user's and
  // must outlive every page. options.capacity, source and node are ignored: where it is, is for the user to say.
  PageAllocator(std::span<const std::span<std::byte>> memory, const Options& options);
  // Pages still out keep the zone alive (one notice); the last one that comes home ends it.
  ~PageAllocator();
  PageAllocator(const PageAllocator&) = delete;
  PageAllocator& operator=(const PageAllocator&) = delete;

  // One page of 2^order frames, or empty. A refusal means that no such block was free anywhere
  // outside the reserve, per-CPU lists included (with no_wait: neither on this CPU's list nor in depot
  // or engine), that no reclaimer had one to give, or that the hard limit would have been exceeded.
  // Order above 10, a signal handler inside a list or lock of weir, and a forked child of a
  // memfd zone are refused at once.
  [[nodiscard]] WEIR_HOT PageRef alloc(Order order = Order{0},
                                       AllocFlags flags = AllocFlags::none) noexcept {
    return PageRef{alloc_page(order, flags)};
  }
  // The same with the reference in the caller's care: end it with unref().
  [[nodiscard]] WEIR_HOT Page* alloc_page(Order order = Order{0},
                                          AllocFlags flags = AllocFlags::none) noexcept {
    if constexpr (!kCheckedDrops) {
      Page* page;
      if (order == Order{0} && flags == AllocFlags::none && PageLists::pop_fast(blocks_, page))
          [[likely]] {
        return page;
      }
    }
    return alloc_page_slow(order, flags);
  }

  // Single frames in bulk, array form: fills the empty slots (nullptr; an array that nobody initialised
  // is for alloc_burst()) in ascending order, holes included,
  // and leaves the others alone. Returns the number of leading populated slots (those populated
  // before included); pages beyond a remaining hole are not counted. At least one page is added
  // whenever one can be had. With AllocFlags::exact all holes are filled, or none is.
  [[nodiscard]] std::size_t alloc_bulk(std::span<PageRef> slots,
                                       AllocFlags flags = AllocFlags::none) noexcept;
  [[nodiscard]] std::size_t alloc_bulk(std::span<Page*> slots,
                                       AllocFlags flags = AllocFlags::none) noexcept;
  // For those who fill arrays from the start, as drivers do: overwrites `out` and returns how many of
  // its places were filled, fewer only when no more were free (with AllocFlags::exact: all or none).
  // With free_burst() the cheapest way to many pages.
  [[nodiscard]] WEIR_HOT std::size_t alloc_burst(std::span<Page*> out,
                                                 AllocFlags flags = AllocFlags::none) noexcept {
    if constexpr (!kCheckedDrops) {
      if (flags == AllocFlags::none) [[likely]] {
        return zone_->alloc_bulk_or(out.data(), out.size(), attempt::beyond_list);
      }
    }
    return alloc_burst_slow(out, flags);
  }
  // All of `out` or nothing of it, as with AllocFlags::exact. Refused only if fewer pages were free at one moment, so that two who
  // ask at the same time never both go away empty when one of them could be served.
  [[nodiscard]] bool alloc_exactly(std::span<Page*> out,
                                   AllocFlags flags = AllocFlags::none) noexcept;
  // List form: up to n pages are added at the head of `list`, which need not be empty. Returns the
  // number added; with AllocFlags::exact n or 0.
  [[nodiscard]] std::size_t alloc_bulk(PageList& list, std::size_t n,
                                       AllocFlags flags = AllocFlags::none) noexcept;

  // n frames one after the other, up to the largest block (1024 frames, 4 MiB): out of the smallest block
  // that has so many, aligned as that is; what it has beyond n stays free. A block that needed the reserve
  // makes a run of the reserve, in all its parts. Empty as alloc(), for 0 and for more than 1024.
  [[nodiscard]] PageRun alloc_exact(PageCount n, AllocFlags flags = AllocFlags::none) noexcept;
  // Any number of frames. Up to 1024 as alloc_exact(). For more, pageblocks one after the other that are
  // free, or can become so, are withheld from others, and movable pages are carried out of them: it takes as
  // long as that, and of the flags `zero` alone has a meaning. Aligned to 2 MiB then. Empty when there are
  // no such pageblocks, for 0, and where compact() does nothing.
  [[nodiscard]] PageRun alloc_contiguous(PageCount n, AllocFlags flags = AllocFlags::none) noexcept;

  // Pages that may be carried elsewhere by their mover, so that large blocks come about: see
  // page/page_mover.hpp. One that is given back goes to the engine; one is taken from a list
  // only when the engine has none. When it is carried, the owner has another page; nullptr as alloc(), and
  // when the mover is not registered here.
  [[nodiscard]] Page* alloc_movable(const PageMover& mover, Order order = Order{0},
                                    AllocFlags flags = AllocFlags::none) noexcept;
  // The node is the caller's: see page/callback.hpp. Once it is removed, its pages stay where they are.
  void add_mover(PageMover& mover) noexcept;
  // Carries movable pages of the whole zone together, until no more pageblocks can become free. A request
  // for a large block that would be refused does as much of it as it needs. Not from a signal handler or a
  // callback: then nothing is done.
  CompactionReport compact() noexcept;

  // Empties a CPU's lists, or all lists and the depot, into the engine, where they merge; from any
  // thread, without the help of others. too_large: no such CPU; would_block: inside a signal handler
  // that interrupted weir; the system's error when it refuses the fence. Costs a fence (microseconds).
  Error drain(CpuId cpu) noexcept;
  Error drain_all() noexcept;
  // Housekeeping for whoever has a moment, every 10 to 1000 ms; Maintenance does it from a thread.
  // Gives capacity to lists that ran dry and over, empties those nobody used, merges clusters that
  // nobody wanted, gives memory back when the zone has been quiet for idle_trim. Never necessary. Any thread.
  void tick() noexcept;

  // Gives the memory of whole free pageblocks (2 MiB) back to the system, `target` bytes at most, and says how
  // much. First it empties lists and depot; then it goes step by step, never below the high watermark of free
  // frames, and no request is refused because of it. The next use of such memory costs a page fault. Borrowed
  // memory is its owner's and stays. Any thread; 20 to 200 us for each pageblock that was in use. See
  // docs/design/trim.md, and the option idle_trim for what happens by itself.
  Bytes trim(Bytes target = Bytes{UINT64_MAX}, TrimReport* report = nullptr) noexcept {
    return zone_->trim(target, report);
  }
  // For memory that a device or the kernel is told about (AF_XDP, io_uring, another process): until the pin ends,
  // no pageblock that the range touches is given back or moved. The pin may outlive the allocator, whose memory
  // then stays until it ends. zero_size; misaligned: no whole frames; foreign: begins outside this allocator's
  // memory; too_large: ends outside it; would_block: in a signal handler that interrupted weir. Any thread; waits
  // for a trim of one pageblock at most.
  [[nodiscard]] Result<Pin> pin(std::span<const std::byte> range) noexcept {
    return zone_->pin(range);
  }

  // Frames that may be in use at once, and above which watches are told; 0 is none. Exact to the frame
  // from the moment it returns: no request is served beyond the limit. What is in use already stays so,
  // and counts. bad_option: a limit that is no more than the reserve; would_block: inside a signal handler
  // that interrupted weir; the system's error when it refuses a fence: then nothing has changed. Costs a
  // fence. Any thread.
  Error set_limits(PageCount limit, PageCount soft_limit) noexcept;
  // Free and used frames beside watermarks and limits, now. Any thread, no lock.
  [[nodiscard]] ZoneState zone_state() const noexcept;

  // Owners of caches who give pages back before a request is refused, asked in the order in which they
  // came; and those who are told of limits. The node is the caller's: see page/callback.hpp.
  void add_reclaimer(Reclaimer& reclaimer) noexcept;
  void add_limit_watch(LimitWatch& watch) noexcept;

  [[nodiscard]] const Effective& effective() const noexcept;
  [[nodiscard]] CachedZone& zone() noexcept { return *zone_; }
  [[nodiscard]] const CachedZone& zone() const noexcept { return *zone_; }

 private:
  WEIR_COLD Page* alloc_page_slow(Order order, AllocFlags flags) noexcept;
  std::size_t alloc_burst_slow(std::span<Page*> out, AllocFlags flags) noexcept;

  std::byte* blocks_ = nullptr;  // of the zone's lists
  CachedZone* zone_;
  std::unique_ptr<Effective> effective_;
};

// Drops one reference of each page; empty places are left out, sole-owner single frames go back in
// bulk. Any thread.
void free_bulk(std::span<Page* const> pages) noexcept;
// The counterpart of alloc_burst(): every place holds a page. Any thread.
WEIR_HOT void free_burst(std::span<Page* const> pages) noexcept {
  const std::size_t done = release_bulk_fast(pages.data(), pages.size());
  if (done != pages.size()) [[unlikely]] {
    free_bulk(pages.subspan(done));
  }
}
// The same for owners, which are empty afterwards.
void free_bulk(std::span<PageRef> pages) noexcept;

// The page (its first frame's descriptor) that holds an address: nullptr for a foreign address and
// for memory that is free in the engine. Free memory on a per-CPU list still looks like a page (not
// to tell apart without a look at the lists). Any address, constant time, any thread.
[[nodiscard]] Page* page_of(const void* address) noexcept;

// Drops the reference that an interior address stands for (a fragment, a driver's buffer).
// A foreign address ends the program with a report (base/report.hpp).
void free_at(const void* address) noexcept;

}  // namespace weir
