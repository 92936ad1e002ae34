// SPDX-License-Identifier: MIT
#include "weir/backing/borrowed_source.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "tests/support/process.hpp"
#include "tests/unit/backing/source_walk.hpp"

namespace weir {
namespace {

alignas(kFrameBytes) std::array<std::byte, 16 * kFrameBytes> g_user;
constexpr Bytes kUserBytes{sizeof g_user};

TEST(BorrowedSource, GivesTheUsersMemoryAndLeavesItAsItIs) {
  g_user.fill(std::byte{0x77});
  BorrowedSource source(g_user.data(), kUserBytes);
  EXPECT_EQ(source.kind(), SourceKind::borrowed);
  const Result<Extent> got = source.obtain(kUserBytes);
  ASSERT_TRUE(got);
  const Extent& extent = got.value();
  EXPECT_EQ(extent.base, g_user.data());
  EXPECT_EQ(extent.size, kUserBytes);
  EXPECT_EQ(extent.source, SourceKind::borrowed);
  EXPECT_FALSE(extent.zeroed);
  EXPECT_FALSE(extent.transparent_huge);
  EXPECT_EQ(extent.fd, -1);
  EXPECT_STREQ(extent.note, "");
  extent.base[5] = std::byte{1};
  source.give_back(extent);
  EXPECT_EQ(test::permissions(g_user.data()), "rw-p");
  EXPECT_EQ(g_user[5], std::byte{1});
  EXPECT_EQ(g_user[6], std::byte{0x77});
  EXPECT_EQ(g_user.back(), std::byte{0x77});
}

TEST(BorrowedSource, GivesTheBeginningWhenLessIsAskedFor) {
  BorrowedSource source(g_user.data(), kUserBytes);
  const Result<Extent> extent = source.obtain(Bytes{5000});
  ASSERT_TRUE(extent);
  EXPECT_EQ(extent.value().base, g_user.data());
  EXPECT_EQ(extent.value().size, 8_KiB);
  source.give_back(extent.value());
}

TEST(BorrowedSource, IsInUseUntilGivenBack) {
  BorrowedSource source(g_user.data(), kUserBytes);
  const Result<Extent> extent = source.obtain(kUserBytes);
  ASSERT_TRUE(extent);
  EXPECT_EQ(source.obtain(kUserBytes).error().code, Errc::in_use);
  EXPECT_EQ(source.obtain(4_KiB).error().code, Errc::in_use);
  source.give_back(extent.value());
  const Result<Extent> again = source.obtain(kUserBytes);
  EXPECT_TRUE(again);
  source.give_back(again.value());
}

TEST(BorrowedSource, ARefusalDoesNotTakeTheMemory) {
  BorrowedSource source(g_user.data(), kUserBytes);
  EXPECT_FALSE(source.obtain(Bytes{0}));
  EXPECT_FALSE(source.obtain(kUserBytes + Bytes{1}));
  const Result<Extent> extent = source.obtain(kUserBytes);
  EXPECT_TRUE(extent);
  source.give_back(extent.value());
}

TEST(BorrowedSource, RefusesMemoryThatCannotBeManaged) {
  const auto code = [](std::byte* base, Bytes size, Bytes wanted) {
    BorrowedSource source(base, size);
    return source.obtain(wanted).error().code;
  };
  std::byte* base = g_user.data();
  EXPECT_EQ(code(nullptr, kUserBytes, kUserBytes), Errc::foreign);
  EXPECT_EQ(code(base + 1, 4_KiB, 4_KiB), Errc::misaligned);
  EXPECT_EQ(code(base + 2048, 4_KiB, 4_KiB), Errc::misaligned);
  EXPECT_EQ(code(base, Bytes{5000}, 4_KiB), Errc::misaligned);
  EXPECT_EQ(code(base, Bytes{4095}, 4_KiB), Errc::misaligned);
  EXPECT_EQ(code(base, Bytes{0}, 4_KiB), Errc::zero_size);
  EXPECT_EQ(code(base, kUserBytes, Bytes{0}), Errc::zero_size);
  EXPECT_EQ(code(base, kUserBytes, kUserBytes + Bytes{1}), Errc::too_large);
  EXPECT_EQ(code(base, kUserBytes, Bytes{UINT64_MAX}), Errc::too_large);
  // The end would lie beyond the end of all addresses.
  EXPECT_EQ(code(base, Bytes{UINT64_MAX - 4095}, 4_KiB), Errc::too_large);
  std::byte* last = reinterpret_cast<std::byte*>(UINT64_MAX - 4095);
  EXPECT_EQ(code(last, 8_KiB, 4_KiB), Errc::too_large);
}

TEST(BorrowedSource, FailsAtItsFailpointAndStaysUsable) {
  if (!kTestHooks) GTEST_SKIP() << "built without test hooks";
  failpoints::reset();
  failpoints::arm(Failpoint::source_obtain, 1);
  BorrowedSource source(g_user.data(), kUserBytes);
  EXPECT_EQ(source.obtain(kUserBytes).error().code, Errc::denied);
  const Result<Extent> extent = source.obtain(kUserBytes);
  EXPECT_TRUE(extent);
  source.give_back(extent.value());
  failpoints::reset();
}

TEST(BorrowedSourceDeathTest, AnExtentOfAnotherSourceIsNotTakenBack) {
  if (!kAudit) GTEST_SKIP() << "checked builds only";
  BorrowedSource source(g_user.data(), kUserBytes);
  Extent foreign;
  foreign.base = g_user.data() + kFrameBytes;
  foreign.source = SourceKind::borrowed;
  EXPECT_DEATH(source.give_back(foreign), "goes back to its own source");
}

}  // namespace
}  // namespace weir
