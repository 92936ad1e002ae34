// SPDX-License-Identifier: MIT
#include "weir/os/clock.hpp"

#include <ctime>
#include <new>

#include "weir/arch/cpu.hpp"

namespace weir {
namespace {

constexpr std::uint64_t kNsPerSecond = 1'000'000'000;

std::uint64_t monotonic_ns() noexcept {
  // Cannot fail: the clock exists and the pointer is good.
  std::timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * kNsPerSecond +
         static_cast<std::uint64_t>(now.tv_nsec);
}

class MonotonicClock final : public Clock {
 public:
  std::uint64_t now_ns() noexcept override { return monotonic_ns(); }
};

struct Moment {
  std::uint64_t ns = 0;
  std::uint64_t cycles = 0;
};

// Both clocks at one moment: of a few tries the one that was interrupted least.
Moment read_both() noexcept {
  Moment best;
  std::uint64_t narrowest = UINT64_MAX;
  for (int attempt = 0; attempt < 8; ++attempt) {
    const std::uint64_t before = cycle_counter();
    const std::uint64_t ns = monotonic_ns();
    const std::uint64_t width = cycle_counter() - before;
    if (width < narrowest) {
      narrowest = width;
      best = {ns, before + width / 2};
    }
  }
  return best;
}

std::uint64_t measure() noexcept {
  constexpr std::uint64_t kWindowNs = 5'000'000;
  const Moment start = read_both();
  if (start.cycles == 0) {
    return 0;
  }
  while (monotonic_ns() - start.ns < kWindowNs) {
    cpu_pause();
  }
  const Moment end = read_both();
  return static_cast<std::uint64_t>(static_cast<double>(end.cycles - start.cycles) *
                                    static_cast<double>(kNsPerSecond) /
                                    static_cast<double>(end.ns - start.ns));
}

}  // namespace

Clock& system_clock() noexcept {
  // Never destroyed: objects that die after main() may still ask for the time.
  alignas(MonotonicClock) static unsigned char storage[sizeof(MonotonicClock)];
  static Clock* const clock = ::new (storage) MonotonicClock;
  return *clock;
}

std::uint64_t cycles_per_second() noexcept {
  static const std::uint64_t rate = [] {
    const std::uint64_t told = cycle_counter_frequency();
    return told != 0 ? told : measure();
  }();
  return rate;
}

std::uint64_t cycles_to_ns(std::uint64_t cycles) noexcept {
  const std::uint64_t rate = cycles_per_second();
  if (rate == 0) {
    return 0;
  }
  // Seconds apart from the rest: the product of the rest fits for any rate below 18 GHz.
  return cycles / rate * kNsPerSecond + cycles % rate * kNsPerSecond / rate;
}

}  // namespace weir
