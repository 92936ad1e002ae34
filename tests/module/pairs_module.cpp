// SPDX-License-Identifier: MIT
// A shared object that contains weir, inlined sections included, and is opened and closed by
// tests/stress/unmapping_test.cpp: what a plugin of a proxy or a router is.
#include <sched.h>

#include "weir/base/atomic.hpp"
#include "weir/os/list_mode.hpp"
#include "weir/weir.hpp"

namespace {

weir::Atomic<bool> g_stop{false};
weir::Atomic<unsigned long> g_pairs{0};

}  // namespace

extern "C" {

[[gnu::visibility("default")]] const char* module_list_form() {
  return weir::list_form_name(weir::list_mode().form);
}

// Runs pairs until module_stop(): on return this thread's area names a section of this object.
[[gnu::visibility("default")]] void module_run() {
  weir::PageAllocator pages{{.capacity = weir::Bytes{4 << 20}}};
  while (!g_stop.load(weir::memory_order_relaxed)) {
    for (int i = 0; i < 1000; ++i) {
      weir::unref(pages.alloc_page());
    }
    g_pairs.store(g_pairs.load(weir::memory_order_relaxed) + 1000, weir::memory_order_relaxed);
  }
}

[[gnu::visibility("default")]] void module_stop() {
  g_stop.store(true, weir::memory_order_relaxed);
}

[[gnu::visibility("default")]] unsigned long module_pairs() {
  return g_pairs.load(weir::memory_order_relaxed);
}
}
