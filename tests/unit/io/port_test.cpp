// SPDX-License-Identifier: MIT
// One table of calls over every port, and what is particular to each.
#include "weir/io/port.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "tests/unit/io/frames.hpp"
#include "weir/io/memory_port.hpp"
#include "weir/io/null_port.hpp"
#include "weir/io/pcap_port.hpp"

namespace weir {
namespace {

using Source = PoolPacketSource;
using Memory_ = MemoryPort<Source>;

class PortFixture : public testing::Test {
 protected:
  // Packets with these bytes in them.
  std::vector<Packet> packets(std::size_t n, std::size_t size = 60) {
    std::vector<Packet> made(n);
    EXPECT_EQ(source.alloc_burst(made), n);
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_TRUE(made[i].set_size(size));
      std::fill_n(made[i].data(), size, static_cast<std::byte>(i));
    }
    return made;
  }
  std::uint64_t outstanding() { return pool.info().outstanding(); }

  PageAllocator pages{{.capacity = 8_MiB}};
  PagePool pool{pages};
  Source source{pool};
};

std::vector<FrameView> views(const std::vector<std::vector<std::byte>>& frames) {
  return {frames.begin(), frames.end()};
}

// ---- the same for all ----------------------------------------------------------------------------

struct MakeMemory {
  static Memory_ make(Source& source) { return Memory_{source}; }
};
struct MakeNull {
  static NullPort<Source> make(Source& source) { return NullPort<Source>{source}; }
};
struct MakePcap {
  static PcapPort<Source> make(Source& source) {
    return PcapPort<Source>{source, nullptr, Replay::once};
  }
};

template <class Make>
class EveryPort : public PortFixture {};
using Makers = testing::Types<MakeMemory, MakeNull, MakePcap>;
TYPED_TEST_SUITE(EveryPort, Makers);

TYPED_TEST(EveryPort, SendsAndEndsEachPacketOnce) {
  auto port = TypeParam::make(this->source);
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{32}, std::size_t{100}}) {
    std::vector<Packet> mine = this->packets(n);
    EXPECT_EQ(port.tx_burst(mine), n);
    EXPECT_TRUE(std::all_of(mine.begin(), mine.end(), [](Packet& p) { return p.empty(); }));
    std::size_t reaped = 0;
    while (const std::size_t some = port.reap()) {
      reaped += some;
    }
    EXPECT_EQ(reaped, n);
    EXPECT_EQ(this->outstanding(), 0U);
  }
  EXPECT_EQ(port.counters().transmitted.get(), 133U);
}

TYPED_TEST(EveryPort, ReceivesNothingWhenThereIsNothing) {
  auto port = TypeParam::make(this->source);
  std::vector<Packet> slots(8);
  EXPECT_EQ(port.rx_burst(slots), 0U);
  EXPECT_EQ(port.rx_burst({}), 0U);
  EXPECT_EQ(port.reap(), 0U);
  EXPECT_EQ(this->outstanding(), 0U);
  EXPECT_EQ(port.counters().received.get(), 0U);
}

TYPED_TEST(EveryPort, FreesPacketsThatGoNowhere) {
  auto port = TypeParam::make(this->source);
  std::vector<Packet> mine = this->packets(10);
  port.free_burst(mine);
  EXPECT_EQ(this->outstanding(), 0U);
  EXPECT_EQ(port.counters().transmitted.get(), 0U);
}

// ---- the memory port -----------------------------------------------------------------------------

using MemoryPortTest = PortFixture;

TEST_F(MemoryPortTest, ReceivesEachFrameAsAPacketOfItsOwn) {
  Memory_ port{source};
  const std::vector<std::vector<std::byte>> frames{test::ipv4_frame(64), test::arp_frame(), {}};
  std::vector<FrameView> in = views(frames);
  EXPECT_EQ(port.inject(in), 3U);
  std::vector<Packet> slots(8);
  ASSERT_EQ(port.rx_burst(slots), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(std::equal(frames[i].begin(), frames[i].end(), slots[i].data(),
                           slots[i].data() + slots[i].size()));
    EXPECT_GE(slots[i].headroom(), kPacketHeadroom);
  }
  EXPECT_TRUE(slots[3].empty());
  EXPECT_EQ(port.counters().received.get(), 3U);
  EXPECT_EQ(port.counters().received_bytes.get(), frames[0].size() + frames[1].size());
}

TEST_F(MemoryPortTest, ReceivesNoMoreThanABurst) {
  Memory_ port{source, {.rx_ring = 100}};
  EXPECT_EQ(port.rx_capacity(), 128U);
  const std::vector<std::byte> frame = test::arp_frame();
  std::vector<FrameView> in(200, FrameView{frame});
  EXPECT_EQ(port.inject(in), 128U);
  std::vector<Packet> slots(100);
  EXPECT_EQ(port.rx_burst(slots), kBurstPackets);
  EXPECT_EQ(port.rx_burst(std::span(slots).subspan(32, 5)), 5U);
}

