// SPDX-License-Identifier: MIT
// More threads than CPUs over pretended nodes that are too small for them, moved from CPU to CPU all the time:
// every page has one holder, every page comes home to its own node, and what one node lacked another gave.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <array>
#include <cstdlib>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "tests/support/process.hpp"
#include "weir/os/topology.hpp"
#include "weir/page/node_allocator.hpp"

namespace weir {
namespace {

constexpr std::uint32_t kThreads = 4;
constexpr std::uint64_t kFrames = 400;  // of each node; a thread may want all of one

std::uint64_t steps() {
  const char* text = std::getenv("WEIR_STEPS");
  return text != nullptr ? std::strtoull(text, nullptr, 0) : test::kSanitized ? 4'000 : 100'000;
}

void move_somewhere(std::uint32_t dice) {
  const IdSet& allowed = topology().allowed_cpus;
  std::uint32_t cpu = allowed.next(dice % allowed.end());
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  ::pthread_setaffinity_np(::pthread_self(), sizeof one, &one);
}

class Worker {
 public:
  Worker(NodeAllocator& pages, std::uint64_t seed, std::uint64_t number)
      : pages_(pages), random_(static_cast<std::uint32_t>(seed + number)), number_(number) {}

  void run(std::uint64_t steps) {
    std::array<Page*, 100> burst{};
    for (std::uint64_t step = 0; step < steps; ++step) {
      const auto dice = static_cast<std::uint32_t>(random_());
      const std::size_t n = 1 + dice / 16 % burst.size();
      switch (dice % 8) {
        case 0:
        case 1:
          keep(pages_.alloc_page());
          break;
        case 2:
          keep(pages_.alloc_page(Order{dice / 16 % 4}));
          break;
        case 3:
          keep(pages_.alloc_on(NodeId{static_cast<std::int32_t>(dice / 16 % 3)}).detach());
          break;
        case 4: {
          const AllocFlags flags = dice / 4096 % 4 == 0 ? AllocFlags::exact : AllocFlags::none;
          const std::size_t got = pages_.alloc_burst(std::span(burst).first(n), flags);
          for (Page* page : std::span(burst).first(got)) {
            keep(page);
          }
          break;
        }
        case 5:
          move_somewhere(dice / 16);
          break;
        case 6:
          let_go(n);
          break;
        default:
          let_go(dice / 16 % 64 == 0 ? held_.size() : 2);
          break;
      }
    }
    let_go(held_.size());
  }
  [[nodiscard]] std::uint64_t faults() const { return faults_; }
  [[nodiscard]] std::uint64_t served() const { return served_; }

 private:
  void keep(Page* page) {
    if (page == nullptr) {
      let_go(held_.size() / 2);
      return;
    }
    ++served_;
    page->private_word = number_;
    held_.push_back(page);
  }
  // The oldest, some of them at once.
  void let_go(std::size_t n) {
    n = std::min(n, held_.size());
    for (Page* page : std::span(held_).first(n)) {
      faults_ += page->private_word != number_ ? 1 : 0;
      page->private_word = 0;
    }
    const std::size_t single = n % 3 == 0 ? n : n / 2;
    for (Page* page : std::span(held_).first(single)) {
      unref(page);
    }
    free_bulk(std::span<Page* const>(held_).subspan(single, n - single));
    held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(n));
  }

  NodeAllocator& pages_;
  std::mt19937 random_;
  const std::uint64_t number_;
  std::vector<Page*> held_;
  std::uint64_t faults_ = 0;
  std::uint64_t served_ = 0;
};

class Nodes : public testing::TestWithParam<NodePolicy> {};

TEST_P(Nodes, KeepEveryPageThroughMovesAndShortages) {
  NodeOptions options;
  options.each.capacity = bytes(PageCount{kFrames});
  options.pretend = 3;
  options.policy = GetParam();
  // Each engine under one policy that falls back.
  options.each.engine =
      GetParam() == NodePolicy::interleave ? EngineChoice::buddy : EngineChoice::bitmap;
  if (GetParam() == NodePolicy::bind) {
    options.set = {NodeId{1}, NodeId{2}};
  }
  const char* seed = std::getenv("WEIR_SEED");
  const std::uint64_t chosen = seed != nullptr ? std::strtoull(seed, nullptr, 0) : 20250;
  NodeAllocator pages{options};
  std::vector<Worker> workers;
  for (std::uint64_t number = 1; number <= kThreads; ++number) {
    workers.emplace_back(pages, chosen, number);
  }
  std::vector<std::thread> threads;
  for (Worker& worker : workers) {
    threads.emplace_back([&worker] { worker.run(steps()); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const Worker& worker : workers) {
    EXPECT_EQ(worker.faults(), 0U);
    EXPECT_GT(worker.served(), steps() / 10);
  }
  EXPECT_FALSE(pages.drain_all().failed());
  std::uint64_t missed = 0;
  std::uint64_t foreign = 0;
  for (const NodeId node : pages.nodes()) {
    CachedZone& zone = pages.at(node).zone();
    EXPECT_EQ(zone.census().engine, kFrames) << node.value;
    EXPECT_EQ(zone.zone().audit(), kFrames) << node.value;
    missed += pages.counters(node).numa_miss.get();
    foreign += pages.counters(node).numa_foreign.get();
    const bool asked = GetParam() != NodePolicy::bind || node != NodeId{0};
    EXPECT_EQ(zone.zone().counters().taken.get() != 0, asked) << node.value;
  }
  EXPECT_EQ(missed, foreign);
  EXPECT_GT(missed, 0U);
  if (GetParam() == NodePolicy::interleave) {
    // Turns of three nodes on each CPU, less what was set back.
    for (const NodeId node : pages.nodes()) {
      EXPECT_NEAR(static_cast<double>(pages.turns_of(node)),
                  static_cast<double>(pages.turns_of(NodeId{0})), topology().cpu_limit);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, Nodes,
                         testing::Values(NodePolicy::local, NodePolicy::bind,
                                         NodePolicy::interleave),
                         [](const auto& one) { return std::string(policy_name(one.param)); });

}  // namespace
}  // namespace weir
