// SPDX-License-Identifier: MIT
// bind_to_node(): what an extent and standard error say of memory that was wanted of one node.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/fake_memory.hpp"
#include "tests/support/process.hpp"
#include "weir/backing/anon_source.hpp"

namespace weir {
namespace {

using test::FakeMemory;
using Call = FakeMemory::Call;

Extent obtained(FakeMemory& memory) {
  return AnonSource(memory, ThpChoice::system).obtain(1_MiB).value();
}

TEST(NodeBinding, IsAskedForTheWholeExtentAndSaysSo) {
  FakeMemory memory;
  memory.play_nodes(3);
  Extent extent = obtained(memory);
  bind_to_node(memory, NodeId{2}, extent);
  EXPECT_EQ(extent.node, NodeId{2});
  EXPECT_STREQ(extent.node_note, "");
  EXPECT_EQ(memory.bound_to(extent.base), NodeId{2});
  EXPECT_EQ(memory.records().back().size, extent.size);
  memory.release(extent.base, extent.size);
}

TEST(NodeBinding, OfAnyNodeAsksNobody) {
  FakeMemory memory;
  Extent extent = obtained(memory);
  bind_to_node(memory, kAnyNode, extent);
  EXPECT_EQ(extent.node, kAnyNode);
  EXPECT_STREQ(extent.node_note, "");
  EXPECT_EQ(memory.calls(Call::bind), 0U);
  memory.release(extent.base, extent.size);
}

TEST(NodeBinding, RefusedLeavesTheMemoryAndSaysWhy) {
  FakeMemory memory;
  memory.play_nodes(1);
  Extent extent = obtained(memory);
  bind_to_node(memory, NodeId{1}, extent);
  EXPECT_EQ(extent.node, kAnyNode);
  EXPECT_STREQ(extent.node_note, "no memory to be had of this node: it comes from any");
  EXPECT_STREQ(extent.note, "");
  extent.base[0] = std::byte{1};
  memory.fail(Call::bind, 1);
  Extent denied = obtained(memory);
  bind_to_node(memory, NodeId{0}, denied);
  EXPECT_EQ(denied.node, kAnyNode);
  EXPECT_STREQ(denied.node_note, "the system forbids to bind memory to a node: it comes from any");
  memory.release(extent.base, extent.size);
  memory.release(denied.base, denied.size);
  EXPECT_TRUE(memory.clean());
}

TEST(NodeBindingDeathTest, ARefusalIsToldOnceForEachReason) {
  if (test::emulated()) GTEST_SKIP() << "a program cannot start itself again here";
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // a process that has told nothing yet
  EXPECT_EXIT(
      {
        FakeMemory memory;
        memory.play_nodes(1);
        memory.fail(Call::bind, 2, 2);
        for (int i = 0; i < 5; ++i) {
          Extent extent = obtained(memory);
          bind_to_node(memory, NodeId{1}, extent);
          memory.release(extent.base, extent.size);
        }
        std::_Exit(memory.clean() ? 0 : 1);
      },
      testing::ExitedWithCode(0),
      "^weir: notice: no memory to be had of this node: it comes from any\n"
      "weir: notice: the system forbids to bind memory to a node: it comes from any\n$");
}

}  // namespace
}  // namespace weir
