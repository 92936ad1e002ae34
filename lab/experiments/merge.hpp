// SPDX-License-Identifier: MIT
// lab/experiments/merge.hpp — what merging costs when pages come and go by the ten thousand, as in
// page_fault1 of will-it-scale: every thread takes 32768 pages one by one, touches the first word of each
// and gives them back 510 at a time, in the order they came. The memory is populated before; what touching
// costs by itself is measured beside, on the same pages in the same order.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lab/experiments/own_zone.hpp"
#include "lab/experiments/rounds.hpp"
#include "lab/harness/trial.hpp"
#include "weir/page/page_allocator.hpp"

namespace weir::lab {

struct MergeCase {
  const char* name;
  std::uint32_t threads;
  bool
      lru;  // a lock and 31 descriptors more for every 31 pages, as the kernel's list of used pages
};
inline constexpr MergeCase kMergeCases[] = {
    {"1", 1, false}, {"2", 2, false}, {"2-lru", 2, true}, {"8", 8, false}};
// The first one where the name is no other's.
[[nodiscard]] inline const MergeCase& merge_case(std::string_view name) {
  for (const MergeCase& one : kMergeCases) {
    if (name == one.name) {
      return one;
    }
  }
  return kMergeCases[0];
}

class MergeTrial final : public Trial {
 public:
  static constexpr std::size_t kPages = 32768;  // a thread has out at once
  static constexpr std::size_t kGroup = 510;    // given back at once
  static constexpr std::size_t kLruBatch = 31;

  MergeTrial(const MergeCase& one, const Options& options)
      : case_(one),
        // As much again as is out, so that what is free is no matter of this experiment.
        pages_(like_the_others(options), 2 * kPages * one.threads),
        threads_(one.threads) {
    for (Worker& worker : threads_) {
      worker.pages.resize(kPages);
    }
  }

  void prepare(const RoundSetup& setup) override {
    duration_ = setup.duration;
    one_cpu_ = setup.one_cpu;
    fault_ = pages_.open();
    if (pages_.is_open()) {
      populate();
      before_ = values_of(pages_->zone().zone().counters());
    }
    for (Worker& worker : threads_) {
      worker.done = 0;
      worker.exhausted = false;
    }
  }
  void lead() override {
    if (pages_.is_open()) {
      work_on(0);
    }
  }
  void follow() override {
    if (pages_.is_open()) {
      work_on(1);
    }
  }
  [[nodiscard]] bool two_sided() const override { return case_.threads > 1; }

  Outcome collect() override;

 private:
  struct Worker {
    std::vector<Page*> pages;
    std::uint64_t done = 0;
    double work_ns = 0;
    double touch_ns = 0;  // for as many pages
    bool exhausted = false;
  };

  [[nodiscard]] static Options like_the_others(Options options) {
    options.high = PageCount{128};
    return options;
  }
  void populate();
  // The threads of one side: its own, and further ones on the same CPU.
  void work_on(std::size_t side);
  void work(Worker& worker);
  [[nodiscard]] bool take(Worker& worker);  // false, and nothing kept, when there were too few
  static void give(const Worker& worker) noexcept;
  [[nodiscard]] bool take_and_give(Worker& worker);
  static void touch(const Worker& worker) noexcept;
  void note_used(Page* const* pages) noexcept;

  MergeCase case_;
  OwnZone pages_;
  std::vector<Worker> threads_;
  std::chrono::nanoseconds duration_{0};
  bool one_cpu_ = false;
  ZoneCounterValues before_{};
  std::mutex lru_lock_;
  std::uint64_t lru_ = 0;  // under lru_lock_
  std::string fault_;
};

}  // namespace weir::lab
