// SPDX-License-Identifier: MIT
// Two to 64 threads take and give blocks of all orders, to exhaustion and back. A book of their own proves
// that each frame has one owner; what a giver writes into the book's cell, the next owner must read. In the
// end every count is right. WEIR_SEED repeats a run's choices (not its interleaving); WEIR_MILLISECONDS
// changes its length.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/interrupt.hpp"
#include "tests/support/process.hpp"
#include "tests/unit/zone/engine_range.hpp"
#include "weir/zone/bitmap_engine.hpp"

namespace weir {
namespace {

using test::EngineRange;

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 0) : otherwise;
}

// Who has which frame. Relaxed throughout: the book must not order what the engine is to order.
class Book {
 public:
  explicit Book(const EngineRange& range)
      : first_(range.first().value), owners_(range.frames()), notes_(range.frames()) {}

  void took(PageIndex page, Order order, std::uint32_t me) {
    each(page, order, [&](std::uint64_t i) {
      wrong_ += owners_[i].exchange(me + 1, std::memory_order_relaxed) == 0 ? 0 : 1;
      wrong_ += notes_[i] == note_of(i) || notes_[i] == 0 ? 0 : 1;
      notes_[i] = ~note_of(i);  // a second owner would see this
    });
  }
  void gives(PageIndex page, Order order, std::uint32_t me) {
    each(page, order, [&](std::uint64_t i) {
      notes_[i] = note_of(i);
      wrong_ += owners_[i].exchange(0, std::memory_order_relaxed) == me + 1 ? 0 : 1;
    });
  }
  [[nodiscard]] std::uint64_t wrong() const { return wrong_; }

 private:
  static std::uint64_t note_of(std::uint64_t i) { return i * 0x9e37'79b9'7f4a'7c15U + 1; }
  template <class Look>
  void each(PageIndex page, Order order, Look look) {
    for (std::uint64_t i = 0; i < frames_in(order); ++i) {
      const std::uint64_t at = page.value - first_ + i;
      if (at >= owners_.size()) {
        ++wrong_;
        return;
      }
      look(at);
    }
  }
  std::uint32_t first_;
  std::vector<std::atomic<std::uint32_t>> owners_;
  std::vector<std::uint64_t> notes_;  // no atomics: handed on through the engine
  std::atomic<std::uint64_t> wrong_{0};
};

constexpr std::uint64_t kFrames = 6 * kMaxBlockFrames + 300;

class BitmapEngineStress : public testing::TestWithParam<std::uint32_t> {
 protected:
  BitmapEngineStress() : range_(kFrames), book_(range_) {
    EXPECT_FALSE(engine_.adopt(range_.first(), PageCount{kFrames}).failed());
    std::printf("seed: WEIR_SEED=%llu\n", static_cast<unsigned long long>(seed_));
  }
  ~BitmapEngineStress() override {
    EXPECT_EQ(book_.wrong(), 0U);
    EXPECT_EQ(engine_.audit(), kFrames);
    EXPECT_EQ(engine_.free_pages(), kFrames);
    EXPECT_EQ(engine_.free_blocks(kMaxOrder), 6U);
  }

