// SPDX-License-Identifier: MIT
// The explorer itself: it takes exactly the schedules there are, and it finds faults that are known
// to be there.
#include "tests/model/interleave.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace weir::test {
namespace {

Scenario steps_of(const std::vector<unsigned>& counts) {
  Scenario scenario{[] {}, {}, [] {}};
  for (const unsigned count : counts) {
    scenario.threads.emplace_back([count] {
      for (unsigned i = 0; i < count; ++i) {
        Explorer::step();
      }
    });
  }
  return scenario;
}

TEST(Interleave, TakesEveryScheduleOnce) {
  EXPECT_EQ(explore(steps_of({5})).schedules, 1U);
  EXPECT_EQ(explore(steps_of({2, 3})).schedules, 10U);       // 5! / (2! 3!)
  EXPECT_EQ(explore(steps_of({6, 6})).schedules, 924U);      // 12! / (6! 6!)
  EXPECT_EQ(explore(steps_of({3, 3, 3})).schedules, 1680U);  // 9! / (3! 3! 3!)
  EXPECT_EQ(explore(steps_of({2, 0})).schedules, 1U);
  EXPECT_EQ(explore(steps_of({3, 3, 3})).longest, 9U);
}

TEST(Interleave, SchedulesDifferFromEachOther) {
  std::string order;
  std::set<std::string> orders;
  Scenario scenario{[&] { order.clear(); }, {}, [&] { orders.insert(order); }};
  for (const char name : {'a', 'b', 'c'}) {
    scenario.threads.emplace_back([&order, name] {
      for (int i = 0; i < 2; ++i) {
        Explorer::step();
        order += name;
      }
    });
  }
  EXPECT_EQ(explore(scenario).schedules, 90U);  // 6! / (2! 2! 2!)
  EXPECT_EQ(orders.size(), 90U);
}

TEST(Interleave, ABoundOnPreemptionsLeavesOut) {
  EXPECT_EQ(explore(steps_of({4, 4}), {.preemptions = 0}).schedules, 2U);
  // Either thread first, left once after 1, 2 or 3 of its steps, or not at all.
  EXPECT_EQ(explore(steps_of({4, 4}), {.preemptions = 1}).schedules, 8U);
}

Scenario two_increments(ModelAtomic<int>& counter, bool atomic) {
  const auto add = [&counter, atomic] {
    if (atomic) {
      counter.fetch_add(1);
    } else {
      counter.store(counter.load() + 1);
    }
  };
  return {[&counter] { counter.store(0); },
          {add, add},
          [&counter] {
            if (counter.load() != 2) {
              Explorer::violated("an increment is lost");
            }
          }};
}

TEST(Interleave, FindsALostUpdate) {
  ModelAtomic<int> counter;
  const Explored found = explore(two_increments(counter, false));
  EXPECT_EQ(found.failure, "an increment is lost");
  EXPECT_EQ(found.witness.substr(0, 3), "011") << found.witness;  // thread 0 slept on what it read
  const Explored right = explore(two_increments(counter, true));
  EXPECT_EQ(right.failure, "");
  EXPECT_EQ(right.schedules, 2U);
}

TEST(Interleave, FindsTheLostUpdateOnlyWithAPreemption) {
  ModelAtomic<int> counter;
  EXPECT_EQ(explore(two_increments(counter, false), {.preemptions = 0}).failure, "");
  EXPECT_NE(explore(two_increments(counter, false), {.preemptions = 1}).failure, "");
}

// A stack of three nodes as in a textbook: a word with the top, a successor for each node, and a tag
// in the word or not.
class ToyStack {
 public:
  explicit ToyStack(bool tagged) : tagged_(tagged) {}
  void reset() {
    head_.store(0);
    for (std::uint32_t node : {3U, 2U, 1U}) {
      push(node);
    }
  }
  void push(std::uint32_t node) {
    std::uint32_t seen = head_.load();
    do {
      next_[node].store(seen & 0xff);
    } while (!head_.compare_exchange_weak(seen, with_tag(node, seen)));
  }
  std::uint32_t pop() {
    std::uint32_t seen = head_.load();
    while ((seen & 0xff) != 0) {
      const std::uint32_t next = next_[seen & 0xff].load();
      if (head_.compare_exchange_weak(seen, with_tag(next, seen))) {
        return seen & 0xff;
      }
    }
    return 0;
  }

