// SPDX-License-Identifier: MIT
#include "weir/page/page_allocator.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "weir/backing/anon_source.hpp"
#include "weir/backing/borrowed_source.hpp"
#include "weir/backing/hugetlb_source.hpp"
#include "weir/backing/memfd_source.hpp"
#include "weir/backing/source.hpp"
#include "weir/base/report.hpp"
#include "weir/os/topology.hpp"

namespace weir {
namespace {

[[noreturn]] void raise(const Error& error) {
  std::string text = std::string{"weir: "} + error.what + ": " + error_name(error.code);
  switch (error.code) {
    case Errc::zero_size:
    case Errc::too_large:
    case Errc::misaligned:
    case Errc::bad_option:
    case Errc::in_use:
    case Errc::foreign:
      throw std::invalid_argument(text);
    default:
      break;
  }
  if (error.code == Errc::exhausted) {
    text = std::string{"weir: there are no more "} + error.what + " to be had";
  }
  throw std::system_error(
      std::error_code(error.os_errno != 0 ? error.os_errno : ENOMEM, std::generic_category()),
      text);
}

std::unique_ptr<Source> make_source(const Options& options) {
  Memory& memory = system_memory();
  switch (options.source) {
    case SourceChoice::hugetlb:
      return std::make_unique<HugetlbSource>(memory, Bytes{kPageblockBytes}, true, options.thp);
    case SourceChoice::memfd:
      return std::make_unique<MemfdSource>(memory, options.thp);
    case SourceChoice::anonymous:
      break;
  }
  return std::make_unique<AnonSource>(memory, options.thp);
}

void check(const Options& options, Bytes size) {
  if (size.value == 0) {
    raise({Errc::zero_size, "capacity", 0});
  }
  if (size.value > kMaxFrames << kFrameShift) {
    raise({Errc::too_large, "capacity", 0});
  }
  if (options.node != kAnyNode && (options.node.value < 0 || options.node.value > kMaxNode)) {
    raise({Errc::bad_option, "the number of a node", 0});
  }
  if (options.reserve.value != 0 && options.reserve >= whole_pages(size)) {
    raise({Errc::bad_option, "reserve must be smaller than the capacity", 0});
  }
  if (options.limit.value != 0 && options.limit <= options.reserve) {
    raise({Errc::bad_option, "the limit must be larger than the reserve", 0});
  }
  if (options.engine == EngineChoice::bitmap &&
      (options.merge == Merge::skip || options.merge == Merge::clusters)) {
    raise({Errc::bad_option, "merge=skip and merge=clusters are ways of the engine buddy", 0});
  }
  if (const int error = callbacks::prepare(); error != 0) {
    raise({Errc::system, "pthread_atfork", error});
  }
}

Effective read_back(const CachedZone& zone, Options options, bool borrowed) {
  const PageLists& lists = zone.lists();
  Effective effective;
  effective.managed = zone.zone().managed();
  effective.extent = zone.pieces().front().extent;
  effective.lists = lists.count();
  const ListMode& mode = list_mode();
  const bool listed = lists.capacity(0) != 0;
  effective.list_mode = list_form_name(listed ? mode.form : ListForm::off);
  if (listed || mode.form == ListForm::off) {
    effective.list_mode_reason = mode.reason;
  } else if (options.lists && options.cached.value != 0) {
    effective.list_mode_reason = "the option cached leaves less than two frames for each CPU";
  } else {
    effective.list_mode_reason = "asked for by the zone's options";
  }
  effective.list_memory = lists.reserved();
  effective.cluster = lists.cluster();
  effective.batch = pcp_batch(effective.managed);
  effective.high = lists.capacity(0);
  effective.high_max = zone.limits().high_max;
  effective.depot = zone.depot().capacity() * lists.cluster();
  effective.cached_max = zone.limits().total;
  effective.watermark_min = zone.zone().watermarks().min.value;
  effective.watermark_low = zone.zone().watermarks().low.value;
  effective.watermark_high = zone.zone().watermarks().high.value;
  options.lists = listed;
  options.capacity = bytes(effective.managed);
  options.high = PageCount{effective.high};
  options.depot = PageCount{effective.depot};
  options.cached = PageCount{effective.cached_max};
  if (!borrowed && effective.extent.source == SourceKind::anonymous) {
    options.source = SourceChoice::anonymous;  // what a hugetlb request may have fallen back to
  }
  options.node = effective.extent.node;  // any when it was refused; extent.node_note says why
  if (effective.extent.transparent_huge) {
    options.thp = ThpChoice::on;
  } else if (options.thp == ThpChoice::on) {
    options.thp = ThpChoice::system;  // refused; extent.note says why
  }
  options.idle_trim = std::chrono::duration_cast<std::chrono::milliseconds>(zone.idle_trim());
  effective.options = options;
  return effective;
}

// Two places as a vector, eight in a step: compilers make single steps of such loops.
using TwoPlaces [[gnu::vector_size(16)]] = std::uintptr_t;
constexpr std::size_t kAtOnce = 8;

TwoPlaces two_at(Page* const* places) noexcept {
  TwoPlaces two;
  std::memcpy(&two, static_cast<const void*>(places), sizeof(two));
  return two;
}

// The bits of all n places, or of all less one.
template <std::uintptr_t kLess>
std::uintptr_t bits_of(Page* const* places, std::size_t n) noexcept {
  constexpr TwoPlaces kSubtract = {kLess, kLess};
  TwoPlaces seen = {0, 0};
  std::size_t i = 0;
  for (; i + kAtOnce <= n; i += kAtOnce) {
    seen |= (two_at(places + i) - kSubtract) | (two_at(places + i + 2) - kSubtract) |
            (two_at(places + i + 4) - kSubtract) | (two_at(places + i + 6) - kSubtract);
  }
  std::uintptr_t rest = seen[0] | seen[1];
  for (; i < n; ++i) {
    rest |= reinterpret_cast<std::uintptr_t>(places[i]) - kLess;
  }
  return rest;
}
bool all_empty(Page* const* places, std::size_t n) noexcept { return bits_of<0>(places, n) == 0; }
// Only of zero, less one, the top bit is set: no address of a user's has it.
bool none_empty(Page* const* places, std::size_t n) noexcept {
  return bits_of<1>(places, n) >> 63 == 0;
}

void empty_all(Page** places, std::size_t n) noexcept {
  std::size_t i = 0;
  for (; i + kAtOnce <= n; i += kAtOnce) {
    std::memset(static_cast<void*>(places + i), 0, kAtOnce * sizeof(Page*));
  }
  std::fill(places + i, places + n, nullptr);
}

// Slots that are all empty, a cluster at a time, without a buffer between. Returns how many were filled;
// `more`: the next one is populated, and all before are as well.
std::size_t fill_empty(CachedZone& zone, Page** slots, std::size_t n, bool& more) noexcept {
  std::size_t filled = 0;
  while (filled < n) {
    const std::size_t want = std::min<std::size_t>(n - filled, kClusterFrames);
    if (!all_empty(slots + filled, want)) {
      more = true;
      return filled;
    }
    const std::size_t got = zone.alloc_bulk_or(slots + filled, want, attempt::beyond_list);
    filled += got;
    if (got < want) {
      empty_all(slots + filled, want - got);  // what a try left there
      break;
    }
  }
  more = false;
  return filled;
}

// Fills holes from the front, as many pages as come.
class SlotSink final : public PageSink {
 public:
  explicit SlotSink(Page** slots) noexcept : next_(slots) {}
  void put(Page* const* pages, std::uint32_t n) noexcept override {
    for (std::uint32_t i = 0; i < n; ++next_) {
      if (*next_ == nullptr) {
        *next_ = pages[i++];
      }
    }
  }