  // Each thread calls work(number, random) until the time is over.
  template <class Work>
  void run(Work work) {
    const std::chrono::milliseconds length{from_environment("WEIR_MILLISECONDS", 700)};
    std::vector<std::thread> threads;
    const auto end = std::chrono::steady_clock::now() + length;
    for (std::uint32_t me = 0; me < GetParam(); ++me) {
      threads.emplace_back([&, me] {
        std::mt19937_64 random{seed_ + me};
        do {
          work(me, random);
        } while (std::chrono::steady_clock::now() < end);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
  std::uint32_t take_many(Order order, PageIndex* pages, std::uint32_t n, std::uint32_t me) {
    const std::uint32_t got = engine_.take_many(order, pages, n, 0, me);
    for (std::uint32_t i = 0; i < got; ++i) {
      book_.took(pages[i], order, me);
    }
    return got;
  }
  void give_many(Order order, const PageIndex* pages, std::uint32_t n, std::uint32_t me) {
    for (std::uint32_t i = 0; i < n; ++i) {
      book_.gives(pages[i], order, me);
    }
    if (n == 1) {
      engine_.give(pages[0], order);
    } else {
      engine_.give_many(order, pages, n);
    }
  }

  std::uint64_t seed_ = from_environment("WEIR_SEED", std::random_device{}());
  EngineRange range_;
  Book book_;
  BitmapEngine engine_;
};

TEST_P(BitmapEngineStress, EveryFrameHasOneOwner) {
  run([this](std::uint32_t me, std::mt19937_64& random) {
    std::vector<std::pair<PageIndex, Order>> mine;
    for (int step = 0; step < 200; ++step) {
      PageIndex pages[64];
      const std::uint64_t choice = random() % 16;
      if (choice < 8) {
        const Order order{
            static_cast<unsigned>(choice < 5 ? random() % 4 : random() % kOrderCount)};
        const auto n = static_cast<std::uint32_t>(
            order.value > 6 || random() % 2 == 0 ? 1 : 1 + random() % (64U >> order.value));
        const std::uint32_t got = take_many(order, pages, n, me);
        for (std::uint32_t i = 0; i < got; ++i) {
          mine.emplace_back(pages[i], order);
        }
      } else if (choice == 8) {
        const auto n = static_cast<std::uint32_t>(1 + random() % 64);
        if (!engine_.claim(n, random() % 100)) {
          continue;
        }
        if (random() % 4 == 0) {
          engine_.unclaim(n);
          continue;
        }
        engine_.take_claimed(pages, n, me);
        for (std::uint32_t i = 0; i < n; ++i) {
          book_.took(pages[i], Order{0}, me);
          mine.emplace_back(pages[i], Order{0});
        }
      } else if (!mine.empty()) {
        const Order order = mine[random() % mine.size()].second;
        std::uint32_t n = 0;
        for (std::size_t i = mine.size(); i-- > 0 && n < std::max(1U, 64U >> order.value);) {
          if (mine[i].second == order) {
            pages[n++] = mine[i].first;
            mine[i] = mine.back();
            mine.pop_back();
          }
        }
        for (std::uint32_t i = 0; order.value > 6 && i < n; ++i) {
          give_many(order, pages + i, 1, me);
        }
        if (order.value <= 6) {
          give_many(order, pages, n, me);
        }
      }
    }
    for (const auto& [page, order] : mine) {
      give_many(order, &page, 1, me);
    }
  });
}

// All single frames there are, by all threads, until each is refused the last one; and then by one.
TEST_P(BitmapEngineStress, SingleFramesToTheLastAndBack) {
  std::atomic<std::uint64_t> exhausted{0};
  run([&](std::uint32_t me, std::mt19937_64& random) {
    std::vector<PageIndex> mine;
    PageIndex pages[64];
    const auto n = static_cast<std::uint32_t>(1 + random() % 64);
    for (std::uint32_t ask = n; ask != 0;) {
      const std::uint32_t got = take_many(Order{0}, pages, ask, me);
      mine.insert(mine.end(), pages, pages + got);
      ask = got == 0 ? ask / 2 : ask;
    }
    exhausted.fetch_add(1, std::memory_order_relaxed);
    std::shuffle(mine.begin(), mine.end(), random);
    while (!mine.empty()) {
      const auto some = static_cast<std::uint32_t>(std::min<std::size_t>(mine.size(), n));
      give_many(Order{0}, &mine[mine.size() - some], some, me);
      mine.resize(mine.size() - some);
    }
  });
  EXPECT_GT(exhausted, 0U);
  std::vector<PageIndex> all(kFrames);
  for (PageIndex& page : all) {
    ASSERT_EQ(take_many(Order{0}, &page, 1, 0), 1U);
  }
  EXPECT_EQ(engine_.take(Order{0}, 0, 0), kNoPage);
  for (const PageIndex page : all) {
    give_many(Order{0}, &page, 1, 0);
  }
}

TEST_P(BitmapEngineStress, LargeBlocksBesideSingleFrames) {
  std::atomic<std::uint64_t> large{0};
  run([&](std::uint32_t me, std::mt19937_64& random) {
    PageIndex page;
    if (me % 2 == 0) {
      const Order order{static_cast<unsigned>(7 + random() % 4)};
      if (take_many(order, &page, 1, me) == 1) {
        large.fetch_add(1, std::memory_order_relaxed);
        give_many(order, &page, 1, me);
      }
      return;
    }
    std::vector<PageIndex> mine;
    for (std::uint64_t n = random() % (kFrames / GetParam()); n != 0; --n) {
      if (take_many(Order{0}, &page, 1, me) == 1) {
        mine.push_back(page);
      }
    }
    std::shuffle(mine.begin(), mine.end(), random);
    for (const PageIndex one : mine) {
      give_many(Order{0}, &one, 1, me);
    }
  });
  EXPECT_GT(large, 0U);
}

INSTANTIATE_TEST_SUITE_P(Threads, BitmapEngineStress, testing::Values(2U, 5U, 64U),
                         [](const auto& threads) { return std::to_string(threads.param); });

// Of the threads that were in the middle of something, the child has none: what they held is lost to it, and
// all else can be taken and given.
TEST(BitmapEngineForked, AChildForkedInTheMiddleOfEverythingRecovers) {
  if (test::kSanitized) {
    GTEST_SKIP() << "sanitizers and children of many threads do not go together";
  }
  EngineRange range(kFrames);
  BitmapEngine engine;
  ASSERT_FALSE(engine.adopt(range.first(), PageCount{kFrames}).failed());
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (std::uint32_t me = 0; me < 4; ++me) {
    threads.emplace_back([&, me] {
      std::mt19937_64 random{me};
      while (!stop.load(std::memory_order_relaxed)) {
        const Order order{static_cast<unsigned>(random() % kOrderCount)};
        PageIndex pages[64];
        const std::uint32_t n = std::max(1U, 64U >> order.value);
        const std::uint32_t got = engine.take_many(order, pages, n, 0, me);
        engine.give_many(order, pages, got);
        if (engine.claim(n, 0)) {
          engine.take_claimed(pages, n, me);
          engine.give_many(Order{0}, pages, n);
        }
      }
    });
  }
  for (int round = 0; round < 60; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      // Aborts where an invariant does not hold.
      engine.recover_in_child();
      const std::uint64_t here = engine.audit();
      std::uint64_t taken = 0;
      static PageIndex pages[kFrames];
      while (taken < kFrames && (pages[taken] = engine.take(Order{0}, 0, 9)) != kNoPage) {
        ++taken;
      }
      for (std::uint64_t at = 0; at < taken; at += 64) {
        const auto n = static_cast<std::uint32_t>(std::min<std::uint64_t>(64, taken - at));
        engine.give_many(Order{0}, pages + at, n);
      }
      const bool large = engine.take(kPageblockOrder, 0, 9) != kNoPage;
      ::_exit(taken == here && engine.claimed_pages() == 0 && large ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "round " << round;
  }
  stop.store(true, std::memory_order_relaxed);
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(engine.audit(), kFrames);
}

// A handler that interrupts a call after any of its instructions takes and gives as anybody: nothing that
// the interrupted call holds halfway makes it wait or fail.
class BitmapEngineInterrupted : public testing::TestWithParam<unsigned> {};

TEST_P(BitmapEngineInterrupted, AHandlerTakesAndGivesInTheMiddleOfEveryCall) {
  if (!test::kCanInterrupt) {
    GTEST_SKIP() << "no single steps here";
  }
  const Order order{GetParam()};
  EngineRange range(2 * kMaxBlockFrames);
  BitmapEngine engine;
  ASSERT_FALSE(engine.adopt(range.first(), PageCount{range.frames()}).failed());
  PageIndex kept = engine.take(Order{0}, 0, 0);  // CPU 0 has a pageblock
  std::uint64_t interrupted = 0;
  std::uint64_t refused = 0;
  PageIndex held[8];
  bool holds = false;
  const auto handler = [&] {
    ++interrupted;
    PageIndex mine[8];
    for (const std::uint32_t cpu : {0U, 1U}) {
      refused += engine.take_many(Order{0}, mine, 8, 0, cpu) == 8 ? 0 : 1;
      engine.give_many(Order{0}, mine, 8);
      const PageIndex run = engine.take(Order{3}, 0, cpu);
      refused += run == kNoPage ? 1 : 0;
      if (run != kNoPage) {
        engine.give(run, Order{3});
      }
    }
    // Now and then something stays changed, so that the interrupted call has to try again; more often
    // and it would never come to its end.
    if (interrupted % 101 == 0) {
      if (!holds) {
        refused += engine.take_many(Order{0}, held, 8, 0, 0) == 8 ? 0 : 1;
      } else {
        engine.give_many(Order{0}, held, 8);
      }
      holds = !holds;
    }
  };
  PageIndex page = kNoPage;
  for (int round = 0; round < (test::kSanitized ? 2 : 20); ++round) {
    test::interrupt_each([&] { page = engine.take(order, 0, 0); }, handler);
    if (page != kNoPage) {
      test::interrupt_each([&] { engine.give(page, order); }, handler);
    }
  }
  EXPECT_GT(interrupted, 100U);
  EXPECT_EQ(refused, 0U);
  if (holds) {
    engine.give_many(Order{0}, held, 8);
  }
  engine.give(kept, Order{0});
  EXPECT_EQ(engine.audit(), range.frames());
  EXPECT_EQ(engine.free_blocks(kMaxOrder), 2U);
}

INSTANTIATE_TEST_SUITE_P(Orders, BitmapEngineInterrupted, testing::Range(0U, kOrderCount));

}  // namespace
}  // namespace weir
