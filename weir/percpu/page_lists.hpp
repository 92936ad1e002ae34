// SPDX-License-Identifier: MIT
// percpu/page_lists.hpp — the per-CPU lists of a zone: push, pop and their bulk forms on the list of
// the CPU that runs the caller. Calls arch/rseq, os/rseq_area, percpu/slab; knows no zone.
//
// Two forms of one contract, chosen for the process (os/list_mode.hpp): restartable sections, or a
// lock word for each CPU that is only ever tried. The inline paths know sections alone; in the locked
// form they are given lists that never run, and what is called when a list refuses goes on under the
// lock. So no path asks which form it is.
//
// Every step may be refused: the list is empty, full, stopped, or (locked) busy. Whoever holds pages
// that a step refused takes them elsewhere; nothing is kept back here. A thread may change CPU between
// two steps; each step is whole on whichever list it finds. No step of a user touches a descriptor,
// waits or allocates.
//
// Drainers, one at a time for all lists (the caller sees to that), stop a CPU's lists from afar, take
// what is in them and start them again. A CPU's lists come to life when they are started for the first
// time, which is a drainer's step too.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "weir/arch/rseq.hpp"
#include "weir/base/failpoint.hpp"
#include "weir/base/hot.hpp"
#include "weir/base/result.hpp"
#include "weir/os/cpu_id.hpp"
#include "weir/os/id_set.hpp"
#include "weir/os/list_mode.hpp"
#include "weir/os/rseq_area.hpp"
#include "weir/percpu/capacity.hpp"
#include "weir/percpu/slab.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir {

class PageLists {
 public:
  PageLists() = default;
  PageLists(const PageLists&) = delete;
  PageLists& operator=(const PageLists&) = delete;

  // Address space for CPUs 0..lists-1, each with lists of these sizes; nothing runs. push_order0:
  // whether users may push single frames (else every such push is refused and the zone decides).
  Error open(std::uint32_t lists, const ListSizes& sizes, bool push_order0);
  void close() noexcept;

  // ---- users ----

  // The hottest page of list kList; false leads to pop_slow().
  template <unsigned kList = 0>
  [[nodiscard]] WEIR_HOT static bool pop_fast(std::byte* blocks, Page*& page) noexcept {
    if constexpr (kHasRseq) {
      if (kTestHooks && t_fake_cpu >= 0) {
        return false;
      }
      void* entry;
      const bool taken = arch::rseq::pop<ListPlaceOf<kList>>(blocks, rseq_area::g_offset, entry);
      page = static_cast<Page*>(entry);
      return taken;
    }
    return false;
  }
  // False when full, stopped or not to be had this way; then nothing happened: push_slow().
  template <unsigned kList = 0>
  [[nodiscard]] WEIR_HOT static bool push_fast(std::byte* blocks, Page* page) noexcept {
    if constexpr (kHasRseq) {
      if (kTestHooks && (t_fake_cpu >= 0 || fails(Failpoint::list_push))) {
        return false;
      }
      return arch::rseq::push<ListPlaceOf<kList>>(blocks, rseq_area::g_offset, page);
    }
    return false;
  }
  // Where sections find the lists; constant while open. In other forms than theirs: blocks that are
  // never started.
  [[nodiscard]] WEIR_HOT std::byte* blocks() const noexcept { return section_blocks_; }

  // What is left to try when the fast path refused: the locked form, a thread that the kernel does
  // not know yet. nullptr and false as above.
  [[nodiscard]] WEIR_COLD Page* pop_slow(unsigned list) noexcept;
  [[nodiscard]] WEIR_COLD bool push_slow(unsigned list, Page* page) noexcept;

  // Both in one, by index. kNoPage: empty, stopped or busy.
  [[nodiscard]] PageIndex pop(unsigned list) noexcept;
  [[nodiscard]] bool push(unsigned list, PageIndex page) noexcept;

