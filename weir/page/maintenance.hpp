// SPDX-License-Identifier: MIT
// page/maintenance.hpp — a thread that calls PageAllocator::tick() now and then, for programs that
// have no moment of their own for it. Calls page_allocator. Never necessary: without ticks nothing is
// lost, lists only keep the sizes they started with and idle memory stays where it is (option idle_trim).
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "weir/page/page_allocator.hpp"

namespace weir {

class Maintenance {
 public:
  // An interval outside of these becomes the nearer one: without a pause the thread would take a CPU
  // for itself, and the end of a very long one is beyond what a clock can name.
  static constexpr std::chrono::milliseconds kShortest{1};
  static constexpr std::chrono::milliseconds kLongest = std::chrono::hours{24};

  // Throws std::system_error when no thread can be had. The allocator must outlive this object.
  explicit Maintenance(PageAllocator& pages,
                       std::chrono::milliseconds interval = std::chrono::milliseconds{100});
  // Ends the thread; waits for a tick that is under way.
  ~Maintenance();
  Maintenance(const Maintenance&) = delete;
  Maintenance& operator=(const Maintenance&) = delete;

  // Between two ticks, as it took effect.
  [[nodiscard]] std::chrono::milliseconds interval() const noexcept { return interval_; }

 private:
  void run();

  PageAllocator& pages_;
  const std::chrono::milliseconds interval_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;  // under mutex_
  std::thread thread_;
};

}  // namespace weir
