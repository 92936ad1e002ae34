// SPDX-License-Identifier: MIT
// Threads that allocate, write, check and free while one trims all the time and one pins: no page in use loses its
// contents, no request is refused that there is memory for, and at the end every frame is home. WEIR_STEPS changes
// the length, WEIR_SEED repeats a run's choices.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "tests/support/process.hpp"
#include "weir/stats/snapshot.hpp"
#include "weir/weir.hpp"

namespace weir {
namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 0) : otherwise;
}

constexpr std::size_t kThreads = 3;
constexpr std::size_t kShare = 9 * 512;  // frames that a thread has at most
constexpr Bytes kZone = 64_MiB;          // 32 pageblocks; three shares and a half

class Worker {
 public:
  Worker(PageAllocator& pages, std::uint64_t seed, std::uint64_t number)
      : pages_(pages), random_(seed + number), number_(number) {}

  void run(std::uint64_t steps) {
    for (std::uint64_t step = 0; step < steps; ++step) {
      const std::uint64_t dice = random_() % 16;
      if (held_ > kShare / 2 && dice < 10) {
        drop(random_() % pages_held_.size());
      } else if (dice < 8) {
        take(Order{0});
      } else if (dice < 11) {
        take(Order{static_cast<unsigned>(random_() % 9)});
      } else if (dice == 11) {
        take_blocks();
      } else if (dice == 12) {
        exactly();
      } else if (!pages_held_.empty()) {
        drop(random_() % pages_held_.size());
      }
      if (step % 2048 == 2047) {
        drop_all();  // so that whole pageblocks become free
      }
    }
    drop_all();
  }
  [[nodiscard]] std::uint64_t refused() const { return refused_; }
  [[nodiscard]] std::uint64_t torn() const { return torn_; }

 private:
  struct Held {
    PageRef page;
    std::uint64_t stamp;
  };
  void keep(PageRef page) {
    const std::uint64_t stamp = random_() << 8 | number_;
    for (std::size_t at = 0; at < page.size().value; at += kFrameBytes) {
      *reinterpret_cast<std::uint64_t*>(page.data() + at) = stamp;
    }
    held_ += frames_in(page.order());
    pages_held_.push_back({std::move(page), stamp});
  }
  void take(Order order) {
    if (held_ + frames_in(order) > kShare) {
      return;
    }
    PageRef page = pages_.alloc(order);
    if (page) {
      keep(std::move(page));
    } else if (order.value == 0) {
      ++refused_;  // larger blocks may really not be there
    }
  }
  void exactly() {
    std::array<Page*, 200> out{};
    if (held_ + out.size() > kShare) {
      return;
    }
    if (!pages_.alloc_exactly(out)) {
      ++refused_;
      return;
    }
    for (Page* page : out) {
      keep(PageRef{page});
    }
  }
  // With nothing else held, whole pageblocks are always there for a third of the zone's.
  void take_blocks() {
    if (PageRef page = pages_.alloc(kPageblockOrder); page && held_ + 512 <= kShare) {
      keep(std::move(page));
    }
  }
  void drop(std::size_t which) {
    if (pages_held_.empty()) {
      return;
    }
    std::swap(pages_held_[which], pages_held_.back());
    const Held held = std::move(pages_held_.back());
    pages_held_.pop_back();
    held_ -= frames_in(held.page.order());
    for (std::size_t at = 0; at < held.page.size().value; at += kFrameBytes) {
      torn_ += *reinterpret_cast<const std::uint64_t*>(held.page.data() + at) != held.stamp ? 1 : 0;
    }
  }
  void drop_all() {
    while (!pages_held_.empty()) {
      drop(pages_held_.size() - 1);
    }
  }

  PageAllocator& pages_;
  std::mt19937_64 random_;
  std::uint64_t number_;
  std::vector<Held> pages_held_;
  std::size_t held_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t torn_ = 0;
};

