// SPDX-License-Identifier: MIT
#include "weir/page/node_plan.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/support/fake_root.hpp"
#include "weir/percpu/zone_registry.hpp"

namespace weir {
namespace {

using test::FakeRoot;
using Sequence = NodePlan::Sequence;

NodePlan plan(const NodeMachine& machine, NodePolicy policy, std::vector<NodeId> set = {}) {
  Result<NodePlan> made = NodePlan::make(machine, policy, set);
  EXPECT_TRUE(made) << made.error().what;
  return *made;
}

// Four nodes, of which 0 and 2 have CPUs, 2 has no memory, and 7 is near to 2.
class Sparse : public testing::Test {
 protected:
  Sparse() {
    root_.write("/sys/devices/system/cpu/possible", "0-4\n");
    root_.write("/proc/self/status", "Cpus_allowed_list:\t0-4\nMems_allowed_list:\t0,5,7\n");
    root_.write("/sys/devices/system/node/online", "0,2,5,7\n");
    root_.write("/sys/devices/system/node/has_memory", "0,5,7\n");
    root_.write("/sys/devices/system/node/node0/cpulist", "0-1\n");
    root_.write("/sys/devices/system/node/node2/cpulist", "2-3\n");
    root_.write("/sys/devices/system/node/node0/distance", "10 20 40 30\n");
    root_.write("/sys/devices/system/node/node2/distance", "20 10 40 12\n");
    topology_ = std::make_unique<Topology>(read_topology(root_.path()));
  }
  [[nodiscard]] NodeMachine machine(std::vector<NodeId> given = {}) const {
    return real_machine(*topology_, given, root_.path());
  }

