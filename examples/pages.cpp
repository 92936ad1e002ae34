// SPDX-License-Identifier: MIT
// examples/pages.cpp — pages of every size, in bulk, and what is left.
#include <array>
#include <cstdio>

#include "weir/stats/snapshot.hpp"
#include "weir/weir.hpp"

using namespace weir::literals;

int main() {
  weir::PageAllocator pages{{.capacity = 64_MiB}};

  weir::PageRef page = pages.alloc();               // one frame of 4 KiB
  weir::PageRef run = pages.alloc(weir::Order{3});  // 32 KiB, naturally aligned
  weir::PageRef shared = run.share();               // two owners; the last one gives it back
  if (page.empty() || run.empty()) {
    std::puts("no memory");
    return 1;
  }
  std::printf("a page at %p, a run of %llu bytes at %p with %u owners\n",
              static_cast<void*>(page.data()), static_cast<unsigned long long>(run.size().value),
              static_cast<void*>(run.data()), weir::ref_count(run.get()));

  std::array<weir::PageRef, 64> burst;
  const std::size_t populated = pages.alloc_bulk(burst);  // fills the empty slots
  std::printf("%zu pages in one call; %llu frames are out\n", populated,
              static_cast<unsigned long long>(weir::collect(pages).census.out()));
}
