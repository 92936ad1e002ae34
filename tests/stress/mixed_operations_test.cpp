// SPDX-License-Identifier: MIT
// A billion operations from more threads than CPUs, moved about all the time: single pages, bulks of
// every size, higher orders, pages freed by other threads, drains and ticks in between. Each page bears
// its holder's number in its descriptor, so that a page with two holders shows at once; at the end all
// frames are home. WEIR_STEPS changes the length, WEIR_SEED repeats a run's choices.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "tests/support/process.hpp"
#include "weir/base/atomic.hpp"
#include "weir/os/list_mode.hpp"
#include "weir/os/topology.hpp"
#include "weir/weir.hpp"

namespace weir {
namespace {

constexpr std::size_t kThreads = 8;

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 0) : otherwise;
}

std::uint64_t operations() {
  const bool fast = !test::kSanitized && !kTestHooks && list_mode().form == ListForm::rseq;
  return from_environment("WEIR_STEPS", fast ? 1'000'000'000 : 2'000'000);
}

// Pages that wait for whoever comes by: each place holds one or none.
std::array<Atomic<Page*>, 512> g_exchange{};
Atomic<std::uint64_t> g_faults{0};

class Worker {
 public:
  Worker(PageAllocator& pages, std::uint64_t seed, std::uint64_t number)
      : pages_(pages), state_(seed * 0x9e37'79b9'7f4a'7c15U + number + 1), number_(number + 1) {}

  // Allocates and frees until `count` pages have been handed out or taken back.
  void run(std::uint64_t count) {
    std::array<Page*, 64> burst;
    while (done_ < count) {
      const std::uint32_t dice = next();
      if (dice % 64 != 0) {
        pairs(dice);
        continue;
      }
      switch (dice / 64 % 8) {
        case 0:
        case 1:
        case 2:
        case 3: {  // a bulk of any size, back at once
          const std::size_t n = 1 + dice / 512 % burst.size();
          const std::size_t got = pages_.alloc_burst(std::span(burst).first(n));
          for (Page* page : std::span(burst).first(got)) {
            hold(page);
          }
          for (Page* page : std::span(burst).first(got)) {
            let_go(page);
          }
          free_burst(std::span<Page* const>(burst).first(got));
          done_ += 2 * got;
          break;
        }
        case 4: {  // a larger block
          if (Page* page = pages_.alloc_page(Order{1 + dice / 512 % 4})) {
            hold(page);
            let_go(page);
            unref(page);
          }
          done_ += 2;
          break;
        }
        case 5: {  // leave a burst for others, take what they left
          for (Atomic<Page*>& place : std::span(g_exchange).subspan(dice / 512 % 448, 64)) {
            Page* mine = pages_.alloc_page();
            if (mine != nullptr) {
              mine->private_word = kTravels;
            }
            if (Page* theirs = place.exchange(mine, memory_order_acq_rel)) {  // pairs: itself
              if (theirs->private_word != kTravels) {
                g_faults.fetch_add(1, memory_order_relaxed);
              }
              theirs->private_word = 0;
              unref(theirs);
            }
          }
          done_ += 128;
          break;
        }
        case 6:
          if (dice / 512 % 64 == 0) {
            static_cast<void>(pages_.drain(CpuId{dice / 32768 % 2}));
          }
          break;
        default:
          if (dice / 512 % 256 == 0) {
            pages_.tick();
          }
          break;
      }
    }
  }

 private:
  static constexpr std::uint64_t kTravels = ~std::uint64_t{0};

  void pairs(std::uint32_t dice) {
    std::array<Page*, 16> held{};
    const std::size_t n = 1 + dice % held.size();
    for (Page*& page : std::span(held).first(n)) {
      page = pages_.alloc_page();
      if (page != nullptr) {
        hold(page);
      }
    }
    for (Page* page : std::span(held).first(n)) {
      if (page != nullptr) {
        let_go(page);
        unref(page);
      }
    }
    done_ += 2 * n;
  }
  void hold(Page* page) {
    if (page->private_word != 0) {
      g_faults.fetch_add(1, memory_order_relaxed);
    }
    page->private_word = number_;
  }
  void let_go(Page* page) {
    if (page->private_word != number_) {
      g_faults.fetch_add(1, memory_order_relaxed);
    }
    page->private_word = 0;
  }
  std::uint32_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<std::uint32_t>(state_ >> 16);
  }

  PageAllocator& pages_;
  std::uint64_t state_;
  std::uint64_t number_;
  std::uint64_t done_ = 0;
};

TEST(MixedOperations, FromMoreThreadsThanCpusWithMigrationsForcedEndBalanced) {
  const std::uint64_t seed = from_environment("WEIR_SEED", std::random_device{}());
  const std::uint64_t total = operations();
  SCOPED_TRACE("WEIR_SEED=" + std::to_string(seed));
  PageAllocator pages{{.capacity = 16_MiB}};
  g_faults.store(0, memory_order_relaxed);
  Atomic<std::size_t> finished{0};
  Atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      Worker{pages, seed, i}.run(total / kThreads);
      finished.fetch_add(1, memory_order_relaxed);
      while (!over.load(memory_order_relaxed)) {  // the mover must not touch a thread that has gone
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
      }
    });
  }
  // Every thread is sent to some CPU, again and again, whatever it is doing.
  std::uint64_t moves = 0;
  std::thread mover([&] {
    std::mt19937_64 random{seed};
    const IdSet allowed = topology().allowed_cpus;
    std::vector<std::uint32_t> cpus;
    for (std::uint32_t cpu = allowed.next(0); cpu != IdSet::kNone; cpu = allowed.next(cpu + 1)) {
      cpus.push_back(cpu);
    }
    while (!over.load(memory_order_relaxed)) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpus[random() % cpus.size()], &one);
      static_cast<void>(
          pthread_setaffinity_np(threads[random() % kThreads].native_handle(), sizeof one, &one));
      ++moves;
      std::this_thread::sleep_for(std::chrono::microseconds{200});
    }
  });
  while (finished.load(memory_order_relaxed) != kThreads) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  over.store(true, memory_order_relaxed);
  mover.join();
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (Atomic<Page*>& place : g_exchange) {
    if (Page* page = place.exchange(nullptr, memory_order_relaxed)) {
      page->private_word = 0;
      unref(page);
    }
  }
  EXPECT_EQ(g_faults.load(memory_order_relaxed), 0U);
  EXPECT_GT(moves, 0U);
  const CachedZone::Census census = pages.zone().census();
  EXPECT_EQ(census.engine + census.depot + census.lists, census.managed);
  EXPECT_FALSE(pages.drain_all().failed());
  EXPECT_EQ(pages.zone().census().engine, census.managed);
  EXPECT_EQ(pages.zone().zone().audit(), census.managed);
  EXPECT_EQ(pages.zone().zone().free_blocks(kMaxOrder) * frames_in(kMaxOrder), census.managed);
}

}  // namespace
}  // namespace weir
