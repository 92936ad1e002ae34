// SPDX-License-Identifier: MIT
// support/fake_clock.hpp — os/clock that stands still until a test moves it. Thread-safe.
#pragma once

#include <cstdint>

#include "weir/base/atomic.hpp"
#include "weir/os/clock.hpp"

namespace weir::test {

class FakeClock final : public Clock {
 public:
  explicit FakeClock(std::uint64_t start_ns = 0) : now_(start_ns) {}

  std::uint64_t now_ns() noexcept override {
    return now_.load(memory_order_acquire);  // pairs: advance release
  }
  void advance(std::uint64_t ns) noexcept {
    now_.fetch_add(ns, memory_order_release);
  }  // pairs: now_ns acquire

 private:
  Atomic<std::uint64_t> now_;
};

}  // namespace weir::test
