// SPDX-License-Identifier: MIT
#include "weir/os/fence.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <cerrno>
#include <csignal>
#include <thread>

#include "tests/support/process.hpp"
#include "tests/support/slow_section.hpp"
#include "weir/arch/cpu.hpp"
#include "weir/base/atomic.hpp"
#include "weir/os/cpu_id.hpp"
#include "weir/os/list_mode.hpp"
#include "weir/os/topology.hpp"

namespace weir {
namespace {

class Fence : public testing::Test {
 protected:
  void SetUp() override {
    if (fence::enable().failed()) {
      GTEST_SKIP() << "membarrier has no rseq command here";
    }
  }
};

TEST_F(Fence, CountsWhatItIssuedAndKeepsErrno) {
  const std::uint64_t before = fence::count();
  errno = ERANGE;
  EXPECT_FALSE(fence::all().failed());
  EXPECT_FALSE(fence::cpu(current_cpu()).failed());
  EXPECT_FALSE(fence::enable().failed());
  EXPECT_EQ(errno, ERANGE);
  EXPECT_EQ(fence::count(), before + 3);
}

TEST_F(Fence, OfACpuThatDoesNotExistHasNothingToDo) {
  EXPECT_FALSE(fence::cpu(CpuId{1'000'000}).failed());
  EXPECT_FALSE(fence::cpu(kNoCpu).failed());
}

TEST_F(Fence, WorksInAForkedChildWithoutBeingEnabledAgain) {
  EXPECT_EQ(test::run_in_child([] {
              if (fence::all().failed()) return 1;
              if (fence::cpu(current_cpu()).failed()) return 2;
              return 0;
            }),
            0);
}

std::uint64_t g_handler_fences = 0;

TEST_F(Fence, WorksInASignalHandler) {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) { g_handler_fences += fence::all().failed() ? 0 : 1; };
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  g_handler_fences = 0;
  raise(SIGUSR1);
  sigaction(SIGUSR1, &before, nullptr);
  EXPECT_EQ(g_handler_fences, 1U);
}

// A thread that goes through slow sections for as long as it lives. `stop` ends them, but a section
// that has read it before goes on and commits late.
class Adder {
 public:
  explicit Adder(CpuId cpu) : thread_([this, cpu] { run(cpu); }) {
    while (total() == 0) std::this_thread::yield();
  }
  Adder(const Adder&) = delete;
  Adder& operator=(const Adder&) = delete;
  ~Adder() {
    quit_.store(true, memory_order_relaxed);
    thread_.join();
  }

  [[nodiscard]] std::uint64_t total() const { return __atomic_load_n(&total_, __ATOMIC_RELAXED); }
  void stop(bool on) { __atomic_store_n(&stop_, on ? 1 : 0, __ATOMIC_SEQ_CST); }
  [[nodiscard]] std::uint64_t aborts() const { return aborts_.load(memory_order_relaxed); }

  // Stops the sections, calls `fence`, and tells whether one committed after that.
  template <class F>
  bool commits_after(F&& fence) {
    stop(false);
    const std::uint64_t start = total();
    while (total() == start) cpu_pause();
    stop(true);
    fence();
    const std::uint64_t seen = total();
    for (unsigned i = 0; i < 200; ++i) cpu_pause();  // longer than a section
    return total() != seen;
  }

 private:
  static constexpr std::uint32_t kTurns = 30;

  void run(CpuId cpu) {
    pin_thread(cpu);
    while (!quit_.load(memory_order_relaxed)) {
      if (test::add_slowly(&stop_, &total_, kTurns) == test::SectionEnd::aborted) {
        aborts_.fetch_add(1, memory_order_relaxed);
      }
    }
  }
  static void pin_thread(CpuId cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu.value, &set);
    sched_setaffinity(0, sizeof set, &set);
  }

  alignas(64) std::uint64_t stop_ = 0;   // written by the test, read by sections
  alignas(64) std::uint64_t total_ = 0;  // written by sections
  Atomic<std::uint64_t> aborts_{0};
  Atomic<bool> quit_{false};
  std::thread thread_;
};

class FenceAndSections : public testing::Test {
 protected:
  static constexpr int kRounds = 2000;

  void SetUp() override {
    if (!kHasRseq || list_mode().form != ListForm::rseq) {
      GTEST_SKIP() << "no restartable sequences here: " << list_mode().reason;
    }
    const Topology machine = read_topology();
    if (machine.allowed_cpus.count() < 2) {
      GTEST_SKIP() << "needs two CPUs";
    }
    ASSERT_EQ(sched_getaffinity(0, sizeof before_, &before_), 0);
    cpu_set_t mine;
    CPU_ZERO(&mine);
    for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &before_)) continue;
      if (CPU_COUNT(&mine) == 0) {
        CPU_SET(cpu, &mine);
      } else {
        other_ = CpuId{cpu};
        break;
      }
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof mine, &mine), 0);
    pinned_ = true;
  }
  void TearDown() override {
    if (pinned_) sched_setaffinity(0, sizeof before_, &before_);
  }

  CpuId other_{0};

 private:
  cpu_set_t before_{};
  bool pinned_ = false;
};

TEST_F(FenceAndSections, AfterAFenceForAllNoSectionCommitsThatBeganBefore) {
  Adder adder(other_);
  int late = 0;
  for (int i = 0; i < kRounds; ++i) {
    late += adder.commits_after([] { EXPECT_FALSE(fence::all().failed()); }) ? 1 : 0;
  }
  EXPECT_EQ(late, 0);
  EXPECT_GT(adder.aborts(), 0U);
}

TEST_F(FenceAndSections, AfterAFenceForItsCpuNoSectionCommitsThatBeganBefore) {
  Adder adder(other_);
  int late = 0;
  for (int i = 0; i < kRounds; ++i) {
    late += adder.commits_after([this] { EXPECT_FALSE(fence::cpu(other_).failed()); }) ? 1 : 0;
  }
  EXPECT_EQ(late, 0);
}

TEST_F(FenceAndSections, WithoutAFenceSomeSectionCommitsLate) {
  Adder adder(other_);
  int late = 0;
  for (int i = 0; i < kRounds; ++i) {
    late += adder.commits_after([] {}) ? 1 : 0;
  }
  EXPECT_GT(late, 0);
}

}  // namespace
}  // namespace weir