  FakeRoot root_;
  std::unique_ptr<Topology> topology_;
};

TEST_F(Sparse, NodesWithMemoryServeAndTheirDistancesCount) {
  const NodeMachine here = machine();
  EXPECT_EQ(here.serving, (std::vector{NodeId{0}, NodeId{5}, NodeId{7}}));
  const NodePlan local = plan(here, NodePolicy::local);
  EXPECT_EQ(local.of_cpu(CpuId{1}), (Sequence{0, 2, 1}));
  // The node of CPU 2 has no memory: the nearest has.
  EXPECT_EQ(local.of_cpu(CpuId{2}), (Sequence{2, 0, 1}));
  EXPECT_EQ(local.of_node(NodeId{2}), (Sequence{2, 0, 1}));
  EXPECT_EQ(local.of_place(1), (Sequence{1, 2, 0}));  // the higher number first, then round
}

TEST_F(Sparse, ACpuThatNobodyKnowsCountsAsOneOfTheFirstThatServes) {
  const NodePlan local = plan(machine(), NodePolicy::local);
  EXPECT_EQ(local.of_cpu(CpuId{4}), local.of_node(NodeId{0}));
  EXPECT_EQ(local.of_cpu(CpuId{4000}), local.of_node(NodeId{0}));
  EXPECT_EQ(local.of_cpu(kNoCpu), local.of_node(NodeId{0}));
  EXPECT_EQ(local.of_node(NodeId{99}), local.of_node(NodeId{0}));
}

TEST_F(Sparse, GivenNodesServeAlone) {
  const NodeMachine here = machine({NodeId{7}, NodeId{0}, NodeId{7}});
  EXPECT_EQ(here.serving, (std::vector{NodeId{0}, NodeId{7}}));
  EXPECT_EQ(plan(here, NodePolicy::local).of_cpu(CpuId{3}), (Sequence{1, 0}));
}

TEST_F(Sparse, PreferredIsTheSameForAllCpus) {
  const NodePlan preferred = plan(machine(), NodePolicy::preferred, {NodeId{5}});
  for (const std::uint32_t cpu : {0U, 2U, 4U, 9999U}) {
    EXPECT_EQ(preferred.of_cpu(CpuId{cpu}), (Sequence{1, 2, 0})) << cpu;
  }
  EXPECT_EQ(preferred.of_node(NodeId{0}), (Sequence{0, 2, 1}));
}

TEST_F(Sparse, BindLeavesOthersOutOfEverySequence) {
  const NodePlan bound = plan(machine(), NodePolicy::bind, {NodeId{7}, NodeId{5}});
  EXPECT_EQ(bound.of_cpu(CpuId{0}), (Sequence{2, 1}));
  EXPECT_EQ(bound.of_cpu(CpuId{2}), (Sequence{2, 1}));
  EXPECT_EQ(bound.of_cpu(CpuId{4}), (Sequence{2, 1}));
  EXPECT_EQ(bound.of_node(NodeId{0}), (Sequence{2, 1}));
  EXPECT_EQ(bound.of_node(NodeId{5}), (Sequence{1, 2}));
  EXPECT_TRUE(bound.turns().empty());
}

TEST_F(Sparse, TurnsAreOfTheSetOrOfAll) {
  EXPECT_EQ(plan(machine(), NodePolicy::interleave).turns(), (Sequence{0, 1, 2}));
  const NodePlan some = plan(machine(), NodePolicy::interleave, {NodeId{7}, NodeId{0}});
  EXPECT_EQ(some.turns(), (Sequence{2, 0}));
  EXPECT_EQ(some.of_place(2), (Sequence{2, 0, 1}));  // who has nothing is helped by all
  EXPECT_TRUE(plan(machine(), NodePolicy::local).turns().empty());
}

TEST_F(Sparse, SetsThatCannotBeAreRefused) {
  const auto refused = [this](NodePolicy policy, std::vector<NodeId> set) {
    return NodePlan::make(machine(), policy, set).error().code == Errc::bad_option;
  };
  EXPECT_TRUE(refused(NodePolicy::local, {NodeId{0}}));
  EXPECT_TRUE(refused(NodePolicy::preferred, {}));
  EXPECT_TRUE(refused(NodePolicy::preferred, {NodeId{0}, NodeId{5}}));
  EXPECT_TRUE(refused(NodePolicy::bind, {}));
  EXPECT_TRUE(refused(NodePolicy::bind, {NodeId{2}}));
  EXPECT_TRUE(refused(NodePolicy::bind, {NodeId{0}, NodeId{0}}));
  EXPECT_TRUE(refused(NodePolicy::interleave, {NodeId{-1}}));
  EXPECT_TRUE(refused(static_cast<NodePolicy>(9), {}));
  const NodeMachine unknown = machine({NodeId{0}, NodeId{6}});
  EXPECT_EQ(NodePlan::make(unknown, NodePolicy::local, {}).error().code, Errc::bad_option);
  for (const std::uint32_t n : {0U, kMaxZones + 0U, 5000U}) {
    EXPECT_EQ(NodePlan::make(pretended_machine(n, 4), NodePolicy::local, {}).error().code,
              Errc::bad_option)
        << n;
  }
  EXPECT_TRUE(NodePlan::make(pretended_machine(kMaxZones - 1, 4), NodePolicy::local, {}));
}

TEST(NodePlan, PretendedNodesAreDealtTheCpusInTurns) {
  const NodePlan local = plan(pretended_machine(3, 7), NodePolicy::local);
  for (std::uint32_t cpu = 0; cpu < 7; ++cpu) {
    EXPECT_EQ(local.of_cpu(CpuId{cpu}).front(), cpu % 3);
    EXPECT_EQ(local.of_cpu(CpuId{cpu}).size(), 3U);
  }
}

TEST(NodePlan, PoliciesHaveTheKernelsNames) {
  EXPECT_STREQ(policy_name(NodePolicy::local), "local");
  EXPECT_STREQ(policy_name(NodePolicy::preferred), "preferred");
  EXPECT_STREQ(policy_name(NodePolicy::bind), "bind");
  EXPECT_STREQ(policy_name(NodePolicy::interleave), "interleave");
}

}  // namespace
}  // namespace weir
