// SPDX-License-Identifier: MIT
// The depot's own code, on atomics that stop before every access, in every order of its steps: no
// body is lost or in two places, and the capacity holds. And the same code without its tags, where
// the explorer must find the fault that the tags are for.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "tests/model/interleave.hpp"
#include "weir/zone/depot.hpp"

namespace weir::test {
namespace {

enum class Op : unsigned char {
  take_full,
  give_full,
  take_empty,
  give_empty,
  take_partial,
  give_partial
};
using enum Op;
// What one thread does; a give passes on what it took first, and is left out with empty hands.
using Program = std::vector<Op>;

struct Shape {
  std::uint32_t bodies = 3;
  std::uint32_t capacity = 3;
  std::uint32_t shards = 1;
  std::uint32_t full = 0;     // so many of the bodies start as full clusters in shard 0
  std::uint32_t partial = 0;  // and so many as partial ones
};

// A depot, threads that use it, and a book of their own of who holds what. Thread i works on shard
// i modulo the number of shards.
template <template <class> class AtomicT>
class Rig {
 public:
  Rig(Shape shape, std::vector<Program> programs) : shape_(shape), programs_(std::move(programs)) {}

  Explored run(Limits limits = {}) {
    EXPECT_FALSE(depot_.open(shape_.bodies, shape_.capacity, shape_.shards, kFrames).failed());
    take_all_bodies();
    Scenario scenario{[this] { start(); }, {}, [this] { finish(); }};
    for (std::size_t i = 0; i < programs_.size(); ++i) {
      scenario.threads.emplace_back([this, i] { work(i); });
    }
    Explored explored = explore(scenario, limits);
    depot_.close();
    return explored;
  }
  // The most full clusters seen at once in any schedule.
  [[nodiscard]] std::uint32_t most_full() const { return most_full_; }
  [[nodiscard]] std::uint32_t fewest_refusals() const { return fewest_refusals_; }

 private:
  static constexpr std::uint32_t kFrames = 8;
  static constexpr std::uint32_t kBodies = 8;
  // Frames of a body while it is partial: another number for each.
  static std::uint32_t part_of(ClusterId id) { return 1 + id.value % (kFrames - 1); }

  void take_all_bodies() {
    while (depot_.take_empty(0) != kNoCluster) {
    }
  }

  // Every schedule starts and ends with a depot without bodies: they are given and taken here, which
  // is faster than to open it anew.
  void start() {
    for (std::uint32_t i = shape_.bodies; i-- != 0;) {
      depot_.give_empty({static_cast<std::uint16_t>(i)}, i * shape_.shards / shape_.bodies);
    }
    held_ = {};
    hands_.assign(programs_.size(), {});
    for (std::uint32_t i = 0; i < shape_.full; ++i) {
      if (!depot_.give_full(depot_.take_empty(0), 0)) {
        Explorer::violated("the depot does not take what it starts with");
      }
    }
    for (std::uint32_t i = 0; i < shape_.partial; ++i) {
      const ClusterId id = depot_.take_empty(0);
      depot_.give_partial(id, part_of(id), 0);
    }
    refusals_ = 0;
  }

  void work(std::size_t me) {
    const auto shard = static_cast<std::uint32_t>(me % shape_.shards);
    std::vector<ClusterId>& hand = hands_[me];
    const auto took = [this, &hand](ClusterId id) {
      if (id == kNoCluster) {
        return;
      }
      if (std::exchange(held_[id.value], true)) {
        Explorer::violated("a body has two holders");
      }
      hand.push_back(id);
    };
    for (const Op op : programs_[me]) {
      std::uint32_t n = 0;
      switch (op) {
        case take_full:
          took(depot_.take_full(shard));
          continue;
        case take_empty:
          took(depot_.take_empty(shard));
          continue;
        case take_partial:
          took(depot_.take_partial(shard, n));
          if (n != (hand.empty() || n == 0 ? 0 : part_of(hand.back()))) {
            Explorer::violated("a partial cluster comes with another number");
          }
          continue;
        default:
          break;
      }
      if (hand.empty()) {
        continue;
      }
      const ClusterId id = hand.front();
      hand.erase(hand.begin());
      held_[id.value] = false;  // from the swap inside on, anybody may hold it
      if (op == give_full) {
        if (!depot_.give_full(id, shard)) {
          held_[id.value] = true;
          hand.insert(hand.begin(), id);
          ++refusals_;
        }
        most_full_ =
            std::max(most_full_, Explorer::unseen([this] { return depot_.full_clusters(); }));
      } else if (op == give_empty) {
        depot_.give_empty(id, shard);
      } else {
        depot_.give_partial(id, part_of(id), shard);
      }
    }
  }

