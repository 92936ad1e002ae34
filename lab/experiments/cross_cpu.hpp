// SPDX-License-Identifier: MIT
// lab/experiments/cross_cpu.hpp — the lead takes buffers and writes their first 64 bytes, the
// follower gives them back: the flow of every receiver whose transmit completions run elsewhere.
//
//   lead      take N, write a line of each, N again until 64 are together -> ring of 1024 buffers
//   follower  64 from the ring -> give back N, N again until all are back
//
// Whatever N is, pointers travel 64 at once (128 for N = 128) and as many are under way. The
// follower does not touch the buffers, but for one of each sixteenth batch, whose stamp it looks
// for.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lab/contenders/buffers.hpp"
#include "lab/experiments/batch_ring.hpp"
#include "lab/experiments/rounds.hpp"
#include "lab/harness/crew.hpp"
#include "lab/harness/trial.hpp"
#include "weir/base/atomic.hpp"

namespace weir::lab {

// Buffers under way between the CPUs, at most.
inline constexpr std::size_t kUnderWay = 1024;

template <Buffers B>
class CrossCpuTrial final : public Trial {
 public:
  // `batch`: N, a power of two up to kMostBatch. 1 stands for the calls for single buffers.
  CrossCpuTrial(std::shared_ptr<B> buffers, std::size_t batch)
      : buffers_(std::move(buffers)), batch_(batch), ring_(std::max(batch, kBurst), kUnderWay) {}

  void prepare(const RoundSetup& setup) override {
    setup_ = setup;
    sent_ = 0;
    done_ = 0;
    starved_ = false;
    fault_.clear();
    stop_.store(false, memory_order_relaxed);
    buffers_->begin_round();
  }

  void lead() override {
    constexpr std::size_t kWarmUp = 16'384 / kBurst;  // batches that are not timed
    constexpr std::size_t kLooks = 16;                // batches between looks at the clock
    B& buffers = *buffers_;
    buffers.enter_thread();
    Waiter waiter(setup_.one_cpu);
    Owners owners{};
    bool going = true;
    for (std::size_t i = 0; i < kWarmUp && going; ++i) {
      going = send_batch(buffers, owners, waiter);
    }
    untimed_ = sent_;
    buffers.begin_round();
    start_ = SteadyClock::now();
    while (going && SteadyClock::now() < start_ + setup_.duration) {
      for (std::size_t i = 0; i < kLooks && going; ++i) {
        going = send_batch(buffers, owners, waiter);
      }
    }
    traced_ = true;
    stop_.store(true, memory_order_release);  // pairs: follow acquire
  }

  void follow() override {
    B& buffers = *buffers_;
    buffers.enter_thread();
    Waiter waiter(setup_.one_cpu);
    Owners owners{};
    for (;;) {
      // pairs: lead release. Read before the ring: an empty ring after it stays empty.
      const bool last = stop_.load(memory_order_acquire);
      const std::span<Wire> arrived = ring_.front();
      if (!arrived.empty()) {
        if (++batches_ % kChecked == 0) {
          check(arrived[batches_ / kChecked % arrived.size()],
                done_ + batches_ / kChecked % arrived.size());
        }
        give(buffers, owners, arrived);
        ring_.pop();
        done_ += arrived.size();
      } else if (last) {
        break;
      } else {
        waiter.wait();
      }
    }
    end_ = SteadyClock::now();
  }

  [[nodiscard]] bool two_sided() const override { return true; }

  Outcome collect() override {
    if (starved_ || sent_ <= untimed_) {
      return {{}, "it had no buffer for a second"};
    }
    if (fault_.empty() && sent_ != done_) {
      fault_ = "of " + std::to_string(sent_) + " buffers " + std::to_string(done_) + " arrived";
    }
    const auto pages = static_cast<double>(done_ - untimed_);
    Outcome outcome{{{"time", "ns", ns_between(start_, end_) / pages}, {"pages", "count", pages}},
                    fault_};
    buffers_->end_round(outcome.readings);
    add_per_million(outcome.readings, pages);
    return outcome;
  }

 private:
  using Handle = typename B::Handle;
  using Wire = typename WireOf<B>::type;
  static constexpr bool kHandlesTravel = std::is_same_v<Handle, Wire>;
  // Where handles lie that cannot lie in the ring; empty between batches.
  using Owners = std::array<Handle, kHandlesTravel ? 1 : kMostBatch>;
  static constexpr std::uint64_t kChecked = 16;  // batches for each one that is looked into
  static constexpr std::chrono::seconds kStarved{1};

