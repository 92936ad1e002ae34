// SPDX-License-Identifier: MIT
// support/zones.hpp — zones for tests, with any number of lists, and "run this on the k-th CPU".
// Calls percpu/zone_registry, os/cpu_id, sched_setaffinity(2).
#pragma once

#include <sched.h>

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "weir/backing/anon_source.hpp"
#include "weir/os/cpu_id.hpp"
#include "weir/percpu/zone_registry.hpp"

namespace weir::test {

// A zone over ordinary memory, retired at the end of its life. Everything taken from it must be
// back by then, else the program ends: a leak in a test is a failed test.
class TestZone {
 public:
  explicit TestZone(std::uint64_t frames, std::uint32_t lists = 2, const Options& options = {}) {
    auto source = std::make_unique<AnonSource>(system_memory(), ThpChoice::off);
    Result<Extent> extent = source->obtain(bytes(PageCount{frames}));
    if (!extent) {
      throw std::runtime_error(extent.error().what);
    }
    Result<CachedZone*> zone = zone_registry::open(source.get(), {*extent}, options, lists);
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

// While it lives, this thread is on the CPU with the given number: in builds with test hooks any
// number, by the fake CPU id; else by pinning, to CPUs that this process may use.
class OnCpu {
 public:
  explicit OnCpu(std::uint32_t cpu) {
    if constexpr (kTestHooks) {
      fake_before_ = std::exchange(t_fake_cpu, static_cast<std::int32_t>(cpu));
    } else {
      CPU_ZERO(&before_);
      ::sched_getaffinity(0, sizeof before_, &before_);
      cpu_set_t only;
      CPU_ZERO(&only);
      CPU_SET(cpu, &only);
      if (::sched_setaffinity(0, sizeof only, &only) != 0) {
        throw std::runtime_error("this CPU cannot be had; ask OnCpu::can() before");
      }
      while (current_cpu().value != cpu) {
        ::sched_yield();
      }
    }
  }
  ~OnCpu() {
    if constexpr (kTestHooks) {
      t_fake_cpu = fake_before_;
    } else {
      ::sched_setaffinity(0, sizeof before_, &before_);
    }
  }
  OnCpu(const OnCpu&) = delete;
  OnCpu& operator=(const OnCpu&) = delete;

  // Whether CPUs 0..n-1 can all be had.
  [[nodiscard]] static bool can(std::uint32_t n) {
    if constexpr (kTestHooks) {
      return true;
    }
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
  std::int32_t fake_before_ = -1;
  cpu_set_t before_{};
};

#define WEIR_NEEDS_CPUS(n)                                \
  if (!::weir::test::OnCpu::can(n)) {                     \
    GTEST_SKIP() << "CPUs 0.." << (n)-1 << " are needed"; \
  }                                                       \
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
