// SPDX-License-Identifier: MIT
#include "weir/percpu/zone_registry.hpp"

#include <pthread.h>
#include <sched.h>

#include <new>

namespace weir::zone_registry {
namespace {

// The default before the first zone opens; it holds no page. Never destroyed: a static object may
// release a page late.
union Immortal {
  constexpr Immortal() noexcept : zone{} {}
  ~Immortal() {}
  CachedZone zone;
};
constinit Immortal g_empty;

}  // namespace

alignas(CachedZone) constinit std::byte g_storage[sizeof(CachedZone) * kMaxZones] = {};
constinit Atomic<CachedZone*> g_default{&g_empty.zone};
constinit DefaultLists g_default_lists;

namespace {

struct Book {
  Lock lock;
  bool made[kMaxZones] = {};  // the slot holds an object, never destroyed
  bool used[kMaxZones] = {};
};
Book g_book;

template <class F>
void for_each_used(F&& visit) {
  for (std::uint16_t id = 1; id < kMaxZones; ++id) {
    if (g_book.used[id]) {
      visit(*zone_by_id(id));
    }
  }
}

// g_book.lock held.
void make_default(CachedZone& zone) {
  g_default_lists.head.store(0, memory_order_relaxed);
  g_default_lists.blocks.store(zone.lists().blocks(), memory_order_relaxed);
  // No page of the zone is out yet: whoever gets one, gets it after this.
  g_default_lists.head.store(&zone == &g_empty.zone ? 0 : ordinary_head(zone.id()),
                             memory_order_release);  // pairs: release_fast acquire
  g_default.store(&zone, memory_order_release);      // pairs: zone_of acquire
}

// g_book.lock held. The default zone is always an open one: what make_default() reads of a zone must not
// change under its hands, so zones close under this lock too.
CachedZone::Closing close_held(CachedZone& zone) {
  const CachedZone::Closing closing = zone.close_if_home();
  if (closing != CachedZone::Closing::done) {
    return closing;
  }
  g_book.used[zone.id()] = false;
  if (g_default.load(memory_order_relaxed) == &zone) {
    CachedZone* next = &g_empty.zone;
    for_each_used([&next](CachedZone& other) {
      if (next == &g_empty.zone) {
        next = &other;
      }
    });
    make_default(*next);
  }
  return closing;
}

CachedZone::ForkLock lock_zones() {
  using ForkLock = CachedZone::ForkLock;
  for (std::uint16_t id = 1; id < kMaxZones; ++id) {
    if (!g_book.used[id]) {
      continue;
    }
    if (const ForkLock lock = zone_by_id(id)->try_lock_for_fork(); lock != ForkLock::held) {
      while (--id != 0) {
        if (g_book.used[id]) {
          zone_by_id(id)->unlock_in_parent();
        }
      }
      return lock;
    }
  }
  return ForkLock::held;
}

// Forks of this thread that go on without any lock: from a signal handler that interrupted a marked
// section, since what that section holds cannot be waited for, or where the kernel refuses a fence. The
// parent goes on undisturbed; the child's zones may be caught in the middle of anything. A thread's own:
// the C library lets two threads be inside fork() at once.
constinit thread_local volatile std::uint32_t t_forks_unprepared
    [[gnu::tls_model("initial-exec")]] = 0;

// In a child of such a fork: the registry may be torn as well.
bool g_orphaned = false;

void before_fork() {
  if (thread_is_marked()) {
    t_forks_unprepared = t_forks_unprepared + 1;
    return;
  }
  ThreadMark::enter();
  // Never waits for a list while it holds anything: the list may belong to a thread whose signal
  // handler waits for just that.
  for (;;) {
    g_book.lock.lock();
    switch (lock_zones()) {
      case CachedZone::ForkLock::held:
        frame_table::lock_for_fork();
        return;
      case CachedZone::ForkLock::busy:
        g_book.lock.unlock();
        ::sched_yield();
        break;
      case CachedZone::ForkLock::refused:
        g_book.lock.unlock();
        ThreadMark::leave();
        t_forks_unprepared = t_forks_unprepared + 1;
        return;
    }
  }
}

bool was_unprepared() {
  if (t_forks_unprepared == 0) {
    return false;
  }
  t_forks_unprepared = t_forks_unprepared - 1;
  return true;
}

void after_fork_in_parent() {
  if (was_unprepared()) {
    return;
  }
  frame_table::unlock_after_fork();
  for_each_used([](CachedZone& zone) { zone.unlock_in_parent(); });
  g_book.lock.unlock();
  ThreadMark::leave();
}

void after_fork_in_child() {
  if (was_unprepared()) {
    g_orphaned = true;
    g_book.lock.reset();
    for_each_used([](CachedZone& zone) { zone.detach(); });
    return;
  }
  frame_table::unlock_after_fork();
  for_each_used([](CachedZone& zone) { zone.unlock_in_child(); });
  g_book.lock.unlock();
  ThreadMark::leave();
}

}  // namespace

Result<CachedZone*> open(Source* source, const std::vector<Extent>& extents, const Options& options,
                         std::uint32_t lists, std::uint32_t cpus) {
  static const int registered =
      ::pthread_atfork(&before_fork, &after_fork_in_parent, &after_fork_in_child);
  if (registered != 0) {
    return Error{Errc::system, "pthread_atfork", registered};
  }
  const ThreadMark mark;
  const LockGuard guard{g_book.lock};
  if (g_orphaned) {
    return Error{Errc::would_block, "zones in a child that was forked while weir was at work", 0};
  }
  // What was left to others: by a signal handler that released the last page of a retired zone, having
  // interrupted a marked section; by close_if_home().
  for_each_used([](CachedZone& zone) { static_cast<void>(close_held(zone)); });
  for (std::uint16_t id = 1; id < kMaxZones; ++id) {
    if (g_book.used[id]) {
      continue;
    }
    if (!g_book.made[id]) {
      new (zone_by_id(id)) CachedZone;
      g_book.made[id] = true;
    }
    CachedZone& zone = *zone_by_id(id);
    if (const Error error = zone.open(id, source, extents, options, lists, cpus); error.failed()) {
      return error;
    }
    g_book.used[id] = true;
    if (g_default.load(memory_order_relaxed) == &g_empty.zone) {
      make_default(zone);
    }
    return &zone;
  }
  return Error{Errc::exhausted, "zones of the process", 0};
}

void close_if_home(CachedZone& zone) noexcept {
  // The patience of seconds: a drain takes less, unless it waits for this very thread.
  for (std::uint32_t spin = 0; spin < 100'000; ++spin) {
    {
      const ThreadMark mark;
      const LockGuard guard{g_book.lock};
      if (close_held(zone) != CachedZone::Closing::busy) {
        return;
      }
    }
    ::sched_yield();
  }
}

std::uint32_t count() noexcept {
  const ThreadMark mark;
  const LockGuard guard{g_book.lock};
  std::uint32_t n = 0;
  for_each_used([&n](CachedZone&) { ++n; });
  return n;
}

}  // namespace weir::zone_registry
