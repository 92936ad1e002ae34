// SPDX-License-Identifier: MIT
// lab/experiments/pair.hpp — one buffer out and back on one CPU, again and again. Untimed, after
// each round: that the buffers are real and distinct.
#pragma once

#include <memory>
#include <utility>

#include "lab/contenders/buffers.hpp"
#include "lab/experiments/rounds.hpp"
#include "lab/harness/trial.hpp"

namespace weir::lab {

template <Buffers B>
class PairTrial final : public Trial {
 public:
  explicit PairTrial(std::shared_ptr<B> buffers) : buffers_(std::move(buffers)) {}

  void prepare(const RoundSetup& setup) override {
    duration_ = setup.duration;
    pairs_ = 0;
    exhausted_ = false;
    buffers_->begin_round();
  }

  void lead() override {
    // Between looks at the clock: long enough for it not to count, short for the slowest malloc.
    constexpr std::uint64_t kPairs = 4096;
    B& buffers = *buffers_;
    buffers.enter_thread();
    const auto start = SteadyClock::now();
    const auto deadline = start + duration_;
    auto now = start;
    do {
      for (std::uint64_t i = 0; i < kPairs; ++i) {
        const auto handle = buffers.alloc();
        if (handle == typename B::Handle{}) [[unlikely]] {
          exhausted_ = true;
          return;
        }
        keep(handle);
        buffers.free(handle);
      }
      pairs_ += kPairs;
      now = SteadyClock::now();
    } while (now < deadline);
    elapsed_ns_ = ns_between(start, now);
    fault_ = verify_distinct(buffers);
  }

  [[nodiscard]] bool two_sided() const override { return false; }

  Outcome collect() override {
    if (exhausted_) {
      return {{}, "it ran out of buffers with one in use"};
    }
    const auto pairs = static_cast<double>(pairs_);
    Outcome outcome{{{"time", "ns", elapsed_ns_ / pairs}, {"pages", "count", pairs}}, fault_};
    buffers_->end_round(outcome.readings);
    return outcome;
  }

 private:
  std::shared_ptr<B> buffers_;
  std::chrono::nanoseconds duration_{0};
  std::uint64_t pairs_ = 0;
  double elapsed_ns_ = 0;
  bool exhausted_ = false;
  std::string fault_;
};

}  // namespace weir::lab
