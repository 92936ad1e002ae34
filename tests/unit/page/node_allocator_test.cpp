// SPDX-License-Identifier: MIT
// Pretended nodes on whatever machine this is: who serves whom, who is asked after whom, and that nothing is
// lost between them.
#include "weir/page/node_allocator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/support/process.hpp"
#include "tests/support/zones.hpp"
#include "weir/os/topology.hpp"

namespace weir {
namespace {

using test::OnCpu;

constexpr std::uint64_t kFrames = 256;  // of each node
// From node 0 the nearest is 2, then 3, then 1.
const std::vector<std::uint32_t> kFar = {10, 40, 20, 30,  //
                                         40, 10, 30, 20,  //
                                         20, 30, 10, 40,  //
                                         30, 20, 40, 10};

NodeOptions pretended(std::uint32_t nodes, NodePolicy policy = NodePolicy::local,
                      std::vector<NodeId> set = {}) {
  NodeOptions options;
  options.each.capacity = bytes(PageCount{kFrames});
  options.policy = policy;
  options.set = std::move(set);
  options.pretend = nodes;
  return options;
}
NodeOptions far_apart(NodePolicy policy = NodePolicy::local, std::vector<NodeId> set = {}) {
  NodeOptions options = pretended(4, policy, std::move(set));
  options.distances = kFar;
  return options;
}

std::vector<Page*> take_all(NodeAllocator& pages, AllocFlags flags = AllocFlags::none,
                            Order order = Order{0}) {
  std::vector<Page*> taken;
  while (Page* page = pages.alloc_page(order, flags)) {
    taken.push_back(page);
  }
  return taken;
}

// How many came from which node, each time the node changes: "0:256 2:256".
std::string runs(const NodeAllocator& pages, const std::vector<Page*>& taken) {
  std::string text;
  for (std::size_t i = 0; i < taken.size();) {
    const NodeId node = pages.node_of(taken[i]);
    std::size_t n = 0;
    for (; i < taken.size() && pages.node_of(taken[i]) == node; ++i) {
      ++n;
    }
    text += (text.empty() ? "" : " ") + std::to_string(node.value) + ':' + std::to_string(n);
  }
  return text;
}

std::uint64_t out_of(NodeAllocator& pages, std::int32_t node) {
  return pages.at(NodeId{node}).zone().census().out();
}

void expect_all_home(NodeAllocator& pages) {
  EXPECT_FALSE(pages.drain_all().failed());
  for (const NodeId node : pages.nodes()) {
    const auto census = pages.at(node).zone().census();
    EXPECT_EQ(census.engine, census.managed) << node.value;
    EXPECT_EQ(pages.at(node).zone().zone().audit(), census.managed) << node.value;
  }
}

TEST(NodeAllocator, EachCpuIsServedByItsOwnNode) {
  WEIR_NEEDS_CPUS(2);
  NodeAllocator pages{pretended(2)};
  for (std::uint32_t cpu = 0; cpu < 2; ++cpu) {
    const OnCpu here{cpu};
    const NodeId own{static_cast<std::int32_t>(cpu)};
    EXPECT_EQ(pages.node_of(CpuId{cpu}), own);
    for (const NodeId node : pages.nodes()) {  // each CPU has pages of every node on its lists
      unref(pages.alloc_on(node).detach());
    }
    std::vector<Page*> taken;
    for (int i = 0; i < 100; ++i) {
      taken.push_back(pages.alloc_page());
      ASSERT_EQ(pages.node_of(taken.back()), own);
    }
    taken.push_back(pages.alloc_page(Order{3}));
    std::array<Page*, 70> burst;
    ASSERT_EQ(pages.alloc_burst(burst), 70U);
    taken.insert(taken.end(), burst.begin(), burst.end());
    EXPECT_EQ(runs(pages, taken), std::to_string(cpu) + ":171");
    EXPECT_EQ(pages.at(own).zone().zone().counters().refusals.get(), 0U);
    free_bulk(taken);
  }
  for (const NodeId node : pages.nodes()) {
    EXPECT_EQ(pages.counters(node).numa_miss.get() + pages.counters(node).numa_foreign.get(), 0U);
  }
  expect_all_home(pages);
}

TEST(NodeAllocator, TheNearestNodeHelpsUntilNobodyHasAnything) {
  WEIR_NEEDS_CPUS(1);
  const OnCpu here{0};
  NodeAllocator pages{far_apart()};
  std::vector<Page*> taken(700);
  for (Page*& page : taken) {
    page = pages.alloc_page();
  }
  std::array<Page*, 8> burst;
  ASSERT_EQ(pages.alloc_burst(burst), burst.size());
  taken.insert(taken.end(), burst.begin(), burst.end());
  // Nobody was refused so far, and no list was stopped.
  for (const NodeId node : pages.nodes()) {
    EXPECT_EQ(pages.at(node).zone().zone().counters().refusals.get(), 0U);
    EXPECT_EQ(pages.at(node).zone().zone().counters().shortages.get(), 0U);
  }
  for (Page* page : take_all(pages)) {
    taken.push_back(page);
  }
  EXPECT_EQ(runs(pages, taken), "0:256 2:256 3:256 1:256");
  EXPECT_EQ(pages.counters(NodeId{0}).numa_foreign.get(), 3 * kFrames);
  EXPECT_EQ(pages.counters(NodeId{0}).numa_miss.get(), 0U);
  EXPECT_EQ(pages.counters(NodeId{0}).refused.get(), 1U);
  for (std::int32_t node = 1; node < 4; ++node) {
    EXPECT_EQ(pages.counters(NodeId{node}).numa_miss.get(), kFrames);
    EXPECT_EQ(pages.counters(NodeId{node}).numa_foreign.get(), 0U);
    EXPECT_EQ(pages.counters(NodeId{node}).refused.get(), 0U);
  }
  // Whichever node gets a page back, that is served.
  for (std::size_t i = 0; i < taken.size(); i += 100) {
    unref(taken[i]);
    EXPECT_EQ(pages.alloc_page(), taken[i]);
    EXPECT_EQ(pages.alloc_page(), nullptr);
  }
  free_bulk(taken);
  expect_all_home(pages);
}

TEST(NodeAllocator, LargeBlocksFallBackTheSameWay) {
  WEIR_NEEDS_CPUS(1);
  const OnCpu here{0};
  NodeAllocator pages{far_apart()};
  const std::vector<Page*> taken = take_all(pages, AllocFlags::none, Order{5});
  EXPECT_EQ(runs(pages, taken), "0:8 2:8 3:8 1:8");
  EXPECT_EQ(pages.counters(NodeId{0}).numa_foreign.get(), 24U);
  EXPECT_EQ(pages.counters(NodeId{0}).refused.get(), 1U);
  EXPECT_EQ(pages.alloc_page(Order{11}), nullptr);
  EXPECT_EQ(pages.counters(NodeId{0}).refused.get(), 1U);
  free_bulk(taken);
  expect_all_home(pages);
}

TEST(NodeAllocator, AFarPageComesBeforeListsAreStoppedAndThenTheyAre) {
  WEIR_NEEDS_LISTS;
  WEIR_NEEDS_CPUS(2);
  NodeAllocator pages{pretended(2)};
  {
    const OnCpu other{1};
    for (int i = 0; i < 3; ++i) {
      unref(pages.alloc_on(NodeId{0}).detach());  // a cluster of node 0 lies on this CPU's list now
    }
  }
  ASSERT_GT(pages.at(NodeId{0}).zone().lists().cached(1), 0U);
  const std::uint64_t hidden = pages.at(NodeId{0}).zone().lists().cached(1);
  const OnCpu here{0};
  std::vector<Page*> taken;
  while (taken.size() < 2 * kFrames - hidden) {
    taken.push_back(pages.alloc_page());
  }
  EXPECT_EQ(runs(pages, taken),
            "0:" + std::to_string(kFrames - hidden) + " 1:" + std::to_string(kFrames));
  EXPECT_FALSE(pages.at(NodeId{0}).zone().in_shortage());
  EXPECT_FALSE(pages.at(NodeId{1}).zone().in_shortage());
  const std::vector<Page*> last = take_all(pages);
  EXPECT_EQ(runs(pages, last), "0:" + std::to_string(hidden));
  EXPECT_TRUE(pages.at(NodeId{0}).zone().in_shortage());
  free_bulk(taken);
  free_bulk(last);
  expect_all_home(pages);
}

TEST(NodeAllocator, AShortageThatIsOverEndsThoughNobodyFrees) {
  WEIR_NEEDS_LISTS;
  WEIR_NEEDS_CPUS(1);
  const OnCpu here{0};
  NodeAllocator pages{pretended(2)};
  std::vector<Page*> taken = take_all(pages);
  ASSERT_TRUE(pages.at(NodeId{0}).zone().in_shortage());
  free_bulk(taken);
  test::outlast_shortage();
  taken.clear();
  for (int i = 0; i < 3; ++i) {
    taken.push_back(pages.alloc_page());
  }
  EXPECT_EQ(runs(pages, taken), "0:3");
  EXPECT_FALSE(pages.at(NodeId{0}).zone().in_shortage());
  free_bulk(taken);
}

TEST(NodeAllocator, BindNeverAsksAnybodyElse) {
  WEIR_NEEDS_CPUS(1);
  const OnCpu here{0};
  NodeAllocator pages{far_apart(NodePolicy::bind, {NodeId{3}, NodeId{1}})};
  const std::vector<Page*> taken = take_all(pages);
  EXPECT_EQ(runs(pages, taken), "3:256 1:256");
  EXPECT_EQ(pages.counters(NodeId{3}).refused.get(), 1U);
  for (const std::int32_t node : {0, 2}) {
    EXPECT_TRUE(pages.alloc_on(NodeId{node}).empty());
    EXPECT_EQ(out_of(pages, node), 0U);
    EXPECT_EQ(pages.at(NodeId{node}).zone().zone().counters().taken.get(), 0U);
  }
  std::array<Page*, 8> none{};
  EXPECT_EQ(pages.alloc_burst(none), 0U);
  EXPECT_EQ(pages.alloc_burst(none, AllocFlags::exact), 0U);
  free_bulk(taken);
  expect_all_home(pages);
}

TEST(NodeAllocator, PreferredIsAskedFirstFromEveryCpu) {
  WEIR_NEEDS_CPUS(2);
  NodeAllocator pages{far_apart(NodePolicy::preferred, {NodeId{3}})};
  for (std::uint32_t cpu = 0; cpu < 2; ++cpu) {
    const OnCpu here{cpu};
    const std::vector<Page*> taken = take_all(pages);
    EXPECT_EQ(runs(pages, taken), "3:256 1:256 0:256 2:256");
    free_bulk(taken);
    EXPECT_FALSE(pages.drain_all().failed());
  }
  expect_all_home(pages);
}

TEST(NodeAllocator, ANamedNodeIsAskedFirstWhateverThePolicy) {
  WEIR_NEEDS_CPUS(1);
  const OnCpu here{0};
  for (const NodePolicy policy :
       {NodePolicy::local, NodePolicy::preferred, NodePolicy::interleave}) {
    SCOPED_TRACE(policy_name(policy));
    NodeAllocator pages{far_apart(
        policy, policy == NodePolicy::preferred ? std::vector{NodeId{0}} : std::vector<NodeId>{})};
    EXPECT_EQ(pages.policy(), policy);
    std::vector<Page*> taken;
    while (PageRef page = pages.alloc_on(NodeId{1})) {
      taken.push_back(page.detach());
    }
    EXPECT_EQ(runs(pages, taken), "1:256 3:256 2:256 0:256");
    EXPECT_EQ(pages.counters(NodeId{1}).numa_foreign.get(), 3 * kFrames);
    EXPECT_TRUE(pages.alloc_on(NodeId{1}, Order{11}).empty());
    free_bulk(taken);
    expect_all_home(pages);
  }
}

TEST(NodeAllocator, InterleavedPagesOfACpuAreEvenToOne) {
  WEIR_NEEDS_CPUS(2);
  for (std::uint32_t cpu = 0; cpu < 2; ++cpu) {
    const OnCpu here{cpu};
    NodeAllocator pages{pretended(3, NodePolicy::interleave)};
    std::vector<Page*> taken;
    std::array<std::uint64_t, 3> of{};
    for (int i = 0; i < 400; ++i) {
      taken.push_back(pages.alloc_page());
      ++of[static_cast<std::size_t>(pages.node_of(taken.back()).value)];
      const auto [least, most] = std::minmax_element(of.begin(), of.end());
      ASSERT_LE(*most - *least, 1U) << i;
    }
    std::array<Page*, 50> burst;
    for (const std::size_t n : {1U, 2U, 4U, 5U, 7U, 50U}) {
      ASSERT_EQ(pages.alloc_burst(std::span(burst).first(n)), n);
      for (std::size_t i = 0; i < n; ++i) {
        taken.push_back(burst[i]);
        ++of[static_cast<std::size_t>(pages.node_of(burst[i]).value)];
      }
      const auto [least, most] = std::minmax_element(of.begin(), of.end());
      ASSERT_LE(*most - *least, 1U) << n;
    }
    for (int i = 0; i < 7; ++i) {
      taken.push_back(pages.alloc_page(Order{2}));
      ++of[static_cast<std::size_t>(pages.node_of(taken.back()).value)];
      const auto [least, most] = std::minmax_element(of.begin(), of.end());
      ASSERT_LE(*most - *least, 1U) << i;
    }
    for (std::int32_t node = 0; node < 3; ++node) {
      EXPECT_EQ(pages.turns_of(NodeId{node}), of[static_cast<std::size_t>(node)]);
    }
    free_bulk(taken);
    expect_all_home(pages);
  }
}

TEST(NodeAllocator, TurnsAreOfTheSetButHelpComesFromAll) {
  WEIR_NEEDS_CPUS(1);
  const OnCpu here{0};
  NodeAllocator pages{far_apart(NodePolicy::interleave, {NodeId{1}, NodeId{2}})};
  std::vector<Page*> taken;
  for (std::uint64_t i = 0; i < 2 * kFrames; ++i) {
    taken.push_back(pages.alloc_page());
    ASSERT_EQ(pages.node_of(taken.back()).value, i % 2 == 0 ? 1 : 2);
  }
  EXPECT_EQ(out_of(pages, 0) + out_of(pages, 3), 0U);
  const std::vector<Page*> rest = take_all(pages);
  EXPECT_EQ(rest.size(), 2 * kFrames);  // of 3, which is nearest to 1, and of 0, which is to 2
  EXPECT_EQ(pages.node_of(rest[0]), NodeId{3});
  EXPECT_EQ(pages.node_of(rest[1]), NodeId{0});
  free_bulk(taken);
  free_bulk(rest);
  expect_all_home(pages);
}

TEST(NodeAllocator, ABulkTakesWhatEachNodeHasUntilItIsFull) {
  WEIR_NEEDS_CPUS(1);
  const OnCpu here{0};
  NodeAllocator pages{far_apart()};
  std::vector<Page*> many(600);
  ASSERT_EQ(pages.alloc_burst(many), 600U);
  EXPECT_EQ(out_of(pages, 0), 256U);
  EXPECT_EQ(out_of(pages, 2), 256U);
  EXPECT_EQ(out_of(pages, 3), 88U);
  EXPECT_EQ(pages.counters(NodeId{0}).numa_foreign.get(), 344U);
  PageList list;
  EXPECT_EQ(pages.alloc_bulk(list, 1000), 424U);
  EXPECT_EQ(list.size(), 424U);
  EXPECT_GE(pages.counters(NodeId{0}).refused.get(), 1U);
  free_bulk(many);
  list.clear();
  expect_all_home(pages);
}

TEST(NodeAllocator, HolesOfAnArrayAreFilledFromTheFront) {
  WEIR_NEEDS_CPUS(1);
  const OnCpu here{0};
  NodeAllocator pages{pretended(2)};
  std::vector<PageRef> slots(600);
  slots[0] = pages.alloc();
  slots[300] = pages.alloc();
  Page* const first = slots[0].get();
  Page* const middle = slots[300].get();
  EXPECT_EQ(pages.alloc_bulk(slots), 512U);
  EXPECT_EQ(slots[0].get(), first);
  EXPECT_EQ(slots[300].get(), middle);
  EXPECT_EQ(slots[512].get(), nullptr);
  std::vector<Page*> seen;
  for (std::size_t i = 0; i < 512; ++i) {
    seen.push_back(slots[i].get());
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
  // A populated place behind a hole that cannot be filled does not count.
  std::array<Page*, 3> behind = {nullptr, seen[0], nullptr};
  EXPECT_EQ(pages.alloc_bulk(std::span<Page*>(behind)), 0U);
  slots.clear();
  expect_all_home(pages);
}

TEST(NodeAllocator, AllOrNothingGoesAcrossNodesAndLosesNothing) {
  WEIR_NEEDS_CPUS(1);
  const OnCpu here{0};
  for (const NodePolicy policy : {NodePolicy::local, NodePolicy::interleave}) {
    SCOPED_TRACE(policy_name(policy));
    NodeAllocator pages{pretended(3, policy)};
    std::vector<Page*> some(100);
    ASSERT_EQ(pages.alloc_burst(some, AllocFlags::exact), 100U);
    std::vector<Page*> more(200);
    ASSERT_EQ(pages.alloc_burst(more, AllocFlags::exact), 200U);
    if (policy == NodePolicy::local) {
      EXPECT_EQ(runs(pages, more), "1:200");  // of one node that has all, rather than of two
      EXPECT_EQ(pages.counters(NodeId{1}).numa_miss.get(), 200U);
      EXPECT_EQ(pages.counters(NodeId{0}).numa_foreign.get(), 200U);
      EXPECT_EQ(pages.at(NodeId{0}).zone().zone().counters().shortages.get(), 0U);
    }
    std::vector<Page*> rest(3 * kFrames - 300 + 1);
    EXPECT_EQ(pages.alloc_burst(rest, AllocFlags::exact), 0U);
    PageList list;
    EXPECT_EQ(pages.alloc_bulk(list, rest.size(), AllocFlags::exact), 0U);
    EXPECT_TRUE(list.empty());
    std::fill(rest.begin(), rest.end(), nullptr);
    EXPECT_EQ(pages.alloc_bulk(std::span(rest), AllocFlags::exact), 0U);
    EXPECT_EQ(std::count(rest.begin(), rest.end(), nullptr),
              static_cast<std::ptrdiff_t>(rest.size()));
    EXPECT_EQ(out_of(pages, 0) + out_of(pages, 1) + out_of(pages, 2), 300U);
    rest.pop_back();
    EXPECT_EQ(pages.alloc_bulk(std::span(rest), AllocFlags::exact), rest.size());
    EXPECT_EQ(pages.alloc_page(), nullptr);
    free_bulk(some);
    free_bulk(more);
    free_bulk(rest);
    ASSERT_EQ(pages.alloc_bulk(list, 3 * kFrames, AllocFlags::exact), 3 * kFrames);
    list.clear();
    expect_all_home(pages);
  }
}

TEST(NodeAllocator, LimitsAndReservesAreEachNodesOwn) {
  WEIR_NEEDS_CPUS(1);
  const OnCpu here{0};
  NodeOptions options = far_apart();
  options.each.reserve = PageCount{16};
  options.each.limit = PageCount{100};
  NodeAllocator pages{options};
  ASSERT_FALSE(pages.at(NodeId{3}).set_limits(PageCount{50}, PageCount{0}).failed());
  const std::vector<Page*> ordinary = take_all(pages);
  EXPECT_EQ(runs(pages, ordinary), "0:84 2:84 3:34 1:84");
  const std::vector<Page*> urgent = take_all(pages, AllocFlags::emergency);
  EXPECT_EQ(runs(pages, urgent), "0:16 2:16 3:16 1:16");
  for (const Page* page : urgent) {
    EXPECT_TRUE(is_emergency(page));
  }
  EXPECT_GT(pages.at(NodeId{0}).zone().zone().counters().limit_refusals.get(), 0U);
  free_bulk(ordinary);
  // What came out of the reserves still counts. Whoever may take the rest of them takes what others have first.
  std::vector<Page*> first(3 * (84 - 16) + (34 - 16));
  ASSERT_EQ(pages.alloc_burst(first, AllocFlags::emergency), first.size());
  EXPECT_TRUE(
      std::none_of(first.begin(), first.end(), [](Page* page) { return is_emergency(page); }));
  const PageRef next = pages.alloc(Order{0}, AllocFlags::emergency);
  ASSERT_FALSE(next.empty());
  EXPECT_TRUE(next.is_emergency());
  EXPECT_EQ(pages.node_of(next.get()), NodeId{0});
  free_bulk(first);
  free_bulk(urgent);
}

TEST(NodeAllocator, AllOrNothingTakesOrdinaryPagesOfOthersBeforeAReserve) {
  WEIR_NEEDS_CPUS(1);
  const OnCpu here{0};
  NodeOptions options = pretended(2);
  options.each.reserve = PageCount{16};
  NodeAllocator pages{options};
  std::vector<Page*> many(250);
  ASSERT_EQ(pages.alloc_burst(many, AllocFlags::exact | AllocFlags::emergency), many.size());
  EXPECT_TRUE(
      std::none_of(many.begin(), many.end(), [](Page* page) { return is_emergency(page); }));
  PageList list;
  ASSERT_EQ(pages.alloc_bulk(list, 235, AllocFlags::exact | AllocFlags::emergency), 235U);
  EXPECT_EQ(out_of(pages, 0) + out_of(pages, 1), 485U);
  list.clear();
  free_bulk(many);
  expect_all_home(pages);
}

struct Cache {
  std::vector<Page*> pages;
  int asked = 0;
  Reclaimer reclaimer{
      [](void* self, PageCount, Order) noexcept { return static_cast<Cache*>(self)->give(); },
      this};
  std::uint64_t give() noexcept {
    ++asked;
    if (pages.empty()) {
      return 0;
    }
    unref(pages.back());
    pages.pop_back();
    return 1;
  }
};

TEST(NodeAllocator, ReclaimersAreAskedWhenNoNodeHasAnythingAtHand) {
  WEIR_NEEDS_CPUS(1);
  const OnCpu here{0};
  NodeAllocator pages{pretended(2)};
  Cache cache;
  cache.pages = {pages.alloc_page(), pages.alloc_page()};
  pages.at(NodeId{0}).add_reclaimer(cache.reclaimer);
  std::vector<Page*> taken(2 * kFrames - 2);
  ASSERT_EQ(pages.alloc_burst(taken), taken.size());
  EXPECT_EQ(cache.asked, 0);
  EXPECT_EQ(pages.alloc_page(Order{0}, AllocFlags::no_reclaim), nullptr);
  EXPECT_EQ(pages.alloc_page(Order{0}, AllocFlags::no_wait), nullptr);
  EXPECT_EQ(cache.asked, 0);
  taken.push_back(pages.alloc_page());
  ASSERT_NE(taken.back(), nullptr);
  EXPECT_EQ(pages.node_of(taken.back()), NodeId{0});
  EXPECT_EQ(cache.asked, 1);
  Page* one = nullptr;
  EXPECT_EQ(pages.alloc_burst({&one, 1}), 1U);
  EXPECT_EQ(cache.asked, 2);
  taken.push_back(one);
  EXPECT_EQ(pages.alloc_page(), nullptr);
  cache.reclaimer.remove();
  free_bulk(taken);
  expect_all_home(pages);
}

TEST(NodeAllocator, ASoftLimitIsToldOfPagesThatWereAtHand) {
  WEIR_NEEDS_CPUS(1);
  const OnCpu here{0};
  NodeOptions options = pretended(2);
  options.each.soft_limit = PageCount{10};
  NodeAllocator pages{options};
  int told = 0;
  LimitWatch watch{[](void* count, const LimitEvent& event) noexcept {
                     *static_cast<int*>(count) += event.which == LimitKind::soft ? 1 : 100;
                   },
                   &told};
  pages.at(NodeId{0}).add_limit_watch(watch);
  std::vector<Page*> taken;
  for (int i = 0; i < 50; ++i) {
    taken.push_back(pages.alloc_page());
  }
  EXPECT_EQ(runs(pages, taken), "0:50");
  EXPECT_EQ(told, 1);
  watch.remove();
  free_bulk(taken);
}

TEST(NodeAllocator, APageFreedOnAnotherNodesCpuGoesHome) {
  WEIR_NEEDS_CPUS(2);
  NodeAllocator pages{pretended(2)};
  std::vector<Page*> taken(200);
  {
    const OnCpu here{0};
    ASSERT_EQ(pages.alloc_burst(taken), 200U);
  }
  EXPECT_EQ(out_of(pages, 0), 200U);
  {
    const OnCpu there{1};
    for (std::size_t i = 0; i < 100; ++i) {
      unref(taken[i]);
    }
    free_bulk(std::span<Page* const>(taken).subspan(100));
  }
  EXPECT_EQ(out_of(pages, 0), 0U);
  EXPECT_EQ(pages.at(NodeId{1}).zone().census().engine, kFrames);
  expect_all_home(pages);
}

TEST(NodeAllocator, UnrefTakesPagesOfEveryKindHome) {
  WEIR_NEEDS_CPUS(1);
  const OnCpu here{0};
  PageAllocator stranger{{.capacity = 1_MiB}};
  NodeOptions options = pretended(2);
  options.each.reserve = PageCount{4};
  NodeAllocator pages{options};
  for (std::int32_t node = 0; node < 2; ++node) {
    unref(pages.alloc_on(NodeId{node}, Order{4}).detach());
    Page* const shared = pages.alloc_on(NodeId{node}).detach();
    ASSERT_TRUE(ref(shared));
    unref(shared);
    EXPECT_EQ(out_of(pages, node), 1U);
    EXPECT_EQ(ref_count(shared), 1U);
    unref(shared);
    EXPECT_EQ(out_of(pages, node), 0U);
  }
  unref(stranger.alloc_page());
  EXPECT_EQ(stranger.zone().census().out(), 0U);
  const std::vector<Page*> ordinary = take_all(pages);
  const std::vector<Page*> urgent = take_all(pages, AllocFlags::emergency);
  ASSERT_EQ(urgent.size(), 8U);
  for (Page* page : urgent) {
    unref(page);
    EXPECT_FALSE(is_emergency(page));
  }
  EXPECT_EQ(pages.alloc_page(), nullptr);  // they are the reserve again
  for (Page* page : ordinary) {
    unref(page);
  }
  expect_all_home(pages);
}

TEST(NodeAllocator, ABulkOfAllKindsTogetherGoesHome) {
  WEIR_NEEDS_CPUS(1);
  const OnCpu here{0};
  PageAllocator stranger{{.capacity = 1_MiB}};
  NodeAllocator pages{pretended(3)};
  for (const std::size_t run : {1U, 2U, 63U, 64U, 65U, 150U}) {
    SCOPED_TRACE(run);
    std::vector<Page*> all;
    const auto add = [&](Page* page) {
      ASSERT_NE(page, nullptr);
      all.push_back(page);
    };
    for (std::int32_t node = 0; node < 3; ++node) {
      for (std::size_t i = 0; i < run; ++i) {
        add(pages.alloc_on(NodeId{node}).detach());
      }
      all.push_back(nullptr);
      add(pages.alloc_on(NodeId{node}, Order{2}).detach());
      add(stranger.alloc_page());
    }
    Page* const shared = all.front();
    ASSERT_TRUE(ref(shared));
    free_bulk(std::span<Page* const>(all));
    EXPECT_EQ(out_of(pages, 0) + out_of(pages, 1) + out_of(pages, 2), 1U);
    EXPECT_EQ(stranger.zone().census().out(), 0U);
    unref(shared);
    expect_all_home(pages);
  }
}

TEST(NodeAllocator, ABulkOfANodeLeavesAsAWhole) {
  WEIR_NEEDS_LISTS;
  WEIR_NEEDS_CPUS(1);
  if (kCheckedDrops) {
    GTEST_SKIP() << "checked builds look at each page alone";
  }
  NodeOptions options = pretended(2);
  options.each.capacity = 256_MiB;
  NodeAllocator pages{options};
  const OnCpu here{0};  // after them: depots are sized by the CPUs there are
  std::array<std::array<Page*, 64>, 6> bursts;
  for (auto& burst : bursts) {
    ASSERT_EQ(pages.at(NodeId{1}).alloc_burst(burst), 64U);
  }
  for (const auto& burst : bursts) {
    free_burst(burst);
  }
  const PercpuCounterValues counters = pages.at(NodeId{1}).zone().percpu_counters();
  EXPECT_EQ(counters.spills, 0U);
  EXPECT_GE(counters.clusters_given, 3U);
}

TEST(NodeAllocator, KnowsWhosePageItIs) {
  PageAllocator stranger{{.capacity = 1_MiB}};
  NodeAllocator pages{pretended(3)};
  const PageRef foreign = stranger.alloc();
  EXPECT_EQ(pages.node_of(foreign.get()), kAnyNode);
  for (const NodeId node : pages.nodes()) {
    const PageRef own = pages.at(node).alloc();
    EXPECT_EQ(pages.node_of(own.get()), node);
  }
  EXPECT_EQ(pages.node_of(kNoCpu), kAnyNode);
}

TEST(NodeAllocator, ZeroedPagesReadAsZeroFromEveryNode) {
  NodeAllocator pages{pretended(2)};
  std::vector<Page*> taken = take_all(pages);
  for (const Page* page : taken) {
    std::fill_n(address_of(page), kFrameBytes, std::byte{0xa5});
  }
  free_bulk(taken);
  taken = take_all(pages, AllocFlags::zero);
  ASSERT_EQ(taken.size(), 2 * kFrames);
  for (const Page* page : taken) {
    EXPECT_TRUE(std::all_of(address_of(page), address_of(page) + kFrameBytes,
                            [](std::byte b) { return b == std::byte{0}; }));
  }
  free_bulk(taken);
}

TEST(NodeAllocator, AForkedChildGoesOnWithItsCopy) {
  NodeAllocator pages{far_apart()};
  const std::vector<Page*> before{pages.alloc_page(), pages.alloc_page()};
  const int status = test::run_in_child([&] {
    const std::vector<Page*> taken = take_all(pages);
    if (taken.size() != 4 * kFrames - 2) return 1;
    free_bulk(taken);
    free_bulk(before);
    if (pages.drain_all().failed()) return 2;
    for (std::int32_t node = 0; node < 4; ++node) {
      if (pages.at(NodeId{node}).zone().census().engine != kFrames) return 3;
    }
    return 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(out_of(pages, 0) + out_of(pages, 1) + out_of(pages, 2) + out_of(pages, 3), 2U);
  free_bulk(before);
  expect_all_home(pages);
}

TEST(NodeAllocator, TicksReachEveryNode) {
  WEIR_NEEDS_LISTS;
  WEIR_NEEDS_CPUS(1);
  const OnCpu here{0};
  NodeAllocator pages{pretended(2)};
  for (const NodeId node : pages.nodes()) {
    unref(pages.alloc_on(node).detach());
    ASSERT_GT(pages.at(node).zone().census().lists, 0U);
  }
  for (int i = 0; i < 10; ++i) {
    pages.tick();
  }
  for (const NodeId node : pages.nodes()) {
    EXPECT_EQ(pages.at(node).zone().census().lists, 0U) << node.value;
  }
}

TEST(NodeAllocator, OfThisMachineHasANodeForEachWithMemory) {
  NodeOptions options;
  options.each.capacity = 1_MiB;
  NodeAllocator pages{options};
  ASSERT_EQ(pages.nodes().size(), topology().memory_nodes.count());
  for (const NodeId node : pages.nodes()) {
    EXPECT_TRUE(topology().memory_nodes.contains(static_cast<std::uint32_t>(node.value)));
    const Extent& extent = pages.at(node).effective().extent;
    EXPECT_TRUE(extent.node == node || *extent.node_note != '\0');
  }
  const PageRef page = pages.alloc();
  ASSERT_FALSE(page.empty());
  EXPECT_TRUE(topology().memory_nodes.contains(
      static_cast<std::uint32_t>(pages.node_of(page.get()).value)));
}

TEST(NodeAllocator, WhatCannotBeIsRefusedAndNothingIsKept) {
  const std::uint32_t zones = zone_registry::count();
  const auto refused = [](const NodeOptions& options) {
    EXPECT_THROW(NodeAllocator{options}, std::invalid_argument);
  };
  refused(pretended(kMaxZones));
  refused(pretended(2, NodePolicy::bind));
  refused(pretended(2, NodePolicy::bind, {NodeId{2}}));
  refused(pretended(2, NodePolicy::local, {NodeId{0}}));
  NodeOptions options = pretended(2);
  options.distances = {10, 20, 20};
  refused(options);
  options = pretended(3);
  options.each.reserve = PageCount{kFrames};
  refused(options);
  // The second of three cannot have a slot.
  std::vector<std::unique_ptr<PageAllocator>> others;
  while (zone_registry::count() < kMaxZones - 2) {
    others.push_back(std::make_unique<PageAllocator>(Options{.capacity = 1_MiB}));
  }
  EXPECT_THROW(NodeAllocator{pretended(3)}, std::system_error);
  others.clear();
  EXPECT_EQ(zone_registry::count(), zones);
}

TEST(NodeAllocatorDeathTest, ANodeThatItDoesNotHaveEndsTheProgram) {
  if (test::emulated()) GTEST_SKIP() << "a program cannot start itself again here";
  NodeAllocator pages{pretended(2)};
  EXPECT_DEATH(static_cast<void>(pages.at(NodeId{2})), "one of its nodes");
}

}  // namespace
}  // namespace weir
