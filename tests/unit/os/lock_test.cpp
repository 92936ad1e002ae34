// SPDX-License-Identifier: MIT
#include "weir/os/lock.hpp"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include "tests/support/process.hpp"

namespace weir {
namespace {

pid_t thread_id() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

static_assert(sizeof(Lock) == 4);

// A thread that wants the lock: tells its id, takes the lock, says whether it had to wait.
class Contender {
 public:
  explicit Contender(Lock& lock)
      : thread_([this, &lock] {
          id_.store(thread_id(), memory_order_release);
          waited_ = lock.lock_and_tell();
          lock.unlock();
        }) {}

  pid_t id() const {
    pid_t id = 0;
    while ((id = id_.load(memory_order_acquire)) == 0) {
      std::this_thread::yield();
    }
    return id;
  }
  bool join_and_tell() {
    thread_.join();
    return waited_;
  }

 private:
  Atomic<pid_t> id_{0};
  bool waited_ = false;
  std::thread thread_;
};

TEST(Lock, ExcludesFourThreadsFromEachOther) {
  Lock lock;
  constexpr int kThreads = 4;
  constexpr std::uint64_t kIncrements = 100'000;
  std::uint64_t counter = 0;  // not atomic: only the lock protects it
  std::uint64_t inside = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < kIncrements; ++i) {
        const LockGuard guard(lock);
        if (inside++ != 0) ADD_FAILURE() << "two threads inside";
        ++counter;
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter, kThreads * kIncrements);
  EXPECT_FALSE(lock.held());
}

TEST(Lock, TryLockFailsWhileHeldAndWorksAfterwards) {
  Lock lock;
  EXPECT_TRUE(lock.try_lock());
  EXPECT_TRUE(lock.held());
  bool taken = true;
  std::thread([&] { taken = lock.try_lock(); }).join();
  EXPECT_FALSE(taken);
  lock.unlock();
  EXPECT_FALSE(lock.held());
  std::thread([&] {
    taken = lock.try_lock();
    lock.unlock();
  }).join();
  EXPECT_TRUE(taken);
}

TEST(Lock, TellsWhetherItHadToWait) {
  Lock lock;
  EXPECT_FALSE(lock.lock_and_tell());
  Contender contender(lock);
  ASSERT_TRUE(test::wait_until_asleep(contender.id()));
  lock.unlock();
  EXPECT_TRUE(contender.join_and_tell());
  EXPECT_FALSE(lock.lock_and_tell());
  lock.unlock();
}

TEST(Lock, SleepsWhileTheHolderIsSlowAndUsesNoCpuMeanwhile) {
  Lock lock;
  lock.lock();
  Contender contender(lock);
  ASSERT_TRUE(test::wait_until_asleep(contender.id()));
  const unsigned long long before = test::thread_cpu_ns(contender.id());
  // Its own CPU time must stand still while wall time passes.
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  while (std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
  const unsigned long long used = test::thread_cpu_ns(contender.id()) - before;
  lock.unlock();
  EXPECT_TRUE(contender.join_and_tell());
  EXPECT_LT(used, 5'000'000U);
}

TEST(Lock, WakesEverySleeperInTheEnd) {
  Lock lock;
  lock.lock();
  {
    Contender a(lock);
    Contender b(lock);
    Contender c(lock);
    for (const Contender* one : {&a, &b, &c}) {
      ASSERT_TRUE(test::wait_until_asleep(one->id()));
    }
    lock.unlock();
    EXPECT_TRUE(a.join_and_tell());
    EXPECT_TRUE(b.join_and_tell());
    EXPECT_TRUE(c.join_and_tell());
  }
  EXPECT_FALSE(lock.held());
}

Atomic<int> g_signals{0};

TEST(Lock, ASignalWhileAsleepNeitherWakesTheCallerNorChangesErrno) {
  struct sigaction action {};
  struct sigaction old {};
  action.sa_handler = [](int) { g_signals.fetch_add(1, memory_order_relaxed); };
  ASSERT_EQ(sigaction(SIGUSR1, &action, &old), 0);
  g_signals.store(0, memory_order_relaxed);

  Lock lock;
  lock.lock();
  Atomic<pid_t> id{0};
  Atomic<bool> got{false};
  int seen = 0;
  std::thread waiter([&] {
    errno = 4711;
    id.store(thread_id(), memory_order_release);
    lock.lock();
    seen = errno;
    got.store(true, memory_order_relaxed);
    lock.unlock();
  });
  while (id.load(memory_order_acquire) == 0) {
    std::this_thread::yield();
  }
  const pid_t thread = id.load(memory_order_relaxed);
  for (int signal = 1; signal <= 3; ++signal) {
    ASSERT_TRUE(test::wait_until_asleep(thread));
    pthread_kill(waiter.native_handle(), SIGUSR1);  // the futex call ends with EINTR
    while (g_signals.load(memory_order_relaxed) < signal) {
      std::this_thread::yield();
    }
  }
  ASSERT_TRUE(test::wait_until_asleep(thread));
  EXPECT_FALSE(got.load(memory_order_relaxed));
  errno = 4712;
  lock.unlock();  // wakes the sleeper
  EXPECT_EQ(errno, 4712);
  waiter.join();
  EXPECT_TRUE(got.load(memory_order_relaxed));
  EXPECT_EQ(seen, 4711);
  sigaction(SIGUSR1, &old, nullptr);
}

}  // namespace
}  // namespace weir
