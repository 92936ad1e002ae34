// SPDX-License-Identifier: MIT
// lab/experiments/merge.cpp — the experiment `merge`.
#include "lab/experiments/merge.hpp"

#include <algorithm>
#include <span>

#include "lab/experiments/experiments.hpp"

namespace weir::lab {

// Faults come before anything is timed, and frames lie in the engine as a program that ran for a while has
// them: scattered over it.
void MergeTrial::populate() {
  std::vector<Page*> all(pages_->zone().zone().managed().value);
  const std::size_t got = pages_->alloc_burst(all);
  for (std::size_t i = 0; i < got; ++i) {
    write_stamp(address_of(all[i]), i);
  }
  std::uint64_t random = 0x9e37'79b9'7f4a'7c15U;
  for (std::size_t i = got; i > 1; --i) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    std::swap(all[i - 1], all[random % i]);
  }
  free_burst(std::span<Page* const>(all).first(got));
}

void MergeTrial::work_on(std::size_t side) {
  const std::size_t step = case_.threads > 1 ? 2 : 1;
  std::vector<std::thread> others;
  for (std::size_t i = side + step; i < threads_.size(); i += step) {
    others.emplace_back([this, i] { work(threads_[i]); });
  }
  work(threads_[side]);
  for (std::thread& other : others) {
    other.join();
  }
}

void MergeTrial::work(Worker& worker) {
  if (!take_and_give(worker)) {  // warms up
    return;
  }
  const auto start = SteadyClock::now();
  auto now = start;
  do {
    if (!take_and_give(worker)) {
      return;
    }
    worker.done += kPages;
    now = SteadyClock::now();
  } while (now - start < duration_);
  worker.work_ns = ns_between(start, now);
  if (!take(worker)) {
    return;
  }
  const std::uint64_t times = worker.done / kPages;
  const auto touching = SteadyClock::now();
  for (std::uint64_t i = 0; i < times; ++i) {
    touch(worker);
  }
  worker.touch_ns = ns_between(touching, SteadyClock::now());
  give(worker);
}

void MergeTrial::touch(const Worker& worker) noexcept {
  for (std::size_t i = 0; i < kPages; ++i) {
    write_stamp(address_of(worker.pages[i]), i);
  }
  keep(worker);
}

void MergeTrial::note_used(Page* const* pages) noexcept {
  const std::lock_guard hold(lru_lock_);
  for (std::size_t i = 0; i < kLruBatch; ++i) {
    lru_ += ++pages[i]->private_word;
  }
}

bool MergeTrial::take(Worker& worker) {
  for (std::size_t i = 0; i < kPages; ++i) {
    Page* const page = pages_->alloc_page();
    if (page == nullptr) [[unlikely]] {
      worker.exhausted = true;
      free_burst(std::span<Page* const>(worker.pages).first(i));
      return false;
    }
    write_stamp(address_of(page), i);
    worker.pages[i] = page;
    if (case_.lru && i % kLruBatch == kLruBatch - 1) {
      note_used(&worker.pages[i + 1 - kLruBatch]);
    }
  }
  return true;
}

void MergeTrial::give(const Worker& worker) noexcept {
  for (std::size_t at = 0; at < kPages; at += kGroup) {
    free_burst(std::span<Page* const>(worker.pages).subspan(at, std::min(kGroup, kPages - at)));
  }
}

bool MergeTrial::take_and_give(Worker& worker) {
  if (!take(worker)) [[unlikely]] {
    return false;
  }
  give(worker);
  return true;
}

Outcome MergeTrial::collect() {
  if (!pages_.is_open()) {
    return {{}, fault_};
  }
  double pages = 0;
  double work = 0;
  double touch = 0;
  for (const Worker& worker : threads_) {
    if (worker.exhausted) {
      pages_.close();
      return {{}, "it ran out of pages"};
    }
    pages += static_cast<double>(worker.done);
    work += worker.work_ns;
    touch += worker.touch_ns;
  }
  // Threads that share a CPU wait for each other: by CPU, not by thread.
  const double sharing = static_cast<double>(case_.threads) /
                         static_cast<double>(one_cpu_ ? 1 : std::min(2U, case_.threads));
  const double time = work / pages / sharing;
  const double touching = touch / pages / sharing;
  const ZoneCounterValues now = values_of(pages_->zone().zone().counters());
  pages_.close();
  const auto per_million = [&](std::uint64_t after, std::uint64_t before) {
    return static_cast<double>(after - before) * 1e6 / pages;
  };
  return {{{"time", "ns", time - touching},
           {"time_with_touch", "ns", time},
           {"touch", "ns", touching},
           {"pages", "count", pages},
           {"zone_lock_acquisitions_per_million", "per million pages",
            per_million(now.lock_acquisitions, before_.lock_acquisitions)},
           {"zone_lock_waits_per_million", "per million pages",
            per_million(now.lock_waits, before_.lock_waits)},
           {"engine_frames_per_million", "per million pages",
            per_million(now.taken + now.given, before_.taken + before_.given)},
           {"descriptors_taking_per_million", "per million pages",
            per_million(now.descriptors_taking, before_.descriptors_taking)},
           {"descriptors_giving_per_million", "per million pages",
            per_million(now.descriptors_giving, before_.descriptors_giving)},
           {"zone_lock_longest_hold", "cycles", static_cast<double>(now.lock_longest_hold)}},
          fault_};
}

Experiment merge_experiment() {
  Experiment e;
  e.name = "merge";
  e.question = "What does merging cost, and what does each way of putting it off save?";
  e.source =
      "page_fault1 of will-it-scale, with which merging on every free was found to cost Linux 35 "
      "to "
      "42 % of all cycles on 112 CPUs (Aaron Lu, 2018)";
  e.expected =
      "merging on every free touches several descriptors a page under the lock; skipping it "
      "touches two, "
      "whole clusters one for 64; with a depot or without a lock there is nothing left to hold";
  e.meaning =
      "Each thread takes 32768 pages one by one, touches the first word of each and gives them "
      "back 510 "
      "at a time. The time is by page and CPU, less what touching the same pages costs by itself "
      "(row "
      "`touch`). Lists start with 128 pages everywhere. 2-lru takes one more lock for every 31 "
      "pages, as a "
      "kernel does: the next bottleneck. 8 threads on two CPUs are shown for what preempted "
      "holders cost.";
  e.workload = Workload::merge;
  e.metric = {"time", "ns", "ns a page", 1, false};
  e.cases = {{"1", "one thread"},
             {"2", "two threads, each on its CPU"},
             {"2-lru", "the same with a lock for used pages", 64, false, {}},
             {"8", "eight threads on two CPUs", 64, false, {}}};
  e.contenders = {"weir.page+merge=immediate",
                  "weir.page+merge=skip",
                  "weir.page+merge=clusters",
                  "weir.page+engine=buddy",
                  "weir.page+engine=buddy+depot=131072",
                  "weir.page"};
  e.references = {"weir.page+merge=immediate"};
  return e;
}

}  // namespace weir::lab
