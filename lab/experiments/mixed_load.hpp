// SPDX-License-Identifier: MIT
// lab/experiments/mixed_load.hpp — half the threads take and give back single pages, half pageblocks, in a
// zone that is full of holes: all single pages were out, a random quarter of the pageblocks came home whole
// and of the others a random half of the frames. Afterwards, untimed: all pages go home on both CPUs by
// turns, and the largest blocks are counted: what a request merges, what is served at all, and, the same
// once more, what a drain leaves. No page is touched.
#pragma once

#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lab/experiments/own_zone.hpp"
#include "lab/experiments/rounds.hpp"
#include "lab/harness/trial.hpp"

namespace weir::lab {

struct MixedLoadCase {
  const char* name;
  std::uint32_t threads;                          // an even number
  std::size_t swing;                              // single pages that a thread has out at once
  std::uint64_t frames = std::uint64_t{1} << 17;  // 512 MiB: 64 pageblocks come home whole
};
inline constexpr MixedLoadCase kMixedLoadCases[] = {
    {"2", 2, 256}, {"4", 4, 256}, {"2-far", 2, 8192}};
// The first one where the name is no other's.
[[nodiscard]] inline const MixedLoadCase& mixed_load_case(std::string_view name) {
  for (const MixedLoadCase& one : kMixedLoadCases) {
    if (name == one.name) {
      return one;
    }
  }
  return kMixedLoadCases[0];
}

class MixedLoadTrial final : public Trial {
 public:
  static constexpr std::size_t kBlocks =
      8;  // pageblocks that a thread asks for before it gives back
  static constexpr std::uint64_t kSeed = 510;

  MixedLoadTrial(const MixedLoadCase& one, const Options& options);

  void prepare(const RoundSetup& setup) override;
  void lead() override { work_on(0); }
  void follow() override { work_on(1); }
  [[nodiscard]] bool two_sided() const override { return true; }
  Outcome collect() override;

  [[nodiscard]] PageAllocator& pages() noexcept { return *pages_; }

 private:
  // Single pages or pageblocks, and where. With four threads each CPU has one of both.
  struct Worker {
    bool singles = false;
    std::size_t side = 0;
    std::vector<Page*> out;
    std::uint64_t served = 0;
    std::uint64_t refused = 0;
    double ns = 0;
  };

  [[nodiscard]] bool take_all();
  void work_on(std::size_t side);
  void work(Worker& worker);
  void take_and_give(Worker& worker);
  void send_home(std::size_t side);
  void ask_for_largest();

  MixedLoadCase case_;
  OwnZone pages_;
  std::vector<Worker> threads_;
  std::chrono::nanoseconds duration_{0};
  std::barrier<> gate_{2};
  std::mt19937_64 random_;
  std::vector<Page*> live_;  // written by the lead while the other side waits
  std::uint64_t largest_before_ = 0;
  std::uint64_t largest_merged_ = 0;
  std::uint64_t largest_served_ = 0;
  std::uint64_t largest_drained_ = 0;
  std::uint64_t whole_at_start_ = 0;
  ZoneCounterValues before_{};
  ZoneCounterValues after_{};
  std::string fault_;  // written by the lead
};

}  // namespace weir::lab
