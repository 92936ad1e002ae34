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

bool lock_zones() {
  for (std::uint16_t id = 1; id < kMaxZones; ++id) {
    if (g_book.used[id] && !zone_by_id(id)->try_lock_for_fork()) {
      while (--id != 0) {
        if (g_book.used[id]) {
          zone_by_id(id)->unlock_in_parent();
        }
      }
      return false;
    }
  }
  return true;
}

// fork() from a signal handler that interrupted a marked section: what that section holds cannot be
// waited for. The parent goes on undisturbed; the child's zones may be caught in the middle of anything.
bool g_fork_unprepared = false;

bool inside_a_list() {
  bool inside = false;
  for_each_used([&inside](CachedZone& zone) { inside = inside || zone.lists().caller_inside(); });
  return inside;
}

void before_fork() {
  g_fork_unprepared = thread_is_marked() || inside_a_list();
  if (g_fork_unprepared) {
    return;
  }
  ThreadMark::enter();
  // Never waits for a list while it holds anything: the list may belong to a thread whose signal
  // handler waits for just that.
  for (;;) {
    g_book.lock.lock();
    if (lock_zones()) {
      break;
    }
    g_book.lock.unlock();
    ::sched_yield();
  }
  frame_table::lock_for_fork();
}

void after_fork_in_parent() {
  if (g_fork_unprepared) {
    return;
  }
  frame_table::unlock_after_fork();
  for_each_used([](CachedZone& zone) { zone.unlock_in_parent(); });
  g_book.lock.unlock();
  ThreadMark::leave();
}

void after_fork_in_child() {
  if (g_fork_unprepared) {
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
