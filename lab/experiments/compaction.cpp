// SPDX-License-Identifier: MIT
// lab/experiments/compaction.cpp — the experiment `compaction`.
#include "lab/experiments/compaction.hpp"

#include <algorithm>
#include <utility>

#include "lab/experiments/experiments.hpp"
#include "weir/percpu/zone_blocks.hpp"

namespace weir::lab {

CompactionTrial::CompactionTrial(const CompactionCase& one, const Options& options)
    : case_(one),
      pages_(options, one.frames),
      mover_({[](void*, Page*) noexcept { return true; },
              [](void* self, Page* from, Page* to) noexcept {
                static_cast<CompactionTrial*>(self)->live_[from->private_word] = to;
                return true;
              },
              [](void*, Page*) noexcept {}},
             this) {
  live_.reserve(one.frames);
}

void CompactionTrial::prepare(const RoundSetup& /*setup*/) {
  fault_ = pages_.open();
  random_.seed(kSeed + round_++);
}

void CompactionTrial::lead() {
  if (!pages_.is_open()) {
    return;
  }
  pages_->add_mover(mover_);
  take(case_.frames);
  if (live_.size() != pages_->effective().managed.value) {
    fault_ = "it did not hand out all of its zone";
  }
  give(live_.size() / 2);
  for (unsigned turn = 0; turn < case_.turns; ++turn) {
    const std::uint64_t n = live_.size() / kPartOfLive;
    give(n);
    take(n);
  }
  static_cast<void>(pages_->drain_all());
  before_ = whole();
  least_ = least_moves();
  const auto start = SteadyClock::now();
  report_ = pages_->compact();
  ns_ = ns_between(start, SteadyClock::now());
  after_ = whole();
}

void CompactionTrial::take(std::uint64_t n) {
  for (; n != 0; --n) {
    Page* const page = pages_->alloc_movable(mover_);
    if (page == nullptr) {
      return;
    }
    page->private_word = live_.size();
    live_.push_back(page);
  }
}

void CompactionTrial::give(std::uint64_t n) {
  for (; n != 0; --n) {
    const std::uint64_t which = random_() % live_.size();
    Page* const page = std::exchange(live_[which], live_.back());
    live_[which]->private_word = which;
    live_.pop_back();
    unref(page);
  }
}

double CompactionTrial::whole() const {
  const Zone& zone = pages_->zone().zone();
  const std::uint64_t blocks = zone.free_blocks(kPageblockOrder) + 2 * zone.free_blocks(kMaxOrder);
  const std::uint64_t free = zone.managed().value - live_.size();
  return 100.0 * static_cast<double>(blocks * kPageblockFrames) / static_cast<double>(free);
}

std::uint64_t CompactionTrial::least_moves() const {
  const ZoneBlocks blocks{pages_->zone()};
  std::vector<std::uint64_t> live;
  std::uint64_t room = 0;
  for (std::uint64_t i = 0; i < blocks.count(); ++i) {
    const std::uint64_t free = pages_->zone().zone().pageblock(blocks.at(i)).free;
    if (free != kPageblockFrames) {
      live.push_back(kPageblockFrames - free);
      room += free;
    }
  }
  std::sort(live.begin(), live.end());
  std::uint64_t moves = 0;
  for (std::uint64_t i = 0; i < room / kPageblockFrames; ++i) {
    moves += live[i];
  }
  return moves;
}

Outcome CompactionTrial::collect() {
  if (!pages_.is_open()) {
    return {{}, fault_};
  }
  if (const std::uint64_t out = pages_->zone().census().out();
      out != live_.size() && fault_.empty()) {
    fault_ = "pages were lost or came twice: " + std::to_string(out) + " are out, " +
             std::to_string(live_.size()) + " are held";
  }
  give(live_.size());
  mover_.remove();
  static_cast<void>(pages_->drain_all());
  if (pages_->zone().census().out() != 0 && fault_.empty()) {
    fault_ = "pages did not come home";
  }
  pages_.close();
  if (!fault_.empty()) {
    return {{}, fault_};
  }
  const auto moved = static_cast<double>(report_.moved);
  return {{{"moved", "frames", moved},
           {"time", "ns", ns_ / std::max(moved, 1.0)},
           {"over_least", "percent", 100.0 * moved / std::max(static_cast<double>(least_), 1.0)},
           {"whole_before", "percent", before_},
           {"whole_after", "percent", after_},
           {"emptied", "blocks", static_cast<double>(report_.emptied)},
           {"failed", "blocks", static_cast<double>(report_.failed)}},
          ""};
}

Experiment compaction_experiment() {
  Experiment e;
  e.name = "compaction";
  e.question = "How many pages must be carried to make whole pageblocks after random churn?";
  e.source =
      "the kernel's compaction (mm/compaction.c) beside an engine that takes from the fullest "
      "pageblocks (LLFree, USENIX ATC 2023)";
  e.expected =
      "after 60 turns and more the bitmap engine needs at most a third of what the buddy engine "
      "needs; without churn both need little more than the least there is";
  e.meaning =
      "All frames are movable pages, a random half is freed, then R turns in which a tenth of the "
      "live ones is freed at random and as many are taken; then the zone is compacted. Counted are "
      "frames carried, the least that would have won as many pageblocks, and the share of free "
      "memory in wholly free pageblocks before and after. ns is by frame carried, without copying, "
      "for the pages are never touched. Each round has its seed: 2023, 2024 and so on. A quick lab "
      "has 1 GiB instead of 16.";
  e.workload = Workload::compaction;
  e.metric = {"moved", "frames", "frames carried", 1, false};
  e.cases = {{"1g-0", "1 GiB, no churn"},
             {"1g-60", "1 GiB, 60 turns"},
             {"1g-80", "1 GiB, 80 turns", 64, false, {}},
             {"1g-100", "1 GiB, 100 turns", 64, false, {}},
             {"16g-0", "16 GiB, no churn", 64, false, {}},
             {"16g-60", "16 GiB, 60 turns", 64, false, {}},
             {"16g-100", "16 GiB, 100 turns", 64, false, {}}};
  e.contenders = {"weir.page+engine=buddy", "weir.page+engine=bitmap"};
  e.references = {"weir.page+engine=buddy"};
  e.details = {{"beside it",
                {{"% whole before", "whole_before"},
                 {"% after", "whole_after"},
                 {"% of the least", "over_least"},
                 {"ns a frame", "time"},
                 {"emptied", "emptied"},
                 {"failed", "failed"}}}};
  return e;
}

}  // namespace weir::lab
