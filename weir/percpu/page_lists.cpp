// SPDX-License-Identifier: MIT
#include "weir/percpu/page_lists.hpp"

#include <new>

#include "weir/os/memory.hpp"
#include "weir/os/topology.hpp"
#include "weir/percpu/list_words.hpp"

namespace weir {
namespace {

namespace rseq = arch::rseq;

static_assert(sizeof(Page) == 1 << 5);  // by which sections shift an index

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

Error PageLists::open(std::uint32_t lists, const ListSizes& sizes, bool push_order0) {
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
  cluster_ = sizes.cluster;
  push_order0_ = push_order0;
  if (form_ != ListForm::off) {
    for (unsigned list = 0; list < kListOrders; ++list) {
      capacities_[list] = std::min(sizes.blocks[list], kRingPlaces[list]);
    }
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
                                            reinterpret_cast<void* const*>(pages + done), want,
                                            rseq_area::g_wide)) {
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

}  // namespace weir
