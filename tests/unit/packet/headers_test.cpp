// SPDX-License-Identifier: MIT
// Ethernet, IPv4 and IPv6 headers and the checksum, against vectors and by brute force.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "weir/packet/checksum.hpp"
#include "weir/packet/eth.hpp"
#include "weir/packet/ip.hpp"

namespace weir {
namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) {
    bytes.push_back(static_cast<std::byte>(value));
  }
  return bytes;
}

std::vector<std::byte> ethernet(std::initializer_list<int> from_type_on) {
  std::vector<std::byte> frame = bytes_of({1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16});
  const std::vector<std::byte> rest = bytes_of(from_type_on);
  frame.insert(frame.end(), rest.begin(), rest.end());
  return frame;
}

// A header that is often shown as an example; its checksum is 0xb861.
std::vector<std::byte> ipv4_example() {
  return bytes_of({0x45, 0,    0,    0x73, 0, 0, 0x40, 0,    0x40, 0x11,
                   0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0,    0xc7});
}

TEST(Checksum, MatchesKnownVectors) {
  // RFC 1071, section 3: these bytes sum to ddf2.
  EXPECT_EQ(checksum(bytes_of({0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7})),
            static_cast<std::uint16_t>(~0xddf2));
  EXPECT_EQ(checksum({}), 0xffff);
  EXPECT_EQ(checksum(bytes_of({0xab})), static_cast<std::uint16_t>(~0xab00));
  std::vector<std::byte> header = ipv4_example();
  EXPECT_EQ(checksum(header), 0);
  store_be16(&header[10], 0);
  EXPECT_EQ(checksum(header), 0xb861);
}

