// SPDX-License-Identifier: MIT
// lab/experiments/bulk.hpp — a batch of buffers out and back on one CPU, again and again: into an
// array, and the same array given back. Untimed: the first thousands of a round, and after it the
// check that the buffers are real and distinct.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lab/contenders/buffers.hpp"
#include "lab/experiments/rounds.hpp"
#include "lab/harness/trial.hpp"

namespace weir::lab {

template <Buffers B>
class BulkTrial final : public Trial {
 public:
  // `batch`: up to kMostBatch.
  BulkTrial(std::shared_ptr<B> buffers, std::size_t batch)
      : buffers_(std::move(buffers)), batch_(batch) {}

  void prepare(const RoundSetup& setup) override {
    duration_ = setup.duration;
    pages_ = 0;
    short_ = batch_;
    readings_.clear();
    buffers_->begin_round();
  }

  void lead() override {
    B& buffers = *buffers_;
    buffers.enter_thread();
    // Whole cache lines: else the figure of every contender depends on where the stack lies.
    alignas(64) std::array<Handle, kMostBatch> array{};
    const std::span<Handle> batch = std::span<Handle>(array).first(batch_);
    if (!run(buffers, batch)) {
      return;
    }
    buffers.begin_round();
    const auto start = SteadyClock::now();
    const auto deadline = start + duration_;
    auto now = start;
    do {
      if (!run(buffers, batch)) [[unlikely]] {
        return;
      }
      pages_ += kPages / batch_ * batch_;
      now = SteadyClock::now();
    } while (now < deadline);
    elapsed_ns_ = ns_between(start, now);
    buffers.end_round(readings_);
    fault_ = verify_distinct(buffers);
  }

  [[nodiscard]] bool two_sided() const override { return false; }

  Outcome collect() override {
    if (short_ != batch_) {
      return {
          {},
          "it gave " + std::to_string(short_) + " buffers of a batch of " + std::to_string(batch_)};
    }
    const auto pages = static_cast<double>(pages_);
    Outcome outcome{{{"time", "ns", elapsed_ns_ / pages}, {"pages", "count", pages}}, fault_};
    outcome.readings.insert(outcome.readings.end(), readings_.begin(), readings_.end());
    add_per_million(outcome.readings, pages);
    return outcome;
  }

 private:
  using Handle = typename B::Handle;
  static constexpr std::size_t kPages = 8192;  // between looks at the clock

  // False if a batch came short.
  [[gnu::noinline]] bool run(B& buffers, std::span<Handle> batch) {
    for (std::size_t i = kPages / batch.size(); i > 0; --i) {
      const std::size_t n = buffers.alloc_bulk(batch);
      keep(*batch.data());
      buffers.free_bulk(batch.first(n));
      if (n != batch.size()) [[unlikely]] {
        short_ = n;
        return false;
      }
    }
    return true;
  }

  std::shared_ptr<B> buffers_;
  std::size_t batch_;
  std::chrono::nanoseconds duration_{0};
  std::uint64_t pages_ = 0;
  std::size_t short_ = 0;  // what a batch yielded
  double elapsed_ns_ = 0;
  std::vector<Reading> readings_;
  std::string fault_;
};

}  // namespace weir::lab
