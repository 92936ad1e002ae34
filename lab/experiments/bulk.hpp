// SPDX-License-Identifier: MIT
// lab/experiments/bulk.hpp — a burst of buffers out and back on one CPU, again and again. Untimed,
// after each round: that the buffers are real and distinct.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <utility>

#include "lab/contenders/buffers.hpp"
#include "lab/experiments/rounds.hpp"
#include "lab/harness/trial.hpp"

namespace weir::lab {

template <Buffers B>
class BulkTrial final : public Trial {
 public:
  explicit BulkTrial(std::shared_ptr<B> buffers) : buffers_(std::move(buffers)) {}

  void prepare(const RoundSetup& setup) override {
    duration_ = setup.duration;
    pages_ = 0;
    short_ = kBurst;
    buffers_->begin_round();
  }

  void lead() override {
    constexpr std::uint64_t kBursts = 128;  // between looks at the clock
    B& buffers = *buffers_;
    buffers.enter_thread();
    std::array<Handle, kBurst> burst{};
    const auto start = SteadyClock::now();
    const auto deadline = start + duration_;
    auto now = start;
    do {
      for (std::uint64_t i = 0; i < kBursts; ++i) {
        const std::size_t n = buffers.alloc_bulk(std::span<Handle>(burst));
        keep(burst);
        buffers.free_bulk(std::span<Handle>(burst).first(n));
        if (n != kBurst) [[unlikely]] {
          short_ = n;
          return;
        }
      }
      pages_ += kBursts * kBurst;
      now = SteadyClock::now();
    } while (now < deadline);
    elapsed_ns_ = ns_between(start, now);
    fault_ = verify_distinct(buffers);
  }

  [[nodiscard]] bool two_sided() const override { return false; }

  Outcome collect() override {
    if (short_ != kBurst) {
      return {{}, "it gave " + std::to_string(short_) + " buffers of a burst of 64"};
    }
    const auto pages = static_cast<double>(pages_);
    Outcome outcome{{{"time", "ns", elapsed_ns_ / pages}, {"pages", "count", pages}}, fault_};
    buffers_->end_round(outcome.readings);
    return outcome;
  }

 private:
  using Handle = typename B::Handle;

  std::shared_ptr<B> buffers_;
  std::chrono::nanoseconds duration_{0};
  std::uint64_t pages_ = 0;
  std::size_t short_ = kBurst;  // what a burst yielded
  double elapsed_ns_ = 0;
  std::string fault_;
};

}  // namespace weir::lab
