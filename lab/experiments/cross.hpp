// SPDX-License-Identifier: MIT
// lab/experiments/cross.hpp — the lead takes buffers and writes their first 64 bytes, the follower
// gives them back: the flow of every receiver whose transmit completions run elsewhere. Bursts of
// 64 over a ring; one stamp of each burst is looked for on the other side.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "lab/contenders/buffers.hpp"
#include "lab/experiments/rounds.hpp"
#include "lab/harness/crew.hpp"
#include "lab/harness/trial.hpp"
#include "weir/io/spsc_ring.hpp"

namespace weir::lab {

template <Buffers B>
class CrossTrial final : public Trial {
 public:
  explicit CrossTrial(std::shared_ptr<B> buffers) : buffers_(std::move(buffers)), ring_(kRing) {}

  void prepare(const RoundSetup& setup) override {
    setup_ = setup;
    sent_ = 0;
    done_ = 0;
    starved_ = false;
    fault_.clear();
    stop_.store(false, std::memory_order_relaxed);
    buffers_->begin_round();
  }

  void lead() override {
    B& buffers = *buffers_;
    buffers.enter_thread();
    std::array<Handle, kBurst> burst{};
    Waiter waiter(setup_.one_cpu);
    start_ = SteadyClock::now();
    auto now = start_;
    auto fed = start_;  // when a buffer was last had
    while (now < start_ + setup_.duration) {
      const std::size_t n = buffers.alloc_bulk(std::span<Handle>(burst));
      now = SteadyClock::now();
      if (n == 0) {  // all under way to the follower: it gives them back
        starved_ = starved_ || now - fed > kStarved;
        if (starved_) {
          break;
        }
        waiter.wait();
        continue;
      }
      fed = now;
      for (std::size_t i = 0; i < n; ++i) {
        write_line(B::address(burst[i]), sent_ + i);
      }
      sent_ += n;
      std::span<Handle> rest = std::span<Handle>(burst).first(n);
      while (!rest.empty()) {
        const std::size_t pushed = ring_.push_burst(rest);
        rest = rest.subspan(pushed);
        if (pushed == 0) {
          waiter.wait();
        }
      }
    }
    stop_.store(true, std::memory_order_release);  // pairs: follow acquire
  }

  void follow() override {
    B& buffers = *buffers_;
    buffers.enter_thread();
    std::array<Handle, kBurst> burst{};
    Waiter waiter(setup_.one_cpu);
    for (;;) {
      // pairs: lead release. Read before the ring: an empty ring after it stays empty.
      const bool last = stop_.load(std::memory_order_acquire);
      const std::size_t n = ring_.pop_burst(std::span<Handle>(burst));
      if (n == 0) {
        if (last) {
          break;
        }
        waiter.wait();
        continue;
      }
      const std::size_t sample = ++bursts_ % n;  // every place in turn
      if (!has_stamp(B::address(burst[sample]), done_ + sample) && fault_.empty()) {
        fault_ = "buffer " + std::to_string(done_ + sample) +
                 " arrived with another stamp than it was sent with: it was handed out twice";
      }
      done_ += n;
      buffers.free_bulk(std::span<Handle>(burst).first(n));
    }
    end_ = SteadyClock::now();
  }

  [[nodiscard]] bool two_sided() const override { return true; }

  Outcome collect() override {
    if (starved_ || sent_ == 0) {
      return {{}, "it had no buffer for a second"};
    }
    if (fault_.empty() && sent_ != done_) {
      fault_ = "of " + std::to_string(sent_) + " buffers " + std::to_string(done_) + " arrived";
    }
    const auto pages = static_cast<double>(done_);
    Outcome outcome{{{"time", "ns", ns_between(start_, end_) / pages}, {"pages", "count", pages}},
                    fault_};
    buffers_->end_round(outcome.readings);
    return outcome;
  }

 private:
  using Handle = typename B::Handle;
  static constexpr std::size_t kRing = 1024;
  static constexpr std::chrono::seconds kStarved{1};

  static void write_line(std::byte* at, std::uint64_t sequence) noexcept {
    std::array<std::uint64_t, 8> line;
    line.fill(stamp_of(sequence));
    std::memcpy(at, line.data(), sizeof line);
  }

  std::shared_ptr<B> buffers_;
  SpscRing<Handle> ring_;
  RoundSetup setup_;
  std::atomic<bool> stop_{false};
  std::uint64_t sent_ = 0;  // lead
  bool starved_ = false;    // lead
  SteadyClock::time_point start_;
  alignas(64) std::uint64_t done_ = 0;  // follower
  std::uint64_t bursts_ = 0;
  SteadyClock::time_point end_;
  std::string fault_;
};

}  // namespace weir::lab
