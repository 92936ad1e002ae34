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

// A signal handler that released the last page of a retired zone, having interrupted a marked
// section, left the closing to others.
void close_those_that_are_home() {
  for (std::uint16_t id = 1; id < kMaxZones; ++id) {
    bool used = false;
    {
      const ThreadMark mark;
      const LockGuard guard{g_book.lock};
      used = g_book.used[id];
    }
    if (used) {
      zone_by_id(id)->close_if_home();
    }
  }
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

void before_fork() {
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
  frame_table::unlock_after_fork();
  for_each_used([](CachedZone& zone) { zone.unlock_in_parent(); });
  g_book.lock.unlock();
  ThreadMark::leave();
}

void after_fork_in_child() {
  frame_table::unlock_after_fork();
  for_each_used([](CachedZone& zone) { zone.unlock_in_child(); });
  g_book.lock.unlock();
  ThreadMark::leave();
}

}  // namespace

alignas(CachedZone) constinit std::byte g_storage[sizeof(CachedZone) * kMaxZones] = {};
constinit Atomic<CachedZone*> g_default{&g_empty.zone};

Result<CachedZone*> open(Source* source, const std::vector<Extent>& extents, const Options& options,
                         std::uint32_t lists, std::uint32_t cpus) {
  static const int registered =
      ::pthread_atfork(&before_fork, &after_fork_in_parent, &after_fork_in_child);
  if (registered != 0) {
    return Error{Errc::system, "pthread_atfork", registered};
  }
  close_those_that_are_home();
  const ThreadMark mark;
  const LockGuard guard{g_book.lock};
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
      g_default.store(&zone, memory_order_release);  // pairs: zone_of acquire
    }
    return &zone;
  }
  return Error{Errc::exhausted, "zones of the process", 0};
}

void forget(CachedZone& zone) noexcept {
  const ThreadMark mark;
  const LockGuard guard{g_book.lock};
  g_book.used[zone.id()] = false;
  if (g_default.load(memory_order_relaxed) == &zone) {
    CachedZone* next = &g_empty.zone;
    for_each_used([&next](CachedZone& other) {
      if (next == &g_empty.zone) {
        next = &other;
      }
    });
    g_default.store(next, memory_order_release);  // pairs: zone_of acquire
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