  // Empties the depot: each body must come out of it, or be in a hand, once.
  void finish() {
    fewest_refusals_ = std::min(fewest_refusals_, refusals_);
    std::array<std::uint32_t, kBodies> seen{};
    for (const std::vector<ClusterId>& hand : hands_) {
      for (const ClusterId id : hand) {
        ++seen[id.value];
      }
    }
    const std::uint32_t full = depot_.full_clusters();
    const std::uint32_t partial = depot_.partial_clusters();
    const std::uint32_t empty = depot_.empty_bodies();
    const std::uint64_t frames = depot_.frames();
    std::uint64_t frames_found = 0;
    const auto count = [&seen](std::uint32_t expected, auto take) {
      std::uint32_t n = 0;
      for (ClusterId id = take(); id != kNoCluster && n <= kBodies; id = take()) {
        ++seen[id.value];
        ++n;
      }
      if (n != expected) {
        Explorer::violated("a depth is not what lies in the stack");
      }
    };
    count(full, [this, &frames_found] {
      const ClusterId id = depot_.take_full(0);
      frames_found += id != kNoCluster ? kFrames : 0;
      return id;
    });
    count(partial, [this, &frames_found] {
      std::uint32_t n = 0;
      const ClusterId id = depot_.take_partial(0, n);
      frames_found += n;
      return id;
    });
    count(empty, [this] { return depot_.take_empty(0); });
    if (frames != frames_found) {
      Explorer::violated("frames() is not what lies here");
    }
    for (std::uint32_t id = 0; id < shape_.bodies; ++id) {
      if (seen[id] != 1) {
        Explorer::violated(seen[id] == 0 ? "a body is lost" : "a body is in two places");
      }
    }
  }

  Shape shape_;
  std::vector<Program> programs_;
  BasicDepot<AtomicT> depot_;
  std::array<bool, kBodies> held_{};
  std::vector<std::vector<ClusterId>> hands_;
  std::uint32_t refusals_ = 0;
  std::uint32_t fewest_refusals_ = ~std::uint32_t{0};
  std::uint32_t most_full_ = 0;
};

// Adds up what a test explored, for its last line.
class Sum {
 public:
  explicit Sum(const char* what) : what_(what) {}
  ~Sum() { std::printf("%llu schedules: %s\n", static_cast<unsigned long long>(sum_), what_); }
  Sum(const Sum&) = delete;
  Sum& operator=(const Sum&) = delete;
  void expect_right(const Explored& explored) {
    EXPECT_EQ(explored.failure, "") << "schedule " << explored.witness;
    sum_ += explored.schedules;
  }

