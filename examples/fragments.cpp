// SPDX-License-Identifier: MIT
// examples/fragments.cpp — small buffers cut from one page, dropped in another thread.
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "weir/weir.hpp"

using namespace weir::literals;

int main() {
  weir::PageAllocator pages{{.capacity = 16_MiB}};
  weir::FragCache frags{pages};  // one per thread that cuts

  std::vector<weir::FragRef> requests;
  for (int i = 0; i < 100; ++i) {
    weir::FragRef request = frags.alloc(200, weir::Align{64});
    if (request.empty()) {
      std::puts("no memory");
      return 1;
    }
    std::memset(request.data(), i, request.size());
    requests.push_back(std::move(request));
  }
  std::printf("100 requests of 200 bytes on %llu pages\n",
              static_cast<unsigned long long>(frags.counters().pages_taken));

  // Whoever finishes a request drops it, in whatever thread that is.
  std::thread worker{[done = std::move(requests)]() mutable { done.clear(); }};
  worker.join();
}
