// SPDX-License-Identifier: MIT
// Whether the policy of the bitmap engine makes wholly free pageblocks out of scattered free frames, with
// nothing but ordinary takes and gives: the experiment of the LLFree paper on 16 GiB of frame numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "lab/harness/sanitizers.hpp"
#include "tests/unit/zone/engine_range.hpp"
#include "weir/zone/bitmap_engine.hpp"

namespace weir {
namespace {

using test::EngineRange;

#if defined(WEIR_LAB_TSAN) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kFrames = std::uint64_t{1} << 18;  // instrumented: a sixteenth
#else
constexpr std::uint64_t kFrames = std::uint64_t{1} << 22;
#endif
constexpr int kRounds = 100;
constexpr std::uint32_t kBatch = 64;

// Descriptors and engine; `live` are the frames out, in no order.
class Churn {
 public:
  Churn() : range_(kFrames) {
    if (engine_.adopt(range_.first(), PageCount{kFrames}).failed()) {
      throw std::runtime_error("adopt");
    }
  }
  void take(std::uint64_t n) {
    for (; n != 0; n -= std::min<std::uint64_t>(n, kBatch)) {
      PageIndex pages[kBatch];
      const auto some = static_cast<std::uint32_t>(std::min<std::uint64_t>(n, kBatch));
      ASSERT_EQ(engine_.take_many(Order{0}, pages, some, 0, 0), some);
      live_.insert(live_.end(), pages, pages + some);
    }
  }
  void give(std::uint64_t n) {
    for (; n != 0; n -= std::min<std::uint64_t>(n, kBatch)) {
      PageIndex pages[kBatch];
      const auto some = static_cast<std::uint32_t>(std::min<std::uint64_t>(n, kBatch));
      for (std::uint32_t i = 0; i < some; ++i) {
        std::swap(live_[random_() % live_.size()], live_.back());
        pages[i] = live_.back();
        live_.pop_back();
      }
      engine_.give_many(Order{0}, pages, some);
    }
  }
  // Of the free frames, those in wholly free pageblocks, in percent.
  [[nodiscard]] double whole() const {
    const std::uint64_t blocks = engine_.free_blocks(Order{9}) + 2 * engine_.free_blocks(Order{10});
    return 100.0 * static_cast<double>(blocks * kPageblockFrames) /
           static_cast<double>(engine_.free_pages());
  }
  [[nodiscard]] std::uint64_t live() const { return live_.size(); }
  [[nodiscard]] const BitmapEngine& engine() const { return engine_; }

 private:
  EngineRange range_;
  BitmapEngine engine_;
  std::mt19937_64 random_{2023};
  std::vector<PageIndex> live_;
};

TEST(Fragmentation, RandomChurnMakesWhollyFreePageblocks) {
  Churn churn;
  churn.take(kFrames);
  ASSERT_EQ(churn.engine().free_pages(), 0U);
  churn.give(kFrames / 2);
  std::printf("free frames in wholly free pageblocks, %%: start %.1f", churn.whole());
  double after[kRounds + 1] = {};
  for (int round = 1; round <= kRounds; ++round) {
    const std::uint64_t n = churn.live() / 10;
    churn.give(n);
    churn.take(n);
    after[round] = churn.whole();
    if (round % 10 == 0) {
      std::printf("  %d: %.1f", round, after[round]);
    }
  }
  std::printf("\n");
  EXPECT_GE(after[50], 25);
  EXPECT_GE(after[60], 60);
  EXPECT_GE(after[100], 98);
  EXPECT_EQ(churn.engine().audit(), kFrames - churn.live());
}

}  // namespace
}  // namespace weir
