// SPDX-License-Identifier: MIT
#include "weir/stats/node_snapshot.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/zones.hpp"

namespace weir {
namespace {

using test::OnCpu;

NodeOptions two(NodePolicy policy = NodePolicy::local) {
  NodeOptions options;
  options.each.capacity = 1_MiB;
  options.policy = policy;
  options.pretend = 2;
  return options;
}

TEST(NodeSnapshot, TellsWhatEachNodeLackedAndGaveToOthers) {
  WEIR_NEEDS_CPUS(1);
  const OnCpu here{0};
  NodeAllocator pages{two()};
  std::vector<Page*> taken(520);
  ASSERT_EQ(pages.alloc_burst(taken), 512U);
  const std::vector<NodeSnapshot> nodes = collect(pages);
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_EQ(nodes[0].node, NodeId{0});
  EXPECT_EQ(nodes[0].counters.numa_foreign, 256U);
  EXPECT_EQ(nodes[0].counters.refused, 8U);
  EXPECT_EQ(nodes[1].counters.numa_miss, 256U);
  EXPECT_EQ(nodes[1].counters.refused, 0U);
  EXPECT_EQ(nodes[0].zone.census.out(), 256U);
  EXPECT_EQ(nodes[1].zone.census.out(), 256U);
  EXPECT_EQ(nodes[0].interleave_hit, 0U);
  free_bulk(std::span<Page* const>(taken).first(512));
}

TEST(NodeSnapshot, PagesOfListsAreLocalOnTheNodesOwnCpus) {
  WEIR_NEEDS_LISTS;
  WEIR_NEEDS_CPUS(2);
  NodeAllocator pages{two()};
  const auto pairs_on = [&pages](std::uint32_t cpu, int n) {
    const OnCpu here{cpu};
    for (int i = 0; i <= n; ++i) {  // the first comes past the list
      unref(pages.alloc_on(NodeId{0}).detach());
    }
  };
  pairs_on(0, 30);
  pairs_on(1, 7);
  const std::vector<NodeSnapshot> nodes = collect(pages);
  EXPECT_EQ(nodes[0].local_node, 30U);
  EXPECT_EQ(nodes[0].other_node, 7U);
  EXPECT_EQ(nodes[1].local_node + nodes[1].other_node, 0U);
}

TEST(NodeSnapshot, TurnsThatOthersServedAreNoHits) {
  WEIR_NEEDS_CPUS(1);
  const OnCpu here{0};
  NodeAllocator pages{two(NodePolicy::interleave)};
  std::vector<Page*> first(256);  // all of node 1, past its turns
  for (Page*& page : first) {
    page = pages.at(NodeId{1}).alloc_page();
  }
  std::vector<Page*> taken(20);
  ASSERT_EQ(pages.alloc_burst(taken), 20U);
  std::vector<NodeSnapshot> nodes = collect(pages);
  EXPECT_EQ(nodes[0].interleave_hit, 10U);
  EXPECT_EQ(nodes[0].counters.numa_miss, 10U);
  EXPECT_EQ(nodes[1].interleave_hit, 0U);
  EXPECT_EQ(nodes[1].counters.numa_foreign, 10U);
  // The rest of node 0, and a turn of each that nobody can serve.
  std::vector<Page*> rest(238);
  ASSERT_EQ(pages.alloc_burst(rest), 236U);
  nodes = collect(pages);
  EXPECT_EQ(nodes[0].interleave_hit + nodes[0].counters.numa_miss, 256U);
  EXPECT_EQ(nodes[1].interleave_hit, 0U);
  EXPECT_EQ(nodes[0].counters.refused + nodes[1].counters.refused, 2U);
  free_bulk(first);
  free_bulk(taken);
  free_bulk(std::span<Page* const>(rest).first(236));
}

TEST(NodeSnapshot, TextNamesEveryNodeAndCounter) {
  NodeAllocator pages{two()};
  const std::string text = to_text(collect(pages));
  for (const std::string node : {"node0.", "node1."}) {
    for_each(NodeCounterValues{}, [&](const CounterInfo& info, std::uint64_t) {
      EXPECT_NE(text.find(node + std::string{info.name} + " 0 pages\n"), std::string::npos)
          << info.name;
    });
    for (const char* line :
         {"local_node 0 pages\n", "other_node 0 pages\n", "interleave_hit 0 pages\n",
          "managed 256 frames\n", "engine 256 frames\n", "out 0 frames\n", "refusals 0 count\n"}) {
      EXPECT_NE(text.find(node + line), std::string::npos) << node << line;
    }
  }
}

}  // namespace
}  // namespace weir
