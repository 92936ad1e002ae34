// SPDX-License-Identifier: MIT
// One table of calls, run over each source, and what is particular to each.
#include "weir/packet/packet_source.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>
#include <vector>

namespace weir {
namespace {

struct OverPool {
  explicit OverPool(PageAllocator& pages) : pool(pages), source(pool) {}
  PagePool pool;
  PoolPacketSource source;
};
struct OverFrags {
  explicit OverFrags(PageAllocator& pages) : frags(pages), source(frags) {}
  FragCache frags;
  FragPacketSource source;
};

// Neither a packet without set_size nor a source without room.
struct NoSetSize {
  std::byte* data();
  std::size_t size();
};
static_assert(PacketLike<Packet> && !PacketLike<NoSetSize> && !PacketLike<int>);

template <class T>
class PacketSourceTest : public testing::Test {
 protected:
  PageAllocator pages{{.capacity = 4_MiB}};
};
using Sources = testing::Types<OverPool, OverFrags>;
TYPED_TEST_SUITE(PacketSourceTest, Sources);

TYPED_TEST(PacketSourceTest, DeliversEmptyPacketsWithTheRoomItPromises) {
  TypeParam over{this->pages};
  std::vector<Packet> packets(200);
  ASSERT_EQ(over.source.alloc_burst(packets), 200U);
  std::set<std::byte*> heads;
  for (Packet& packet : packets) {
    ASSERT_TRUE(packet);
    EXPECT_EQ(packet.size(), 0U);
    EXPECT_GE(packet.headroom(), kPacketHeadroom);
    EXPECT_GE(packet.tailroom(), over.source.room());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(packet.data()) % kCacheLine, 0U);
    heads.insert(packet.data());
    ASSERT_TRUE(packet.set_size(over.source.room()));
    std::memset(packet.data(), 1, packet.size());
  }
  EXPECT_EQ(heads.size(), 200U);
  over.source.free_burst(packets);
  for (const Packet& packet : packets) {
    EXPECT_TRUE(packet.empty());
  }
}

TYPED_TEST(PacketSourceTest, SpreadsHeadsOverTheCacheSets) {
  TypeParam over{this->pages};
  std::vector<Packet> packets(256);
  ASSERT_EQ(over.source.alloc_burst(packets), packets.size());
  std::set<std::uintptr_t> sets;  // of a first-level cache: address bits 6 to 11
  for (const Packet& packet : packets) {
    sets.insert(reinterpret_cast<std::uintptr_t>(packet.data()) / 64 % 64);
  }
  EXPECT_GE(sets.size(), 8U);
}

TYPED_TEST(PacketSourceTest, AnswersWithWhatThereIsAtExhaustionAndRecovers) {
  TypeParam over{this->pages};
  std::vector<Packet> all(40'000);
  const std::size_t n = over.source.alloc_burst(all);
  EXPECT_GT(n, 1000U);
  EXPECT_LT(n, all.size());
  EXPECT_TRUE(all[n].empty());
  EXPECT_EQ(over.source.alloc_burst(std::span(all).subspan(n)), 0U);
  over.source.free_burst(std::span(all).first(n));
  EXPECT_EQ(over.source.alloc_burst(std::span(all).first(1000)), 1000U);
}

TYPED_TEST(PacketSourceTest, DoesNothingForAnEmptyBurst) {
  TypeParam over{this->pages};
  EXPECT_EQ(over.source.alloc_burst({}), 0U);
  over.source.free_burst({});
  EXPECT_EQ(this->pages.zone().census().out(), 0U);
}

TYPED_TEST(PacketSourceTest, TakesPacketsBackFromAnotherThreadWhileItAllocates) {
  {
    TypeParam over{this->pages};
    std::vector<Packet> mine(64);
    std::thread freer;
    for (int round = 0; round < 300; ++round) {
      ASSERT_EQ(over.source.alloc_burst(mine), mine.size());
      std::vector<Packet> theirs(64);
      for (std::size_t i = 0; i < mine.size(); ++i) {
        theirs[i] = std::move(mine[i]);
      }
      if (freer.joinable()) {
        freer.join();
      }
      freer = std::thread{
          [&over, batch = std::move(theirs)]() mutable { over.source.free_burst(batch); }};
    }
    freer.join();
  }
  EXPECT_EQ(this->pages.zone().census().out(), 0U);
  EXPECT_EQ(pool_list({}), 0U);
}

TEST(PoolPacketSource, ColoursTheHeadByThePage) {
  PageAllocator pages{{.capacity = 4_MiB}};
  PagePool pool{pages};
  PoolPacketSource source{pool};
  EXPECT_EQ(source.room(), 3520U);
  std::vector<Packet> packets(64);
  ASSERT_EQ(source.alloc_burst(packets), 64U);
  for (const Packet& packet : packets) {
    EXPECT_EQ(packet.headroom(), 128 + index_of(packet.page()).value % 8 * 64);
    EXPECT_EQ(packet.data(), address_of(packet.page()) + packet.headroom());
    EXPECT_EQ(packet.headroom() + packet.tailroom(), kFrameBytes);
  }
}

TEST(FragPacketSource, ClipsItsRoomToWhatAFragmentHolds) {
  PageAllocator pages{{.capacity = 4_MiB}};
  FragCache frags{pages};
  FragPacketSource source{frags, UINT32_MAX};
  EXPECT_EQ(source.room(), kFragPageBytes - kPacketHeadroom);
  Packet packet;
  EXPECT_EQ(source.alloc_burst(std::span(&packet, 1)), 1U);
  EXPECT_TRUE(packet.set_size(source.room()));
  FragPacketSource small{frags, 100};
  std::vector<Packet> two(2);
  EXPECT_EQ(small.alloc_burst(two), 2U);
  EXPECT_EQ(two[0].tailroom(), 100U);
  EXPECT_EQ(two[0].page(), two[1].page());
}

TEST(FreePackets, TakesAllKindsAtOnce) {
  PageAllocator pages{{.capacity = 4_MiB}};
  {
    PagePool pool{pages};
    FragCache frags{pages};
    std::vector<Packet> packets;
    for (int i = 0; i < 50; ++i) {
      packets.emplace_back(pool.get());
      packets.emplace_back(frags.alloc(500));
      packets.emplace_back(pages.alloc(Order{static_cast<unsigned>(i) % 3}));
      packets.emplace_back();
    }
    free_packets(packets);
    EXPECT_EQ(pool.info().outstanding(), 0U);
    EXPECT_EQ(pages.zone().census().out(), pool.in_flight() + 8);
  }
  EXPECT_EQ(pages.zone().census().out(), 0U);
}

}  // namespace
}  // namespace weir
