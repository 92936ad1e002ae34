// SPDX-License-Identifier: MIT
#include "weir/pool/pool_table.hpp"

#include <pthread.h>

#include <algorithm>
#include <memory>

#include "weir/arch/cpu.hpp"
#include "weir/base/report.hpp"
#include "weir/os/clock.hpp"
#include "weir/os/lock.hpp"
#include "weir/page/release.hpp"

namespace weir {
namespace {

Lock g_claim_lock;                       // one claim at a time
Atomic<std::uint32_t> g_blocks_made{0};  // blocks that ever existed; written under g_claim_lock

template <class F>
void for_each_block(F&& visit) noexcept {
  for (std::uint32_t id = 0; id < g_blocks_made.load(memory_order_relaxed); ++id) {
    visit(pool_block(id));
  }
}

// Nobody is inside a pool's lock while the process is copied, so that the child can put what it
// inherited. Registered after the zones' handlers, these run before them: pool locks come first.
void before_fork() noexcept {
  g_claim_lock.lock();
  for_each_block([](PoolBlock& block) { block.ring.lock().lock(); });
}

void after_fork() noexcept {
  for_each_block([](PoolBlock& block) { block.ring.lock().unlock(); });
  g_claim_lock.unlock();
}

PoolBlock* make_block(std::uint32_t id) noexcept {
  if (id == 0) {
    set_pool_page_hook(pool_page_hook);
    // Without memory for the handlers a child may find a lock held for ever: no pool, then.
    if (::pthread_atfork(&before_fork, &after_fork, &after_fork) != 0) {
      return nullptr;
    }
  }
  auto* block = new (g_pool_blocks + std::size_t{id} * sizeof(PoolBlock)) PoolBlock;
  block->tag = id;                                    // generation 0: no page bears it
  g_blocks_made.store(id + 1, memory_order_release);  // pairs: blocks_made acquire
  return block;
}

[[nodiscard]] std::uint32_t blocks_made() noexcept {
  return g_blocks_made.load(memory_order_acquire);  // pairs: make_block release
}

// Under the ring lock.
bool open_block(PoolBlock& block, std::uint32_t ring) noexcept {
  if (!block.ring.open(ring)) {
    return false;
  }
  block.tag += kMaxPools;
  block.owner.store(0, memory_order_relaxed);
  block.cached.store(0, memory_order_relaxed);
  std::destroy_at(&block.counters);
  std::construct_at(&block.counters);
  std::destroy_at(&block.returns);
  std::construct_at(&block.returns);
  block.closed_at_ns = 0;
  block.phase = PoolPhase::kOpen;
  return true;
}

}  // namespace

PoolBlock* claim_pool_block(std::uint32_t ring, bool& full) noexcept {
  LockGuard claim(g_claim_lock);
  const std::uint32_t made = blocks_made();
  for (std::uint32_t id = 0; id < kMaxPools; ++id) {
    PoolBlock* block = id < made ? &pool_block(id) : make_block(id);
    if (block == nullptr) {
      full = false;
      return nullptr;
    }
    LockGuard guard(block->ring.lock());
    if (block->phase == PoolPhase::kFree) {
      full = false;
      return open_block(*block, ring) ? block : nullptr;
    }
  }
  full = true;
  return nullptr;
}

void unbind_owner(PoolBlock& block) noexcept {
  block.owner.exchange(0, memory_order_seq_cst);  // pairs: enter_owner_section seq_cst
  if constexpr (kAudit) {
    if (block.busy.load(memory_order_seq_cst)) {  // pairs: enter_owner_section seq_cst
      report_wrong_thread("a PagePool whose owner is inside a call");
    }
  }
}

void empty_pool(PoolBlock& block) noexcept {
  std::uint32_t n = block.cached.load(memory_order_relaxed);
  block.cached.store(0, memory_order_relaxed);
  if (n != 0) {
    unpark_all(block.cache, n);
    leave_pool(block, block.cache, n);
  }
  Page* batch[kPoolRefillPages];
  // What others return meanwhile is not waited for.
  for (std::uint32_t left = block.ring.size(); left != 0; left -= n) {
    {
      LockGuard guard(block.ring.lock());
      n = block.ring.pop(batch, std::min(left, kPoolRefillPages));
    }
    if (n == 0) {
      break;
    }
    unpark_all(batch, n);
    leave_pool(block, batch, n);
  }
}

std::uint64_t give_up_ring(PoolBlock& block, std::uint64_t needed) noexcept {
  constexpr std::uint32_t kPatience =
      1000;  // holds are short, unless their thread has lost its CPU
  Page* batch[kPoolRefillPages];
  std::uint64_t given = 0;
  std::uint32_t spin = 0;
  while (given < needed && block.ring.size() != 0 && spin < kPatience) {
    if (!block.ring.lock().try_lock()) {
      cpu_pause();
      ++spin;
      continue;
    }
    const auto most =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(needed - given, kPoolRefillPages));
    const std::uint32_t n = block.ring.pop(batch, most);
    block.ring.lock().unlock();
    if (n != 0) {
      unpark_all(batch, n);
      leave_pool(block, batch, n);
    }
    given += n;
  }
  return given;
}

void close_pool(PoolBlock& block) noexcept {
  {
    LockGuard guard(block.ring.lock());
    block.phase = PoolPhase::kClosing;  // the ring only shrinks from here on
    block.closed_at_ns = system_clock().now_ns();
  }
  empty_pool(block);
  LockGuard guard(block.ring.lock());
  block.phase = PoolPhase::kClosed;
  free_if_done(block);
}

void free_if_done(PoolBlock& block) noexcept {
  if (block.phase == PoolPhase::kClosed && in_flight_locked(block) == 0) {
    block.ring.close();
    block.phase = PoolPhase::kFree;
  }
}

std::uint64_t in_flight_locked(const PoolBlock& block) noexcept {
  const std::uint64_t left = block.returns.left_pool.get();
  return block.counters.from_allocator.get() + block.returns.from_allocator.get() - left;
}

PoolInfo pool_info_locked(const PoolBlock& block) noexcept {
  PoolInfo info;
  info.id = block.id();
  info.generation = block.tag >> kPoolIdBits;
  info.in_flight = in_flight_locked(block);
  info.cached = block.cached.load(memory_order_relaxed);
  info.ring = block.ring.size();
  info.ring_capacity = block.ring.capacity();
  info.closed = block.phase != PoolPhase::kOpen;
  info.closed_at_ns = block.closed_at_ns;
  info.counters = values_of(block.counters);
  info.counters += values_of(block.returns);
  return info;
}

std::size_t pool_list(std::span<PoolInfo> out) noexcept {
  const std::uint32_t made = blocks_made();
  std::size_t pools = 0;
  for (std::uint32_t id = 0; id < made; ++id) {
    PoolBlock& block = pool_block(id);
    LockGuard guard(block.ring.lock());
    if (block.phase == PoolPhase::kFree) {
      continue;
    }
    if (pools < out.size()) {
      out[pools] = pool_info_locked(block);
    }
    ++pools;
  }
  return pools;
}

}  // namespace weir
