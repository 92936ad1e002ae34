// SPDX-License-Identifier: MIT
#include "weir/percpu/page_lists.hpp"

#include <new>

#include "weir/base/check.hpp"
#include "weir/os/fence.hpp"
#include "weir/os/memory.hpp"
#include "weir/os/topology.hpp"

namespace weir {
namespace {

namespace rseq = arch::rseq;

// Calls visit.template operator()<list>() for the list with this number.
template <class Visit>
auto for_list(unsigned list, Visit visit) noexcept {
  switch (list) {
    case 0:
      return visit.template operator()<0>();
    case 1:
      return visit.template operator()<1>();
    case 2:
      return visit.template operator()<2>();
    case 3:
      return visit.template operator()<3>();
    case 4:
      return visit.template operator()<4>();
    default:
      return visit.template operator()<5>();
  }
}

CpuBlock& block_at(std::byte* at) noexcept {
  return *std::launder(reinterpret_cast<CpuBlock*>(at));
}

Bounds bounds_of(const ListHead& head) noexcept { return {head.bounds.load(memory_order_relaxed)}; }

// Room below an end, of a list whose words may be read at different moments.
std::uint32_t room_below(std::uint32_t end, std::uint32_t top) noexcept {
  return end > top ? end - top : 0;
}

std::uint32_t place_of(std::uint32_t position, unsigned list) noexcept {
  return position & (kRingPlaces[list] - 1);
}

// ---- the locked form: the same steps on the same words, by whoever holds the CPU's lock ----

std::uint32_t locked_pop(CpuBlock& block, unsigned list, Page** out, std::uint32_t n) noexcept {
  ListHead& head = block.lists[list];
  const Bounds bounds = bounds_of(head);
  const std::uint64_t word = head.word.load(memory_order_relaxed);
  const std::uint32_t top = head.top();
  const std::uint32_t take = std::min(n, room_below(top, bounds.floor()));
  Page** ring = block.ring(list);
  for (std::uint32_t i = 0; i < take; ++i) {
    out[i] = ring[place_of(top - take + i, list)];  // the hottest last, as sections do
  }
  if (take != 0) {  // a stopped list's word is its drainer's
    head.word.store(word + std::uint64_t{take} * arch::kPopStep, memory_order_relaxed);
  }
  return take;
}

// Pushes pages from the front while they fit below `end`.
std::uint32_t locked_push(CpuBlock& block, unsigned list, std::uint32_t end, Page* const* pages,
                          std::uint32_t n) noexcept {
  ListHead& head = block.lists[list];
  const std::uint64_t word = head.word.load(memory_order_relaxed);
  const std::uint32_t top = head.top();
  const std::uint32_t put = std::min(n, room_below(end, top));
  Page** ring = block.ring(list);
  for (std::uint32_t i = 0; i < put; ++i) {
    ring[place_of(top + i, list)] = pages[i];
  }
  if (put != 0) {
    head.word.store(word + put, memory_order_relaxed);
  }
  return put;
}

std::uint32_t locked_spill(CpuBlock& block, unsigned list, PageIndex* out,
                           std::uint32_t n) noexcept {
  ListHead& head = block.lists[list];
  Bounds bounds = bounds_of(head);
  const std::uint32_t top = head.top();
  if (!bounds.running() || top < bounds.ceil()) {
    return 0;
  }
  const std::uint32_t take = std::min(n, room_below(top, bounds.floor()));
  Page** ring = block.ring(list);
  for (std::uint32_t i = 0; i < take; ++i) {
    out[i] = index_of(ring[place_of(bounds.floor() + i, list)]);
  }
  bounds = bounds.moved_up(take);
  if (bounds.floor() >= kRingPlaces[list]) {
    bounds = bounds.moved_down(kRingPlaces[list]);
    head.word.store(head.word.load(memory_order_relaxed) - kRingPlaces[list], memory_order_relaxed);
  }
  head.bounds.store(bounds.word, memory_order_relaxed);
  return take;
}

void account_refill(CpuBlock& block, unsigned list, std::uint32_t n) noexcept {
  ListHead& head = block.lists[list];
  head.moved.fetch_add(n, memory_order_relaxed);
  head.misses.fetch_add(1, memory_order_relaxed);
  block.counters.refills.add_shared(1);
  block.counters.refilled.add_shared(std::uint64_t{n} << order_of_list(list).value);
}

void account_spill(CpuBlock& block, unsigned list, std::uint32_t n) noexcept {
  ListHead& head = block.lists[list];
  head.moved.fetch_sub(n, memory_order_relaxed);
  head.overflows.fetch_add(1, memory_order_relaxed);
  block.counters.spills.add_shared(1);
  block.counters.spilled.add_shared(std::uint64_t{n} << order_of_list(list).value);
}

}  // namespace

Error PageLists::open(PageCount managed, std::uint32_t lists, std::uint32_t high, bool push_order0,
                      std::uint32_t cpus) {
  const std::uint32_t sharers = cpus != 0 ? cpus : lists;
  // A section finds the block of any CPU the kernel may name, started or not; and those of -1 and -2.
  const std::uint64_t span = (std::max(lists, kernel_cpu_limit()) + 2) * arch::kBlockBytes;
  form_ = list_mode().form;
  const Bytes size{form_ == ListForm::rseq || !kHasRseq ? span : 2 * span};
  Memory& memory = system_memory();
  Result<std::byte*> base = memory.reserve(size, Bytes{kFrameBytes});
  if (!base) {
    return base.error();
  }
  if (const Error error = memory.commit(*base, size); error.failed()) {
    memory.release(*base, size);
    return error;
  }
  // A huge page would make all blocks it covers resident for the sake of one.
  static_cast<void>(memory.advise_huge(*base, size, false));
  memory_ = *base;
  memory_size_ = size;
  blocks_ = *base + 2 * arch::kBlockBytes;
  section_blocks_ = *base + (size.value - span) + 2 * arch::kBlockBytes;
  lists_ = lists;
  cluster_ = cluster_frames(managed, sharers);
  push_order0_ = push_order0;
  for (unsigned list = 0; list < kListOrders; ++list) {
    const std::uint32_t wanted =
        high == 0 || form_ == ListForm::off
            ? 0
            : list_capacity(order_of_list(list).value, managed, sharers, high);
    capacities_[list] = std::min(wanted, kRingPlaces[list]);
  }
  for (Atomic<std::uint64_t>& word : started_) {
    word.store(0, memory_order_relaxed);
  }
  return kOk;
}

void PageLists::close() noexcept {
  if (memory_ != nullptr) {
    system_memory().release(memory_, memory_size_);
  }
  memory_ = nullptr;
  blocks_ = nullptr;
  section_blocks_ = nullptr;
  memory_size_ = Bytes{0};
  lists_ = 0;
  capacities_ = {};
}

// ---- which way ----

PageLists::Way PageLists::way() const noexcept {
  if (kTestHooks && t_fake_cpu >= 0) {
    return Way::lock;
  }
  switch (form_) {
    case ListForm::rseq:
      return Way::section;
    case ListForm::locked:
      return Way::lock;
    case ListForm::off:
      break;
  }
  return Way::none;
}

bool PageLists::known_to_kernel() const noexcept {
  return rseq_area::thread_registered() || rseq_area::register_thread();
}

CpuId PageLists::cpu_here() const noexcept {
  const CpuId cpu = current_cpu();
  return cpu.value < lists_ ? cpu : kNoCpu;
}

CpuBlock& PageLists::block_here() const noexcept {
  const CpuId cpu = cpu_here();
  return block(cpu == kNoCpu ? kCommon : cpu.value);
}

CpuBlock& PageLists::counted_block_here() const noexcept {
  const CpuId cpu = cpu_here();
  return block(is_started(cpu) ? cpu.value : kCommon);
}

bool PageLists::usable_here() const noexcept {
  switch (way()) {
    case Way::section:
      return known_to_kernel();
    case Way::lock:
      return is_started(cpu_here());
    case Way::none:
      break;
  }
  return false;
}

std::uint64_t PageLists::frames_at_start() const noexcept {
  std::uint64_t frames = 0;
  for (unsigned list = 0; list < kListOrders; ++list) {
    frames += std::uint64_t{capacities_[list]} << order_of_list(list).value;
  }
  return frames;
}

CpuBlock* PageLists::locked_here() const noexcept {
  const CpuId cpu = cpu_here();
  if (cpu == kNoCpu || !is_started(cpu)) {
    return nullptr;
  }
  CpuBlock& here = block(cpu.value);
  return here.lock.try_lock() ? &here : nullptr;
}

bool PageLists::started_here() const noexcept {
  const CpuId cpu = cpu_here();
  return cpu == kNoCpu || is_started(cpu);
}

// ---- users ----

Page* PageLists::pop_slow(unsigned list) noexcept {
  Page* page = nullptr;
  switch (way()) {
    case Way::section:
      if (rseq_area::thread_registered() || !known_to_kernel()) {
        break;  // the section has been there; or there is none for this thread
      }
      for_list(list, [&]<unsigned kList>() noexcept {
        if (!pop_fast<kList>(section_blocks_, page)) {
          page = nullptr;
        }
      });
      break;
    case Way::lock:
      if (CpuBlock* block = locked_here()) {
        static_cast<void>(locked_pop(*block, list, &page, 1));
        block->lock.unlock();
      }
      break;
    case Way::none:
      break;
  }
  return page;
}

bool PageLists::push_slow(unsigned list, Page* page) noexcept {
  if (fails(Failpoint::list_push)) {
    return false;
  }
  switch (way()) {
    case Way::section:
      // Also once more for a thread that is known: a spill may have made room since.
      return known_to_kernel() && for_list(list, [&]<unsigned kList>() noexcept {
               return rseq::push<ListPlaceOf<kList>>(blocks_, rseq_area::g_offset, page);
             });
    case Way::lock:
      if (CpuBlock* block = locked_here()) {
        const std::uint32_t put =
            locked_push(*block, list, bounds_of(block->lists[list]).ceil(), &page, 1);
        block->lock.unlock();
        return put != 0;
      }
      break;
    case Way::none:
      break;
  }
  return false;
}

PageIndex PageLists::pop(unsigned list) noexcept {
  Page* page = nullptr;
  const bool taken = for_list(
      list, [&]<unsigned kList>() noexcept { return pop_fast<kList>(section_blocks_, page); });
  if (!taken) {
    page = pop_slow(list);
  }
  return page != nullptr ? index_of(page) : kNoPage;
}

bool PageLists::push(unsigned list, PageIndex page) noexcept {
  const bool put = for_list(list, [&]<unsigned kList>() noexcept {
    return push_fast<kList>(section_blocks_, page_at(page));
  });
  return put || push_slow(list, page_at(page));
}

bool PageLists::pop_all(Page** out, std::uint32_t n) noexcept {
  switch (way()) {
    case Way::section:
      return known_to_kernel() && pop_exactly(out, n);
    case Way::lock:
      if (CpuBlock* block = locked_here()) {
        const ListHead& head = block->lists[0];
        const bool enough = room_below(head.top(), bounds_of(head).floor()) >= n;
        const bool taken = enough && locked_pop(*block, 0, out, n) == n;
        block->lock.unlock();
        return taken;
      }
      break;
    case Way::none:
      break;
  }
  return false;
}

std::uint32_t PageLists::pop_batch(Page** out, std::uint32_t n) noexcept {
  switch (way()) {
    case Way::section: {
      if (!known_to_kernel()) {
        return 0;
      }
      std::uint32_t done = 0;
      // What is there now, up to the ring's end: two sections where it lies across. Others on this
      // CPU may be quicker; whoever loses three times in a row has emptied the list with them.
      for (std::uint32_t tries = 0; tries < 3 && done < n; ++tries) {
        const ListHead& head = block_here().lists[0];
        const Bounds bounds = bounds_of(head);
        const std::uint32_t top = head.top();
        const std::uint32_t to_wrap = place_of(top - 1, 0) + 1;
        const std::uint32_t want = std::min({n - done, room_below(top, bounds.floor()), to_wrap});
        if (want == 0) {
          break;
        }
        if (pop_exactly(out + done, want)) {
          done += want;
          tries = 0;
        }
      }
      return done;
    }
    case Way::lock:
      if (CpuBlock* block = locked_here()) {
        const std::uint32_t take = locked_pop(*block, 0, out, n);
        block->lock.unlock();
        return take;
      }
      break;
    case Way::none:
      break;
  }
  return 0;
}

std::uint32_t PageLists::push_batch(Page* const* pages, std::uint32_t n) noexcept {
  if (fails(Failpoint::list_push)) {
    return 0;
  }
  switch (way()) {
    case Way::section: {
      if (!known_to_kernel()) {
        return 0;
      }
      std::uint32_t done = 0;
      for (std::uint32_t tries = 0; tries < 3 && done < n; ++tries) {
        const ListHead& head = block_here().lists[0];
        const std::uint32_t top = head.top();
        const std::uint32_t to_wrap = kRingPlaces[0] - place_of(top, 0);
        const std::uint32_t want =
            std::min({n - done, room_below(bounds_of(head).ceil(), top), to_wrap});
        if (want == 0) {
          break;
        }
        if (rseq::push_many<ListPlaceOf<0>>(blocks_, rseq_area::g_offset,
                                            reinterpret_cast<void* const*>(pages + done), want)) {
          done += want;
          tries = 0;
        }
      }
      return done;
    }
    case Way::lock:
      if (CpuBlock* block = locked_here()) {
        const std::uint32_t put =
            locked_push(*block, 0, bounds_of(block->lists[0]).ceil(), pages, n);
        block->lock.unlock();
        return put;
      }
      break;
    case Way::none:
      break;
  }
  return 0;
}

std::uint32_t PageLists::refill(unsigned list, const PageIndex* pages, std::uint32_t n) noexcept {
  if (fails(Failpoint::list_push) || n == 0) {
    return 0;
  }
  std::uint32_t done = 0;
  switch (way()) {
    case Way::section:
      for (std::uint32_t tries = 0; tries < 3 && done < n && known_to_kernel(); ++tries) {
        const ListHead& head = block_here().lists[list];
        const std::uint32_t top = head.top();
        const std::uint32_t to_wrap = kRingPlaces[list] - place_of(top, list);
        const std::uint32_t want =
            std::min({n - done, room_below(bounds_of(head).limit(), top), to_wrap});
        if (want == 0) {
          break;
        }
        std::byte* at = nullptr;
        const bool put = for_list(list, [&]<unsigned kList>() noexcept {
          return rseq::refill<ListPlaceOf<kList>>(blocks_, rseq_area::g_offset,
                                                  &pages[n - done - want].value, want,
                                                  frame_table::g_pages, at);
        });
        if (put) {
          account_refill(block_at(at), list, want);
          done += want;
          tries = 0;
        }
      }
      break;
    case Way::lock:
      if (CpuBlock* block = locked_here()) {
        const ListHead& head = block->lists[list];
        const std::uint32_t end = bounds_of(head).limit();
        done = std::min(n, room_below(end, head.top()));
        for (std::uint32_t i = n - done; i < n; ++i) {
          Page* page = page_at(pages[i]);
          static_cast<void>(locked_push(*block, list, end, &page, 1));
        }
        if (done != 0) {
          account_refill(*block, list, done);
        }
        block->lock.unlock();
      }
      break;
    case Way::none:
      break;
  }
  return done;
}

std::uint32_t PageLists::spill(unsigned list, PageIndex* out, std::uint32_t n) noexcept {
  switch (way()) {
    case Way::section:
      for (std::uint32_t tries = 0; tries < 3 && known_to_kernel(); ++tries) {
        const ListHead& head = block_here().lists[list];
        const Bounds bounds = bounds_of(head);
        const std::uint32_t top = head.top();
        if (!bounds.running() || top < bounds.ceil()) {
          break;
        }
        // Floors move by whole clusters, so that one lies across the ring's end only after a drain.
        const std::uint32_t to_wrap = kRingPlaces[list] - place_of(bounds.floor(), list);
        const std::uint32_t want = std::min({n, room_below(top, bounds.floor()), to_wrap});
        if (want == 0) {
          break;
        }
        std::byte* at = nullptr;
        const bool taken = for_list(list, [&]<unsigned kList>() noexcept {
          return rseq::spill<ListPlaceOf<kList>>(blocks_, rseq_area::g_offset, &out->value, want,
                                                 frame_table::g_pages, at);
        });
        if (taken) {
          account_spill(block_at(at), list, want);
          return want;
        }
      }
      break;
    case Way::lock:
      if (CpuBlock* block = locked_here()) {
        const std::uint32_t take = locked_spill(*block, list, out, n);
        if (take != 0) {
          account_spill(*block, list, take);
        }
        block->lock.unlock();
        return take;
      }
      break;
    case Way::none:
      break;
  }
  return 0;
}

// ---- drainers ----

CpuId PageLists::next_started(std::uint32_t from) const noexcept {
  for (std::uint32_t cpu = from; cpu < lists_;) {
    const std::uint64_t rest = started_[cpu / 64].load(memory_order_relaxed) >> (cpu % 64);
    if (rest != 0) {
      cpu += static_cast<std::uint32_t>(__builtin_ctzll(rest));
      return cpu < lists_ ? CpuId{cpu} : kNoCpu;
    }
    cpu = (cpu / 64 + 1) * 64;
  }
  return kNoCpu;
}

namespace {

// Exchanges the bounds of all running lists of a CPU for a stop and keeps what they were. False when one
// ran: a section that read its bounds before may store new ones still, or has done so since an earlier
// call. Such a section (a spill) moves the floor together with the word, so what it stored is a true
// state of the list, and the exchange takes it over; a section that stores the word alone (pop, push)
// leaves the stop alone. After a fence that follows the exchange nobody is left who read the old bounds.
bool stops_stand(CpuBlock& block) noexcept {
  bool stand = true;
  for (unsigned list = 0; list < kListOrders; ++list) {
    ListHead& head = block.lists[list];
    if (bounds_of(head).word != kStopped.word) {
      const Bounds before{head.bounds.exchange(kStopped.word, memory_order_acq_rel)};  // pairs: run
      head.saved.store(before.word, memory_order_relaxed);
      stand = false;
    }
  }
  return stand;
}

// The same at first, where the lock of the locked form says who is inside. In the form of sections that
// lock is free; test threads on pretended CPUs alone use it there.
bool stop_first(CpuBlock& block, bool patient) noexcept {
  if (patient) {
    block.lock.lock();
  } else if (!block.lock.lock_soon()) {
    return false;
  }
  static_cast<void>(stops_stand(block));
  block.lock.unlock();
  return true;
}

// A stop whose fence was refused. A list that waits for a fence since it was stopped before stays so.
void undo_stop(CpuBlock& block) noexcept {
  if (block.fence_due) {
    return;
  }
  for (unsigned list = 0; list < kListOrders; ++list) {
    ListHead& head = block.lists[list];
    // Only the stop itself: where a section has stored new bounds over it, those are the true ones.
    std::uint64_t stop = kStopped.word;
    head.bounds.compare_exchange_strong(stop, head.saved.load(memory_order_relaxed),
                                        memory_order_release,  // pairs: stops_stand acq_rel
                                        memory_order_relaxed);
  }
}

}  // namespace

Error PageLists::stop_these(std::uint32_t from, std::uint32_t to, bool patient) noexcept {
  const auto for_each = [&](auto&& visit) {
    for (CpuId cpu = next_started(from); cpu != kNoCpu && cpu.value <= to;
         cpu = next_started(cpu.value + 1)) {
      if (!visit(block(cpu.value), cpu)) {
        return false;
      }
    }
    return true;
  };
  const auto undo = [&] {
    static_cast<void>(for_each([&](CpuBlock& block, CpuId) {
      undo_stop(block);
      return true;
    }));
  };
  bool any = false;
  const bool stopped = for_each([&](CpuBlock& block, CpuId) {
    any = true;
    return stop_first(block, patient);
  });
  if (!stopped) {
    undo();
    return {Errc::would_block, "a list stays held", 0};
  }
  if (!any || form_ != ListForm::rseq) {
    return kOk;
  }
  for (;;) {
    const Error error = from == to ? fence::cpu(CpuId{from}) : fence::all();
    if (error.failed()) {
      undo();
      return error;
    }
    bool stand = true;
    static_cast<void>(for_each([&](CpuBlock& block, CpuId) {
      stand = stops_stand(block) && stand;
      return true;
    }));
    if (stand) {
      static_cast<void>(for_each([](CpuBlock& block, CpuId) {
        block.fence_due = false;
        return true;
      }));
      return kOk;
    }
  }
}

Error PageLists::stop(CpuId cpu) noexcept { return stop_these(cpu.value, cpu.value, true); }

Error PageLists::stop_all(bool patient) noexcept {
  return lists_ == 0 ? kOk : stop_these(0, lists_ - 1, patient);
}

std::uint32_t PageLists::harvest(CpuId cpu, PageIndex* out, std::uint32_t n,
                                 Order& order) noexcept {
  if (!is_started(cpu)) {
    return 0;
  }
  CpuBlock& from = block(cpu.value);
  for (unsigned list = 0; list < kListOrders; ++list) {
    ListHead& head = from.lists[list];
    WEIR_ASSERT(bounds_of(head).word == kStopped.word, "PageLists: a harvested list is stopped");
    const Bounds saved{head.saved.load(memory_order_relaxed)};
    const std::uint32_t have = room_below(head.top(), saved.floor());
    if (have == 0) {
      continue;
    }
    order = order_of_list(list);
    const std::uint32_t take = std::min(have, std::max(n >> order.value, 1U));
    Page** ring = from.ring(list);
    for (std::uint32_t i = 0; i < take; ++i) {
      out[i] = index_of(ring[place_of(saved.floor() + i, list)]);
    }
    head.saved.store(saved.moved_up(take).word, memory_order_relaxed);
    head.moved.fetch_sub(take, memory_order_relaxed);
    from.counters.drained.add_shared(std::uint64_t{take} << order.value);
    return take;
  }
  return 0;
}

Bounds PageLists::bounds_from(std::uint32_t floor, unsigned list,
                              std::uint32_t capacity) const noexcept {
  if (capacity == 0) {
    return Bounds::make(floor, 0, 0);  // pops what is left, takes nothing
  }
  return Bounds::make(floor, list == 0 && !push_order0_ ? floor : floor + capacity,
                      floor + capacity);
}

namespace {

// Brings the positions of stopped lists back below the ring's size. Sections may have read a word that
// is written here: they must be fenced before the list starts.
void rebase(CpuBlock& block) noexcept {
  // Under the lock of the locked form, whose users look at the word of a stopped list as well.
  block.lock.lock();
  for (unsigned list = 0; list < kListOrders; ++list) {
    ListHead& head = block.lists[list];
    const Bounds saved{head.saved.load(memory_order_relaxed)};
    if (saved.floor() >= kRingPlaces[list]) {
      head.word.store(head.word.load(memory_order_relaxed) - kRingPlaces[list],
                      memory_order_relaxed);
      head.saved.store(saved.moved_down(kRingPlaces[list]).word, memory_order_relaxed);
      block.fence_due = true;
    }
  }
  block.lock.unlock();
}

}  // namespace

void PageLists::run(CpuBlock& block) noexcept {
  block.lock.lock();
  block.fence_due = false;
  for (unsigned list = 0; list < kListOrders; ++list) {
    ListHead& head = block.lists[list];
    if (capacities_[list] == 0) {
      continue;
    }
    const Bounds saved{head.saved.load(memory_order_relaxed)};
    const Bounds bounds =
        bounds_from(saved.floor(), list, head.capacity.load(memory_order_relaxed));
    head.bounds.store(bounds.word, memory_order_release);  // pairs: stops_stand acq_rel
  }
  block.lock.unlock();
}

void PageLists::start(CpuId cpu) noexcept {
  if (capacities_[0] == 0) {
    return;
  }
  CpuBlock& at = block(cpu.value);
  if (!is_started(cpu)) {
    for (unsigned list = 0; list < kListOrders; ++list) {
      at.lists[list].capacity.store(capacities_[list], memory_order_relaxed);
    }
    started_[cpu.value / 64].fetch_or(std::uint64_t{1} << (cpu.value % 64), memory_order_relaxed);
  }
  rebase(at);
  // Where the fence is refused the list stays stopped, and everything goes past it.
  if (!at.fence_due || form_ != ListForm::rseq || !fence::cpu(cpu).failed()) {
    run(at);
  }
}

void PageLists::start_all() noexcept {
  bool due = false;
  for_each_started([&](CpuId cpu) {
    rebase(block(cpu.value));
    due = due || block(cpu.value).fence_due;
  });
  const bool fenced = due && form_ == ListForm::rseq && !fence::all().failed();
  for_each_started([&](CpuId cpu) {
    CpuBlock& at = block(cpu.value);
    if (!at.fence_due || fenced || form_ != ListForm::rseq) {
      run(at);
    }
  });
}

void PageLists::set_capacity(CpuId cpu, unsigned list, std::uint32_t blocks) noexcept {
  block(cpu.value).lists[list].capacity.store(
      std::min(blocks, capacities_[list] == 0 ? 0 : kRingPlaces[list]), memory_order_relaxed);
}

void PageLists::apply_capacity(unsigned list) noexcept {
  if (way() == Way::lock) {
    if (CpuBlock* block = locked_here()) {
      ListHead& head = block->lists[list];
      if (const Bounds bounds = bounds_of(head); bounds.running()) {
        head.bounds.store(
            bounds_from(bounds.floor(), list, head.capacity.load(memory_order_relaxed)).word,
            memory_order_relaxed);
      }
      block->lock.unlock();
    }
    return;
  }
  if (way() != Way::section || !known_to_kernel()) {
    return;
  }
  const ListHead& head = block_here().lists[list];
  const Bounds bounds = bounds_of(head);
  const Bounds next = bounds_from(bounds.floor(), list, head.capacity.load(memory_order_relaxed));
  if (bounds.running() && next.word != bounds.word) {
    // Refused when this thread is on another CPU by now, whose bounds are others: no harm, for
    // bounds that happen to be equal belong to a list of the same capacity.
    for_list(list, [&]<unsigned kList>() noexcept {
      static_cast<void>(rseq::replace_bounds<ListPlaceOf<kList>>(blocks_, rseq_area::g_offset,
                                                                 bounds.word, next.word));
    });
  }
}

void PageLists::forget_holders() noexcept {
  for_each_started([this](CpuId cpu) { block(cpu.value).lock.reset(); });
}

void PageLists::disown() noexcept {
  forget_holders();
  for_each_started([this](CpuId cpu) {
    for (unsigned list = 0; list < kListOrders; ++list) {
      block(cpu.value).lists[list].bounds.store(kStopped.word, memory_order_relaxed);
    }
  });
}

// ---- anybody ----

namespace {

std::uint32_t count_on(const ListHead& head) noexcept {
  Bounds bounds = bounds_of(head);
  if (bounds.word == kStopped.word) {
    bounds = {head.saved.load(memory_order_relaxed)};
  }
  return room_below(head.top(), bounds.floor());
}

}  // namespace

std::uint32_t PageLists::capacity(CpuId cpu, unsigned list) const noexcept {
  return is_started(cpu) ? block(cpu.value).lists[list].capacity.load(memory_order_relaxed)
                         : capacities_[list];
}

std::uint32_t PageLists::blocks_on(CpuId cpu, unsigned list) const noexcept {
  return is_started(cpu) ? count_on(block(cpu.value).lists[list]) : 0;
}

std::uint64_t PageLists::cached(std::uint32_t cpu) const noexcept {
  std::uint64_t frames = 0;
  for (unsigned list = 0; list < kListOrders; ++list) {
    frames += std::uint64_t{blocks_on(CpuId{cpu}, list)} << order_of_list(list).value;
  }
  return frames;
}

PercpuCounterValues PageLists::counters(std::uint32_t cpu) const noexcept {
  if (!is_started(CpuId{cpu})) {
    return {};
  }
  const CpuBlock& at = block(cpu);
  PercpuCounterValues values = values_of(at.counters);
  // Pops stand in the word that a pop stores anyway; what was pushed is what has gone or is there.
  for (unsigned list = 0; list < kListOrders; ++list) {
    const ListHead& head = at.lists[list];
    const std::uint64_t pops = head.pops();
    const std::int64_t pushes =
        static_cast<std::int64_t>(pops + count_on(head)) - head.moved.load(memory_order_relaxed);
    values.pops += pops;
    values.pushes += static_cast<std::uint64_t>(std::max<std::int64_t>(pushes, 0));
  }
  return values;
}

Bytes PageLists::touched() const noexcept {
  std::uint64_t blocks = 0;
  for_each_started([&blocks](CpuId) { ++blocks; });
  return Bytes{blocks * arch::kBlockBytes};
}

}  // namespace weir