  // n (1 to a cluster) single frames or none, one section.
  [[nodiscard]] WEIR_HOT bool pop_exactly(Page** out, std::uint32_t n) noexcept {
    if constexpr (kHasRseq) {
      if (!(kTestHooks && t_fake_cpu >= 0)) {
        return arch::rseq::pop_many<ListPlaceOf<0>>(section_blocks_, rseq_area::g_offset,
                                                    reinterpret_cast<void**>(out), n,
                                                    rseq_area::g_wide);
      }
    }
    return false;
  }
  [[nodiscard]] WEIR_HOT bool push_exactly(Page* const* pages, std::uint32_t n) noexcept {
    if constexpr (kHasRseq) {
      if (!(kTestHooks && (t_fake_cpu >= 0 || fails(Failpoint::list_push)))) {
        return arch::rseq::push_many<ListPlaceOf<0>>(section_blocks_, rseq_area::g_offset,
                                                     reinterpret_cast<void* const*>(pages), n,
                                                     rseq_area::g_wide);
      }
    }
    return false;
  }
  // The same for pages whose descriptors all begin with `head` (zone/frame.hpp), looked at on the way;
  // nothing is pushed when one does not.
  [[nodiscard]] WEIR_HOT static bool push_alike_fast(std::byte* blocks, Page* const* pages,
                                                     std::uint32_t n, std::uint64_t head) noexcept {
    if constexpr (kHasRseq) {
      if (!(kTestHooks && (t_fake_cpu >= 0 || fails(Failpoint::list_push)))) {
        return arch::rseq::push_alike<ListPlaceOf<0>>(blocks, rseq_area::g_offset,
                                                      reinterpret_cast<void* const*>(pages), n,
                                                      head, rseq_area::g_wide);
      }
    }
    return false;
  }
  // As pop_exactly(), whatever the form.
  [[nodiscard]] bool pop_all(Page** out, std::uint32_t n) noexcept;
  // As many of n (to a cluster) single frames as can be had, whatever the form and wherever the ring
  // ends.
  [[nodiscard]] std::uint32_t pop_batch(Page** out, std::uint32_t n) noexcept;
  [[nodiscard]] std::uint32_t push_batch(Page* const* pages, std::uint32_t n) noexcept;

  // Pushes from the end of pages[0, n) what fits, beyond what users may push; returns how many.
  std::uint32_t refill(unsigned list, const PageIndex* pages, std::uint32_t n) noexcept;
  // If this CPU's list has no room: up to n of its oldest pages into out; returns how many.
  std::uint32_t spill(unsigned list, PageIndex* out, std::uint32_t n) noexcept;

  // Whether the lists of the CPU that runs the caller have been started once; true also for a CPU
  // that has none.
  [[nodiscard]] bool started_here() const noexcept;
  // The CPU that runs the caller, or kNoCpu where it has no lists.
  [[nodiscard]] CpuId cpu_here() const noexcept;
  // Whether bulks go under the lock, so that the fast paths have not tried the list yet.
  [[nodiscard]] bool locked_here_and_now() const noexcept { return way() == Way::lock; }
  // Whether this thread can use lists at all: it may be one that the kernel does not know.
  [[nodiscard]] bool usable_here() const noexcept;

  // ---- drainers: one at a time ----

  // Stops the lists of a CPU, or of all, and what users hold of them comes to an end: after this the
  // drainer alone may touch them. The system's error when the fence is refused: then nothing is
  // stopped that was not before. would_block: with patient = false, a list stays held.
  // Never called by a marked thread that holds a list.
  Error stop(CpuId cpu) noexcept;
  Error stop_all(bool patient = true) noexcept;
  // Of a stopped CPU: up to n (a cluster; above order 0 as many as have so many frames) of the oldest
  // pages of its first list that has any.
  std::uint32_t harvest(CpuId cpu, PageIndex* out, std::uint32_t n, Order& order) noexcept;
  // Starts lists that are stopped or new, with what their capacities are now.
  void start(CpuId cpu) noexcept;
  void start_all() noexcept;
  // In a forked child, whose lists were stopped at the fork: whoever held a lock word to look at a
  // stopped list does not exist here.
  void forget_holders() noexcept;
  // In a process that is single-threaded by now: all lists are stopped, without fence or lock.
  void disown() noexcept;
  // CPUs that have been started at least once: the smallest not below `from`, or kNoCpu.
  [[nodiscard]] CpuId next_started(std::uint32_t from) const noexcept;
  template <class Visit>
  void for_each_started(Visit&& visit) const {
    for (CpuId cpu = next_started(0); cpu != kNoCpu; cpu = next_started(cpu.value + 1)) {
      visit(cpu);
    }
  }

