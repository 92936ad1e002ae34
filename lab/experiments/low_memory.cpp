// SPDX-License-Identifier: MIT
// lab/experiments/low_memory.cpp — the experiment `low-memory`.
#include "lab/experiments/low_memory.hpp"

#include <algorithm>
#include <span>

#include "lab/experiments/experiments.hpp"

namespace weir::lab {

namespace {

constexpr std::uint64_t kSeed = 2018;
constexpr std::uint64_t kStride =
    97;  // between sizes of swings; prime to their number: all of them come
static_assert((LowMemoryTrial::kMostSwing - LowMemoryTrial::kLeastSwing + 1) % kStride != 0);

}  // namespace

LowMemoryTrial::LowMemoryTrial(const LowMemoryCase& one, const Options& options)
    : case_(one), pages_(options, one.frames) {
  live_.reserve(one.frames);
}

void LowMemoryTrial::prepare(const RoundSetup& /*setup*/) {
  fault_ = pages_.open();
  figures_ = {};
  random_.seed(kSeed);
  above_ = true;
  crossings_ = 0;
  low_at_live_ = 0;
}

void LowMemoryTrial::lead() {
  if (!pages_.is_open()) {
    return;
  }
  if (case_.scattered && !scatter()) {
    fault_ = "it did not hand out all of its zone";
    return;
  }
  const ZoneState zone = pages_->zone_state();
  const auto live_at = [&](const LowMemoryLevel& level) {
    return zone.managed - level.times * (zone.*level.mark);
  };
  if (!move_to(live_at(kLowMemoryLevels.front()))) {
    fault_ = "it refused pages that were free";
    return finish();
  }
  before_ = values_of(pages_->zone().zone().counters());
  crossings_ = 0;
  for (std::size_t i = 0; i < kLowMemoryLevels.size() && fault_.empty(); ++i) {
    Figures& figures = figures_[i];
    bool served = move_to(live_at(kLowMemoryLevels[i]));
    double ns = 0;
    double swung = 0;
    for (std::uint64_t n = 0; served && n < kSwings; ++n) {
      const std::size_t size = kLeastSwing + n * kStride % (kMostSwing - kLeastSwing + 1);
      served = swing(size, ns);
      swung += static_cast<double>(size);
    }
    if (!served) {
      fault_ = "it refused pages that were free";
    }
    figures.time = ns / swung;
    ask_for_pageblocks(figures);
    // What this CPU's lists hold counts as used: each level begins with the same.
    static_cast<void>(pages_->drain(pages_->zone().lists().cpu_here()));
    look();
  }
  finish();
}

// Everything out, a random half back: free frames lie among live ones.
bool LowMemoryTrial::scatter() {
  live_.resize(pages_->effective().managed.value);
  live_.resize(pages_->alloc_burst(live_));
  const bool all = live_.size() == pages_->effective().managed.value;
  std::shuffle(live_.begin(), live_.end(), random_);
  const std::span<Page* const> half = std::span<Page* const>(live_).first(live_.size() / 2);
  free_burst(half);
  live_.erase(live_.begin(), live_.begin() + static_cast<std::ptrdiff_t>(half.size()));
  static_cast<void>(pages_->drain_all());
  if (!all) {
    finish();
  }
  return all;
}

// One by one, so that no crossing is missed; the last that came goes first.
bool LowMemoryTrial::move_to(std::uint64_t live) {
  while (live_.size() < live) {
    Page* const page = pages_->alloc_page();
    if (page == nullptr) {
      return false;
    }
    live_.push_back(page);
    look();
    if (low_at_live_ == 0 && pages_->zone_state().below >= Mark::low) {
      low_at_live_ = live_.size();
    }
  }
  while (live_.size() > live) {
    unref(live_.back());
    live_.pop_back();
    look();
  }
  return true;
}

bool LowMemoryTrial::swing(std::size_t n, double& ns) {
  const auto start = SteadyClock::now();
  std::size_t got = 0;
  while (got < n && (out_[got] = pages_->alloc_page()) != nullptr) {
    ++got;
  }
  const auto turn = SteadyClock::now();
  look();
  const auto back = SteadyClock::now();
  for (std::size_t i = 0; i < got; ++i) {
    unref(out_[i]);
  }
  ns += ns_between(start, turn) + ns_between(back, SteadyClock::now());
  look();
  return got == n;
}

void LowMemoryTrial::ask_for_pageblocks(Figures& figures) {
  double ns = 0;
  for (std::uint64_t i = 0; i < kTries; ++i) {
    const auto start = SteadyClock::now();
    Page* const block = pages_->alloc_page(kPageblockOrder);
    const auto turn = SteadyClock::now();
    look();
    const auto back = SteadyClock::now();
    if (block != nullptr) {
      unref(block);
      ++figures.served;
    }
    ns += ns_between(start, turn) + ns_between(back, SteadyClock::now());
    look();
  }
  figures.order9_time = ns / static_cast<double>(kTries);
}

// A crossing is one below low after more than high were free.
void LowMemoryTrial::look() {
  const ZoneState zone = pages_->zone_state();
  if (above_ && zone.free < zone.low) {
    above_ = false;
    ++crossings_;
  } else if (zone.free > zone.high) {
    above_ = true;
  }
}

// All pages home, and all of them counted.
void LowMemoryTrial::finish() {
  const ZoneCounterValues now = values_of(pages_->zone().zone().counters());
  before_.low_crossings = now.low_crossings - before_.low_crossings;
  before_.clusters_merged = now.clusters_merged - before_.clusters_merged;
  before_.shortages = now.shortages - before_.shortages;
  before_.deferred = now.deferred - before_.deferred;
  before_.taken = now.taken - before_.taken;
  before_.given = now.given - before_.given;
  const std::uint64_t out = pages_->zone().census().out();
  if (out != live_.size() && fault_.empty()) {
    fault_ = "pages were lost or came twice: " + std::to_string(out) + " are out, " +
             std::to_string(live_.size()) + " are held";
  }
  free_burst(live_);
  live_.clear();
  if (pages_->zone().census().out() != 0 && fault_.empty()) {
    fault_ = "pages did not come home";
  }
}

Outcome LowMemoryTrial::collect() {
  pages_.close();
  if (!fault_.empty()) {
    return {{}, fault_};
  }
  Outcome outcome;
  const auto add = [&](const char* metric, const char* unit, double value) {
    outcome.readings.push_back({metric, unit, value});
  };
  double time = 0;
  std::uint64_t served = 0;
  for (std::size_t i = 0; i < kLowMemoryLevels.size(); ++i) {
    time += figures_[i].time / static_cast<double>(kLowMemoryLevels.size());
    served += figures_[i].served;
    add(kLowMemoryLevels[i].time, "ns", figures_[i].time);
    add(kLowMemoryLevels[i].order9_time, "ns", figures_[i].order9_time);
    add(kLowMemoryLevels[i].order9_served, "share",
        static_cast<double>(figures_[i].served) / static_cast<double>(kTries));
  }
  add("time", "ns", time);
  add("order9_served", "count", static_cast<double>(served));
  add("low_at_live", "pages", static_cast<double>(low_at_live_));
  add("crossings", "count", static_cast<double>(crossings_));
  add("depot_drains", "count", static_cast<double>(before_.low_crossings));
  add("depot_drains_per_crossing", "ratio",
      static_cast<double>(before_.low_crossings) /
          static_cast<double>(std::max<std::uint64_t>(crossings_, 1)));
  add("clusters_merged", "clusters", static_cast<double>(before_.clusters_merged));
  add("shortages", "count", static_cast<double>(before_.shortages));
  add("refused_unsearched", "count", static_cast<double>(before_.deferred));
  add("engine_frames", "frames", static_cast<double>(before_.taken + before_.given));
  return outcome;
}

Experiment low_memory_experiment() {
  Experiment e;
  e.name = "low-memory";
  e.question = "Does merging put off cost anything when memory runs low?";
  e.source =
      "skipping merging in Linux (Aaron Lu, 2018), whose open question was large blocks once "
      "memory is short";
  e.expected =
      "merging put off is nowhere slower by more than the spread, crosses low with as many pages "
      "live, "
      "drains the depot at most once a crossing and finds the same pageblocks";
  e.meaning =
      "A zone of 1 GiB, one thread, no page touched. The live set leaves 4 high, 2 high, high, low "
      "and min frames, and goes back. At each level 129 to 383 pages are taken one by one and "
      "given back one by one, 256 times (ns a page), and a pageblock is asked for and given back 8 "
      "times (ns a try). in-order: the live set was taken in order, so whole blocks remain. "
      "scattered: all were taken and a random half (seed 2018) came back first, so none does.";
  e.workload = Workload::low_memory;
  e.metric = {"time", "ns", "ns a page", 1, false};
  e.cases = {{"in-order", "live pages side by side, whole blocks remain"},
             {"scattered", "live pages all over the zone"}};
  e.contenders = {"weir.page+merge=immediate", "weir.page+engine=buddy",
                  "weir.page+engine=bitmap+merge=immediate", "weir.page+engine=bitmap"};
  e.references = {"weir.page+merge=immediate", "weir.page+engine=bitmap+merge=immediate"};
  Details time{"ns a page at", {}};
  Details order9_time{"ns a pageblock asked for at", {}};
  Details served{"share of them served at", {}};
  for (const LowMemoryLevel& level : kLowMemoryLevels) {
    time.columns.push_back({level.head, level.time});
    order9_time.columns.push_back({level.head, level.order9_time});
    served.columns.push_back({level.head, level.order9_served});
  }
  e.details = {std::move(time),
               std::move(order9_time),
               std::move(served),
               {"the low watermark",
                {{"crossed at live", "low_at_live"},
                 {"crossings", "crossings"},
                 {"drains of the depot", "depot_drains"},
                 {"clusters merged", "clusters_merged"},
                 {"lists stopped", "shortages"},
                 {"refused unsearched", "refused_unsearched"},
                 {"frames through the engine", "engine_frames"}}}};
  return e;
}

}  // namespace weir::lab
