// SPDX-License-Identifier: MIT
// page/maintenance.hpp — a thread that calls PageAllocator::tick() now and then, for programs that
// have no moment of their own for it. Calls page_allocator. Never necessary: without ticks nothing is
// lost, lists only keep the sizes they started with and idle memory stays where it is.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "weir/page/page_allocator.hpp"

namespace weir {

class Maintenance {
 public:
  // Throws std::system_error when no thread can be had. The allocator must outlive this object.
  explicit Maintenance(PageAllocator& pages,
                       std::chrono::milliseconds interval = std::chrono::milliseconds{100});
  // Ends the thread; waits for a tick that is under way.
  ~Maintenance();
  Maintenance(const Maintenance&) = delete;
  Maintenance& operator=(const Maintenance&) = delete;

 private:
  void run(std::chrono::milliseconds interval);

  PageAllocator& pages_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;  // under mutex_
  std::thread thread_;
};

}  // namespace weir
