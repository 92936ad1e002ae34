// SPDX-License-Identifier: MIT
// lab/harness/plan.hpp — who runs when, and for how long. Pure functions.
//
// Contenders are interleaved round by round, and each round starts one further, so that nobody
// always runs after the same neighbour's heat. Round 0 warms up and is not counted.
//   3 contenders:  round 0: 0 1 2   round 1: 1 2 0   round 2: 2 0 1   ...
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

namespace weir::lab {

inline constexpr std::size_t kLeastRounds = 7;  // unless the user asks for fewer
inline constexpr std::size_t kMostRounds = 1001;

struct Plan {
  std::size_t rounds = kLeastRounds;  // counted ones
  std::chrono::nanoseconds slot{0};   // of one contender in one round
};

[[nodiscard]] std::vector<std::size_t> round_order(std::size_t round, std::size_t contenders);

// Spreads `total` over all rounds, the warm-up included. Without a number of rounds (0) there are
// kLeastRounds, and more once a slot would be longer than 0.2 s.
[[nodiscard]] Plan plan_for(std::chrono::nanoseconds total, std::size_t contenders,
                            std::size_t rounds);

}  // namespace weir::lab
