// SPDX-License-Identifier: MIT
// lab/experiments/engines.hpp — the engine of a zone alone, on one CPU: what a frame costs that moves in a
// cluster, one that is given back among strangers, a pageblock, a single frame. And the floor: one
// compare-and-swap. Untimed: the first thousands of a round, and the check that frames are distinct.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/experiments/rounds.hpp"
#include "lab/harness/trial.hpp"
#include "weir/base/atomic.hpp"
#include "weir/base/types.hpp"

namespace weir::lab {

enum class EngineScene : unsigned char { single, cluster, scattered, order9 };

struct EngineCase {
  const char* name;
  EngineScene scene;
  std::uint64_t frames;
};
inline constexpr std::uint64_t kSmallZone = std::uint64_t{1} << 16;  // 256 MiB
inline constexpr std::uint64_t kLargeZone = std::uint64_t{1} << 22;  // 16 GiB
inline constexpr EngineCase kEngineCases[] = {
    {"single", EngineScene::single, kSmallZone},
    {"cluster", EngineScene::cluster, kSmallZone},
    {"scattered", EngineScene::scattered, kSmallZone},
    {"scattered-16g", EngineScene::scattered, kLargeZone},
    {"order9", EngineScene::order9, kSmallZone},
};
// The first one where the name is no other's.
[[nodiscard]] inline const EngineCase& engine_case(std::string_view name) {
  for (const EngineCase& one : kEngineCases) {
    if (name == one.name) {
      return one;
    }
  }
  return kEngineCases[0];
}

// What is done again and again, timed inside: run() returns how many were done, 0 when the engine ran
// out, and adds to `ns`.
template <class E>
class EngineTrial final : public Trial {
 public:
  explicit EngineTrial(const EngineCase& one) : case_(one), engine_(one.frames) {
    if (case_.scene == EngineScene::scattered) {
      take_all();
      std::shuffle(pages_.begin(), pages_.end(), std::mt19937_64{1});
    }
  }

  void prepare(const RoundSetup& setup) override {
    duration_ = setup.duration;
    done_ = 0;
    elapsed_ns_ = 0;
    fault_.clear();
  }
  void lead() override {
    double ns = 0;
    std::uint64_t done = run(ns);  // warms up
    const auto deadline = SteadyClock::now() + duration_;
    do {
      if (done == 0) {
        fault_ = "it ran out of frames";
        return;
      }
      done = run(elapsed_ns_);
      done_ += done;
    } while (SteadyClock::now() < deadline);
    verify();
  }
  [[nodiscard]] bool two_sided() const override { return false; }
  Outcome collect() override {
    const auto done = static_cast<double>(done_);
    return {{{"time", "ns", elapsed_ns_ / done}, {"pages", "count", done}}, fault_};
  }

 private:
  static constexpr std::uint32_t kCluster = 64;
  static constexpr std::uint64_t kTimes = 8192;  // between looks at the clock
  static constexpr std::uint64_t kMostScattered = std::uint64_t{1} << 19;

  [[gnu::noinline]] std::uint64_t run(double& ns) {
    if (case_.scene == EngineScene::scattered) {
      return scatter(ns);
    }
    const auto start = SteadyClock::now();
    const std::uint64_t done = case_.scene == EngineScene::cluster  ? clusters()
                               : case_.scene == EngineScene::order9 ? pairs(kPageblockOrder)
                                                                    : pairs(Order{0});
    ns += ns_between(start, SteadyClock::now());
    return done;
  }
  std::uint64_t pairs(Order order) noexcept {
    for (std::uint64_t i = 0; i < kTimes; ++i) {
      const PageIndex page = engine_.take(order);
      if (page == kNoPage) [[unlikely]] {
        return 0;
      }
      keep(page);
      engine_.give(page, order);
    }
    return kTimes;
  }
  std::uint64_t clusters() noexcept {
    alignas(64) PageIndex cluster[kCluster];
    for (std::uint64_t i = 0; i < kTimes; i += kCluster) {
      if (engine_.take_many(cluster, kCluster) != kCluster) [[unlikely]] {
        return 0;
      }
      keep(cluster);
      engine_.give_many(cluster, kCluster);
    }
    return kTimes;
  }
  // Nearly all frames are out. Some thousand clusters of strangers come back, timed; then as many
  // frames, which are the same ones, leave again, not timed.
  std::uint64_t scatter(double& ns) {
    const std::uint64_t n = std::min(pages_.size(), kMostScattered);
    const auto start = SteadyClock::now();
    for (std::uint64_t i = 0; i < n; i += kCluster) {
      engine_.give_many(&pages_[(next_ + i) % pages_.size()], kCluster);
    }
    ns += ns_between(start, SteadyClock::now());
    next_ = (next_ + n) % pages_.size();
    alignas(64) PageIndex cluster[kCluster];
    for (std::uint64_t i = 0; i < n; i += kCluster) {
      if (engine_.take_many(cluster, kCluster) != kCluster) {
        return 0;
      }
    }
    return n;
  }
  void take_all() {
    pages_.resize(case_.frames);
    for (std::uint64_t i = 0; i < case_.frames; i += kCluster) {
      engine_.take_many(&pages_[i], kCluster);
    }
  }

  // All that is there comes out once, and goes back.
  void verify() {
    std::vector<PageIndex> all;
    for (PageIndex page = engine_.take(Order{0}); page != kNoPage && all.size() <= case_.frames;
         page = engine_.take(Order{0})) {
      all.push_back(page);
    }
    const std::uint64_t expected = case_.scene == EngineScene::scattered ? 0 : case_.frames;
    std::sort(all.begin(), all.end());
    if (all.size() != expected || std::adjacent_find(all.begin(), all.end()) != all.end()) {
      fault_ = "it lost frames or handed them out twice: " + std::to_string(all.size()) + " of " +
               std::to_string(expected);
      return;
    }
    for (const PageIndex page : all) {
      engine_.give(page, Order{0});
    }
  }

  EngineCase case_;
  E engine_;
  std::vector<PageIndex> pages_;  // scattered: every frame, shuffled
  std::uint64_t next_ = 0;        // of them
  std::chrono::nanoseconds duration_{0};
  std::uint64_t done_ = 0;
  double elapsed_ns_ = 0;
  std::string fault_;
};

// One compare-and-swap on a line that nobody else has, each upon what the one before left.
class CompareAndSwapTrial final : public Trial {
 public:
  void prepare(const RoundSetup& setup) override {
    duration_ = setup.duration;
    done_ = 0;
  }
  void lead() override {
    run();
    const auto start = SteadyClock::now();
    auto now = start;
    do {
      run();
      done_ += kTimes;
      now = SteadyClock::now();
    } while (now < start + duration_);
    elapsed_ns_ = ns_between(start, now);
  }
  [[nodiscard]] bool two_sided() const override { return false; }
  Outcome collect() override {
    const auto done = static_cast<double>(done_);
    return {{{"time", "ns", elapsed_ns_ / done}, {"pages", "count", done}}, ""};
  }

 private:
  static constexpr std::uint64_t kTimes = 8192;
  [[gnu::noinline]] void run() noexcept {
    std::uint64_t seen = word_.load(memory_order_relaxed);
    for (std::uint64_t i = 0; i < kTimes; ++i) {
      while (!word_.compare_exchange_weak(seen, seen + 1, memory_order_relaxed)) {
      }
      ++seen;
    }
  }

  alignas(128) Atomic<std::uint64_t> word_{0};
  std::chrono::nanoseconds duration_{0};
  std::uint64_t done_ = 0;
  double elapsed_ns_ = 0;
};

}  // namespace weir::lab
