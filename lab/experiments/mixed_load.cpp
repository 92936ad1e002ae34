// SPDX-License-Identifier: MIT
// lab/experiments/mixed_load.cpp — the experiment `mixed-load`.
#include "lab/experiments/mixed_load.hpp"

#include <algorithm>
#include <span>

#include "lab/experiments/experiments.hpp"

namespace weir::lab {

MixedLoadTrial::MixedLoadTrial(const MixedLoadCase& one, const Options& options)
    : case_(one), pages_(options, one.frames), threads_(one.threads) {
  // 2: single, block. 4: single, block, block, single; the side changes from each to the next.
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    Worker& worker = threads_[i];
    worker.side = i % 2;
    worker.singles = i % 4 == 0 || i % 4 == 3;
    worker.out.resize(worker.singles ? one.swing : kBlocks);
  }
}

// The zone full of holes. live_ holds the pages that stay out.
void MixedLoadTrial::prepare(const RoundSetup& setup) {
  duration_ = setup.duration;
  fault_ = pages_.open();
  for (Worker& worker : threads_) {
    worker.served = worker.refused = 0;
    worker.ns = 0;
  }
  if (!pages_.is_open() || !take_all()) {
    return;
  }
  random_.seed(kSeed);
  const auto by_frame = [](const Page* a, const Page* b) {
    return index_of(a).value < index_of(b).value;
  };
  std::sort(live_.begin(), live_.end(), by_frame);
  std::vector<Page*> home;
  std::vector<Page*> stay;
  bool whole = false;
  std::uint32_t block = ~std::uint32_t{0};
  for (Page* const page : live_) {
    const std::uint32_t its_block = index_of(page).value >> kPageblockOrderValue;
    if (its_block != block) {
      block = its_block;
      whole = random_() % 4 == 0;
    }
    (whole || random_() % 2 == 0 ? home : stay).push_back(page);
  }
  std::shuffle(home.begin(), home.end(), random_);
  free_burst(home);
  live_ = std::move(stay);
  static_cast<void>(pages_->drain_all());
  const Zone& zone = pages_->zone().zone();
  whole_at_start_ = zone.free_blocks(kPageblockOrder) + 2 * zone.free_blocks(kMaxOrder);
  before_ = values_of(zone.counters());
}

bool MixedLoadTrial::take_all() {
  live_.resize(pages_->effective().managed.value);
  live_.resize(pages_->alloc_burst(live_));
  if (live_.size() != pages_->effective().managed.value) {
    fault_ = "it did not hand out all of its zone: " + std::to_string(live_.size()) + " frames";
  }
  return fault_.empty();
}

void MixedLoadTrial::work_on(std::size_t side) {
  if (!pages_.is_open()) {
    return;
  }
  std::vector<std::thread> others;
  for (std::size_t i = side + 2; i < threads_.size(); i += 2) {
    others.emplace_back([this, i] { work(threads_[i]); });
  }
  work(threads_[side]);
  for (std::thread& other : others) {
    other.join();
  }
  gate_.arrive_and_wait();
  const Zone& zone = pages_->zone().zone();
  if (side == 0) {
    after_ = values_of(zone.counters());
  }
  send_home(side);
  if (side == 0) {
    ask_for_largest();
    static_cast<void>(take_all());
  }
  gate_.arrive_and_wait();
  send_home(side);
  if (side == 0) {
    static_cast<void>(pages_->drain_all());
    largest_drained_ = zone.free_blocks(kMaxOrder);
  }
}

void MixedLoadTrial::work(Worker& worker) {
  take_and_give(worker);  // warms up
  worker.served = worker.refused = 0;
  const auto start = SteadyClock::now();
  auto now = start;
  do {
    take_and_give(worker);
    now = SteadyClock::now();
  } while (now - start < duration_);
  worker.ns = ns_between(start, now);
}

// One by one, and back in the order they came.
void MixedLoadTrial::take_and_give(Worker& worker) {
  const Order order = worker.singles ? Order{0} : kPageblockOrder;
  std::size_t got = 0;
  for (std::size_t i = 0; i < worker.out.size(); ++i) {
    Page* const page = pages_->alloc_page(order);
    if (page == nullptr) [[unlikely]] {
      ++worker.refused;
      continue;
    }
    worker.out[got++] = page;
  }
  for (std::size_t i = 0; i < got; ++i) {
    unref(worker.out[i]);
  }
  worker.served += got;
}

// Every other page that is out, so that neighbours end on the lists of both CPUs.
void MixedLoadTrial::send_home(std::size_t side) {
  for (std::size_t i = side; i < live_.size(); i += 2) {
    unref(live_[i]);
  }
  gate_.arrive_and_wait();
  if (side == 0) {
    live_.clear();
  }
}