 private:
  [[nodiscard]] std::uint32_t with_tag(std::uint32_t node, std::uint32_t seen) const {
    return node | (tagged_ ? (seen & ~0xffU) + 0x100 : 0);
  }
  bool tagged_;
  ModelAtomic<std::uint32_t> head_{0};
  std::array<ModelAtomic<std::uint32_t>, 4> next_{};
};

Scenario one_pops_while_another_pops_twice_and_pushes(ToyStack& stack,
                                                      std::array<int, 4>& holders) {
  const auto pop = [&stack, &holders] {
    const std::uint32_t node = stack.pop();
    if (node != 0 && holders[node]++ != 0) {
      Explorer::violated("a node has two holders");
    }
    return node;
  };
  return {[&] {
            stack.reset();
            holders = {};
          },
          {[pop] { pop(); },
           [pop, &stack, &holders] {
             const std::uint32_t first = pop();
             pop();
             if (first != 0) {
               --holders[first];
               stack.push(first);
             }
           }},
          [&] {
            for (std::uint32_t node = stack.pop(); node != 0; node = stack.pop()) {
              if (++holders[node] != 1) {
                Explorer::violated("a node is in the stack and in a hand");
                break;
              }
            }
            for (const std::size_t node : {1U, 2U, 3U}) {
              if (holders[node] == 0) {
                Explorer::violated("a node is lost");
              }
            }
          }};
}

TEST(Interleave, FindsTheFaultOfAStackWithoutTags) {
  std::array<int, 4> holders{};
  ToyStack untagged{false};
  const Explored found = explore(one_pops_while_another_pops_twice_and_pushes(untagged, holders));
  EXPECT_NE(found.failure, "");
  ToyStack tagged{true};
  const Explored right = explore(one_pops_while_another_pops_twice_and_pushes(tagged, holders));
  EXPECT_EQ(right.failure, "") << right.witness;
  EXPECT_GE(right.schedules, 220U);  // 12! / (3! 9!) and more with repeated swaps
  RecordProperty("schedules", static_cast<int>(right.schedules));
}

TEST(Interleave, FindsThreadsThatWaitForEachOther) {
  std::array<bool, 2> locks{};
  const auto hold_both = [&locks](std::size_t first, std::size_t second) {
    for (const std::size_t lock : {first, second}) {
      const std::function<bool()> is_free = [&locks, lock] { return !locks[lock]; };
      Explorer::step_when(is_free);
      locks[lock] = true;
    }
    locks = {};
  };
  const auto scenario = [&](std::size_t a, std::size_t b) {
    return Scenario{
        [&] { locks = {}; }, {[=] { hold_both(0, 1); }, [=] { hold_both(a, b); }}, [] {}};
  };
  EXPECT_EQ(explore(scenario(1, 0)).failure, "every thread waits");
  EXPECT_EQ(explore(scenario(0, 1)).failure, "");
}

TEST(Interleave, TellsOfAScheduleWithoutEnd) {
  ModelAtomic<int> flag;
  const Explored found = explore({[&] { flag.store(0); },
                                  {[&] {
                                     while (flag.load() == 0) {
                                     }
                                   },
                                   [&] { flag.store(1); }},
                                  [] {}},
                                 {.steps = 100});
  EXPECT_EQ(found.failure, "a schedule does not end");
}

TEST(Interleave, TellsOfAScenarioThatIsNotTheSameEachTime) {
  unsigned runs = 0;
  const Explored found = explore({[&] { ++runs; },
                                  {[&] {
                                     for (unsigned i = 0; i < (runs == 1 ? 3U : 1U); ++i) {
                                       Explorer::step();
                                     }
                                   },
                                   [] { Explorer::step(); }},
                                  [] {}});
  EXPECT_EQ(found.failure, "the scenario is not the same each time");
}

}  // namespace
}  // namespace weir::test
