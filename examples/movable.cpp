// SPDX-License-Identifier: MIT
// examples/movable.cpp — a cache whose pages may be carried elsewhere: half of all memory is in use, scattered,
// and 16 MiB in one run are still to be had.
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "weir/weir.hpp"

using namespace weir::literals;

class Cache {
 public:
  explicit Cache(weir::PageAllocator& pages) : pages_(pages) { pages.add_mover(mover_); }
  ~Cache() {
    mover_.remove();  // from here on nobody moves anything
    for (weir::Page* page : slots_) {
      weir::unref(page);
    }
  }

  bool add(int value) {
    weir::Page* page = pages_.alloc_movable(mover_);  // not under the lock: it may have pages moved
    if (page == nullptr) {
      return false;
    }
    std::memcpy(weir::address_of(page), &value, sizeof value);
    const std::lock_guard hold(lock_);
    page->private_word = slots_.size();  // the owner's to use: here, where the page is named
    slots_.push_back(page);
    return true;
  }
  void drop(std::size_t slot) {
    const std::lock_guard hold(lock_);
    weir::unref(std::exchange(slots_[slot], nullptr));
  }

 private:
  // Between isolate and migrate or put_back the cache leaves the page alone: here by its lock, which is only
  // tried, for whoever holds it may be waiting for memory.
  bool isolate(weir::Page* page) {
    if (!lock_.try_lock()) {
      return false;
    }
    const std::size_t slot = page->private_word;
    if (slot < slots_.size() && slots_[slot] == page) {
      return true;
    }
    lock_.unlock();
    return false;
  }
  bool migrate(weir::Page* from, weir::Page* to) {
    std::memcpy(weir::address_of(to), weir::address_of(from), 4096);
    slots_[from->private_word] = to;
    lock_.unlock();
    return true;
  }
  void put_back() { lock_.unlock(); }
  static Cache& self(void* cache) { return *static_cast<Cache*>(cache); }

  weir::PageAllocator& pages_;
  std::mutex lock_;
  std::vector<weir::Page*> slots_;
  weir::PageMover mover_{
      {[](void* cache, weir::Page* page) noexcept { return self(cache).isolate(page); },
       [](void* cache, weir::Page* from, weir::Page* to) noexcept {
         return self(cache).migrate(from, to);
       },
       [](void* cache, weir::Page*) noexcept { self(cache).put_back(); }},
      this};
};

int main() {
  weir::PageAllocator pages{{.capacity = 64_MiB}};
  Cache cache{pages};
  std::size_t n = 0;
  while (cache.add(static_cast<int>(n))) {
    ++n;
  }
  for (std::size_t slot = 0; slot < n; slot += 2) {
    cache.drop(slot);
  }
  const weir::PageRun run = pages.alloc_contiguous({4000});
  std::printf("%zu pages, every second one dropped; a run of %llu frames: %s\n", n,
              static_cast<unsigned long long>(run.frames().value), run.empty() ? "refused" : "got");
  return run.empty() ? 1 : 0;
}
