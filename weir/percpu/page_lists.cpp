// SPDX-License-Identifier: MIT
#include "weir/percpu/page_lists.hpp"

#include <algorithm>
#include <bit>
#include <new>

#include "weir/base/check.hpp"
#include "weir/os/memory.hpp"

namespace weir {

Error PageLists::open(PageCount managed, std::uint32_t lists, std::uint32_t high, bool push_order0,
                      std::uint32_t cpus) {
  const std::uint32_t sharers = cpus != 0 ? cpus : lists;
  // Rings of a CPU lie behind one another and start on a line of their own.
  std::uint64_t ring_entries = 0;
  std::array<std::uint32_t, kListOrders> sizes{};
  std::array<std::uint32_t, kListOrders> capacities{};
  for (unsigned list = 0; list < kListOrders; ++list) {
    capacities[list] =
        high == 0 ? 0 : list_capacity(order_of_list(list).value, managed, sharers, high);
    sizes[list] = capacities[list] == 0 ? 0 : std::bit_ceil(capacities[list]);
    ring_entries += align_up<std::uint64_t>(sizes[list], kNoFalseSharing / sizeof(PageIndex));
  }
  const std::uint64_t block_bytes = sizeof(CpuBlock) * (std::uint64_t{lists} + 1);
  const std::uint64_t ring_bytes = ring_entries * sizeof(PageIndex);
  const Bytes size{align_up<std::uint64_t>(block_bytes + ring_bytes * lists, kFrameBytes)};
  Memory& memory = system_memory();
  Result<std::byte*> base = memory.reserve(size, Bytes{kFrameBytes});
  if (!base) {
    return base.error();
  }
  if (const Error error = memory.commit(*base, size); error.failed()) {
    memory.release(*base, size);
    return error;
  }
  memory_ = *base;
  memory_size_ = size;
  blocks_ = reinterpret_cast<CpuBlock*>(*base);
  lists_ = lists;
  cluster_ = cluster_frames(managed, sharers);
  push_order0_ = push_order0;
  auto* ring = reinterpret_cast<PageIndex*>(*base + block_bytes);
  for (std::uint32_t cpu = 0; cpu <= lists; ++cpu) {
    auto* block = new (blocks_ + cpu) CpuBlock;
    if (cpu == lists) {
      break;  // the block of unknown CPUs has no rings
    }
    for (unsigned list = 0; list < kListOrders; ++list) {
      if (sizes[list] == 0) {
        continue;
      }
      block->lists[list].ring = ring;
      block->lists[list].mask = sizes[list] - 1;
      block->lists[list].capacity = capacities[list];
      ring += align_up<std::uint64_t>(sizes[list], kNoFalseSharing / sizeof(PageIndex));
    }
  }
  return kOk;
}

void PageLists::close() noexcept {
  if (memory_ != nullptr) {
    system_memory().release(memory_, memory_size_);
  }
  memory_ = nullptr;
  blocks_ = nullptr;
  lists_ = 0;
}

std::uint32_t PageLists::pop_batch(PageIndex* out, std::uint32_t n) noexcept {
  CpuBlock& block = here();
  if (!block.lock.try_lock()) [[unlikely]] {
    return 0;
  }
  PageRing& ring = block.lists[0];
  const std::uint32_t take = std::min(n, ring.count());
  for (std::uint32_t i = 0; i < take; ++i) {
    out[i] = ring.ring[--ring.top & ring.mask];
  }
  block.counters.pops.add(take);
  block.lock.unlock();
  return take;
}

std::uint32_t PageLists::push_batch(const PageIndex* pages, std::uint32_t n) noexcept {
  CpuBlock& block = here();
  if (fails(Failpoint::list_push) || !block.lock.try_lock()) [[unlikely]] {
    return 0;
  }
  PageRing& ring = block.lists[0];
  const std::uint32_t put = std::min(n, ring.push_room());
  for (std::uint32_t i = 0; i < put; ++i) {
    ring.ring[ring.top++ & ring.mask] = pages[i];
  }
  block.counters.pushes.add(put);
  block.lock.unlock();
  return put;
}

void PageLists::refill_from(Hand& hand, unsigned list) noexcept {
  CpuBlock& block = here();
  if (fails(Failpoint::list_push) || !block.lock.try_lock()) [[unlikely]] {
    return;
  }
  PageRing& ring = block.lists[list];
  const std::uint32_t put = std::min(hand.size(), ring.refill_room());
  for (std::uint32_t i = 0; i < put; ++i) {
    ring.ring[ring.top++ & ring.mask] = hand.frames[hand.begin + i];
  }
  hand.begin += put;
  block.counters.refills.add(1);
  block.counters.refilled.add(std::uint64_t{put} << Order{hand.order}.value);
  block.lock.unlock();
}

namespace {

// The n oldest pages of a ring into a hand. The list's lock is held.
void take_oldest(PageRing& ring, Hand& hand, Order order, std::uint32_t n) noexcept {
  for (std::uint32_t i = 0; i < n; ++i) {
    hand.frames[i] = ring.ring[(ring.floor + i) & ring.mask];
  }
  ring.floor += n;
  hand.order = order;
  hand.begin = 0;
  hand.end = n;
}

}  // namespace

void PageLists::run(PageRing& ring, unsigned list) const noexcept {
  ring.limit = ring.floor + ring.capacity;
  ring.ceil = list == 0 && !push_order0_ ? ring.floor : ring.limit;
}

void PageLists::spill_into(Hand& hand, unsigned list, std::uint32_t n) noexcept {
  WEIR_ASSERT(hand.empty(), "PageLists: spill into an empty hand");
  CpuBlock& block = here();
  if (!block.lock.try_lock()) [[unlikely]] {
    return;
  }
  PageRing& ring = block.lists[list];
  // A list that is being stopped is full too, but its drainer alone may start it again.
  const bool running = ring.limit != ring.floor;
  if (running && ring.push_room() == 0 && ring.count() != 0) {
    take_oldest(ring, hand, order_of_list(list), std::min(n, ring.count()));
    run(ring, list);
    block.counters.spills.add(1);
    block.counters.spilled.add(hand.frame_count());
  }
  block.lock.unlock();
}

bool PageLists::harvest(std::uint32_t cpu, bool stop, Hand& hand) noexcept {
  WEIR_ASSERT(hand.empty(), "PageLists: harvest into an empty hand");
  CpuBlock& block = blocks_[cpu];
  if (!block.lock.lock()) {
    return false;
  }
  for (unsigned list = 0; list < kListOrders; ++list) {
    PageRing& ring = block.lists[list];
    if (ring.capacity == 0) {
      continue;
    }
    if (hand.empty() && ring.count() != 0) {
      const Order order = order_of_list(list);
      take_oldest(ring, hand, order,
                  std::min(blocks_per_move(order.value, cluster_), ring.count()));
      block.counters.drained.add(std::uint64_t{hand.size()} << order.value);
      if (!stop) {
        // A stopped list is empty: this one runs.
        run(ring, list);
      }
    }
    if (stop) {
      // What is still inside leaves in the next rounds. Until then it may be popped; nothing
      // comes in any more.
      ring.ceil = ring.floor;
      ring.limit = ring.floor;
    }
  }
  block.lock.unlock();
  return true;
}

bool PageLists::caller_inside() const noexcept {
  return std::any_of(blocks_, blocks_ + lists_,
                     [](const CpuBlock& block) { return block.lock.held_by_caller(); });
}

bool PageLists::start() noexcept {
  if (caller_inside()) {
    return false;
  }
  for (std::uint32_t cpu = 0; cpu < lists_; ++cpu) {
    CpuBlock& block = blocks_[cpu];
    static_cast<void>(block.lock.lock());
    for (unsigned list = 0; list < kListOrders; ++list) {
      run(block.lists[list], list);
    }
    block.lock.unlock();
  }
  return true;
}

std::uint64_t PageLists::cached(std::uint32_t cpu) const noexcept {
  CpuBlock& block = blocks_[cpu];
  if (!block.lock.lock()) {
    return 0;
  }
  std::uint64_t frames = 0;
  for (unsigned list = 0; list < kListOrders; ++list) {
    frames += std::uint64_t{block.lists[list].count()} << order_of_list(list).value;
  }
  block.lock.unlock();
  return frames;
}

bool PageLists::try_lock_for_fork() noexcept {
  for (std::uint32_t cpu = 0; cpu < lists_; ++cpu) {
    if (!blocks_[cpu].lock.lock_soon()) {
      while (cpu != 0) {
        blocks_[--cpu].lock.unlock();
      }
      return false;
    }
  }
  return true;
}

void PageLists::unlock_after_fork() noexcept {
  for (std::uint32_t cpu = 0; cpu < lists_; ++cpu) {
    blocks_[cpu].lock.unlock();
  }
}

}  // namespace weir