  // The tuner's: blocks a list is started with from now on. A running list takes it over with
  // apply_capacity(), called on its own CPU, or when it is started again.
  void set_capacity(CpuId cpu, unsigned list, std::uint32_t blocks) noexcept;
  void apply_capacity(unsigned list) noexcept;

  // ---- anybody; exact when the lists are at rest ----

  [[nodiscard]] std::uint32_t count() const noexcept { return lists_; }
  // Blocks that each CPU's list starts with; 0: there is no such list.
  [[nodiscard]] std::uint32_t capacity(unsigned list) const noexcept { return capacities_[list]; }
  [[nodiscard]] std::uint32_t capacity(CpuId cpu, unsigned list) const noexcept;
  [[nodiscard]] std::uint32_t cluster() const noexcept { return cluster_; }
  // Frames on that CPU's lists, all orders.
  [[nodiscard]] std::uint64_t cached(std::uint32_t cpu) const noexcept;
  [[nodiscard]] std::uint32_t blocks_on(CpuId cpu, unsigned list) const noexcept;
  [[nodiscard]] PercpuCounterValues counters(std::uint32_t cpu) const noexcept;
  [[nodiscard]] CpuBlock& block(std::uint32_t cpu) const noexcept {
    const auto at = static_cast<std::ptrdiff_t>(static_cast<std::int32_t>(cpu));
    return *reinterpret_cast<CpuBlock*>(blocks_ + at * std::ptrdiff_t{arch::kBlockBytes});
  }
  // Where slow paths that run here count: the block of a CPU that has been started, else a common one.
  [[nodiscard]] CpuBlock& counted_block_here() const noexcept;
  [[nodiscard]] CpuBlock& common_block() const noexcept { return block(kCommon); }
  [[nodiscard]] bool is_started(CpuId cpu) const noexcept {
    return cpu.value < lists_ &&
           (started_[cpu.value / 64].load(memory_order_relaxed) >> (cpu.value % 64) & 1) != 0;
  }
  // Frames of all lists of a CPU when they are full.
  [[nodiscard]] std::uint64_t frames_at_start() const noexcept;
  // Address space of the lists, and what of it is in use.
  [[nodiscard]] Bytes reserved() const noexcept { return memory_size_; }
  [[nodiscard]] Bytes touched() const noexcept;

 private:
  // Block -1: what sections of unknown threads find. Its lists are never started.
  static constexpr std::uint32_t kCommon = 0xffff'ffffU;

  enum class Way : unsigned char { section, lock, none };
  [[nodiscard]] Way way() const noexcept;
  [[nodiscard]] CpuBlock& block_here() const noexcept;
  [[nodiscard]] bool known_to_kernel() const noexcept;
  [[nodiscard]] CpuBlock* locked_here() const noexcept;
  Error stop_these(std::uint32_t from, std::uint32_t to, bool patient) noexcept;
  void run(CpuBlock& block) noexcept;
  [[nodiscard]] Bounds bounds_from(std::uint32_t floor, unsigned list,
                                   std::uint32_t capacity) const noexcept;

  std::byte* blocks_ = nullptr;  // block of CPU 0; constant while open, like all below
  std::byte* section_blocks_ = nullptr;
  std::uint32_t lists_ = 0;
  std::uint32_t cluster_ = 0;
  ListForm form_ = ListForm::off;
  bool push_order0_ = true;
  std::array<std::uint32_t, kListOrders + 1> capacities_{};
  std::byte* memory_ = nullptr;
  Bytes memory_size_;
  // A bit for each CPU whose block has been started; set by drainers, read by all.
  Atomic<std::uint64_t> started_[IdSet::kLimit / 64] = {};
};

// The result of a request by index.
[[nodiscard]] constexpr bool is_page(PageIndex index) noexcept { return index != kNoPage; }

}  // namespace weir
