// SPDX-License-Identifier: MIT
// The drainers' side of the lists: stop, harvest, start; and what anybody may read.
#include <algorithm>

#include "weir/base/check.hpp"
#include "weir/os/fence.hpp"
#include "weir/percpu/list_words.hpp"
#include "weir/percpu/page_lists.hpp"

namespace weir {

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
// leaves the stop alone. After a fence that follows the exchange nobody is left who read the old bounds,
// and not before then does a drainer use what it read: half of a spill, its word without its bounds or the
// other way round, is never acted upon.
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