 private:
  Page** next_;
};

class ListSink final : public PageSink {
 public:
  explicit ListSink(PageList& list) noexcept : list_(list) {}
  void put(Page* const* pages, std::uint32_t n) noexcept override {
    for (std::uint32_t i = 0; i < n; ++i) {
      list_.push(pages[i]);
    }
  }

 private:
  PageList& list_;
};

// All holes or none; returns the leading populated slots.
std::size_t fill_exactly(CachedZone& zone, Page** slots, std::size_t n, AllocFlags flags) noexcept {
  const auto holes = static_cast<std::size_t>(std::count(slots, slots + n, nullptr));
  SlotSink sink{slots};
  if (attempt::exactly(zone, sink, holes, flags)) {
    return n;
  }
  return static_cast<std::size_t>(std::find(slots, slots + n, nullptr) - slots);
}

std::size_t fill_slots(CachedZone& zone, Page** slots, std::size_t n, AllocFlags flags) noexcept {
  if (has(flags, AllocFlags::exact)) {
    return fill_exactly(zone, slots, n, flags);
  }
  std::size_t scan = 0;  // slots before it are populated or could not be
  bool more = true;
  if (!kCheckedDrops && flags == AllocFlags::none) {
    scan = fill_empty(zone, slots, n, more);
  }
  Page* buffer[kClusterFrames];
  while (more && scan < n) {
    // The next holes, as many as a cluster has frames.
    std::size_t holes = 0;
    std::size_t end = scan;
    for (; end < n && holes < kClusterFrames; ++end) {
      holes += slots[end] == nullptr ? 1 : 0;
    }
    const std::size_t got = attempt::singles(zone, buffer, holes, flags);
    more = got == holes;
    for (std::size_t used = 0; used < got; ++scan) {
      if (slots[scan] == nullptr) {
        slots[scan] = buffer[used++];
      }
    }
    scan = more ? end : scan;
  }
  while (scan < n && slots[scan] != nullptr) {
    ++scan;
  }
  return scan;
}

}  // namespace

PageAllocator::PageAllocator(const Options& options) {
  check(options, options.capacity);
  effective_ = std::make_unique<Effective>();
  std::unique_ptr<Source> source = make_source(options);
  const Bytes size{align_up<std::uint64_t>(options.capacity.value, kFrameBytes)};
  Result<Extent> extent = source->obtain(size);
  if (!extent) {
    raise(extent.error());
  }
  bind_to_node(system_memory(), options.node, *extent);
  try {
    Result<CachedZone*> zone = zone_registry::open(
        source.get(), {*extent}, options, topology().cpu_limit, topology().allowed_cpus.count());
    if (!zone) {
      raise(zone.error());
    }
    zone_ = *zone;
  } catch (...) {  // the heap may be exhausted, too
    source->give_back(*extent);
    throw;
  }
  static_cast<void>(source.release());  // the zone's from here on
  blocks_ = zone_->lists().blocks();
  *effective_ = read_back(*zone_, options, false);
}

PageAllocator::PageAllocator(std::span<const std::span<std::byte>> memory, const Options& options) {
  std::vector<Extent> extents;
  Bytes total;
  for (const std::span<std::byte>& piece : memory) {
    BorrowedSource source{piece.data(), Bytes{piece.size()}};
    Result<Extent> extent = source.obtain(Bytes{piece.size()});
    if (!extent) {
      raise(extent.error());
    }
    extents.push_back(*extent);
    total = total + extent->size;
  }
  check(options, total);
  effective_ = std::make_unique<Effective>();
  Result<CachedZone*> zone = zone_registry::open(nullptr, extents, options, topology().cpu_limit,
                                                 topology().allowed_cpus.count());
  if (!zone) {
    raise(zone.error());
  }
  zone_ = *zone;
  blocks_ = zone_->lists().blocks();
  *effective_ = read_back(*zone_, options, true);
}

PageAllocator::~PageAllocator() {
  callbacks::remove_all(*zone_);
  if (zone_->retire() != 0) {
    static bool told = false;
    notice_once(told,
                "an allocator ended with pages still out; its memory stays until they return");
  }
}

Page* PageAllocator::alloc_page_slow(Order order, AllocFlags flags) noexcept {
  return order > kMaxOrder ? nullptr : attempt::page(*zone_, order, flags);
}

std::size_t PageAllocator::alloc_burst_slow(std::span<Page*> out, AllocFlags flags) noexcept {
  if (has(flags, AllocFlags::exact)) {
    return alloc_exactly(out, flags) ? out.size() : 0;
  }
  return attempt::singles(*zone_, out.data(), out.size(), flags);
}

bool PageAllocator::alloc_exactly(std::span<Page*> out, AllocFlags flags) noexcept {
  return attempt::exactly(*zone_, out.data(), out.size(), flags);
}

std::size_t PageAllocator::alloc_bulk(std::span<PageRef> slots, AllocFlags flags) noexcept {
  return fill_slots(*zone_, PageRef::places_of(slots), slots.size(), flags);
}

std::size_t PageAllocator::alloc_bulk(std::span<Page*> slots, AllocFlags flags) noexcept {
  return fill_slots(*zone_, slots.data(), slots.size(), flags);
}

std::size_t PageAllocator::alloc_bulk(PageList& list, std::size_t n, AllocFlags flags) noexcept {
  ListSink sink{list};
  if (has(flags, AllocFlags::exact)) {
    return attempt::exactly(*zone_, sink, n, flags) ? n : 0;
  }
  Page* buffer[kClusterFrames];
  std::size_t added = 0;
  while (added < n) {
    const std::size_t want = std::min<std::size_t>(n - added, kClusterFrames);
    const std::size_t got = attempt::singles(*zone_, buffer, want, flags);
    sink.put(buffer, static_cast<std::uint32_t>(got));
    added += got;
    if (got < want) {
      break;
    }
  }
  return added;
}

Error PageAllocator::set_limits(PageCount limit, PageCount soft_limit) noexcept {
  return zone_->set_limits(limit, soft_limit);
}

ZoneState PageAllocator::zone_state() const noexcept {
  const Zone& zone = zone_->zone();
  const Watermarks& marks = zone.watermarks();
  ZoneState state;
  state.managed = zone.managed().value;
  // A cluster between depot and engine may be seen twice.
  state.free = std::min(zone_->free_pages(), state.managed);
  state.used = state.managed - state.free;
  state.min = marks.min.value;
  state.low = marks.low.value;
  state.high = marks.high.value;
  state.reserve = zone.reserve().value;
  state.limit = zone.hard_limit().value;
  state.soft_limit = zone.soft_limit().value;
  state.below = state.mark_of(state.free);
  state.in_shortage = zone_->in_shortage();
  return state;
}

void PageAllocator::add_reclaimer(Reclaimer& reclaimer) noexcept {
  callbacks::add(reclaimer, *zone_);
}
void PageAllocator::add_limit_watch(LimitWatch& watch) noexcept { callbacks::add(watch, *zone_); }
void PageAllocator::add_mover(PageMover& mover) noexcept { callbacks::add(mover, *zone_); }

Page* PageAllocator::alloc_movable(const PageMover& mover, Order order, AllocFlags flags) noexcept {
  const std::uint64_t id = mover.id_in(*zone_);
  return id != 0 && order <= kMaxOrder ? attempt::movable_page(*zone_, order, flags, id) : nullptr;
}

CompactionReport PageAllocator::compact() noexcept { return compaction::compact(*zone_); }

PageRun PageAllocator::alloc_exact(PageCount n, AllocFlags flags) noexcept {
  return n.value != 0 && n.value <= kMaxBlockFrames ? attempt::run(*zone_, n.value, flags)
                                                    : PageRun{};
}
PageRun PageAllocator::alloc_contiguous(PageCount n, AllocFlags flags) noexcept {
  return n.value <= kMaxBlockFrames     ? alloc_exact(n, flags)
         : n <= zone_->zone().managed() ? attempt::long_run(*zone_, n.value, flags)
                                        : PageRun{};
}

Error PageAllocator::drain(CpuId cpu) noexcept { return zone_->drain(cpu); }
Error PageAllocator::drain_all() noexcept { return zone_->drain_all(); }
void PageAllocator::tick() noexcept { zone_->tick(); }
const Effective& PageAllocator::effective() const noexcept { return *effective_; }

void free_bulk(std::span<Page* const> pages) noexcept {
  // Runs of ordinary pages of one zone leave as they stand in the caller's array; all others one by one.
  constexpr std::uint64_t kNoRun = ~std::uint64_t{0};  // no descriptor begins so
  std::uint64_t run = kNoRun;  // what the descriptors of pages[begin, i) begin with
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= pages.size(); ++i) {
    const bool there = i < pages.size() && pages[i] != nullptr;
    const std::uint64_t head = there ? head_of(pages[i]) : 0;
    if (there && head == run) [[likely]] {
      continue;
    }
    if (i != begin) {
      zone_by_id(zone_in(run))->free_bulk(pages.data() + begin, i - begin);
    }
    const bool starts = !kCheckedDrops && is_ordinary(head);
    begin = starts ? i : i + 1;
    run = starts ? head : kNoRun;
    if (there && !starts) {
      unref_slow(pages[i], 1);
    }
  }
}

