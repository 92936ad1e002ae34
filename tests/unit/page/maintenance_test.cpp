// SPDX-License-Identifier: MIT
#include "weir/page/maintenance.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/support/zones.hpp"

namespace weir {
namespace {

using namespace std::chrono_literals;

TEST(Maintenance, EmptiesAListThatNobodyUses) {
  WEIR_NEEDS_LISTS;
  PageAllocator pages{{.capacity = 16_MiB}};
  unref(pages.alloc_page());
  ASSERT_NE(pages.zone().census().lists, 0U);
  {
    const Maintenance maintenance{pages, 1ms};
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (pages.zone().census().lists != 0 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(1ms);
    }
  }
  EXPECT_EQ(pages.zone().census().lists, 0U);
  EXPECT_EQ(pages.zone().census().out(), 0U);
}

TEST(Maintenance, EndsAtOnceHoweverLongItsInterval) {
  PageAllocator pages{{.capacity = 1_MiB}};
  const auto start = std::chrono::steady_clock::now();
  { const Maintenance maintenance{pages, 1h}; }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

TEST(Maintenance, AnIntervalThatNoClockCanNameBecomesTheLongest) {
  WEIR_NEEDS_LISTS;
  PageAllocator pages{{.capacity = 16_MiB}};
  unref(pages.alloc_page());
  const std::uint64_t before = pages.zone().census().lists;
  ASSERT_NE(before, 0U);
  const Maintenance maintenance{pages, std::chrono::milliseconds::max()};
  EXPECT_EQ(maintenance.interval(), Maintenance::kLongest);
  // A thread that does not wait empties the list, which nobody uses, with its second tick.
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(pages.zone().census().lists, before);
}

TEST(Maintenance, NoIntervalOrLessBecomesTheShortest) {
  PageAllocator pages{{.capacity = 1_MiB}};
  for (const auto interval : {std::chrono::milliseconds::min(), -1ms, 0ms, 1ms}) {
    const Maintenance maintenance{pages, interval};
    EXPECT_EQ(maintenance.interval(), Maintenance::kShortest);
  }
  const Maintenance asked{pages, 250ms};
  EXPECT_EQ(asked.interval(), 250ms);
}

}  // namespace
}  // namespace weir