// Largest blocks out until none is served, and back. A request that the engine cannot serve merges what was
// put off, and only one that is not served by that empties the lists; so after the first of those there
// should be as many blocks as without anything put off, where nothing need be asked for.
void MixedLoadTrial::ask_for_largest() {
  const Zone& zone = pages_->zone().zone();
  const bool put_off = pages_->zone().depot().capacity() != 0;
  largest_before_ = zone.free_blocks(kMaxOrder);
  largest_merged_ = put_off ? 0 : largest_before_;
  std::vector<Page*> blocks;
  while (blocks.size() <= case_.frames >> kMaxOrder.value) {
    const bool lacking = zone.free_blocks(kMaxOrder) == 0;
    Page* const block = pages_->alloc_page(kMaxOrder);
    if (block != nullptr) {
      blocks.push_back(block);
    }
    if (lacking && largest_merged_ == 0) {
      largest_merged_ = blocks.size() + zone.free_blocks(kMaxOrder);
    }
    if (block == nullptr) {
      break;
    }
  }
  largest_served_ = blocks.size();
  for (Page* const block : blocks) {
    unref(block);
  }
}

Outcome MixedLoadTrial::collect() {
  if (pages_.is_open()) {
    const std::uint64_t out = pages_->zone().census().out();
    if (fault_.empty() && out != live_.size()) {
      fault_ = "pages were lost or came twice: " + std::to_string(out) + " are out";
    }
    pages_.close();
  }
  double singles = 0;  // by second
  double blocks = 0;
  double refusals = 0;
  double served = 0;
  double refused = 0;
  for (const Worker& worker : threads_) {
    const double rate = static_cast<double>(worker.served) * 1e9 / worker.ns;
    if (worker.singles) {
      singles += rate;
      if (worker.refused != 0 && fault_.empty()) {
        fault_ = "it refused single pages";
      }
    } else {
      blocks += rate;
      refusals += static_cast<double>(worker.refused) * 1e9 / worker.ns;
      served += static_cast<double>(worker.served);
      refused += static_cast<double>(worker.refused);
    }
  }
  if (!fault_.empty()) {
    return {{}, fault_};
  }
  return {
      {{"time", "ns", 1e9 / singles},
       {"order0_rate", "pages/s", singles},
       {"order9_rate", "pageblocks/s", blocks},
       {"order9_refusal_rate", "refusals/s", refusals},
       {"order9_attempts", "count", served + refused},
       {"order9_refused", "count", refused},
       {"order9_free_at_start", "pageblocks", static_cast<double>(whole_at_start_)},
       {"largest_before", "blocks", static_cast<double>(largest_before_)},
       {"largest_merged", "blocks", static_cast<double>(largest_merged_)},
       {"largest_served", "blocks", static_cast<double>(largest_served_)},
       {"largest_drained", "blocks", static_cast<double>(largest_drained_)},
       {"zone_lock_waits", "count", static_cast<double>(after_.lock_waits - before_.lock_waits)},
       {"engine_frames", "frames",
        static_cast<double>(after_.taken + after_.given - before_.taken - before_.given)},
       {"shortages", "count", static_cast<double>(after_.shortages - before_.shortages)}},
      ""};
}

Experiment mixed_load_experiment() {
  Experiment e;
  e.name = "mixed-load";
  e.question = "Do those who want large blocks pay for merging put off?";
  e.source = "the same open question, with threads of both kinds";
  e.expected =
      "pageblocks come at 0.95 of the rate of merging at once, or more; single pages at 1.4 or "
      "more; and "
      "once all pages are home there are as many largest blocks, after a drain and also after the "
      "first "
      "request that the engine could not serve";
  e.meaning =
      "A zone of 512 MiB, no page touched. All single pages are out; a random quarter of the "
      "pageblocks "
      "comes home whole and of the others a random half of the frames (seed 510), so pageblocks "
      "can be had, "
      "and single pages come from among strangers. Then half the threads take and give back 256 "
      "single pages "
      "(2-far: 8192), half 8 pageblocks. A refused pageblock counts in order9_refusal_rate, not in "
      "order9_rate. "
      "Afterwards all pages go home on both CPUs by turns and the blocks of 4 MiB are counted.";
  e.workload = Workload::mixed_load;
  e.metric = {"time", "ns", "ns a single page", 1, false};
  e.cases = {{"2", "one thread of each kind"},
             {"4", "two threads of each kind, one of each on a CPU"},
             {"2-far", "one of each kind; more single pages out than lists and depot hold"}};
  e.contenders = {"weir.page+merge=immediate", "weir.page+engine=buddy",
                  "weir.page+engine=bitmap+merge=immediate", "weir.page+engine=bitmap"};
  e.references = {"weir.page+merge=immediate", "weir.page+engine=bitmap+merge=immediate"};
  e.details = {{"by second",
                {{"single pages", "order0_rate"},
                 {"pageblocks", "order9_rate"},
                 {"pageblocks refused", "order9_refusal_rate"}}},
               {"largest blocks",
                {{"all home", "largest_before"},
                 {"merged by a request", "largest_merged"},
                 {"served", "largest_served"},
                 {"after a drain", "largest_drained"}}},
               {"beside it",
                {{"waits for the lock", "zone_lock_waits"},
                 {"frames through the engine", "engine_frames"},
                 {"lists stopped", "shortages"}}}};
  return e;
}

}  // namespace weir::lab
