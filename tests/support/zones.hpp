// SPDX-License-Identifier: MIT
// support/zones.hpp — zones for tests, with any number of lists, and "run this on the k-th CPU".
// Calls percpu/zone_registry, os/cpu_id, sched_setaffinity(2).
//
// In builds with test hooks OnCpu pretends a CPU; a thread that pretends uses the lists under their
// lock, whatever form the process has. Such a thread and one on the real CPU of that number exclude
// each other by nothing: a test uses OnCpu for all its threads that run at once, or Pinned.
#pragma once

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "weir/backing/anon_source.hpp"
#include "weir/os/cpu_id.hpp"
#include "weir/os/list_mode.hpp"
#include "weir/percpu/zone_registry.hpp"

namespace weir::test {

// Which engine a test's zones have when it does not choose: WEIR_TEST_ENGINE=buddy, or the default.
[[nodiscard]] inline EngineChoice engine_under_test() {
  const char* name = std::getenv("WEIR_TEST_ENGINE");
  return name != nullptr && std::string_view(name) == choice_name(EngineChoice::buddy)
             ? EngineChoice::buddy
             : Options{}.engine;
}

// A zone over ordinary memory, retired at the end of its life. Everything taken from it must be
// back by then, else the program ends: a leak in a test is a failed test.
class TestZone {
 public:
  // cpus: how many of the lists are counted upon; 0 = all.
  explicit TestZone(std::uint64_t frames, std::uint32_t lists = 2, const Options& options = {},
                    std::uint32_t cpus = 0) {
    auto source = std::make_unique<AnonSource>(system_memory(), ThpChoice::off);
    Result<Extent> extent = source->obtain(bytes(PageCount{frames}));
    if (!extent) {
      throw std::runtime_error(extent.error().what);
    }
    Options chosen = options;
    if (options.merge == Merge::skip || options.merge == Merge::clusters) {
      chosen.engine = EngineChoice::buddy;  // nobody else has these ways
    } else if (options.engine == Options{}.engine) {
      chosen.engine = engine_under_test();
    }
    Result<CachedZone*> zone = zone_registry::open(source.get(), {*extent}, chosen, lists, cpus);
    if (!zone) {
      source->give_back(*extent);
      throw std::runtime_error(zone.error().what);
    }
    static_cast<void>(source.release());
    zone_ = *zone;
  }
  ~TestZone() {
    if (const std::uint64_t out = zone_->retire(); out != 0 && !abandoned_) {
      std::fprintf(stderr, "a test left %llu frames out\n", static_cast<unsigned long long>(out));
      std::abort();
    }
  }
  TestZone(const TestZone&) = delete;
  TestZone& operator=(const TestZone&) = delete;

  CachedZone& operator*() { return *zone_; }
  CachedZone* operator->() { return zone_; }
  [[nodiscard]] PageIndex first() const { return zone_->pieces().front().first; }
  // For a test that leaves pages out on purpose.
  void abandon() { abandoned_ = true; }

 private:
  CachedZone* zone_ = nullptr;
  bool abandoned_ = false;
};

// Whether somebody is inside a list of the zone, in the locked form: exact where one thread uses it.
inline bool list_held(CachedZone& zone) {
  bool held = false;
  zone.lists().for_each_started(
      [&](CpuId cpu) { held = held || zone.lists().block(cpu.value).lock.held(); });
  return held;
}

// While it lives, this thread runs on one CPU and nowhere else.
class Pinned {
 public:
  explicit Pinned(std::uint32_t cpu) {
    CPU_ZERO(&before_);
    ::sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    if (::sched_setaffinity(0, sizeof only, &only) != 0) {
      throw std::runtime_error("this CPU cannot be had; ask can() before");
    }
    while (::sched_getcpu() != static_cast<int>(cpu)) {
      ::sched_yield();
    }
  }
  ~Pinned() { ::sched_setaffinity(0, sizeof before_, &before_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  // Whether CPUs 0..n-1 can all be had.
  [[nodiscard]] static bool can(std::uint32_t n) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    ::sched_getaffinity(0, sizeof allowed, &allowed);
    for (std::uint32_t cpu = 0; cpu < n; ++cpu) {
      if (!CPU_ISSET(cpu, &allowed)) {
        return false;
      }
    }
    return true;
  }

 private:
  cpu_set_t before_{};
};

// The same in builds without test hooks; in those with them it pretends, and any number will do.
class OnCpu {
 public:
  explicit OnCpu(std::uint32_t cpu) {
    if constexpr (kTestHooks) {
      fake_before_ = std::exchange(t_fake_cpu, static_cast<std::int32_t>(cpu));
    } else {
      pinned_ = std::make_unique<Pinned>(cpu);
    }
  }
  ~OnCpu() {
    if constexpr (kTestHooks) {
      t_fake_cpu = fake_before_;
    }
  }
  OnCpu(const OnCpu&) = delete;
  OnCpu& operator=(const OnCpu&) = delete;

  // Whether CPUs 0..n-1 can all be had.
  [[nodiscard]] static bool can(std::uint32_t n) { return kTestHooks || Pinned::can(n); }

 private:
  std::int32_t fake_before_ = -1;
  std::unique_ptr<Pinned> pinned_;
};

// Whether a test may step through list operations under OnCpu: the trap after each instruction aborts
// a restartable section, which then never comes to its end. Only who pretends a CPU enters none.
[[nodiscard]] inline bool lists_can_be_stepped() { return kTestHooks || !kHasRseq; }

#define WEIR_NEEDS_CPUS(n)                                \
  if (!::weir::test::OnCpu::can(n)) {                     \
    GTEST_SKIP() << "CPUs 0.." << (n)-1 << " are needed"; \
  }                                                       \
  static_assert(true, "")

#define WEIR_NEEDS_REAL_CPUS(n)                                      \
  if (!::weir::test::Pinned::can(n)) {                               \
    GTEST_SKIP() << "CPUs 0.." << (n)-1 << " are needed, real ones"; \
  }                                                                  \
  static_assert(true, "")

#define WEIR_NEEDS_LISTS                                                  \
  if (::weir::list_mode().form == ::weir::ListForm::off) {                \
    GTEST_SKIP() << "there are no lists: " << ::weir::list_mode().reason; \
  }                                                                       \
  static_assert(true, "")

// A shortage lasts so long at least; whoever takes or gives next may end it.
inline void outlast_shortage() {
  std::this_thread::sleep_for(std::chrono::nanoseconds(kShortageNs + kShortageNs / 4));
}

// For what only an engine under a lock does.
#define WEIR_NEEDS_THE_ZONE_LOCK                                            \
  if (::weir::test::engine_under_test() != ::weir::EngineChoice::buddy) {   \
    GTEST_SKIP() << "this engine has no lock whose holds could be counted"; \
  }                                                                         \
  static_assert(true, "")

// What a test takes from a zone until nothing is left.
[[nodiscard]] inline std::vector<PageIndex> take_all(CachedZone& zone, Order order = Order{0},
                                                     TakeRights rights = {}) {
  std::vector<PageIndex> pages;
  for (;;) {
    const PageIndex page = zone.alloc(order, rights);
    if (!is_page(page)) {
      return pages;
    }
    pages.push_back(page);
  }
}
inline void free_all(CachedZone& zone, const std::vector<PageIndex>& pages,
                     Order order = Order{0}) {
  for (const PageIndex page : pages) {
    zone.free(page, order);
  }
}

}  // namespace weir::test
