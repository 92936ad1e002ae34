// SPDX-License-Identifier: MIT
// lab/experiments/compaction.hpp — what it costs to make whole pageblocks after churn, by carrying movable
// pages: all frames are taken by an owner who can move them, a random half is freed, then R turns of churn as
// in fragmentation.hpp, one page at a time; then the zone is compacted. Pages are never touched, so that
// what is counted is pages, not bytes; timed is the compaction.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "lab/experiments/own_zone.hpp"
#include "lab/experiments/rounds.hpp"
#include "lab/harness/trial.hpp"

namespace weir::lab {

struct CompactionCase {
  const char* name;
  std::uint64_t frames;
  unsigned turns;
};
inline constexpr CompactionCase kCompactionCases[] = {
    {"1g-0", std::uint64_t{1} << 18, 0},      {"1g-60", std::uint64_t{1} << 18, 60},
    {"1g-80", std::uint64_t{1} << 18, 80},    {"1g-100", std::uint64_t{1} << 18, 100},
    {"16g-0", std::uint64_t{1} << 22, 0},     {"16g-60", std::uint64_t{1} << 22, 60},
    {"16g-100", std::uint64_t{1} << 22, 100},
};
// The first one where the name is no other's.
[[nodiscard]] inline const CompactionCase& compaction_case(std::string_view name) {
  for (const CompactionCase& one : kCompactionCases) {
    if (name == one.name) {
      return one;
    }
  }
  return kCompactionCases[0];
}

class CompactionTrial final : public Trial {
 public:
  static constexpr std::uint64_t kPartOfLive = 10;  // comes and goes in a turn
  static constexpr std::uint64_t kSeed = 2023;      // and one more each round

  CompactionTrial(const CompactionCase& one, const Options& options);

  void prepare(const RoundSetup& setup) override;
  void lead() override;
  void follow() override {}
  [[nodiscard]] bool two_sided() const override { return false; }
  Outcome collect() override;

 private:
  // Frames that must be carried at least to empty as many pageblocks as there is room for the rest.
  [[nodiscard]] std::uint64_t least_moves() const;
  [[nodiscard]] double whole() const;
  void take(std::uint64_t n);
  void give(std::uint64_t n);

  CompactionCase case_;
  OwnZone pages_;
  std::mt19937_64 random_;
  std::uint64_t round_ = 0;
  std::vector<Page*> live_;  // its place in here is a page's private word
  PageMover mover_;
  CompactionReport report_;
  std::uint64_t least_ = 0;
  double before_ = 0;  // percent
  double after_ = 0;   // percent
  double ns_ = 0;
  std::string fault_;
};

}  // namespace weir::lab