void free_bulk(std::span<PageRef> owners) noexcept {
  Page** pages = PageRef::places_of(owners);
  for (std::size_t left = owners.size(); left != 0;) {
    const std::size_t n = std::min<std::size_t>(left, kClusterFrames);
    if (!none_empty(pages, n) || release_bulk_fast(pages, n) != n) [[unlikely]] {
      free_bulk(std::span<Page* const>(pages, n));
    }
    empty_all(pages, n);
    pages += n;
    left -= n;
  }
}

namespace {

// The head of the block is the frame itself or lies at a multiple of the block's size below it. Inner
// frames say so, free ones as well.
Page* head_by_state(PageIndex frame) noexcept {
  for (unsigned order = 0; order <= kMaxOrderValue; ++order) {
    Page* page = page_at({align_down(frame.value, frames_in(Order{order}))});
    const FrameState state = page->state.load(memory_order_relaxed);
    if (state == FrameState::kInner || order_of(page).value < order) {
      continue;
    }
    return state == FrameState::kTaken || state == FrameState::kLive ? page : nullptr;
  }
  return nullptr;
}

// An engine that touches no descriptor of single frames leaves inner and free ones as they were, but
// the head of a larger block bears its order as long as it is taken, and no longer.
Page* head_by_order(const Zone& zone, PageIndex frame) noexcept {
  const std::uint16_t id = page_at(frame)->zone;
  for (unsigned order = kMaxOrderValue; order > 0; --order) {
    Page* page = page_at({align_down(frame.value, frames_in(Order{order}))});
    if (page->zone == id && order_of(page) == Order{order}) {
      return page;
    }
  }
  // The state last: a zone that closes meanwhile makes it kAbsent before it forgets its bits.
  const bool taken = zone.is_taken(frame);
  const FrameState state = page_at(frame)->state.load(memory_order_relaxed);
  return taken && state != FrameState::kAbsent ? page_at(frame) : nullptr;
}

}  // namespace

Page* page_of(const void* address) noexcept {
  const PageIndex frame = frame_table::find(address);
  if (frame == kNoPage) {
    return nullptr;
  }
  const Zone& zone = zone_of(frame).zone();
  return zone.lock_free() ? head_by_order(zone, frame) : head_by_state(frame);
}

void free_at(const void* address) noexcept {
  Page* page = page_of(address);
  if (page == nullptr) [[unlikely]] {
    report_foreign_pointer(address, "free_at");
  }
  unref(page);
}

}  // namespace weir
