// SPDX-License-Identifier: MIT
#include "weir/packet/packet.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "weir/frag/frag_cache.hpp"
#include "weir/pool/page_pool.hpp"

namespace weir {
namespace {

std::uint64_t frames_out(PageAllocator& pages) { return pages.zone().census().out(); }

static_assert(!std::is_copy_constructible_v<Packet> && !std::is_copy_assignable_v<Packet>);
static_assert(std::is_nothrow_move_constructible_v<Packet>);
static_assert(std::is_nothrow_move_assignable_v<Packet>);

class PacketTest : public testing::Test {
 protected:
  PageAllocator pages{{.capacity = 4_MiB}};
  PagePool pool{pages};
  FragCache frags{pages};
};

TEST_F(PacketTest, LiesOverAPageAPoolPageOrAFragment) {
  PageRef page = pages.alloc(Order{1});
  std::byte* page_data = page.data();
  const Packet over_page{std::move(page), 100};
  EXPECT_EQ(over_page.data(), page_data + 100);
  EXPECT_EQ(over_page.headroom(), 100U);
  EXPECT_EQ(over_page.tailroom(), 8192U - 100);
  EXPECT_TRUE(page.empty());  // NOLINT(bugprone-use-after-move): what a move leaves is the contract

  PoolRef pooled = pool.get();
  std::byte* pool_data = pooled.data();
  const Packet over_pool{std::move(pooled), 128};
  EXPECT_EQ(over_pool.data(), pool_data + 128);
  EXPECT_EQ(over_pool.tailroom(), 4096U - 128);

  FragRef frag = frags.alloc(1000);
  std::byte* frag_data = frag.data();
  const Packet over_frag{std::move(frag)};
  EXPECT_EQ(over_frag.data(), frag_data);
  EXPECT_EQ(over_frag.headroom(), 0U);
  EXPECT_EQ(over_frag.tailroom(), 1000U);
  EXPECT_EQ(over_frag.size(), 0U);
}

TEST_F(PacketTest, SendsEachKindOfBufferHome) {
  const std::uint64_t before = frames_out(pages);
  { const Packet packet{pages.alloc(Order{2})}; }
  EXPECT_EQ(frames_out(pages), before);
  {
    const Packet packet{pool.get()};
    EXPECT_EQ(pool.info().outstanding(), 1U);
  }
  EXPECT_EQ(pool.info().outstanding(), 0U);
  {
    const Packet packet{frags.alloc(100)};
    frags.drain();
    EXPECT_EQ(ref_count(packet.page()), 1U);
  }
  EXPECT_EQ(frames_out(pages), before + pool.in_flight());
  Packet packet{pool.get()};
  std::thread{[&] { packet.reset(); }}.join();
  EXPECT_EQ(pool.info().outstanding(), 0U);
  EXPECT_EQ(pool.info().ring, 1U);
}

TEST_F(PacketTest, ClipsAHeadroomLargerThanTheBuffer) {
  const Packet packet{frags.alloc(10), 100};
  EXPECT_EQ(packet.headroom(), 10U);
  EXPECT_EQ(packet.tailroom(), 0U);
}

TEST_F(PacketTest, GrowsAndShrinksAtBothEnds) {
  Packet packet{pool.get(), 64};
  std::byte* origin = packet.data();
  std::byte* payload = packet.append(100);
  ASSERT_EQ(payload, origin);
  std::memset(payload, 7, 100);
  ASSERT_EQ(packet.prepend(14), origin - 14);
  EXPECT_EQ(packet.size(), 114U);
  EXPECT_EQ(packet.headroom(), 50U);
  EXPECT_EQ(packet.tailroom(), 4096U - 64 - 100);
  ASSERT_EQ(packet.append(6), origin + 100);
  EXPECT_TRUE(packet.trim_front(14));
  EXPECT_TRUE(packet.trim_back(6));
  EXPECT_EQ(packet.data(), origin);
  EXPECT_EQ(packet.size(), 100U);
  EXPECT_EQ(packet.headroom(), 64U);
  EXPECT_EQ(std::to_integer<int>(packet.data()[99]), 7);
  EXPECT_TRUE(packet.set_size(40));
  EXPECT_EQ(packet.tailroom(), 4096U - 64 - 40);
  EXPECT_TRUE(packet.set_size(4096 - 64));
  EXPECT_EQ(packet.tailroom(), 0U);
  EXPECT_TRUE(packet.trim_back(4096 - 64));
  EXPECT_EQ(packet.size(), 0U);
}

TEST_F(PacketTest, RefusesMoreThanThereIsAndChangesNothing) {
  Packet packet{frags.alloc(100), 20};
  ASSERT_NE(packet.append(30), nullptr);
  constexpr std::size_t kHuge = SIZE_MAX;
  for (const std::size_t n : {std::size_t{81}, kHuge, std::size_t{1} << 32, kHuge - 29}) {
    EXPECT_EQ(packet.prepend(n), nullptr) << n;
    EXPECT_EQ(packet.append(n), nullptr) << n;
    EXPECT_FALSE(packet.trim_front(n)) << n;
    EXPECT_FALSE(packet.trim_back(n)) << n;
    EXPECT_FALSE(packet.set_size(n)) << n;
  }
  EXPECT_EQ(packet.prepend(21), nullptr);
  EXPECT_EQ(packet.append(51), nullptr);
  EXPECT_FALSE(packet.trim_front(31));
  EXPECT_EQ(packet.size(), 30U);
  EXPECT_EQ(packet.headroom(), 20U);
  EXPECT_EQ(packet.tailroom(), 50U);
}

TEST_F(PacketTest, AnEmptyPacketIsHarmless) {
  Packet packet;
  EXPECT_TRUE(packet.empty());
  EXPECT_FALSE(packet);
  EXPECT_EQ(packet.data(), nullptr);
  EXPECT_EQ(packet.prepend(0), nullptr);
  EXPECT_EQ(packet.append(0), nullptr);
  EXPECT_EQ(packet.append(1), nullptr);
  EXPECT_TRUE(packet.trim_front(0));
  EXPECT_FALSE(packet.trim_back(1));
  EXPECT_TRUE(packet.set_size(0));
  EXPECT_FALSE(packet.set_size(1));
  EXPECT_EQ(packet.detach(), nullptr);
  packet.reset();
  EXPECT_TRUE(Packet{PageRef{}}.empty());
  EXPECT_TRUE((Packet{PoolRef{}, 10}.empty()));
  EXPECT_TRUE(Packet{FragRef{}}.empty());
  const Packet moved{std::move(packet)};
  EXPECT_TRUE(moved.empty());
}

TEST_F(PacketTest, MovingPassesTheBufferOnOnce) {
  Packet a{pool.get(), 10};
  ASSERT_TRUE(a.set_size(50));
  std::byte* data = a.data();
  Packet b{std::move(a)};
  EXPECT_TRUE(a.empty());  // NOLINT(bugprone-use-after-move): what a move leaves is the contract
  EXPECT_EQ(a.size() + a.headroom() + a.tailroom(), 0U);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(b.size(), 50U);
  EXPECT_EQ(b.headroom(), 10U);
  Packet& same = b;
  b = std::move(same);
  EXPECT_EQ(b.data(), data);
  Packet c{pool.get()};
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(pool.info().outstanding(), 1U);
}

TEST_F(PacketTest, BytesTrimmedOffAreFreedWithTheBufferAndOnlyThen) {
  std::vector<Packet> packets;
  for (int i = 0; i < 4; ++i) {
    packets.emplace_back(frags.alloc(1000));
    ASSERT_NE(packets.back().append(1000), nullptr);
  }
  frags.drain();
  Page* page = packets[0].page();
  EXPECT_EQ(ref_count(page), 4U);
  EXPECT_TRUE(packets[2].trim_back(1000));
  EXPECT_TRUE(packets[3].trim_front(1000));
  EXPECT_EQ(ref_count(page), 4U);
  const std::uint64_t before = frames_out(pages);
  packets.clear();
  EXPECT_EQ(before - frames_out(pages), 8U);
}

TEST_F(PacketTest, DetachGivesTheReferenceAway) {
  Packet packet{pool.get()};
  Page* page = packet.detach();
  EXPECT_TRUE(packet.empty());
  EXPECT_EQ(pool.info().outstanding(), 1U);
  PagePool::put(page);
  EXPECT_EQ(pool.info().outstanding(), 0U);
}

}  // namespace
}  // namespace weir