class TrimStress : public testing::TestWithParam<std::pair<EngineChoice, SourceChoice>> {};

TEST_P(TrimStress, NobodyNoticesThatMemoryComesAndGoes) {
  const std::uint64_t seed = from_environment("WEIR_SEED", std::random_device{}());
  const std::uint64_t steps =
      from_environment("WEIR_STEPS", test::kSanitized || kTestHooks ? 40'000 : 1'000'000);
  std::printf("seed: WEIR_SEED=%llu\n", static_cast<unsigned long long>(seed));
  PageAllocator pages{{.capacity = kZone,
                       .source = GetParam().second,
                       .engine = GetParam().first,
                       .idle_trim = std::chrono::milliseconds{1}}};
  const Extent& extent = pages.effective().extent;
  std::vector<Worker> workers;
  for (std::size_t i = 0; i < kThreads; ++i) {
    workers.emplace_back(pages, seed, i);
  }
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> wrong_pins{0};
  std::thread trimmer{[&] {
    std::mt19937_64 random{seed ^ 1};
    while (!done) {
      static_cast<void>(pages.trim(Bytes{random() % 8 * kPageblockBytes}));
      pages.tick();
      std::this_thread::yield();
    }
  }};
  // What a pin keeps must not read as zero suddenly, whoever has it: its first word is only looked at, and only in
  // pageblocks that stay pinned and untouched between the two looks.
  std::thread pinner{[&] {
    std::mt19937_64 random{seed ^ 2};
    while (!done) {
      const std::uint64_t blocks = extent.size.value / kPageblockBytes;
      const std::uint64_t at = random() % blocks;
      const Result<Pin> pin = pages.pin(
          {extent.base + at * kPageblockBytes, (1 + random() % (blocks - at)) * kPageblockBytes});
      wrong_pins += pin ? 0 : 1;
      std::this_thread::yield();
      const PageIndex first = advance(pages.zone().pieces().front().first, at * 512);
      wrong_pins += pages.zone().zone().is_trimmed(first) ? 1 : 0;
      wrong_pins += pages.zone().is_pinned(first, 512) ? 0 : 1;
    }
  }};
  std::vector<std::thread> threads;
  for (Worker& worker : workers) {
    threads.emplace_back([&worker, steps] { worker.run(steps); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  done = true;
  trimmer.join();
  pinner.join();
  for (const Worker& worker : workers) {
    EXPECT_EQ(worker.torn(), 0U) << "contents of a page in use were lost";
    EXPECT_EQ(worker.refused(), 0U) << "a request was refused though there was memory";
  }
  EXPECT_EQ(wrong_pins, 0U);
  const std::uint64_t trims = pages.zone().zone().counters().trims.get();
  std::printf("%llu pageblocks given back meanwhile\n", static_cast<unsigned long long>(trims));
  EXPECT_GT(trims, 20U) << "a run that trims nothing shows nothing";
  EXPECT_FALSE(pages.drain_all().failed());
  const Snapshot snapshot = collect(pages);
  EXPECT_EQ(snapshot.census.engine, snapshot.census.managed);
  EXPECT_EQ(snapshot.free_blocks[kMaxOrderValue], snapshot.census.managed >> kMaxOrderValue);
  EXPECT_EQ(pages.zone().zone().audit(), snapshot.census.managed);
}

INSTANTIATE_TEST_SUITE_P(BothEngines, TrimStress,
                         testing::Values(std::pair{EngineChoice::buddy, SourceChoice::anonymous},
                                         std::pair{EngineChoice::bitmap, SourceChoice::anonymous},
                                         std::pair{EngineChoice::bitmap, SourceChoice::memfd}),
                         [](const auto& ground) {
                           return std::string(ground.param.second == SourceChoice::memfd
                                                  ? "Memfd"
                                                  : "Anonymous") +
                                  (ground.param.first == EngineChoice::buddy ? "Buddy" : "Bitmap");
                         });

}  // namespace
}  // namespace weir
