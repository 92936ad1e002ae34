// SPDX-License-Identifier: MIT
#include "weir/io/rewrite.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/io/frames.hpp"

namespace weir {
namespace {

using test::bytes_of;
using test::operator+;
using Frame = std::vector<std::byte>;

const NextHop kHop{.source = {{0xa, 1, 2, 3, 4, 5}}, .destination = {{0xb, 1, 2, 3, 4, 5}}};
Frame hop_macs() { return bytes_of({0xb, 1, 2, 3, 4, 5, 0xa, 1, 2, 3, 4, 5}); }

TEST(Rewrite, TakesAnIpv4FrameOneHopFurther) {
  Frame frame = test::ipv4_frame(64);
  EXPECT_EQ(rewrite(frame, kHop), Verdict::forward);
  EXPECT_EQ(frame, hop_macs() + bytes_of({0x08, 0x00}) + test::ipv4(63));
}

TEST(Rewrite, TakesAnIpv6FrameOneHopFurther) {
  Frame frame = test::ipv6_frame(2);
  EXPECT_EQ(rewrite(frame, kHop), Verdict::forward);
  EXPECT_EQ(frame, hop_macs() + bytes_of({0x86, 0xdd}) + test::ipv6(1));
}

TEST(Rewrite, FindsTheHeaderBehindTags) {
  const Frame vlan = bytes_of({0x81, 0x00, 0x00, 0x05});
  const Frame qinq = bytes_of({0x88, 0xa8, 0x00, 0x06});
  Frame one = test::macs() + vlan + bytes_of({0x08, 0x00}) + test::ipv4(9);
  EXPECT_EQ(rewrite(one, kHop), Verdict::forward);
  EXPECT_EQ(one, hop_macs() + vlan + bytes_of({0x08, 0x00}) + test::ipv4(8));
  Frame two = test::macs() + qinq + vlan + bytes_of({0x86, 0xdd}) + test::ipv6(9);
  EXPECT_EQ(rewrite(two, kHop), Verdict::forward);
  EXPECT_EQ(two, hop_macs() + qinq + vlan + bytes_of({0x86, 0xdd}) + test::ipv6(8));
}

TEST(Rewrite, ChangesOfOtherFramesTheAddressesOnly) {
  for (const Frame& rest :
       {bytes_of({0x08, 0x06, 0, 1}), bytes_of({0x12, 0x34}), bytes_of({0x00, 0x26, 0x42, 0x42})}) {
    Frame frame = test::macs() + rest;
    EXPECT_EQ(rewrite(frame, kHop), Verdict::forward);
    EXPECT_EQ(frame, hop_macs() + rest);
  }
}

TEST(Rewrite, LeavesAFrameAloneThatLivedLongEnough) {
  for (const int left : {0, 1}) {
    Frame four = test::ipv4_frame(left);
    EXPECT_EQ(rewrite(four, kHop), Verdict::expired);
    EXPECT_EQ(four, test::ipv4_frame(left));
    Frame six = test::ipv6_frame(left);
    EXPECT_EQ(rewrite(six, kHop), Verdict::expired);
    EXPECT_EQ(six, test::ipv6_frame(left));
  }
}

TEST(Rewrite, LeavesAFrameAloneWhoseHeadersDoNotParse) {
  for (const Frame& whole : {test::ipv4_frame(64, 0), test::ipv6_frame(64)}) {
    const std::size_t header = whole.size() == 34 ? 34 : 54;
    for (std::size_t size = 0; size < header; ++size) {
      Frame frame(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      const Frame before = frame;
      ASSERT_EQ(rewrite(frame, kHop), Verdict::malformed) << size;
      ASSERT_EQ(frame, before) << size;
    }
  }
  Frame wrong_version = test::ipv4_frame(64);
  wrong_version[14] = std::byte{0x65};
  EXPECT_EQ(rewrite(wrong_version, kHop), Verdict::malformed);
  EXPECT_EQ(rewrite({}, kHop), Verdict::malformed);
}

}  // namespace
}  // namespace weir
