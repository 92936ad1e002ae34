// SPDX-License-Identifier: MIT
// lab/experiments/fragmentation.hpp — how much free memory lies in wholly free pageblocks after churn: all
// frames are taken, a random half is freed, then a hundred times a tenth of the live ones, at random, and
// as many are taken. 64 at a time through a page allocator with its lists and depot; no page is touched.
// With two sides CPU B gives back and CPU A takes, by turns or at once. Untimed: the first taking, choosing,
// and the looks.
#pragma once

#include <array>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/experiments/own_zone.hpp"
#include "lab/experiments/rounds.hpp"
#include "lab/harness/trial.hpp"

namespace weir::lab {

// Who gives back: the CPU that takes, before it does; the other one, before it does; or while it does.
enum class Giver : unsigned char { same, other, other_meanwhile };

struct FragmentationCase {
  const char* name;
  std::uint64_t frames;
  Giver giver;
};
inline constexpr FragmentationCase kFragmentationCases[] = {
    {"1g", std::uint64_t{1} << 18, Giver::same},
    {"1g-2cpu", std::uint64_t{1} << 18, Giver::other},
    {"1g-at-once", std::uint64_t{1} << 18, Giver::other_meanwhile},
    {"16g", std::uint64_t{1} << 22, Giver::same},
    {"16g-2cpu", std::uint64_t{1} << 22, Giver::other},
    {"16g-at-once", std::uint64_t{1} << 22, Giver::other_meanwhile},
};
// The first one where the name is no other's.
[[nodiscard]] inline const FragmentationCase& fragmentation_case(std::string_view name) {
  for (const FragmentationCase& one : kFragmentationCases) {
    if (name == one.name) {
      return one;
    }
  }
  return kFragmentationCases[0];
}

class FragmentationTrial final : public Trial {
 public:
  static constexpr std::size_t kTurns = 100;
  static constexpr std::size_t kLookEvery = 10;
  static constexpr std::uint64_t kPartOfLive = 10;  // comes and goes in a turn
  static constexpr std::size_t kBurst = 64;
  static constexpr std::uint64_t kSeed = 2023;  // and one more each round

  FragmentationTrial(const FragmentationCase& one, const Options& options);

  void prepare(const RoundSetup& setup) override;
  void lead() override;
  void follow() override;
  [[nodiscard]] bool two_sided() const override { return case_.giver != Giver::same; }
  Outcome collect() override;

  [[nodiscard]] PageAllocator& pages() noexcept { return *pages_; }

 private:
  void fill();
  // Of the frames in nobody's hands, those that lie in wholly free pageblocks of the engine, in percent.
  [[nodiscard]] double whole() const;
  void choose(std::uint64_t n);
  void give(std::uint64_t n);
  void take(std::uint64_t n);
  void meet();

  FragmentationCase case_;
  OwnZone pages_;
  std::barrier<> gate_{2};
  std::mt19937_64 random_;
  std::uint64_t round_ = 0;
  // Of the side that gives, and while both have stopped; what is taken meanwhile comes into `taken_`.
  std::vector<Page*> live_;
  std::vector<Page*> taken_;
  double start_ = 0;                                 // percent, before the first turn
  std::array<double, kTurns / kLookEvery> after_{};  // percent
  double drained_ = 0;  // percent, when lists and depot were emptied at the end
  double ns_ = 0;
  ZoneCounterValues before_{};
  std::string fault_;  // written by the lead
};

}  // namespace weir::lab
