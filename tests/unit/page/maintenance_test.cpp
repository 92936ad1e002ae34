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

}  // namespace
}  // namespace weir
