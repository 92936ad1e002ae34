// SPDX-License-Identifier: MIT
#include "weir/page/maintenance.hpp"

namespace weir {

Maintenance::Maintenance(PageAllocator& pages, std::chrono::milliseconds interval)
    : pages_(pages), thread_([this, interval] { run(interval); }) {}

Maintenance::~Maintenance() {
  {
    const std::lock_guard guard{mutex_};
    ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Maintenance::run(std::chrono::milliseconds interval) {
  std::unique_lock lock{mutex_};
  while (!wake_.wait_for(lock, interval, [this] { return ending_; })) {
    lock.unlock();
    pages_.tick();
    lock.lock();
  }
}

}  // namespace weir
