// SPDX-License-Identifier: MIT
// What PageAllocator::effective() says is what the zone does, and asked for again it is the same.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/support/zones.hpp"
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
  WEIR_NEEDS_LISTS;
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

TEST(Effective, ADepotBeyondAllBoundsIsTheLargestThereIs) {
  WEIR_NEEDS_LISTS;
  for (const std::uint64_t depot : {kMaxFrames, std::uint64_t{1} << 63, UINT64_MAX}) {
    const PageAllocator pages{{.capacity = 64_MiB, .depot = PageCount{depot}}};
    EXPECT_EQ(pages.effective().depot, kDepotClustersMax * pages.effective().cluster) << depot;
  }
}

}  // namespace
}  // namespace weir
