// SPDX-License-Identifier: MIT
// percpu/page_lists.hpp — the per-CPU lists of a zone: push, pop and their bulk forms on the list of
// the CPU that runs the caller. Calls percpu/slab, os/cpu_id; knows no zone.
//
// Every step may be refused: the list is empty, full, stopped, or (in this locked form) busy because
// another thread was moved off this CPU in the middle. Whoever holds pages that a step refused takes
// them elsewhere; nothing is kept back here. A thread may change CPU between two steps; each step is
// whole on whichever list it finds. No step of a user touches a descriptor, waits or allocates; what
// drainers call (harvest, start, cached) waits for the lists it goes through.
#pragma once

#include <cstdint>

#include "weir/base/hot.hpp"
#include "weir/base/result.hpp"
#include "weir/os/cpu_id.hpp"
#include "weir/percpu/capacity.hpp"
#include "weir/percpu/slab.hpp"
#include "weir/zone/hand.hpp"

namespace weir {

// pop() found the list locked by another thread.
inline constexpr PageIndex kBusyPage{0xffff'fffeU};
[[nodiscard]] constexpr bool is_page(PageIndex index) noexcept { return index < kBusyPage; }

class PageLists {
 public:
  PageLists() = default;
  PageLists(const PageLists&) = delete;
  PageLists& operator=(const PageLists&) = delete;

  // Blocks for CPUs 0..lists-1 with rings for `high` order-0 pages, stopped. push_order0: whether
  // users may push single frames (else every such push is refused and the zone decides).
  // cpus: how many of the lists will be used, by which the sizes are measured; 0 = all.
  Error open(PageCount managed, std::uint32_t lists, std::uint32_t high, bool push_order0,
             std::uint32_t cpus = 0);
  void close() noexcept;

  // The hottest page, kNoPage (empty or stopped) or kBusyPage.
  [[nodiscard]] WEIR_HOT PageIndex pop(unsigned list) noexcept {
    CpuBlock& block = here();
    if (!block.lock.try_lock()) [[unlikely]] {
      return kBusyPage;
    }
    PageRing& ring = block.lists[list];
    PageIndex page = kNoPage;
    if (ring.top != ring.floor) [[likely]] {
      page = ring.ring[--ring.top & ring.mask];
      block.counters.pops.add(1);
    }
    block.lock.unlock();
    return page;
  }

  // False when full, stopped or busy; then nothing happened.
  [[nodiscard]] WEIR_HOT bool push(unsigned list, PageIndex page) noexcept {
    CpuBlock& block = here();
    if (fails(Failpoint::list_push) || !block.lock.try_lock()) [[unlikely]] {
      return false;
    }
    PageRing& ring = block.lists[list];
    const bool room = static_cast<std::int32_t>(ring.ceil - ring.top) > 0;
    if (room) [[likely]] {
      ring.ring[ring.top++ & ring.mask] = page;
      block.counters.pushes.add(1);
    }
    block.lock.unlock();
    return room;
  }

  // Up to n single frames, hottest first; 0 when empty, stopped or busy.
  std::uint32_t pop_batch(PageIndex* out, std::uint32_t n) noexcept;
  // As many of n single frames as fit, in order; 0 when full, stopped or busy.
  std::uint32_t push_batch(const PageIndex* pages, std::uint32_t n) noexcept;

  // Pushes pages from the bottom of a hand as far as they fit; what stays is the caller's to give.
  void refill_from(Hand& hand, unsigned list) noexcept;
  // If this CPU's list is full: its n oldest pages into an empty hand.
  void spill_into(Hand& hand, unsigned list, std::uint32_t n) noexcept;

  // For drainers, any thread: up to a cluster (above order 0: cluster >> order) of the oldest pages
  // of the first list of that CPU that has any, into an empty hand, which stays empty when none has;
  // `stop` also stops all its lists. False when the caller itself is inside that list (signal
  // handler).
  [[nodiscard]] bool harvest(std::uint32_t cpu, bool stop, Hand& hand) noexcept;
  // Starts the lists of every CPU; for whoever stopped them. False, and all stay stopped, when the
  // caller is inside one of them (signal handler).
  [[nodiscard]] bool start() noexcept;
  // Whether the caller is a signal handler that interrupted a step on one of these lists. It must
  // not wait for a drainer, who may be waiting for that list.
  [[nodiscard]] bool caller_inside() const noexcept;

  [[nodiscard]] std::uint32_t count() const noexcept { return lists_; }
  [[nodiscard]] std::uint32_t capacity(unsigned list) const noexcept {
    return blocks_[0].lists[list].capacity;
  }
  [[nodiscard]] std::uint32_t cluster() const noexcept { return cluster_; }
  // Frames on that CPU's lists, all orders; takes the lock.
  [[nodiscard]] std::uint64_t cached(std::uint32_t cpu) const noexcept;
  [[nodiscard]] PercpuCounterValues counters(std::uint32_t cpu) const noexcept {
    return values_of(blocks_[cpu].counters);
  }

  // False when a list stays held for long; then none is.
  [[nodiscard]] bool try_lock_for_fork() noexcept;
  void unlock_after_fork() noexcept;

 private:
  // A CPU number beyond the blocks, and "unknown", lead to the last block, which is always stopped.
  [[nodiscard]] WEIR_HOT CpuBlock& here() noexcept {
    const std::uint32_t cpu = current_cpu().value;
    return blocks_[cpu < lists_ ? cpu : lists_];
  }
  void run(PageRing& ring, unsigned list) const noexcept;

  CpuBlock* blocks_ = nullptr;  // lists_ + 1 of them; constant while open, like all below
  std::uint32_t lists_ = 0;
  std::uint32_t cluster_ = 0;
  bool push_order0_ = true;
  std::byte* memory_ = nullptr;
  Bytes memory_size_;
};

}  // namespace weir
