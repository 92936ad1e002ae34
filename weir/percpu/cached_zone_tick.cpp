// SPDX-License-Identifier: MIT
// Housekeeping: what a tick merges, how it sizes the lists, and what it gives back when nobody is there.
#include <algorithm>

#include "weir/percpu/carry.hpp"

namespace weir {

void CachedZone::tick() noexcept {
  if (thread_is_marked() || detached()) {
    return;
  }
  {
    const ThreadMark mark;
    const LockGuard guard{shortage_lock_};
    if (!in_shortage() && !retired_.load(memory_order_relaxed)) {
      for (std::uint32_t shard = 0; shard < depot_.shards(); ++shard) {
        merge_oldest(shard);
      }
      lists_.for_each_started([this](CpuId cpu) { tune(cpu); });
      zone_.merge_all();
    }
  }
  maybe_leave_shortage();
  trim_idle();
}

// The clusters at the bottom of a shard, which nobody has wanted since the last tick. They are reached
// by taking what lies above; meanwhile others find less, and ask the engine.
void CachedZone::merge_oldest(std::uint32_t shard) noexcept {
  const Counted carry{*this};
  ClusterId above[kTickClusters];
  const std::uint32_t n = std::min(depot_.exchange_low_water(shard), kTickClusters);
  std::uint32_t taken = 0;
  while (n != 0 && taken < kTickClusters) {
    const ClusterId id = depot_.take_full_here(shard);
    if (id == kNoCluster) {
      break;
    }
    above[taken++] = id;
  }
  const std::uint32_t newer = taken > n ? taken - n : 0;
  for (std::uint32_t i = taken; i-- > newer;) {
    merge(above[i], lists_.cluster(), shard);
  }
  for (std::uint32_t i = newer; i-- != 0;) {
    if (!depot_.give_full(above[i], shard)) {
      merge(above[i], lists_.cluster(), shard);
    }
  }
  if (n != 0) {
    static_cast<void>(depot_.exchange_low_water(shard));  // what was taken here, nobody wanted
  }
}

void CachedZone::tune(CpuId cpu) noexcept {
  bool idle = true;  // all lists of this CPU
  for (unsigned list = 0; list < kListOrders; ++list) {
    ListHead& head = lists_.block(cpu.value).lists[list];
    const auto word = static_cast<std::uint32_t>(head.word.load(memory_order_relaxed));
    const bool same = word == head.last_word.exchange(word, memory_order_relaxed);
    idle = idle && same;
  }
  ListHead& head = lists_.block(cpu.value).lists[0];
  const std::uint32_t misses = head.misses.exchange(0, memory_order_relaxed);
  const std::uint32_t overflows = head.overflows.exchange(0, memory_order_relaxed);
  const std::uint32_t cluster = lists_.cluster();
  const std::uint32_t now = lists_.capacity(cpu, 0);
  if (idle) {
    if (lists_.cached(cpu.value) != 0 || now > limits_.high) {
      resize(cpu, std::min(now, limits_.high));
    }
  } else if (misses != 0 && overflows != 0) {
    // It ran dry and over: it would have kept what it gave away.
    if (now + cluster <= limits_.high_max &&
        granted_ + cluster + std::uint64_t{depot_.capacity()} * cluster <= limits_.total) {
      granted_ += cluster;
      lists_.set_capacity(cpu, 0, now + cluster);  // its CPU takes it over at the next spill
    }
  } else if (now > limits_.high && (misses != 0 || overflows != 0)) {
    resize(cpu, limits_.high);  // one way only: what it holds cools down
  }
}

// At once, from afar: the list ends empty, with another capacity.
void CachedZone::resize(CpuId cpu, std::uint32_t capacity) noexcept {
  if (lists_.stop(cpu).failed()) {
    return;
  }
  harvest(cpu);
  const std::uint32_t before = lists_.capacity(cpu, 0);
  lists_.set_capacity(cpu, 0, capacity);
  granted_ = granted_ + lists_.capacity(cpu, 0) - before;
  lists_.start(cpu);
}

}  // namespace weir
