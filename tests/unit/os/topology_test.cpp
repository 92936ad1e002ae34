// SPDX-License-Identifier: MIT
#include "weir/os/topology.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include "tests/support/fake_root.hpp"
#include "weir/os/cpu_id.hpp"

namespace weir {
namespace {

using test::FakeRoot;

TEST(Topology, OfThisMachineHoldsTheCpuThatRunsTheTest) {
  const Topology& here = topology();
  EXPECT_TRUE(here.allowed_cpus.contains(current_cpu_slow().value));
  EXPECT_GE(here.cpu_limit, here.allowed_cpus.end());
  EXPECT_GE(here.nodes.count(), 1U);
  EXPECT_TRUE(
      here.nodes.contains(static_cast<std::uint32_t>(here.node_of(current_cpu_slow()).value)));
}

TEST(Topology, ReadsSparseCpusAndNodesFromSysfs) {
  const FakeRoot root;
  root.write("/sys/devices/system/cpu/possible", "0-3,64-67\n");
  root.write("/proc/self/status",
             "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t2-3,65\nMems:\t0\n");
  root.write("/sys/devices/system/node/online", "0,2\n");
  root.write("/sys/devices/system/node/node0/cpulist", "0-3\n");
  root.write("/sys/devices/system/node/node2/cpulist", "64-67\n");
  const Topology fake = read_topology(root.path());
  EXPECT_EQ(fake.cpu_limit, 68U);
  EXPECT_EQ(fake.allowed_cpus, *IdSet::parse("2-3,65"));
  EXPECT_EQ(fake.nodes, *IdSet::parse("0,2"));
  EXPECT_EQ(fake.node_of(CpuId{3}), NodeId{0});
  EXPECT_EQ(fake.node_of(CpuId{64}), NodeId{2});
  EXPECT_EQ(fake.node_of(CpuId{10}), kAnyNode);
  EXPECT_EQ(fake.node_of(kNoCpu), kAnyNode);
}

TEST(Topology, ANodeWithMemoryOnlyHasNoCpu) {
  const FakeRoot root;
  root.write("/sys/devices/system/cpu/possible", "0-1\n");
  root.write("/proc/self/status", "Cpus_allowed_list:\t0-1\n");
  root.write("/sys/devices/system/node/online", "0-1\n");
  root.write("/sys/devices/system/node/node0/cpulist", "0-1\n");
  root.write("/sys/devices/system/node/node1/cpulist", "\n");
  const Topology fake = read_topology(root.path());
  EXPECT_EQ(fake.nodes.count(), 2U);
  EXPECT_EQ(fake.node_of(CpuId{1}), NodeId{0});
}

TEST(Topology, NodesWhoseMemoryMayBeUsedAreThoseThatHaveAnyAndAreInTheCpuset) {
  const FakeRoot root;
  root.write("/proc/self/status", "Cpus_allowed_list:\t0-1\nMems_allowed_list:\t0-1,3,9\n");
  root.write("/sys/devices/system/node/online", "0-3\n");
  EXPECT_EQ(read_topology(root.path()).memory_nodes, *IdSet::parse("0-1,3"));
  root.write("/sys/devices/system/node/has_memory", "1-3\n");
  EXPECT_EQ(read_topology(root.path()).memory_nodes, *IdSet::parse("1,3"));
  root.write("/proc/self/status", "Cpus_allowed_list:\t0-1\n");
  EXPECT_EQ(read_topology(root.path()).memory_nodes, *IdSet::parse("1-3"));
  // What leaves nothing cannot be true.
  root.write("/sys/devices/system/node/has_memory", "7\n");
  EXPECT_EQ(read_topology(root.path()).memory_nodes, *IdSet::parse("0-3"));
  EXPECT_EQ(read_topology(root.path()).nodes, *IdSet::parse("0-3"));
}

TEST(Topology, FallsBackToSystemCallsWhereNothingCanBeRead) {
  const FakeRoot root;
  const Topology fake = read_topology(root.path());
  cpu_set_t mask;
  CPU_ZERO(&mask);
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  EXPECT_EQ(fake.allowed_cpus.count(), static_cast<std::uint32_t>(CPU_COUNT(&mask)));
  for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    EXPECT_EQ(fake.allowed_cpus.contains(cpu), static_cast<bool>(CPU_ISSET(cpu, &mask)));
  }
  EXPECT_GE(fake.cpu_limit, static_cast<std::uint32_t>(sysconf(_SC_NPROCESSORS_CONF)));
  EXPECT_EQ(fake.nodes, *IdSet::parse("0"));
  EXPECT_EQ(fake.node_of(CpuId{0}), NodeId{0});
  EXPECT_EQ(fake.memory_nodes, fake.nodes);
}

TEST(Topology, FallsBackToSystemCallsWhereFilesAreMalformed) {
  const FakeRoot root;
  root.write("/sys/devices/system/cpu/possible", "all of them\n");
  root.write("/proc/self/status", "Cpus_allowed_list:\t0-99999\n");
  root.write("/sys/devices/system/node/online", "\n");
  const Topology fake = read_topology(root.path());
  EXPECT_TRUE(fake.allowed_cpus.contains(current_cpu_slow().value));
  EXPECT_GE(fake.cpu_limit, fake.allowed_cpus.end());
  EXPECT_EQ(fake.nodes, *IdSet::parse("0"));
}

TEST(Topology, CpusThatThisProcessMayUseArePossibleWhateverSysfsSays) {
  const FakeRoot root;
  root.write("/sys/devices/system/cpu/possible", "0-1\n");
  root.write("/proc/self/status", "Cpus_allowed_list:\t0,7\n");
  EXPECT_EQ(read_topology(root.path()).cpu_limit, 8U);
}

}  // namespace
}  // namespace weir