TEST_F(MemoryPortTest, AcceptsWhatFitsAndLeavesTheRestToTheCaller) {
  Memory_ port{source, {.tx_ring = 4}};
  std::vector<Packet> mine = packets(8);
  EXPECT_EQ(port.tx_burst(mine), 4U);
  EXPECT_EQ(port.tx_burst(std::span(mine).subspan(4)), 0U);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(mine[i].empty(), i < 4) << i;
  }
  EXPECT_EQ(outstanding(), 8U);
  port.free_burst(std::span(mine).subspan(4));
  EXPECT_EQ(outstanding(), 4U);
  EXPECT_EQ(port.reap(), 4U);
  EXPECT_EQ(outstanding(), 0U);
  EXPECT_EQ(port.counters().transmitted.get(), 4U);
  EXPECT_EQ(port.completion_counters().completed.get(), 4U);
}

TEST_F(MemoryPortTest, GivesSentPacketsToAPeerThatCollectsThem) {
  Memory_ port{source};
  std::vector<Packet> mine = packets(5);
  ASSERT_EQ(port.tx_burst(mine), 5U);
  std::vector<Packet> theirs(3);
  EXPECT_EQ(port.collect(theirs), 3U);
  EXPECT_EQ(std::to_integer<int>(theirs[2].data()[59]), 2);
  EXPECT_EQ(port.in_tx_ring(), 2U);
  EXPECT_EQ(port.reap(), 2U);
  theirs.clear();
  EXPECT_EQ(outstanding(), 0U);
}

TEST_F(MemoryPortTest, FreesWhatIsStillInItsRingsAtItsEnd) {
  {
    Memory_ port{source};
    std::vector<Packet> mine = packets(200);
    ASSERT_EQ(port.tx_burst(mine), 200U);
  }
  EXPECT_EQ(outstanding(), 0U);
}

TEST_F(MemoryPortTest, AFrameWithoutABufferWaitsInTheRing) {
  PageAllocator tiny{{.capacity = 256_KiB}};
  PagePool tiny_pool{tiny};
  Source tiny_source{tiny_pool};
  Memory_ port{tiny_source, {.rx_ring = 128}};
  const std::vector<std::byte> frame = test::arp_frame();
  std::vector<FrameView> in(100, FrameView{frame});
  ASSERT_EQ(port.inject(in), 100U);
  std::vector<Packet> slots(100);
  std::size_t received = 0;
  while (const std::size_t n = port.rx_burst(std::span(slots).subspan(received))) {
    received += n;
  }
  EXPECT_EQ(received, 64U);
  EXPECT_EQ(port.rx_burst(std::span(slots).subspan(received)), 0U);
  EXPECT_EQ(port.counters().no_buffer.get(), 2U);
  port.free_burst(std::span(slots).first(received));
  while (const std::size_t n = port.rx_burst(std::span(slots).subspan(received))) {
    received += n;
  }
  EXPECT_EQ(received, 100U);
  EXPECT_EQ(port.counters().received.get(), 100U);
}

TEST_F(MemoryPortTest, PassesOverFramesLongerThanABuffer) {
  Memory_ port{source};
  const std::vector<std::byte> longest(source.room(), std::byte{1});
  const std::vector<std::byte> too_long(source.room() + 1, std::byte{2});
  std::vector<FrameView> in{too_long, longest, too_long};
  ASSERT_EQ(port.inject(in), 3U);
  std::vector<Packet> slots(3);
  ASSERT_EQ(port.rx_burst(slots), 1U);
  EXPECT_EQ(slots[0].size(), source.room());
  EXPECT_EQ(port.counters().drop_too_long.get(), 2U);
  EXPECT_EQ(outstanding(), 1U);
  slots[0].reset();
}

TEST_F(MemoryPortTest, ItsThreeSidesRunOnThreeThreads) {
  constexpr std::size_t kFrames = 60'000;
  Memory_ port{source, {.rx_ring = 64, .tx_ring = 64}};
  const std::vector<std::byte> frame = test::ipv4_frame(64);
  std::thread injector{[&] {
    std::vector<FrameView> in(50, FrameView{frame});
    for (std::size_t sent = 0; sent < kFrames;) {
      sent += port.inject(std::span(in).first(std::min(in.size(), kFrames - sent)));
      std::this_thread::yield();
    }
  }};
  std::thread reaper{[&] {
    for (std::size_t reaped = 0; reaped < kFrames;) {
      const std::size_t n = port.reap();
      reaped += n;
      if (n == 0) {
        std::this_thread::yield();
      }
    }
  }};
  std::vector<Packet> slots(kBurstPackets);
  for (std::size_t sent = 0; sent < kFrames;) {
    const std::size_t n = port.rx_burst(slots);
    for (std::size_t done = 0; done < n;) {
      const std::size_t some = port.tx_burst(std::span(slots).subspan(done, n - done));
      done += some;
      if (some == 0) {
        std::this_thread::yield();
      }
    }
    sent += n;
    if (n == 0) {
      std::this_thread::yield();
    }
  }
  injector.join();
  reaper.join();
  EXPECT_EQ(port.completion_counters().completed.get(), kFrames);
  EXPECT_EQ(outstanding(), 0U);
}

// ---- the pcap port -------------------------------------------------------------------------------

