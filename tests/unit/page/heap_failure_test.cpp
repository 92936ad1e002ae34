// SPDX-License-Identifier: MIT
// Construction while the C++ heap is exhausted. Replaces operator new of this program: the k-th
// allocation of a thread fails when a test asks so.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <span>
#include <vector>

#include "tests/support/address_space.hpp"
#include "weir/page/page_allocator.hpp"

namespace {
thread_local std::uint64_t t_allocations = 0;
thread_local std::uint64_t t_failing = 0;
}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
  if (++t_allocations == t_failing) {
    throw std::bad_alloc();
  }
  if (void* memory = std::malloc(size != 0 ? size : 1)) {
    return memory;
  }
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace weir {
namespace {

TEST(PageAllocator, ConstructionThatRunsOutOfHeapLeavesNothingBehind) {
  alignas(kFrameBytes) static std::byte memory[30][kFrameBytes];
  const std::vector<std::span<std::byte>> pieces{{memory[0], 10 * kFrameBytes},
                                                 {memory[20], 10 * kFrameBytes}};
  // The first of each kind makes tables that stay.
  { const PageAllocator warm({.capacity = 5_MiB, .source = SourceChoice::memfd}); }
  { const PageAllocator warm(std::span<const std::span<std::byte>>(pieces), {}); }
  const std::size_t files = test::file_count();
  for (int kind = 0; kind < 3; ++kind) {
    std::uint64_t k = 0;
    for (bool failed = true; failed;) {
      ++k;
      const auto construct = [&] {
        failed = false;
        t_failing = t_allocations + k;
        try {
          if (kind == 2) {
            const PageAllocator pages(std::span<const std::span<std::byte>>(pieces), {});
          } else {
            const PageAllocator pages(
                {.capacity = 5_MiB,
                 .source = kind == 0 ? SourceChoice::anonymous : SourceChoice::memfd});
          }
        } catch (const std::bad_alloc&) {
          failed = true;
        }
        t_failing = 0;
      };
      ASSERT_FALSE(test::leaves_memory_mapped(construct)) << "kind " << kind << " allocation " << k;
      ASSERT_EQ(zone_registry::count(), 0U) << "kind " << kind << " allocation " << k;
      ASSERT_EQ(test::file_count(), files) << "kind " << kind << " allocation " << k;
    }
    EXPECT_GT(k, 2U);
  }
}

}  // namespace
}  // namespace weir
