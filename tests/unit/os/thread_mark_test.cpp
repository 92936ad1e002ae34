// SPDX-License-Identifier: MIT
#include "weir/os/thread_mark.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "weir/os/lock.hpp"

namespace weir {
namespace {

volatile std::sig_atomic_t g_seen = -1;

void look(int) { g_seen = thread_is_marked() ? 1 : 0; }

class ThreadMarkInHandler : public testing::Test {
 protected:
  void SetUp() override {
    struct sigaction action {};
    action.sa_handler = look;
    ASSERT_EQ(sigaction(SIGUSR1, &action, &old_), 0);
  }
  void TearDown() override { sigaction(SIGUSR1, &old_, nullptr); }

  static int seen_by_handler() {
    g_seen = -1;
    raise(SIGUSR1);
    return g_seen;
  }

 private:
  struct sigaction old_ {};
};

TEST_F(ThreadMarkInHandler, SeesTheMarkOfTheCodeItInterrupted) {
  EXPECT_EQ(seen_by_handler(), 0);
  {
    Lock lock;
    const ThreadMark mark;
    const LockGuard guard(lock);
    EXPECT_EQ(seen_by_handler(), 1);
  }
  EXPECT_EQ(seen_by_handler(), 0);
}

TEST(ThreadMark, NestsAndEndsWithTheOutermost) {
  EXPECT_FALSE(thread_is_marked());
  {
    const ThreadMark outer;
    EXPECT_TRUE(thread_is_marked());
    {
      const ThreadMark inner;
      EXPECT_TRUE(thread_is_marked());
    }
    EXPECT_TRUE(thread_is_marked());
  }
  EXPECT_FALSE(thread_is_marked());
}

TEST(ThreadMark, IsOfOneThreadOnly) {
  const ThreadMark mark;
  bool marked = true;
  std::thread([&] {
    marked = thread_is_marked();
    const ThreadMark own;
    EXPECT_TRUE(thread_is_marked());
  }).join();
  EXPECT_FALSE(marked);
  EXPECT_TRUE(thread_is_marked());
}

}  // namespace
}  // namespace weir
