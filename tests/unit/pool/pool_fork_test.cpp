// SPDX-License-Identifier: MIT
// A child may put the pool pages it inherited, whatever other threads of the parent were doing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/support/process.hpp"
#include "weir/pool/page_pool.hpp"

namespace weir {
namespace {

TEST(PoolFork, TheChildPutsWhatItInheritedWhileTheParentIsBusy) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not follow a fork with running threads";
#endif
  PageAllocator pages{{.capacity = 32_MiB}};
  PagePool pool{pages, {.ring = 256}};
  std::array<Page*, 40> mine{};
  ASSERT_EQ(pool.get_bulk(mine), mine.size());
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&pool, &stop] {
      while (!stop.load()) {
        std::array<Page*, 32> burst{};
        const std::size_t n = pool.get_bulk(burst);  // not the owner: by way of the allocator
        PagePool::put_bulk(std::span<Page* const>{burst}.first(n));
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    const int status = test::run_in_child([&] {
      ::alarm(5);
      const std::uint64_t before = pool.info().outstanding();
      PagePool::put_bulk(mine);
      const std::uint64_t after = pool.info().outstanding();
      if (before - after != mine.size()) {
        return 1;
      }
      return pool.get().empty() ? 2 : 0;
    });
    ASSERT_EQ(status, 0) << "fork " << i;
  }
  stop.store(true);
  for (std::thread& thread : threads) {
    thread.join();
  }
  PagePool::put_bulk(mine);
  EXPECT_EQ(pool.info().outstanding(), 0U);
}

}  // namespace
}  // namespace weir
