// SPDX-License-Identifier: MIT
// What PageAllocator::effective() says is what the zone does, and asked for again it is the same.
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "tests/support/zones.hpp"
#include "weir/os/topology.hpp"
#include "weir/page/page_allocator.hpp"

namespace weir {
namespace {

void expect_same(const Effective& first, const Effective& again) {
  EXPECT_EQ(again.managed, first.managed);
  EXPECT_STREQ(again.list_mode, first.list_mode);
  EXPECT_EQ(again.cluster, first.cluster);
  EXPECT_EQ(again.high, first.high);
  EXPECT_EQ(again.high_max, first.high_max);
  EXPECT_EQ(again.depot, first.depot);
  EXPECT_EQ(again.cached_max, first.cached_max);
  EXPECT_STREQ(options_text(again.options).data(), options_text(first.options).data());
}

TEST(Effective, OptionsReadBackReproduceThemselves) {
  std::vector<Options> asked;
  for (const std::uint64_t frames : {1U, 33U, 4096U, 65536U}) {
    const Options plain{.capacity = bytes(PageCount{frames})};
    asked.push_back(plain);
    for (const std::uint64_t depot :
         {std::uint64_t{1}, std::uint64_t{1000}, kMaxFrames, std::uint64_t{1} << 63, UINT64_MAX}) {
      asked.push_back(plain);
      asked.back().depot = PageCount{depot};
    }
    for (const std::uint64_t high : {std::uint64_t{1}, std::uint64_t{200}, UINT64_MAX}) {
      asked.push_back(plain);
      asked.back().high = PageCount{high};
    }
    for (const std::uint64_t cached : {1U, 5U, 100U, 1000U, 3000U}) {
      asked.push_back(plain);
      asked.back().cached = PageCount{cached};
    }
    asked.push_back(plain);
    asked.back().merge = Merge::immediate;
    asked.push_back(plain);
    asked.back().lists = false;
  }
  for (const Options& options : asked) {
    SCOPED_TRACE(options_text(options).data());
    const PageAllocator first{options};
    const PageAllocator again{first.effective().options};
    expect_same(first.effective(), again.effective());
  }
}

TEST(Effective, MemoryOfANodeIsBoundAndSaysSo) {
  const NodeId node{static_cast<std::int32_t>(topology().memory_nodes.next(0))};
  for (const SourceChoice source :
       {SourceChoice::anonymous, SourceChoice::memfd, SourceChoice::hugetlb}) {
    PageAllocator pages{{.capacity = 4_MiB, .source = source, .node = node}};
    const Effective& effective = pages.effective();
    if (*effective.extent.node_note != '\0') {
      GTEST_SKIP() << effective.extent.node_note;
    }
    EXPECT_EQ(effective.extent.node, node);
    EXPECT_EQ(effective.options.node, node);
    int mode = -1;
    unsigned long mask[64] = {};
    ASSERT_EQ(::syscall(SYS_get_mempolicy, &mode, mask, sizeof mask * 8, effective.extent.base,
                        MPOL_F_ADDR),
              0);
    EXPECT_EQ(mode, MPOL_PREFERRED);
    EXPECT_EQ(mask[0], 1UL << node.value);
    EXPECT_FALSE(pages.alloc().empty());
  }
}

TEST(Effective, ANodeThatIsNotThereIsToldAndNotAFailure) {
  std::int32_t absent = kMaxNode;
  while (topology().nodes.contains(static_cast<std::uint32_t>(absent))) {
    --absent;
  }
  PageAllocator pages{{.capacity = 4_MiB, .node = NodeId{absent}}};
  EXPECT_EQ(pages.effective().extent.node, kAnyNode);
  EXPECT_EQ(pages.effective().options.node, kAnyNode);
  EXPECT_STRNE(pages.effective().extent.node_note, "");
  EXPECT_FALSE(pages.alloc().empty());
  EXPECT_THROW(PageAllocator({.capacity = 4_MiB, .node = NodeId{kMaxNode + 1}}),
               std::invalid_argument);
  EXPECT_THROW(PageAllocator({.capacity = 4_MiB, .node = NodeId{-2}}), std::invalid_argument);
}

TEST(Effective, BorrowedMemoryStaysWhereItsOwnerPutIt) {
  alignas(kFrameBytes) static std::byte memory[16 * kFrameBytes];
  const std::span<std::byte> piece{memory};
  PageAllocator pages{{&piece, 1}, {.node = NodeId{0}}};
  EXPECT_EQ(pages.effective().extent.node, kAnyNode);
  EXPECT_EQ(pages.effective().options.node, kAnyNode);
}

// Frames for so many CPUs; whoever comes by first finds lists as they are said to be.
TEST(Effective, UnderASmallCapListsAreAsSmallAsItSaysOrOff) {
  WEIR_NEEDS_LISTS;
  const std::uint64_t cpus = topology().allowed_cpus.count();
  for (const std::uint64_t each : {0U, 1U, 2U, 3U, 64U, 127U, 500U, 1500U, 1536U}) {
    SCOPED_TRACE(each);
    const std::uint64_t cap = std::max<std::uint64_t>(each * cpus, 1);
    PageAllocator pages{{.capacity = 256_MiB, .cached = PageCount{cap}}};
    const Effective& effective = pages.effective();
    for (int i = 0; i < 300; ++i) {
      unref(pages.alloc_page());
    }
    const PageLists& lists = pages.zone().lists();
    if (each < 2) {
      EXPECT_STREQ(effective.list_mode, "off");
      EXPECT_STREQ(effective.list_mode_reason,
                   "the option cached leaves less than two frames for each CPU");
      EXPECT_EQ(effective.high + effective.high_max + effective.depot + effective.cached_max, 0U);
      EXPECT_EQ(lists.next_started(0), kNoCpu);
      continue;
    }
    EXPECT_STREQ(effective.list_mode, list_form_name(list_mode().form));
    EXPECT_STREQ(effective.list_mode_reason, list_mode().reason);
    EXPECT_LE(effective.cached_max, cap);
    EXPECT_LE(cpus * lists.frames_at_start() + effective.depot, cap);
    const CpuId started = lists.next_started(0);
    ASSERT_NE(started, kNoCpu);
    EXPECT_EQ(lists.capacity(started, 0), effective.high);
    EXPECT_GE(effective.high, 2U);
  }
  const PageAllocator none{{.capacity = 1_MiB, .cached = PageCount{0}}};
  EXPECT_STREQ(none.effective().list_mode_reason, "asked for by the zone's options");
}

TEST(Effective, ADepotBeyondAllBoundsIsTheLargestThereIs) {
  WEIR_NEEDS_LISTS;
  for (const std::uint64_t depot : {kMaxFrames, std::uint64_t{1} << 63, UINT64_MAX}) {
    const PageAllocator pages{{.capacity = 64_MiB, .depot = PageCount{depot}}};
    EXPECT_EQ(pages.effective().depot, kDepotClustersMax * pages.effective().cluster) << depot;
  }
}

}  // namespace
}  // namespace weir