TEST(Checksum, FoldsSumsOfAnyLength) {
  EXPECT_EQ(checksum(std::vector<std::byte>(200'000, std::byte{0xff})), 0);
}

TEST(Checksum, UpdateEqualsTheFullComputationForEveryChangeOfAWord) {
  std::vector<std::byte> header = ipv4_example();
  std::mt19937 random{7};
  for (int i = 0; i < 200'000; ++i) {
    const std::size_t at = std::array{0, 2, 4, 6, 8, 12, 14, 16, 18}[random() % 9];
    const std::uint16_t before = load_be16(&header[at]);
    const auto after = static_cast<std::uint16_t>(random());
    const std::uint16_t updated = checksum_update(load_be16(&header[10]), before, after);
    store_be16(&header[at], after);
    store_be16(&header[10], 0);
    ASSERT_EQ(updated, checksum(header)) << at << ' ' << before << ' ' << after;
    store_be16(&header[10], updated);
  }
}

TEST(EthView, ReadsAnUntaggedFrame) {
  std::vector<std::byte> frame = ethernet({0x08, 0x00, 0x45, 0x99});
  const auto eth = EthView::parse(frame);
  ASSERT_TRUE(eth);
  EXPECT_EQ(eth->type(), EtherType::ipv4);
  EXPECT_EQ(eth->tags(), 0U);
  EXPECT_EQ(eth->payload().size(), 2U);
  EXPECT_EQ(eth->payload().data(), frame.data() + 14);
  EXPECT_EQ(eth->destination(), (MacAddress{{1, 2, 3, 4, 5, 6}}));
  EXPECT_EQ(eth->source(), (MacAddress{{11, 12, 13, 14, 15, 16}}));
}

TEST(EthView, SkipsOneTagAndTwo) {
  std::vector<std::byte> one = ethernet({0x81, 0x00, 0xa0, 0x64, 0x86, 0xdd, 0x60});
  const auto vlan = EthView::parse(one);
  ASSERT_TRUE(vlan);
  EXPECT_EQ(vlan->type(), EtherType::ipv6);
  EXPECT_EQ(vlan->tags(), 1U);
  EXPECT_EQ(vlan->vlan(0), 100U);
  EXPECT_EQ(vlan->payload().size(), 1U);

  std::vector<std::byte> two =
      ethernet({0x88, 0xa8, 0x00, 0x0a, 0x81, 0x00, 0x00, 0x14, 0x08, 0x06});
  const auto qinq = EthView::parse(two);
  ASSERT_TRUE(qinq);
  EXPECT_EQ(qinq->type(), EtherType::arp);
  EXPECT_EQ(qinq->tags(), 2U);
  EXPECT_EQ(qinq->vlan(0), 10U);
  EXPECT_EQ(qinq->vlan(1), 20U);
  EXPECT_TRUE(qinq->payload().empty());
}

TEST(EthView, RefusesFramesThatEndWithinAHeaderOrTag) {
  const std::vector<std::byte> frame =
      ethernet({0x88, 0xa8, 0x00, 0x0a, 0x81, 0x00, 0x00, 0x14, 0x08, 0x06});
  for (std::size_t size = 0; size <= frame.size(); ++size) {
    std::vector<std::byte> cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(EthView::parse(cut).has_value(), size == frame.size()) << size;
  }
}

TEST(EthView, RefusesTagsWithoutEnd) {
  std::vector<std::byte> frame = ethernet({});
  for (unsigned tags = 0; tags < 20; ++tags) {
    std::vector<std::byte> whole = frame;
    const std::vector<std::byte> type = bytes_of({0x08, 0x00});
    whole.insert(whole.end(), type.begin(), type.end());
    EXPECT_EQ(EthView::parse(whole).has_value(), tags <= EthView::kMostTags) << tags;
    const std::vector<std::byte> tag = bytes_of({0x81, 0x00, 0, 1});
    frame.insert(frame.end(), tag.begin(), tag.end());
  }
}

TEST(EthView, WritesAddressesAndNothingElse) {
  std::vector<std::byte> frame = ethernet({0x08, 0x00, 0x45});
  const auto eth = EthView::parse(frame);
  eth->set_destination({{21, 22, 23, 24, 25, 26}});
  eth->set_source({{31, 32, 33, 34, 35, 36}});
  EXPECT_EQ(frame, bytes_of({21, 22, 23, 24, 25, 26, 31, 32, 33, 34, 35, 36, 0x08, 0x00, 0x45}));
}

TEST(Ipv4View, TakesOneHopOffForEveryTimeToLive) {
  for (int ttl = 1; ttl < 256; ++ttl) {
    std::vector<std::byte> header = ipv4_example();
    header[8] = static_cast<std::byte>(ttl);
    store_be16(&header[10], 0);
    store_be16(&header[10], checksum(header));
    const std::vector<std::byte> before = header;
    const auto ip = Ipv4View::parse(header);
    ASSERT_TRUE(ip);
    EXPECT_TRUE(ip->checksum_right());
    ip->decrement_ttl();
    EXPECT_EQ(ip->ttl(), ttl - 1);
    EXPECT_TRUE(ip->checksum_right());
    std::vector<std::byte> rest = header;
    std::copy_n(before.begin() + 8, 1, rest.begin() + 8);
    std::copy_n(before.begin() + 10, 2, rest.begin() + 10);
    EXPECT_EQ(rest, before);
  }
}

TEST(Ipv4View, KeepsAWrongChecksumWrong) {
  std::vector<std::byte> header = ipv4_example();
  store_be16(&header[10], 0x1234);
  Ipv4View::parse(header)->decrement_ttl();
  EXPECT_FALSE(Ipv4View::parse(header)->checksum_right());
}

TEST(Ipv4View, RefusesWhatIsNoWholeHeader) {
  const std::vector<std::byte> header = ipv4_example();
  for (std::size_t size = 0; size < header.size(); ++size) {
    std::vector<std::byte> cut(header.begin(), header.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(Ipv4View::parse(cut)) << size;
  }
  for (int first = 0; first < 256; ++first) {
    std::vector<std::byte> other = header;
    other[0] = static_cast<std::byte>(first);
    EXPECT_EQ(Ipv4View::parse(other).has_value(), first == 0x45) << first;
    other.resize(60);  // room for the options that a length above 5 announces
    EXPECT_EQ(Ipv4View::parse(other).has_value(), first >= 0x45 && first <= 0x4f) << first;
  }
}

TEST(Ipv6View, TakesOneHopOffAndRefusesWhatIsNoWholeHeader) {
  std::vector<std::byte> header(40, std::byte{0});
  header[0] = std::byte{0x60};
  header[7] = std::byte{64};
  const std::vector<std::byte> before = header;
  const auto ip = Ipv6View::parse(header);
  ASSERT_TRUE(ip);
  ip->decrement_hop_limit();
  EXPECT_EQ(ip->hop_limit(), 63);
  header[7] = std::byte{64};
  EXPECT_EQ(header, before);
  EXPECT_FALSE(Ipv6View::parse(std::span(header).first(39)));
  EXPECT_FALSE(Ipv6View::parse({}));
  header[0] = std::byte{0x45};
  EXPECT_FALSE(Ipv6View::parse(header));
}

}  // namespace
}  // namespace weir
