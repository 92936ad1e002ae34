// SPDX-License-Identifier: MIT
// lab/experiments/low_memory.hpp — a zone close to its end: the live set is raised step by step until as
// many frames are left as the min watermark says, and lowered again. At each level single pages come and
// go, and pageblocks are asked for. One thread; no page is touched. Untimed: raising and lowering, during
// which the crossings of the low watermark are counted from outside, beside the zone's own count.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "lab/experiments/own_zone.hpp"
#include "lab/experiments/rounds.hpp"
#include "lab/harness/trial.hpp"

namespace weir::lab {

struct LowMemoryCase {
  const char* name;
  bool
      scattered;  // live pages lie all over the zone: first all are taken, then a random half comes back
  std::uint64_t frames = std::uint64_t{1} << 18;  // 1 GiB: min is two pageblocks
};
inline constexpr LowMemoryCase kLowMemoryCases[] = {{"in-order", false}, {"scattered", true}};
// The first one where the name is no other's.
[[nodiscard]] inline const LowMemoryCase& low_memory_case(std::string_view name) {
  for (const LowMemoryCase& one : kLowMemoryCases) {
    if (name == one.name) {
      return one;
    }
  }
  return kLowMemoryCases[0];
}

// Frames in nobody's hands, as a multiple of a watermark; lists hold some of them.
struct LowMemoryLevel {
  std::uint64_t times;
  std::uint64_t ZoneState::*mark;
  const char* head;  // of tables
  const char* time;  // and names of its figures
  const char* order9_time;
  const char* order9_served;
};
inline constexpr std::array kLowMemoryLevels = {
    LowMemoryLevel{4, &ZoneState::high, "4 high", "time_4high", "order9_time_4high",
                   "order9_served_4high"},
    LowMemoryLevel{2, &ZoneState::high, "2 high", "time_2high", "order9_time_2high",
                   "order9_served_2high"},
    LowMemoryLevel{1, &ZoneState::high, "high", "time_high", "order9_time_high",
                   "order9_served_high"},
    LowMemoryLevel{1, &ZoneState::low, "low", "time_low", "order9_time_low", "order9_served_low"},
    LowMemoryLevel{1, &ZoneState::min, "min", "time_min", "order9_time_min", "order9_served_min"},
    LowMemoryLevel{1, &ZoneState::low, "low, back", "time_low_back", "order9_time_low_back",
                   "order9_served_low_back"},
    LowMemoryLevel{1, &ZoneState::high, "high, back", "time_high_back", "order9_time_high_back",
                   "order9_served_high_back"},
    LowMemoryLevel{2, &ZoneState::high, "2 high, back", "time_2high_back", "order9_time_2high_back",
                   "order9_served_2high_back"},
    LowMemoryLevel{4, &ZoneState::high, "4 high, back", "time_4high_back", "order9_time_4high_back",
                   "order9_served_4high_back"},
};

class LowMemoryTrial final : public Trial {
 public:
  // Pages out at once: more than a list starts with, and another number each time, because a list that
  // swings evenly may be one cluster short each time, or never.
  static constexpr std::size_t kLeastSwing = 129;
  static constexpr std::size_t kMostSwing = 383;
  static constexpr std::uint64_t kSwings = 256;  // at each level
  static constexpr std::uint64_t kTries = 8;     // for a pageblock, at each level

  LowMemoryTrial(const LowMemoryCase& one, const Options& options);

  void prepare(const RoundSetup& setup) override;
  void lead() override;
  [[nodiscard]] bool two_sided() const override { return false; }
  Outcome collect() override;

 private:
  struct Figures {
    double time = 0;         // ns a page, of all swings
    double order9_time = 0;  // ns a try, served (and given back) or not
    std::uint64_t served = 0;
  };

  [[nodiscard]] bool scatter();
  [[nodiscard]] bool move_to(std::uint64_t live);
  [[nodiscard]] bool swing(std::size_t n, double& ns);
  void ask_for_pageblocks(Figures& figures);
  void look();
  void finish();

  LowMemoryCase case_;
  OwnZone pages_;
  std::vector<Page*> live_;
  std::array<Page*, kMostSwing> out_{};
  std::mt19937_64 random_;
  std::array<Figures, kLowMemoryLevels.size()> figures_{};
  bool above_ = true;              // since the last crossing more than high were free
  std::uint64_t crossings_ = 0;    // as seen from outside
  std::uint64_t low_at_live_ = 0;  // pages live when zone_state() first said low; 0: not yet
  ZoneCounterValues before_{};
  std::string fault_;
};

}  // namespace weir::lab
