// SPDX-License-Identifier: MIT
#include "weir/zone/watermarks.hpp"

#include <gtest/gtest.h>

namespace weir {
namespace {

struct Worked {
  Bytes zone;
  std::uint64_t min, low, high;
};

// Worked out by hand from the kernel's formulas for a zone that is all of memory.
constexpr Worked kWorked[] = {
    {16_MiB, 128, 160, 192},     {64_MiB, 256, 320, 384},      {128_MiB, 362, 452, 542},
    {256_MiB, 512, 640, 768},    {512_MiB, 724, 905, 1086},    {1_GiB, 1024, 1286, 1548},
    {16_GiB, 4096, 8290, 12484}, {64_GiB, 8192, 24969, 41746},
};

TEST(Watermarks, AreTheKernelsForEightSizes) {
  for (const Worked& worked : kWorked) {
    SCOPED_TRACE(worked.zone.value >> 20);
    const Watermarks marks = watermarks_of(whole_pages(worked.zone));
    EXPECT_EQ(marks.min.value, worked.min);
    EXPECT_EQ(marks.low.value, worked.low);
    EXPECT_EQ(marks.high.value, worked.high);
  }
}

TEST(Watermarks, MinIsHeldBetween128KiBAnd256MiB) {
  EXPECT_EQ(min_free_kbytes(PageCount{1}), 128U);
  EXPECT_EQ(min_free_kbytes(PageCount{0}), 128U);
  EXPECT_EQ(min_free_kbytes(whole_pages(Bytes{8_GiB} * 1024)), 262144U);
  EXPECT_EQ(min_free_kbytes(PageCount{kMaxFrames}), 131072U);
}

TEST(Watermarks, GrowWithTheZone) {
  Watermarks before = watermarks_of(PageCount{1});
  for (std::uint64_t frames = 2; frames <= kMaxFrames; frames *= 2) {
    const Watermarks marks = watermarks_of(PageCount{frames});
    EXPECT_LT(marks.min, marks.low);
    EXPECT_LT(marks.low, marks.high);
    EXPECT_LE(before.min, marks.min);
    EXPECT_LE(before.high, marks.high);
    before = marks;
  }
}

}  // namespace
}  // namespace weir