  static void write_line(std::byte* at, std::uint64_t sequence) noexcept {
    std::array<std::uint64_t, 8> line;
    line.fill(stamp_of(sequence));
    std::memcpy(at, line.data(), sizeof line);
  }

  // Takes up to N into the first places and writes them. Returns how many.
  std::size_t take(B& buffers, std::span<Handle> places) noexcept {
    std::size_t n = 1;
    if (batch_ == 1) {
      places.front() = buffers.alloc();
      n = is_none<B>(places.front()) ? 0 : 1;
    } else {
      n = buffers.alloc_bulk(places.first(std::min(batch_, places.size())));
    }
    for (std::size_t i = 0; i < n; ++i) {
      write_line(B::address(places[i]), sent_ + i);
    }
    if constexpr (requires { buffers.record(places); }) {
      if (!traced_) [[unlikely]] {
        buffers.record(places.first(n));
      }
    }
    sent_ += n;
    return n;
  }

  // Fills these places, N at a time. False if there was no buffer for a second: as many as there
  // were have gone back.
  bool fill(B& buffers, std::span<Handle> places, Waiter& waiter) noexcept {
    std::size_t filled = 0;
    SteadyClock::time_point hungry{};
    while (filled < places.size()) {
      const std::size_t n = take(buffers, places.subspan(filled));
      filled += n;
      if (n != 0) [[likely]] {
        hungry = {};
        continue;
      }
      const auto now = SteadyClock::now();
      if (hungry == SteadyClock::time_point{}) {
        hungry = now;
      } else if (now - hungry > kStarved) {
        starved_ = true;
        buffers.free_bulk(places.first(filled));
        return false;
      }
      waiter.wait();  // all are under way: the follower gives them back
    }
    return true;
  }

  bool send_batch(B& buffers, [[maybe_unused]] Owners& owners, Waiter& waiter) noexcept {
    std::span<Wire> room = ring_.room();
    while (room.empty()) {
      waiter.wait();
      room = ring_.room();
    }
    // Into memory of its own first, as a receiver does: a slot of the ring is a line that the other CPU
    // read last, and stores to it would hold up those of the allocators that follow.
    if constexpr (kHandlesTravel) {
      std::array<Handle, kMostBatch> burst;
      const std::span<Handle> places = std::span<Handle>(burst).first(room.size());
      if (!fill(buffers, places, waiter)) {
        return false;
      }
      std::copy(places.begin(), places.end(), room.begin());
    } else {
      const std::span<Handle> places = std::span<Handle>(owners).first(room.size());
      if (!fill(buffers, places, waiter)) {
        return false;
      }
      for (std::size_t i = 0; i < room.size(); ++i) {
        room[i] = B::detach(places[i]);
      }
    }
    ring_.publish();
    return true;
  }

  void give(B& buffers, [[maybe_unused]] Owners& owners, std::span<Wire> arrived) noexcept {
    std::span<Handle> all;
    if constexpr (kHandlesTravel) {
      all = arrived;
    } else {
      all = std::span<Handle>(owners).first(arrived.size());
      for (std::size_t i = 0; i < all.size(); ++i) {
        all[i] = B::attach(arrived[i]);
      }
    }
    if (batch_ == 1) {
      for (Handle& handle : all) {
        buffers.free(std::move(handle));
      }
      return;
    }
    for (; !all.empty(); all = all.subspan(batch_)) {
      buffers.free_bulk(all.first(batch_));
    }
  }

  void check(const Wire& arrived, std::uint64_t sequence) {
    if constexpr (!requires { B::kComesRoundEarly; }) {
      const std::byte* at = nullptr;
      if constexpr (kHandlesTravel) {
        at = B::address(arrived);
      } else {
        Handle owner = B::attach(arrived);
        at = B::address(owner);
        static_cast<void>(B::detach(owner));
      }
      if (!has_stamp(at, sequence) && fault_.empty()) {
        fault_ = "buffer " + std::to_string(sequence) +
                 " arrived with another stamp than it was sent with: it was handed out twice";
      }
    }
  }

  std::shared_ptr<B> buffers_;
  std::size_t batch_;
  BatchRing<Wire> ring_;
  RoundSetup setup_;
  Atomic<bool> stop_{false};
  bool traced_ = false;        // lead; the first round, which warms up, is over
  std::uint64_t sent_ = 0;     // lead
  std::uint64_t untimed_ = 0;  // lead; of sent_
  bool starved_ = false;       // lead
  SteadyClock::time_point start_;
  alignas(64) std::uint64_t done_ = 0;  // follower
  std::uint64_t batches_ = 0;
  SteadyClock::time_point end_;
  std::string fault_;
};

}  // namespace weir::lab
