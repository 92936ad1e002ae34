// SPDX-License-Identifier: MIT
// A model of the per-CPU list's protocol: restartable sections of threads on one CPU beside a drainer
// on another. Shows in every order of the steps that each page is in one place, and that each part of
// the protocol is needed: the explorer finds the fault when one is left out. The model is written
// from the protocol; that the instructions follow it is tested where they are.
//
//   word W: top        bounds: {floor, ceil}, stopped = {0xffff, 0}        ring: pages floor..top
//
// A section is restarted from its beginning when it was left for another section of its CPU, or when
// a fence fell into it; its last step, the commit, happens only if it was not.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <vector>

#include "tests/model/interleave.hpp"

namespace weir::test {
namespace {

using Page = std::uint32_t;  // 1, 2, ...

struct Bounds {
  std::uint16_t floor;
  std::uint16_t ceil;
  friend bool operator==(Bounds, Bounds) = default;
};
constexpr Bounds kStopped{0xffff, 0};
constexpr std::uint16_t kCapacity = 4;

// What may be left out of the protocol.
struct Protocol {
  bool drainer_reads_back = true;
  bool drainer_fences = true;
  bool preempted_sections_restart = true;
  bool drainer_rewrites_top = false;  // restarts the list from 0, as a list that is set up anew
  bool bounds_before_top = true;      // in what order a section loads the two
};

class ListModel {
 public:
  explicit ListModel(Protocol protocol) : protocol_(protocol) {}

  // listed: pages 1.. that lie in the list at first; ceil: where the list is full.
  void start(std::uint16_t listed, std::uint16_t ceil) {
    *this = ListModel{protocol_};
    bounds_ = {0, ceil};
    for (Page page = 1; page <= listed; ++page) {
      ring_[top_++ % kRing] = page;
    }
    listed_first_ = listed;
  }
  // The page is in a thread's hand before the schedule.
  void held_first(Page page) { held_[page] = true; }

  void pop(int thread) {
    section(thread, [this](Attempt& attempt) -> Outcome {
      Bounds bounds{};
      std::uint32_t top = 0;
      if (!load_both(attempt, bounds, top)) {
        return std::nullopt;
      }
      if (top <= bounds.floor) {
        return false;
      }
      if (!attempt.step()) {
        return std::nullopt;
      }
      const Page page = ring_[(top - 1) % kRing];
      if (!attempt.step()) {
        return std::nullopt;
      }
      top_ = top - 1;
      takes(page);
      return true;
    });
  }

  void push(int thread, Page page) {
    section(thread, [this, page](Attempt& attempt) -> Outcome {
      Bounds bounds{};
      std::uint32_t top = 0;
      if (!load_both(attempt, bounds, top)) {
        return std::nullopt;
      }
      if (top >= bounds.ceil) {
        return false;
      }
      if (!attempt.step()) {
        return std::nullopt;
      }
      ring_[top % kRing] = page;
      if (!attempt.step()) {
        return std::nullopt;
      }
      top_ = top + 1;
      held_[page] = false;
      return true;
    });
  }

  void spill(int thread, std::uint16_t n) {
    section(thread, [this, n](Attempt& attempt) -> Outcome {
      Bounds bounds{};
      std::uint32_t top = 0;
      if (!load_both(attempt, bounds, top)) {
        return std::nullopt;
      }
      if (bounds == kStopped || top < bounds.ceil) {
        return false;
      }
      std::array<Page, kRing> copy{};
      for (std::uint16_t i = 0; i < n; ++i) {
        if (!attempt.step()) {
          return std::nullopt;
        }
        copy[i] = ring_[(bounds.floor + i) % kRing];
      }
      if (!attempt.step()) {
        return std::nullopt;
      }
      bounds_ = {static_cast<std::uint16_t>(bounds.floor + n),
                 static_cast<std::uint16_t>(bounds.ceil + n)};
      for (std::uint16_t i = 0; i < n; ++i) {
        takes(copy[i]);
      }
      return true;
    });
  }

  void resize(int thread, std::uint16_t capacity) {
    section(thread, [this, capacity](Attempt& attempt) -> Outcome {
      if (!attempt.step()) {
        return std::nullopt;
      }
      const Bounds bounds = bounds_;
      if (bounds == kStopped) {
        return false;
      }
      if (!attempt.step()) {
        return std::nullopt;
      }
      bounds_ = {bounds.floor, static_cast<std::uint16_t>(bounds.floor + capacity)};
      return true;
    });
  }

