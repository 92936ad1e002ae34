// SPDX-License-Identifier: MIT
// Several threads use every kind of owner at once and pass what they hold to each other; a table of
// their own catches a frame with two owners, and at the end every frame is home.
// WEIR_SEED repeats a run's choices (not its interleaving); WEIR_STEPS changes its length.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "weir/stats/snapshot.hpp"
#include "weir/weir.hpp"

namespace weir {
namespace {

constexpr std::size_t kThreads = 4;

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 0) : otherwise;
}

// Whole pages bear an owner's mark in the table while somebody holds them.
class Owners {
 public:
  explicit Owners(const PageAllocator& pages)
      : first_(pages.zone().pieces().front().first.value),
        marks_(pages.effective().managed.value) {}
  void take(const Page* page) { set(page, 0, 1); }
  void drop(const Page* page) { set(page, 1, 0); }

 private:
  void set(const Page* page, int from, int to) {
    const std::uint32_t at = index_of(page).value - first_;
    for (std::uint32_t i = 0; i < frames_in(order_of(page)); ++i) {
      int seen = from;
      EXPECT_TRUE(marks_[at + i].compare_exchange_strong(seen, to)) << "frame " << at + i;
    }
  }
  std::uint32_t first_;
  std::vector<std::atomic<int>> marks_;
};

struct Item {
  PageRef page;
  FragRef frag;
  PoolRef pooled;
};

// What one thread leaves for whoever comes by.
class Exchange {
 public:
  void leave(Item item) {
    const std::lock_guard guard{mutex_};
    items_.push_back(std::move(item));
  }
  bool take(Item& item) {
    const std::lock_guard guard{mutex_};
    if (items_.empty()) {
      return false;
    }
    item = std::move(items_.back());
    items_.pop_back();
    return true;
  }

 private:
  std::mutex mutex_;
  std::vector<Item> items_;
};

TEST(CrossThread, EveryFrameComesHomeWhoeverHadIt) {
  const std::uint64_t seed = from_environment("WEIR_SEED", std::random_device{}());
  const std::uint64_t steps = from_environment("WEIR_STEPS", 100'000);
  std::printf("seed: WEIR_SEED=%llu\n", static_cast<unsigned long long>(seed));
  // Small enough that the threads meet exhaustion now and then.
  PageAllocator pages{{.capacity = 16_MiB}};
  Owners owners{pages};
  {
    Exchange exchange;
    std::array<std::unique_ptr<PagePool>, kThreads> pools;
    for (auto& pool : pools) {
      pool = std::make_unique<PagePool>(pages, PoolOptions{.ring = 128});
    }
    std::atomic<std::uint64_t> refused{0};
    const auto work = [&](std::size_t me) {
      std::mt19937_64 random{seed + me};
      FragCache frags{pages};
      std::vector<Item> mine;
      const auto drop = [&owners](Item& item) {
        if (item.page) {
          owners.drop(item.page.get());
        }
        if (item.pooled) {
          owners.drop(item.pooled.get());
        }
        item = Item{};
      };
      for (std::uint64_t step = 0; step < steps; ++step) {
        Item item;
        switch (random() % 10) {
          case 0:
          case 1:
            item.page = pages.alloc(Order{static_cast<unsigned>(random() % 5)});
            break;
          case 2:
            item.page = pages.alloc(Order{random() % 50 == 0 ? kPageblockOrderValue : 0});
            break;
          case 3:
          case 4:
            item.frag = frags.alloc(1 + random() % 3000, Align{64});
            break;
          case 5:
            item.pooled = pools[me]->get();
            break;
          case 6: {
            std::array<Page*, 64> bulk{};
            const bool whole = random() % 4 == 0;
            const std::size_t n =
                whole ? (pages.alloc_exactly(std::span{bulk}) ? bulk.size() : 0)
                      : pages.alloc_burst(std::span{bulk}.first(1 + random() % bulk.size()));
            for (std::size_t i = 0; i < n; ++i) {
              owners.take(bulk[i]);
            }
            for (std::size_t i = 0; i < n; ++i) {
              owners.drop(bulk[i]);
            }
            free_bulk(std::span<Page* const>{bulk}.first(n));
            continue;
          }
          case 7:
            if (exchange.take(item)) {
              drop(item);
            }
            continue;
          case 8:
            if (!mine.empty()) {
              exchange.leave(std::move(mine.back()));
              mine.pop_back();
            }
            continue;
          default:
            for (std::size_t n = random() % 20; n != 0 && !mine.empty(); --n) {
              drop(mine.back());
              mine.pop_back();
            }
            if (random() % 1000 == 0) {
              EXPECT_FALSE(pages.drain_all().failed());
            } else if (random() % 500 == 0) {
              pages.tick();
            }
            continue;
        }
        if (item.page) {
          owners.take(item.page.get());
        } else if (item.pooled) {
          owners.take(item.pooled.get());
        } else if (!item.frag) {
          refused.fetch_add(1);
          continue;
        }
        mine.push_back(std::move(item));
        if (mine.size() > 400) {
          drop(mine.front());
          mine.erase(mine.begin());
        }
      }
      for (Item& item : mine) {
        drop(item);
      }
    };
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back(work, t);
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    Item item;
    while (exchange.take(item)) {
      if (item.page) {
        owners.drop(item.page.get());
      }
      if (item.pooled) {
        owners.drop(item.pooled.get());
      }
      item = Item{};
    }
  }
  EXPECT_FALSE(pages.drain_all().failed());
  const Snapshot snapshot = collect(pages);
  EXPECT_EQ(snapshot.census.engine, snapshot.census.managed);
  EXPECT_EQ(snapshot.free_blocks[kMaxOrderValue], snapshot.census.managed >> kMaxOrderValue);
  EXPECT_EQ(pages.zone().zone().audit(), snapshot.census.managed);
  EXPECT_LE(snapshot.zone.lock_most_frames, frames_in(kPageblockOrder));
}

}  // namespace
}  // namespace weir
