// SPDX-License-Identifier: MIT
// What every source must do, as steps the tests of each source share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "tests/support/fake_memory.hpp"
#include "weir/backing/source.hpp"
#include "weir/base/failpoint.hpp"

namespace weir::test {

using MakeSource = std::function<std::unique_ptr<Source>(FakeMemory&)>;

inline bool aligned_to(const Extent& extent, Bytes align) {
  return reinterpret_cast<std::uintptr_t>(extent.base) % align.value == 0;
}

inline bool is_zero(const Extent& extent) {
  for (std::uint64_t at = 0; at < extent.size.value; at += 512) {
    if (extent.base[at] != std::byte{0}) return false;
  }
  return extent.base[extent.size.value - 1] == std::byte{0};
}

inline void write_everywhere(const Extent& extent) {
  for (std::uint64_t at = 0; at < extent.size.value; at += 512) {
    extent.base[at] = std::byte{0xa5};
  }
}

// Lets each call to the system fail in turn, until obtain() gets through without meeting the
// failure. Nothing may be left after any of them. `optional` calls may fail without obtain()
// failing.
inline void walk_every_failure(const MakeSource& make, Bytes size, std::uint64_t optional_calls) {
  std::uint64_t survived = 0;
  for (std::uint64_t k = 1;; ++k) {
    ASSERT_LT(k, 100U);
    FakeMemory memory;
    memory.play_huge_pages(16_MiB);
    const std::unique_ptr<Source> source = make(memory);
    memory.fail_any(k, {Errc::system, "the walk", 5});
    const Result<Extent> extent = source->obtain(size);
    const bool met = memory.fallible_calls() >= k;
    if (extent) {
      write_everywhere(extent.value());
      source->give_back(extent.value());
      survived += met ? 1 : 0;
    } else {
      EXPECT_STREQ(extent.error().what, "the walk") << "call " << k;
      EXPECT_EQ(extent.error().os_errno, 5);
    }
    EXPECT_TRUE(memory.clean()) << "call " << k << " failed and something was left";
    if (!met) break;
  }
  EXPECT_EQ(survived, optional_calls);
}

// Sizes that no source accepts, and that no call to the system is made for them.
inline void refuse_bad_sizes(const MakeSource& make) {
  FakeMemory memory;
  const std::unique_ptr<Source> source = make(memory);
  EXPECT_EQ(source->obtain(Bytes{0}).error().code, Errc::zero_size);
  for (const Bytes size : {kMaxExtent + Bytes{1}, Bytes{UINT64_MAX}, Bytes{UINT64_MAX - 4095},
                           bytes(PageCount{(std::uint64_t{1} << 32) + 1})}) {
    EXPECT_EQ(source->obtain(size).error().code, Errc::too_large) << size.value;
  }
  EXPECT_EQ(memory.fallible_calls(), 0U);
  EXPECT_TRUE(memory.clean());
}

inline void fail_by_failpoint(const MakeSource& make) {
  FakeMemory memory;
  const std::unique_ptr<Source> source = make(memory);
  failpoints::reset();
  failpoints::arm(Failpoint::source_obtain, 1);
  EXPECT_EQ(source->obtain(1_MiB).error().code, Errc::denied);
  EXPECT_EQ(memory.fallible_calls(), 0U);
  failpoints::reset();
}

}  // namespace weir::test
