// SPDX-License-Identifier: MIT
// A shared object with restartable sections is closed while a thread that ran them lives on. Were it
// unmapped, the kernel would look for the section's descriptor at that thread's next preemption, not
// find it, and end the process.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "tests/support/process.hpp"
#include "weir/base/atomic.hpp"

namespace weir {
namespace {

template <class Function>
Function* find(void* module, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(module, name));
}

TEST(Unmapping, AClosedModuleStaysWhereItsSectionsAre) {
  void* module = ::dlopen(WEIR_PAIRS_MODULE, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(module, nullptr) << ::dlerror();
  auto* const run = find<void()>(module, "module_run");
  auto* const stop = find<void()>(module, "module_stop");
  auto* const pairs = find<unsigned long()>(module, "module_pairs");
  ASSERT_TRUE(run != nullptr && stop != nullptr && pairs != nullptr);
  Atomic<int> stage{0};
  std::thread worker([&] {
    run();
    stage.store(1, memory_order_release);  // pairs: the acquire below
    // In and out of the kernel until the end, on both CPUs.
    while (stage.load(memory_order_relaxed) != 2) {
      ::sched_yield();
    }
  });
  while (pairs() < 100'000) {
    std::this_thread::yield();
  }
  stop();
  while (stage.load(memory_order_acquire) != 1) {  // pairs: the release above
    std::this_thread::yield();
  }
  ASSERT_EQ(::dlclose(module), 0);
  EXPECT_NE(test::permissions(reinterpret_cast<const void*>(run)).find('x'), std::string::npos);
  std::this_thread::sleep_for(std::chrono::milliseconds{300});
  stage.store(2, memory_order_relaxed);
  worker.join();
}

}  // namespace
}  // namespace weir
