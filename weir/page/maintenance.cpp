// SPDX-License-Identifier: MIT
#include "weir/page/maintenance.hpp"

#include <algorithm>

namespace weir {

Maintenance::Maintenance(PageAllocator& pages, std::chrono::milliseconds interval)
    : pages_(pages),
      interval_(std::clamp(interval, kShortest, kLongest)),
      thread_([this] { run(); }) {}

Maintenance::~Maintenance() {
  {
    const std::lock_guard guard{mutex_};
    ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Maintenance::run() {
  std::unique_lock lock{mutex_};
  while (!wake_.wait_for(lock, interval_, [this] { return ending_; })) {
    lock.unlock();
    pages_.tick();
    lock.lock();
  }
}

}  // namespace weir
