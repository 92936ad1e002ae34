// SPDX-License-Identifier: MIT
// Choosing CPUs, and the two pinned threads.
#include "lab/harness/crew.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

namespace weir::lab {
namespace {

bool never(unsigned, unsigned) { return false; }
// CPUs 2n and 2n + 1 are one core.
bool pairs(unsigned a, unsigned b) { return a / 2 == b / 2; }

TEST(ChooseCpus, TwoDifferentOnesOfTheAllowedSet) {
  const CpuPair cpus = choose_cpus({3, 7, 9}, never);
  EXPECT_EQ(cpus.lead, 3U);
  EXPECT_EQ(cpus.follow, 7U);
  EXPECT_FALSE(cpus.shared());
}

TEST(ChooseCpus, NotTwoThreadsOfOneCore) {
  const CpuPair cpus = choose_cpus({0, 1, 2, 3}, pairs);
  EXPECT_EQ(cpus.lead, 0U);
  EXPECT_EQ(cpus.follow, 2U);
}

TEST(ChooseCpus, TwoThreadsOfOneCoreIfThereIsNothingElse) {
  const CpuPair cpus = choose_cpus({4, 5}, pairs);
  EXPECT_EQ(cpus.lead, 4U);
  EXPECT_EQ(cpus.follow, 5U);
}

TEST(ChooseCpus, ASingleOneIsShared) {
  const CpuPair cpus = choose_cpus({6}, never);
  EXPECT_EQ(cpus.lead, 6U);
  EXPECT_TRUE(cpus.shared());
}

TEST(Crew, ThreadsRunWhereTheyWerePinned) {
  const CpuPair cpus = choose_cpus();
  Crew crew(cpus);
  ASSERT_EQ(crew.problem(), "");
  int lead = -1;
  int follow = -1;
  crew.run([&] { lead = ::sched_getcpu(); }, [&] { follow = ::sched_getcpu(); });
  EXPECT_EQ(lead, static_cast<int>(cpus.lead));
  EXPECT_EQ(follow, static_cast<int>(cpus.follow));
}

TEST(Crew, TheSameTwoThreadsServeEveryRun) {
  Crew crew(choose_cpus());
  std::set<std::thread::id> leads;
  std::set<std::thread::id> followers;
  for (int i = 0; i < 20; ++i) {
    crew.run([&] { leads.insert(std::this_thread::get_id()); },
             [&] { followers.insert(std::this_thread::get_id()); });
  }
  EXPECT_EQ(leads.size(), 1U);
  EXPECT_EQ(followers.size(), 1U);
  EXPECT_NE(*leads.begin(), *followers.begin());
}

// A ping-pong needs both to run at the same time, also on a shared CPU.
void play(Crew& crew) {
  constexpr int kTurns = 1000;
  std::atomic<int> turn{0};
  const auto side = [&](int mine) {
    Waiter waiter(crew.cpus().shared());
    for (int i = mine; i < kTurns; i += 2) {
      while (turn.load() != i) {
        waiter.wait();
      }
      turn.store(i + 1);
    }
  };
  crew.run([&] { side(0); }, [&] { side(1); });
  EXPECT_EQ(turn.load(), kTurns);
}

TEST(Crew, BothSidesRunAtTheSameTime) {
  Crew crew(choose_cpus());
  play(crew);
}

TEST(Crew, OneCpuIsEnoughForBoth) {
  const unsigned cpu = allowed_cpus().front();
  Crew crew({cpu, cpu});
  EXPECT_TRUE(crew.cpus().shared());
  play(crew);
}

TEST(Crew, WithoutWorkTheFollowerSleeps) {
  Crew crew(choose_cpus());
  bool led = false;
  crew.run([&] { led = true; }, {});
  EXPECT_TRUE(led);
}

TEST(Crew, ACpuThatDoesNotExistIsToldAndTheWorkStillDone) {
  Crew crew({8191, 8191});
  EXPECT_NE(crew.problem(), "");
  bool led = false;
  crew.run([&] { led = true; }, {});
  EXPECT_TRUE(led);
}

}  // namespace
}  // namespace weir::lab