 private:
  const char* what_;
  std::uint64_t sum_ = 0;
};

TEST(DepotInterleave, EveryPairOfShortProgramsKeepsEveryBody) {
  const std::vector<Program> programs{{take_full, give_full},   {take_full, give_empty},
                                      {take_full, take_full},   {take_full, take_empty},
                                      {take_empty, give_full},  {take_empty, give_empty},
                                      {take_empty, take_empty}, {take_empty, give_partial}};
  Sum sum{"two threads, two calls each"};
  for (std::size_t a = 0; a < programs.size(); ++a) {
    for (std::size_t b = a; b < programs.size(); ++b) {
      Rig<ModelAtomic> rig{{.bodies = 3, .full = 1}, {programs[a], programs[b]}};
      sum.expect_right(rig.run());
    }
  }
}

TEST(DepotInterleave, PartialClustersKeepTheirNumber) {
  Sum sum{"two threads with partial clusters"};
  const std::vector<Program> programs{{take_partial, give_partial},
                                      {take_partial, give_empty},
                                      {take_empty, give_partial},
                                      {take_partial, take_partial}};
  for (const Program& a : programs) {
    for (const Program& b : programs) {
      Rig<ModelAtomic> rig{{.bodies = 3, .partial = 2}, {a, b}};
      sum.expect_right(rig.run());
    }
  }
}

TEST(DepotInterleave, AFillAndASpillKeepEveryBody) {
  Sum sum{"two threads, three calls each"};
  // A list that runs dry beside one that overflows, as they use the depot.
  Rig<ModelAtomic> rig{{.bodies = 4, .full = 2},
                       {{take_full, give_empty, take_full}, {take_empty, give_full, take_empty}}};
  sum.expect_right(rig.run(kManySchedules));
}

TEST(DepotInterleave, ThreeThreadsKeepEveryBody) {
  Sum sum{"three threads, one call each"};
  for (const Program& first : {Program{take_full}, Program{take_empty}}) {
    Rig<ModelAtomic> rig{{.bodies = 3, .full = 2}, {first, {take_full}, {take_full}}};
    sum.expect_right(rig.run());
  }
}

TEST(DepotInterleave, ThreeThreadsWithTwoCallsKeepEveryBodyWithUpToFourPreemptions) {
  Sum sum{"three threads, two calls each, at most four preemptions"};
  Rig<ModelAtomic> rig{{.bodies = 4, .full = 2},
                       {{take_full, give_full}, {take_full, give_empty}, {take_empty, give_full}}};
  sum.expect_right(rig.run({.preemptions = 4}));
}

// While thread 0 sleeps between its look and its swap, thread 1 makes the stack look the same: 1 over
// 0 becomes 1 over 2, with 0 in thread 1's hand.
const Shape kOneOverZero{.bodies = 3, .full = 2};
const std::vector<Program> kMakesTheSameLook{
    {take_full}, {take_empty, take_full, take_full, give_full, give_full}};

TEST(DepotInterleave, AStackThatLooksTheSameAgainFoolsNobody) {
  Sum sum{"a stack that looks the same again"};
  Rig<ModelAtomic> rig{kOneOverZero, kMakesTheSameLook};
  sum.expect_right(rig.run());
}

TEST(DepotInterleave, StealingKeepsEveryBody) {
  Sum sum{"two shards"};
  const std::vector<Program> programs{{take_full, give_full},
                                      {take_full, give_empty},
                                      {take_empty, give_full},
                                      {take_empty, take_empty}};
  for (const Program& a : programs) {
    for (const Program& b : programs) {
      Rig<ModelAtomic> rig{{.bodies = 3, .shards = 2, .full = 1}, {a, b}};
      sum.expect_right(rig.run());
    }
  }
}

TEST(DepotInterleave, TheCapacityOfOneShardIsNeverOverrun) {
  Sum sum{"capacity of one shard"};
  Rig<ModelAtomic> two{{.bodies = 3, .capacity = 1},
                       {{take_empty, give_full}, {take_empty, give_full}}};
  sum.expect_right(two.run());
  EXPECT_EQ(two.most_full(), 1U);
  EXPECT_EQ(two.fewest_refusals(), 1U);  // and one of the two is refused in every schedule
  Rig<ModelAtomic> refill{{.bodies = 3, .capacity = 1, .full = 1},
                          {{take_full, give_full}, {take_empty, give_full}}};
  sum.expect_right(refill.run());
  EXPECT_EQ(refill.most_full(), 1U);
}

TEST(DepotInterleave, TheCapacityOfSeveralShardsIsOverrunByOneForEachOtherGiverAtMost) {
  Sum sum{"capacity of several shards"};
  Rig<ModelAtomic> two{{.bodies = 4, .capacity = 1, .shards = 2},
                       {{take_empty, give_full}, {take_empty, give_full}}};
  sum.expect_right(two.run());
  EXPECT_EQ(two.most_full(), 2U);  // it happens, as the header says
  Rig<ModelAtomic> longer{
      {.bodies = 4, .capacity = 1, .shards = 2},
      {{take_empty, give_full}, {take_empty, give_full, take_empty, give_full}}};
  sum.expect_right(longer.run({.preemptions = 4}));
  EXPECT_EQ(longer.most_full(), 2U);
  const Program fills{take_empty, give_full};
  Rig<ModelAtomic> three{{.bodies = 4, .capacity = 1, .shards = 3}, {fills, fills, fills}};
  sum.expect_right(three.run({.preemptions = 3}));
  EXPECT_EQ(three.most_full(), 3U);
}

// A swap that does not look at the tag: what the depot would be without it.
template <class T>
class ForgetfulAtomic : public ModelAtomic<T> {
 public:
  using ModelAtomic<T>::ModelAtomic;
  bool compare_exchange_weak(T& expected, T desired, std::memory_order = memory_order_seq_cst,
                             std::memory_order = memory_order_seq_cst) {
    constexpr T kLooks = (T{1} << StackHead::kTagShift) - 1;
    Explorer::step();
    return Explorer::unseen([this, &expected, desired] {
      const T there = this->load();
      if ((there & kLooks) == (expected & kLooks)) {
        expected = there;
      }
      return ModelAtomic<T>::compare_exchange_weak(expected, desired);
    });
  }
};

TEST(DepotInterleave, WithoutTagsTheExplorerFindsTheFault) {
  Rig<ForgetfulAtomic> rig{kOneOverZero, kMakesTheSameLook};
  const Explored found = rig.run();
  EXPECT_NE(found.failure, "");
  std::printf("found in schedule %llu: %s\n", static_cast<unsigned long long>(found.schedules),
              found.failure.c_str());
}

}  // namespace
}  // namespace weir::test
