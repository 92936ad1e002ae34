// SPDX-License-Identifier: MIT
#include "weir/stats/snapshot.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace weir {
namespace {

TEST(Snapshot, CountsEveryFrameOnce) {
  PageAllocator pages{{.capacity = 16_MiB}};
  std::vector<PageRef> held;
  for (int i = 0; i < 100; ++i) {
    held.push_back(pages.alloc());
  }
  held.push_back(pages.alloc(Order{5}));
  const Snapshot snapshot = collect(pages);
  EXPECT_EQ(snapshot.census.managed, 4096U);
  EXPECT_EQ(snapshot.census.out(), 132U);
  EXPECT_EQ(snapshot.census.engine + snapshot.census.lists + snapshot.census.depot + 132,
            snapshot.census.managed);
  std::uint64_t in_blocks = 0;
  for (unsigned order = 0; order < kOrderCount; ++order) {
    in_blocks += snapshot.free_blocks[order] << order;
  }
  EXPECT_EQ(in_blocks, snapshot.census.engine);
}

TEST(Snapshot, CpusAddUpToTheSum) {
  PageAllocator pages{{.capacity = 16_MiB}};
  for (int i = 0; i < 50; ++i) {
    EXPECT_FALSE(pages.alloc().empty());
  }
  const Snapshot snapshot = collect(pages);
  std::uint64_t pushes = 0;
  std::uint64_t cached = 0;
  for (std::size_t cpu = 0; cpu < snapshot.by_cpu.size(); ++cpu) {
    pushes += snapshot.by_cpu[cpu].pushes;
    cached += snapshot.cached_by_cpu[cpu];
  }
  EXPECT_EQ(pushes, snapshot.lists.pushes);
  EXPECT_EQ(pushes, list_mode().form == ListForm::off ? 0U : 50U);
  EXPECT_EQ(cached, snapshot.census.lists);
}

TEST(Snapshot, FramesInTheDepotAreSeenThere) {
  if (list_mode().form == ListForm::off) {
    GTEST_SKIP() << "there are no lists";
  }
  PageAllocator pages{{.capacity = 64_MiB}};
  std::vector<PageRef> held(1000);
  ASSERT_EQ(pages.alloc_bulk(held), 1000U);
  held.clear();
  const Snapshot snapshot = collect(pages);
  EXPECT_GT(snapshot.census.depot, 0U);
  EXPECT_EQ(snapshot.census.depot, pages.zone().depot().frames());
  EXPECT_EQ(snapshot.census.out(), 0U);
  EXPECT_GT(snapshot.lists.clusters_given, 0U);
  EXPECT_FALSE(pages.drain_all().failed());
  EXPECT_EQ(collect(pages).census.depot, 0U);
  EXPECT_EQ(collect(pages).zone.clusters_merged * pages.effective().cluster, snapshot.census.depot);
}

TEST(Snapshot, DifferenceSubtractsEventsAndKeepsPeaks) {
  PageAllocator pages{{.capacity = 16_MiB}};
  {
    std::vector<PageRef> held;
    for (int i = 0; i < 500; ++i) {
      held.push_back(pages.alloc());
    }
  }
  const Snapshot before = collect(pages);
  ASSERT_GT(before.zone.taken, 0U);
  EXPECT_FALSE(pages.alloc(Order{5}).empty());
  const Snapshot after = collect(pages);
  const Snapshot grown = difference(after, before);
  EXPECT_EQ(grown.zone.taken, 32U);
  EXPECT_EQ(grown.zone.given, 32U);
  EXPECT_EQ(grown.frames_crossing(), 64U);
  EXPECT_EQ(grown.zone.lock_longest_hold, after.zone.lock_longest_hold);
  EXPECT_EQ(difference(after, after).lists.pops, 0U);
}

TEST(Snapshot, TextNamesEveryCounterOfTheZone) {
  PageAllocator pages{{.capacity = 16_MiB}};
  const std::string text = to_text(collect(pages));
  for_each(ZoneCounterValues{}, [&text](const CounterInfo& info, std::uint64_t) {
    EXPECT_NE(text.find("zone." + std::string{info.name} + " "), std::string::npos) << info.name;
  });
  for_each(PercpuCounterValues{}, [&text](const CounterInfo& info, std::uint64_t) {
    EXPECT_NE(text.find("percpu." + std::string{info.name} + " "), std::string::npos) << info.name;
  });
  for (const char* line : {"frames.managed 4096 frames\n", "frames.lists 0 frames\n",
                           "frames.depot 0 frames\n", "frames.out 0 frames\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace weir
