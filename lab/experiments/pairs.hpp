// SPDX-License-Identifier: MIT
// lab/experiments/pairs.hpp — one buffer out and back on one CPU, again and again. Untimed: the
// first thousands of a round, and after it the check that the buffers are real and distinct.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lab/contenders/buffers.hpp"
#include "lab/experiments/rounds.hpp"
#include "lab/harness/trial.hpp"

namespace weir::lab {

template <Buffers B>
class PairsTrial final : public Trial {
 public:
  explicit PairsTrial(std::shared_ptr<B> buffers) : buffers_(std::move(buffers)) {}

  void prepare(const RoundSetup& setup) override {
    duration_ = setup.duration;
    pairs_ = 0;
    exhausted_ = false;
    readings_.clear();
    buffers_->begin_round();
  }

  void lead() override {
    B& buffers = *buffers_;
    buffers.enter_thread();
    exhausted_ = !run(buffers);
    buffers.begin_round();
    const auto start = SteadyClock::now();
    const auto deadline = start + duration_;
    auto now = start;
    do {
      if (exhausted_ || !run(buffers)) {
        exhausted_ = true;
        return;
      }
      pairs_ += kPairs;
      now = SteadyClock::now();
    } while (now < deadline);
    elapsed_ns_ = ns_between(start, now);
    buffers.end_round(readings_);
    fault_ = verify_distinct(buffers);
  }

  [[nodiscard]] bool two_sided() const override { return false; }

  Outcome collect() override {
    if (exhausted_) {
      return {{}, "it ran out of buffers with one in use"};
    }
    const auto pairs = static_cast<double>(pairs_);
    Outcome outcome{{{"time", "ns", elapsed_ns_ / pairs}, {"pages", "count", pairs}}, fault_};
    outcome.readings.insert(outcome.readings.end(), readings_.begin(), readings_.end());
    add_per_million(outcome.readings, pairs);
    return outcome;
  }

 private:
  // Between looks at the clock: long enough for it not to count, short for the slowest malloc.
  static constexpr std::uint64_t kPairs = 8192;
  static constexpr std::uint64_t kUnrolled = 4;

  [[gnu::always_inline]] static bool one(B& buffers) noexcept {
    auto handle = buffers.alloc();
    if (is_none<B>(handle)) [[unlikely]] {
      return false;
    }
    hold(handle);
    buffers.free(std::move(handle));
    return true;
  }
  // False if it ran out.
  [[gnu::noinline]] static bool run(B& buffers) noexcept {
    for (std::uint64_t i = 0; i < kPairs; i += kUnrolled) {
      if (!(one(buffers) && one(buffers) && one(buffers) && one(buffers))) [[unlikely]] {
        return false;
      }
    }
    return true;
  }

  std::shared_ptr<B> buffers_;
  std::chrono::nanoseconds duration_{0};
  std::uint64_t pairs_ = 0;
  double elapsed_ns_ = 0;
  bool exhausted_ = false;
  std::vector<Reading> readings_;
  std::string fault_;
};

}  // namespace weir::lab
