// SPDX-License-Identifier: MIT
// lab/harness/plan.cpp — order and length of rounds.
#include "lab/harness/plan.hpp"

#include <algorithm>

namespace weir::lab {

namespace {

// A slot shorter than this says more about the start of the threads than about the contender.
constexpr std::chrono::milliseconds kShortestSlot{2};
// Longer slots are traded for more rounds: the interval of a median shrinks with rounds only.
constexpr std::chrono::milliseconds kLongestSlot{200};

}  // namespace

std::vector<std::size_t> round_order(std::size_t round, std::size_t contenders) {
  std::vector<std::size_t> order(contenders);
  for (std::size_t i = 0; i < contenders; ++i) {
    order[i] = (round + i) % contenders;
  }
  return order;
}

Plan plan_for(std::chrono::nanoseconds total, std::size_t contenders, std::size_t rounds) {
  const auto per_round = std::max<std::chrono::nanoseconds::rep>(1, static_cast<long>(contenders));
  if (rounds == 0) {
    const auto longest = std::chrono::nanoseconds{kLongestSlot}.count() * per_round;
    rounds = std::clamp(static_cast<std::size_t>(total.count() / longest), kLeastRounds + 1,
                        kMostRounds + 1) -
             1;
  }
  const auto slot = total / (per_round * static_cast<long>(rounds + 1));
  return {rounds, std::max<std::chrono::nanoseconds>(slot, kShortestSlot)};
}

}  // namespace weir::lab