  // From another CPU: stops the list, takes what is in it, and lets it go on.
  void drain() {
    Bounds saved = kStopped;
    for (;;) {
      Explorer::step();
      const Bounds old = std::exchange(bounds_, kStopped);
      if (!(old == kStopped)) {
        saved = old;
      }
      if (protocol_.drainer_fences) {
        Explorer::step();
        ++fences_;
      }
      if (!protocol_.drainer_reads_back) {
        break;
      }
      Explorer::step();
      if (bounds_ == kStopped) {
        break;
      }
    }
    Explorer::step();
    const std::uint32_t top = top_;
    for (std::uint32_t at = saved.floor; at < top; ++at) {
      Explorer::step();
      takes(ring_[at % kRing]);
    }
    std::uint32_t floor = top;
    if (protocol_.drainer_rewrites_top) {
      Explorer::step();
      top_ = 0;
      floor = 0;
    }
    Explorer::step();
    bounds_ = {static_cast<std::uint16_t>(floor), static_cast<std::uint16_t>(floor + kCapacity)};
  }

  // Each page must be in one hand, or once in the list.
  void finish() const {
    std::array<std::uint32_t, kPages> places{};
    for (std::uint32_t at = bounds_.floor; at < top_; ++at) {
      ++places[ring_[at % kRing]];
    }
    for (Page page = 1; page < kPages; ++page) {
      const bool exists = page <= listed_first_ || held_[page] || places[page] != 0;
      if (exists && places[page] + (held_[page] ? 1 : 0) != 1) {
        Explorer::violated(places[page] == 0 ? "a page is lost" : "a page is in two places");
      }
    }
  }

 private:
  static constexpr std::uint32_t kRing = 8;
  static constexpr std::size_t kPages = 8;
  static constexpr int kNoThread = -1;
  // After so many restarts a section is not left for its neighbour again: or two sections could
  // restart each other for ever. The drainer's fence may still fall into it.
  static constexpr unsigned kRestarts = 1;

  using Outcome = std::optional<bool>;  // nothing: restarted; else whether it committed

  // One run of a section.
  class Attempt {
   public:
    Attempt(ListModel& list, int thread, bool alone)
        : list_(list), thread_(thread), alone_(alone) {}
    // Before each access; false: go back to the start.
    [[nodiscard]] bool step() {
      const std::function<bool()> may_run = [this] {
        return list_.alone_ == kNoThread || list_.alone_ == thread_;
      };
      Explorer::step_when(may_run);
      if (std::exchange(begun_, true)) {
        const bool left =
            list_.protocol_.preempted_sections_restart && list_.section_of_ != thread_;
        return !left && list_.fences_ == fences_;
      }
      list_.section_of_ = thread_;
      fences_ = list_.fences_;
      if (alone_) {
        list_.alone_ = thread_;
      }
      return true;
    }

   private:
    ListModel& list_;
    int thread_;
    bool alone_;
    bool begun_ = false;
    unsigned fences_ = 0;
  };

  void section(int thread, const std::function<Outcome(Attempt&)>& body) {
    for (unsigned restarts = 0;; ++restarts) {
      Attempt attempt{*this, thread, restarts >= kRestarts};
      if (body(attempt).has_value()) {
        break;
      }
    }
    if (alone_ == thread) {
      alone_ = kNoThread;
    }
  }

  [[nodiscard]] bool load_both(Attempt& attempt, Bounds& bounds, std::uint32_t& top) {
    for (const bool is_bounds : {protocol_.bounds_before_top, !protocol_.bounds_before_top}) {
      if (!attempt.step()) {
        return false;
      }
      if (is_bounds) {
        bounds = bounds_;
      } else {
        top = top_;
      }
    }
    return true;
  }

  void takes(Page page) {
    if (page == 0 || std::exchange(held_[page], true)) {
      Explorer::violated("a page is handed out twice");
    }
  }

