// SPDX-License-Identifier: MIT
#include "weir/os/node_distances.hpp"

#include <gtest/gtest.h>

#include "tests/support/fake_root.hpp"

namespace weir {
namespace {

using test::FakeRoot;

std::vector<std::int32_t> numbers(const std::vector<NodeId>& nodes) {
  std::vector<std::int32_t> result;
  for (const NodeId node : nodes) {
    result.push_back(node.value);
  }
  return result;
}
using Order = std::vector<std::int32_t>;

TEST(NodeDistances, WithoutFilesAreTenToItselfAndTwentyToOthers) {
  const FakeRoot root;
  const NodeDistances distances = read_node_distances(*IdSet::parse("0,2"), root.path());
  EXPECT_EQ(distances.distance(NodeId{2}, NodeId{2}), 10U);
  EXPECT_EQ(distances.distance(NodeId{0}, NodeId{2}), 20U);
  EXPECT_EQ(distances.distance(NodeId{0}, NodeId{1}), 20U);
  EXPECT_EQ(distances.distance(NodeId{1}, NodeId{1}), 10U);
}

TEST(NodeDistances, AreReadByRowsAndMayDifferBothWays) {
  const FakeRoot root;
  root.write("/sys/devices/system/node/node0/distance", "10 21 31\n");
  root.write("/sys/devices/system/node/node2/distance", "12 10 22\n");
  root.write("/sys/devices/system/node/node5/distance", "32  23 10 \n");
  const NodeDistances distances = read_node_distances(*IdSet::parse("0,2,5"), root.path());
  EXPECT_EQ(distances.distance(NodeId{0}, NodeId{2}), 21U);
  EXPECT_EQ(distances.distance(NodeId{2}, NodeId{0}), 12U);
  EXPECT_EQ(distances.distance(NodeId{0}, NodeId{5}), 31U);
  EXPECT_EQ(distances.distance(NodeId{5}, NodeId{2}), 23U);
}

TEST(NodeDistances, ARowThatCannotBeStaysAsIfItWereMissing) {
  const FakeRoot root;
  root.write("/sys/devices/system/node/node0/distance", "10\n");
  root.write("/sys/devices/system/node/node1/distance", "15 10 11\n");
  root.write("/sys/devices/system/node/node2/distance", "15 x 10\n");
  root.write("/sys/devices/system/node/node3/distance", "15 15 300 10\n");
  const NodeDistances distances = read_node_distances(*IdSet::parse("0-3"), root.path());
  for (std::int32_t from = 0; from < 4; ++from) {
    for (std::int32_t to = 0; to < 4; ++to) {
      EXPECT_EQ(distances.distance(NodeId{from}, NodeId{to}), from == to ? 10U : 20U);
    }
  }
}

TEST(NodeDistances, TheNearestIsAskedFirst) {
  NodeDistances distances(*IdSet::parse("0-3"));
  distances.set(NodeId{0}, NodeId{1}, 40);
  distances.set(NodeId{0}, NodeId{2}, 20);
  distances.set(NodeId{0}, NodeId{3}, 30);
  EXPECT_EQ(numbers(distances.order_from(NodeId{0})), (Order{0, 2, 3, 1}));
}

TEST(NodeDistances, EquallyNearOnesFollowTheOwnNumberAndWrapRound) {
  const NodeDistances distances(*IdSet::parse("0-3"));
  EXPECT_EQ(numbers(distances.order_from(NodeId{0})), (Order{0, 1, 2, 3}));
  EXPECT_EQ(numbers(distances.order_from(NodeId{1})), (Order{1, 2, 3, 0}));
  EXPECT_EQ(numbers(distances.order_from(NodeId{2})), (Order{2, 3, 0, 1}));
  EXPECT_EQ(numbers(distances.order_from(NodeId{3})), (Order{3, 0, 1, 2}));
}

TEST(NodeDistances, TheOwnNodeIsFirstEvenWhereFirmwareSaysOthersAreAsNear) {
  NodeDistances distances(*IdSet::parse("0-2"));
  distances.set(NodeId{1}, NodeId{0}, 10);
  distances.set(NodeId{1}, NodeId{2}, 5);
  EXPECT_EQ(numbers(distances.order_from(NodeId{1})), (Order{1, 2, 0}));
}

TEST(NodeDistances, FromANodeThatIsNoneOfThemAllAreEquallyFar) {
  const NodeDistances distances(*IdSet::parse("1,3,5"));
  EXPECT_EQ(numbers(distances.order_from(NodeId{4})), (Order{5, 1, 3}));
}

}  // namespace
}  // namespace weir
