// SPDX-License-Identifier: MIT
// lab/experiments/fragmentation.cpp — the experiment `fragmentation`.
#include "lab/experiments/fragmentation.hpp"

#include <algorithm>
#include <utility>

#include "lab/experiments/experiments.hpp"

namespace weir::lab {

namespace {

constexpr std::array kLooks = {
    Details::Column{"10", "whole_10"}, Details::Column{"20", "whole_20"},
    Details::Column{"30", "whole_30"}, Details::Column{"40", "whole_40"},
    Details::Column{"50", "whole_50"}, Details::Column{"60", "whole_60"},
    Details::Column{"70", "whole_70"}, Details::Column{"80", "whole_80"},
    Details::Column{"90", "whole_90"}, Details::Column{"100", "whole_100"},
};
static_assert(kLooks.size() == FragmentationTrial::kTurns / FragmentationTrial::kLookEvery);

}  // namespace

FragmentationTrial::FragmentationTrial(const FragmentationCase& one, const Options& options)
    : case_(one), pages_(options, one.frames) {
  live_.reserve(one.frames);
  taken_.reserve(one.frames / kPartOfLive);
}

void FragmentationTrial::prepare(const RoundSetup& /*setup*/) {
  fault_ = pages_.open();
  ns_ = 0;
  random_.seed(kSeed + round_++);
}

void FragmentationTrial::meet() {
  if (two_sided()) {
    gate_.arrive_and_wait();
  }
}

// Everything out, a random half back.
void FragmentationTrial::fill() {
  live_.resize(pages_->effective().managed.value);
  live_.resize(pages_->alloc_burst(live_));
  if (live_.size() != pages_->effective().managed.value) {
    fault_ = "it did not hand out all of its zone";
  }
  choose(live_.size() / 2);
  give(live_.size() / 2);
}

void FragmentationTrial::lead() {
  if (!pages_.is_open()) {
    return;
  }
  fill();
  start_ = whole();
  before_ = values_of(pages_->zone().zone().counters());
  meet();
  for (std::size_t turn = 1; turn <= kTurns; ++turn) {
    const std::uint64_t n = live_.size() / kPartOfLive;
    if (!two_sided()) {
      choose(n);
    }
    meet();  // chosen, and both know how many
    const auto start = SteadyClock::now();
    if (!two_sided()) {
      give(n);
    } else if (case_.giver == Giver::other) {
      meet();  // given back
    }
    take(n);
    meet();
    ns_ += ns_between(start, SteadyClock::now());
    live_.insert(live_.end(), taken_.begin(), taken_.end());
    if (taken_.size() != n && fault_.empty()) {
      fault_ = "it refused pages that were free";
    }
    taken_.clear();
    if (turn % kLookEvery == 0) {
      after_[turn / kLookEvery - 1] = whole();
    }
    meet();
  }
}

// The other side of a turn.
void FragmentationTrial::follow() {
  if (!pages_.is_open()) {
    return;
  }
  meet();
  for (std::size_t turn = 1; turn <= kTurns; ++turn) {
    const std::uint64_t n = live_.size() / kPartOfLive;
    choose(n);
    meet();
    give(n);
    if (case_.giver == Giver::other) {
      meet();
    }
    meet();
    meet();
  }
}

double FragmentationTrial::whole() const {
  const Zone& zone = pages_->zone().zone();
  const std::uint64_t blocks = zone.free_blocks(kPageblockOrder) + 2 * zone.free_blocks(kMaxOrder);
  const std::uint64_t free = zone.managed().value - live_.size();
  return 100.0 * static_cast<double>(blocks * kPageblockFrames) / static_cast<double>(free);
}

// Moves n live pages, any of them, to the end.
void FragmentationTrial::choose(std::uint64_t n) {
  for (std::size_t left = live_.size(); n != 0; --n, --left) {
    std::swap(live_[random_() % left], live_[left - 1]);
  }
}

void FragmentationTrial::give(std::uint64_t n) {
  for (const std::size_t least = live_.size() - n; live_.size() > least;) {
    const std::size_t some = std::min(kBurst, live_.size() - least);
    free_burst(std::span<Page* const>(live_).last(some));
    live_.resize(live_.size() - some);
  }
}

void FragmentationTrial::take(std::uint64_t n) {
  Page* pages[kBurst];
  while (taken_.size() < n) {
    const std::size_t some = std::min<std::size_t>(kBurst, n - taken_.size());
    const std::size_t got = pages_->alloc_burst(std::span<Page*>(pages, some));
    taken_.insert(taken_.end(), pages, pages + got);
    if (got != some) {
      return;
    }
  }
}

Outcome FragmentationTrial::collect() {
  if (!pages_.is_open()) {
    return {{}, fault_};
  }
  const ZoneCounterValues now = values_of(pages_->zone().zone().counters());
  const CachedZone::Census census = pages_->zone().census();
  if (census.out() != live_.size() && fault_.empty()) {
    fault_ = "pages were lost or came twice: " + std::to_string(census.out()) + " are out, " +
             std::to_string(live_.size()) + " are held";
  }
  const std::uint64_t a_turn = live_.size() / kPartOfLive;
  const auto moved = static_cast<double>(2 * kTurns * a_turn);
  static_cast<void>(pages_->drain_all());
  drained_ = whole();
  free_burst(live_);
  live_.clear();
  if (pages_->zone().census().out() != 0 && fault_.empty()) {
    fault_ = "pages did not come home";
  }
  pages_.close();
  if (!fault_.empty()) {
    return {{}, fault_};
  }
  Outcome outcome{{{"broken", "percent", 100 - after_.back()},
                   {"time", "ns", ns_ / moved},
                   {"pages", "count", moved},
                   {"whole_0", "percent", start_},
                   {"whole_100_drained", "percent", drained_},
                   {"cached", "frames", static_cast<double>(census.lists + census.depot)},
                   {"shortages", "count", static_cast<double>(now.shortages - before_.shortages)}},
                  ""};
  for (std::size_t i = 0; i < kLooks.size(); ++i) {
    outcome.readings.push_back({kLooks[i].metric, "percent", after_[i]});
  }
  return outcome;
}

Experiment fragmentation_experiment() {
  Experiment e;
  e.name = "fragmentation";
  e.question = "How much free memory lies in wholly free pageblocks after random churn?";
  e.source =
      "LLFree (USENIX ATC 2023), whose policy reaches 26 % after 50 turns, 62 % after 60 and 96.3 "
      "% after "
      "100; a buddy system as in Linux stays at 15 %";
  e.expected =
      "the bitmap engine, which takes from the fullest pageblocks, reaches 25 % after 50 turns, 60 "
      "% after "
      "60 and 98 % after 100, with lists and depot in the way; the buddy engine stays low";
  e.meaning =
      "All frames are taken, a random half is freed, then 100 turns: a tenth of the live ones is "
      "freed at random and as many are taken, 64 at a time. Counted are wholly free 2 MiB blocks "
      "in the engine, over all frames that nobody holds: what lies in lists and depot counts as "
      "free and broken. The last column is after drain_all(). Where CPU B frees while CPU A takes, "
      "most of the tenth lies scattered when it is looked at, so about 90 % is the most there can "
      "be. Frames are never touched. Each round has its seed: 2023, 2024 and so on. A quick lab "
      "has 1 GiB instead of 16 (case 1g).";
  e.workload = Workload::fragmentation;
  e.metric = {"broken", "percent", "% broken at 100", 1, false};
  e.cases = {{"1g", "1 GiB, one CPU"},
             {"1g-2cpu", "1 GiB, CPU B frees, then CPU A takes"},
             {"1g-at-once", "1 GiB, CPU B frees while CPU A takes", 64, false, {}},
             {"16g", "16 GiB, one CPU", 64, false, {}},
             {"16g-2cpu", "16 GiB, CPU B frees, then CPU A takes", 64, false, {}},
             {"16g-at-once", "16 GiB, CPU B frees while CPU A takes", 64, false, {}}};
  e.contenders = {"weir.page+engine=buddy", "weir.page+engine=bitmap",
                  "weir.page+engine=bitmap+merge=immediate"};
  e.references = {"weir.page+engine=buddy"};
  Details whole{"% whole after turn", {{"0", "whole_0"}}};
  whole.columns.insert(whole.columns.end(), kLooks.begin(), kLooks.end());
  whole.columns.push_back({"drained", "whole_100_drained"});
  e.details = {
      std::move(whole),
      {"beside it",
       {{"ns a page", "time"}, {"in lists and depot", "cached"}, {"lists stopped", "shortages"}}}};
  return e;
}

}  // namespace weir::lab