class PcapPortTest : public PortFixture {
 protected:
  PcapPortTest() {
    for (int i = 0; i < 10; ++i) {
      frames_.push_back(test::ipv4_frame(10 + i));
    }
    const std::vector<FrameView> in = views(frames_);
    capture = Capture::of(in);
  }

  std::vector<std::vector<std::byte>> frames_;
  Capture capture = Capture::of({});
};

TEST_F(PcapPortTest, ReplaysACaptureOnceAndIsFinished) {
  PcapPort<Source> port{source, &capture, Replay::once};
  std::vector<Packet> slots(7);
  EXPECT_FALSE(port.finished());
  EXPECT_EQ(port.rx_burst(slots), 7U);
  EXPECT_TRUE(std::ranges::equal(std::span(slots[6].data(), slots[6].size()), frames_[6]));
  port.free_burst(slots);
  EXPECT_EQ(port.rx_burst(slots), 3U);
  EXPECT_TRUE(std::ranges::equal(std::span(slots[2].data(), slots[2].size()), frames_[9]));
  EXPECT_TRUE(port.finished());
  EXPECT_EQ(port.rounds(), 1U);
  EXPECT_EQ(port.rx_burst(std::span(slots).subspan(3)), 0U);
  EXPECT_EQ(port.counters().received.get(), 10U);
  EXPECT_EQ(port.counters().received_bytes.get(), capture.bytes());
}

TEST_F(PcapPortTest, ReplaysACaptureInALoop) {
  PcapPort<Source> port{source, &capture, Replay::loop};
  std::vector<Packet> slots(7);
  for (std::size_t burst = 0; burst < 30; ++burst) {
    ASSERT_EQ(port.rx_burst(slots), 7U);
    for (std::size_t i = 0; i < 7; ++i) {
      const auto& frame = frames_[(burst * 7 + i) % 10];
      ASSERT_TRUE(std::ranges::equal(std::span(slots[i].data(), slots[i].size()), frame));
    }
    port.free_burst(slots);
  }
  EXPECT_EQ(port.rounds(), 21U);
  EXPECT_FALSE(port.finished());
}

TEST_F(PcapPortTest, DoesNotConsumeAFrameThatFindsNoBuffer) {
  PageAllocator tiny{{.capacity = 16_KiB}};  // four frames
  PagePool tiny_pool{tiny};
  Source tiny_source{tiny_pool};
  PcapPort<Source> port{tiny_source, &capture, Replay::once};
  std::vector<Packet> slots(10);
  EXPECT_EQ(port.rx_burst(slots), 4U);
  EXPECT_EQ(port.counters().no_buffer.get(), 1U);
  EXPECT_EQ(port.rx_burst(std::span(slots).subspan(4)), 0U);
  EXPECT_EQ(port.counters().no_buffer.get(), 2U);
  EXPECT_FALSE(port.finished());
  port.free_burst(std::span(slots).first(4));
  EXPECT_EQ(port.rx_burst(std::span(slots).first(2)), 2U);
  EXPECT_TRUE(std::ranges::equal(std::span(slots[0].data(), slots[0].size()), frames_[4]));
}

TEST_F(PcapPortTest, PassesOverFramesLongerThanABufferAndComesToAnEnd) {
  const std::vector<std::byte> too_long(source.room() + 1, std::byte{2});
  const std::vector<FrameView> in{too_long, frames_[0], too_long};
  const Capture mixed = Capture::of(in);
  std::vector<Packet> slots(5);
  {
    PcapPort<Source> port{source, &mixed, Replay::once};
    EXPECT_EQ(port.rx_burst(slots), 1U);
    EXPECT_TRUE(port.finished());
    EXPECT_EQ(port.counters().drop_too_long.get(), 2U);
    port.free_burst(std::span(slots).first(1));
  }
  const Capture none = Capture::of(std::span(in).first(1));
  PcapPort<Source> port{source, &none, Replay::loop};
  EXPECT_EQ(port.rx_burst(slots), 0U);
  EXPECT_EQ(port.counters().drop_too_long.get(), 1U);
  EXPECT_EQ(outstanding(), 0U);
}

TEST_F(PcapPortTest, WritesWhatIsSent) {
  const test::TemporaryFile file;
  {
    Result<CaptureWriter> writer = CaptureWriter::create(file.path());
    ASSERT_TRUE(writer);
    PcapPort<Source> port{source, *writer};
    std::vector<Packet> mine = packets(5, 100);
    EXPECT_EQ(port.tx_burst(mine), 5U);
    EXPECT_EQ(outstanding(), 0U);
    EXPECT_EQ(port.reap(), 5U);
    EXPECT_EQ(port.reap(), 0U);
    EXPECT_TRUE(port.finished());
    EXPECT_FALSE(writer->close().failed());
  }
  const Result<Capture> written = Capture::load(file.path());
  ASSERT_TRUE(written);
  ASSERT_EQ(written.value().size(), 5U);
  EXPECT_TRUE(std::ranges::equal(written.value().frame(3), std::vector(100, std::byte{3})));
}

}  // namespace
}  // namespace weir