  Protocol protocol_;
  Bounds bounds_{};
  std::uint32_t top_ = 0;
  std::array<Page, kRing> ring_{};
  // The CPU of the sections.
  int section_of_ = kNoThread;  // whose section ran here last
  unsigned fences_ = 0;
  int alone_ = kNoThread;  // who is not left for its neighbour
  // The book.
  std::array<bool, kPages> held_{};
  Page listed_first_ = 0;
};

using Work = std::function<void(ListModel&)>;

// Threads 0, 1, ... on one CPU do `work` on a list of two pages; page 7 is thread 0's, page 6 thread
// 1's. A drainer runs beside them, `drains` times.
Explored run(Protocol protocol, const std::vector<Work>& work, unsigned drains = 1,
             std::uint16_t ceil = kCapacity, Limits limits = {}) {
  ListModel list{protocol};
  Scenario scenario{[&list, ceil] {
                      list.start(2, ceil);
                      list.held_first(7);
                      list.held_first(6);
                    },
                    {},
                    [&list] { list.finish(); }};
  for (const Work& thread : work) {
    scenario.threads.emplace_back([&list, &thread] { thread(list); });
  }
  scenario.threads.emplace_back([&list, drains] {
    for (unsigned i = 0; i < drains; ++i) {
      list.drain();
    }
  });
  return explore(scenario, limits);
}

void expect_right(const char* what, const Explored& explored) {
  EXPECT_EQ(explored.failure, "") << what << ", schedule " << explored.witness;
  std::printf("%llu schedules: %s\n", static_cast<unsigned long long>(explored.schedules), what);
}
void expect_fault(const char* what, const Explored& explored) {
  EXPECT_NE(explored.failure, "") << what;
  std::printf("%s: %s, in schedule %s\n", what, explored.failure.c_str(), explored.witness.c_str());
}

const Work kPop = [](ListModel& list) { list.pop(0); };
const Work kPush = [](ListModel& list) { list.push(0, 7); };
const Work kPopThenPush = [](ListModel& list) {
  list.pop(0);
  list.push(0, 7);
};
const Work kPushThenPop = [](ListModel& list) {
  list.push(0, 7);
  list.pop(0);
};
const Work kSpillThenPush = [](ListModel& list) {
  list.spill(0, 1);
  list.push(0, 7);
};
const Work kSpillBoth = [](ListModel& list) { list.spill(0, 2); };
const Work kResizeThenPop = [](ListModel& list) {
  list.resize(0, 3);
  list.pop(0);
};
const Work kResizeThenPush = [](ListModel& list) {
  list.resize(0, 3);
  list.push(0, 7);
};
const Work kNeighbourPops = [](ListModel& list) { list.pop(1); };
const Work kNeighbourPushes = [](ListModel& list) { list.push(1, 6); };

TEST(ListProtocol, ADrainBesidePopAndPushKeepsEveryPage) {
  expect_right("pop, push; drain", run({}, {kPopThenPush}));
  expect_right("push, pop; drain", run({}, {kPushThenPop}));
}

TEST(ListProtocol, ADrainBesideASpillKeepsEveryPage) {
  expect_right("spill, push; drain", run({}, {kSpillThenPush}, 1, 2));
  expect_right("spill of two; drain", run({}, {kSpillBoth}, 1, 2));
}

TEST(ListProtocol, ADrainBesideAResizeKeepsEveryPage) {
  expect_right("resize, pop; drain", run({}, {kResizeThenPop}));
  expect_right("resize, push; drain", run({}, {kResizeThenPush}));
}

TEST(ListProtocol, TwoDrainsBesideOneSectionKeepEveryPage) {
  expect_right("pop; drain, drain", run({}, {kPop}, 2));
  expect_right("push; drain, drain", run({}, {kPush}, 2));
  expect_right("spill of two; drain, drain", run({}, {kSpillBoth}, 2, 2));
}

TEST(ListProtocol, TwoThreadsOfOneCpuBesideADrainKeepEveryPage) {
  expect_right("pop; push; drain", run({}, {kPop, kNeighbourPushes}, 1, kCapacity, kManySchedules));
  expect_right("pop; pop; drain, at most four preemptions",
               run({}, {kPop, kNeighbourPops}, 1, kCapacity, {.preemptions = 4}));
}

TEST(ListProtocol, WithoutReadingBackADrainMissesASpillAndAResize) {
  const Protocol broken{.drainer_reads_back = false};
  expect_fault("no reading back, spill", run(broken, {kSpillBoth}, 1, 2));
  expect_fault("no reading back, resize, pop", run(broken, {kResizeThenPop}));
  // Reading back is for those who write the bounds: the others cannot undo the stop.
  expect_right("no reading back, pop, push", run(broken, {kPopThenPush}));
}

TEST(ListProtocol, WithoutTheFenceADrainTakesWhatASectionTakes) {
  const Protocol broken{.drainer_fences = false};
  expect_fault("no fence, pop", run(broken, {kPop}));
  expect_fault("no fence, spill", run(broken, {kSpillBoth}, 1, 2));
  const Protocol rewrites{.drainer_fences = false, .drainer_rewrites_top = true};
  expect_fault("no fence, top rewritten, push", run(rewrites, {kPush}));
}

TEST(ListProtocol, WithoutRestartsTwoThreadsOfOneCpuTakeTheSamePage) {
  const Protocol broken{.preempted_sections_restart = false};
  expect_fault("no restarts, pop, pop", run(broken, {kPop, kNeighbourPops}, 0));
  expect_fault("no restarts, pop, push", run(broken, {kPop, kNeighbourPushes}, 0));
}

TEST(ListProtocol, TheBoundsMustBeLoadedBeforeTheTopIfARestartRewritesTheTop) {
  expect_fault("top before bounds, top rewritten",
               run({.drainer_rewrites_top = true, .bounds_before_top = false}, {kPop}));
  expect_right("bounds before top, top rewritten", run({.drainer_rewrites_top = true}, {kPop}));
  expect_right("top before bounds, top left alone", run({.bounds_before_top = false}, {kPop}));
  expect_right("bounds before top, top rewritten, push",
               run({.drainer_rewrites_top = true}, {kPush}));
}

}  // namespace
}  // namespace weir::test
