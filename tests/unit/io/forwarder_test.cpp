// SPDX-License-Identifier: MIT
// The forwarder: every packet is sent once or dropped with a cause; a recorded capture goes through
// frame by frame; a foreign packet type goes through as weir's own does.
#include "weir/io/forwarder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "tests/unit/io/frames.hpp"
#include "weir/io/memory_port.hpp"
#include "weir/io/null_port.hpp"
#include "weir/io/pcap_port.hpp"

namespace weir {
namespace {

using Frame = std::vector<std::byte>;
using Source = PoolPacketSource;
constexpr const char* kCapture = "data/mix.pcap";
const NextHop kHop{.source = {{0xa, 1, 2, 3, 4, 5}}, .destination = {{0xb, 1, 2, 3, 4, 5}}};

Capture capture_of(const std::vector<Frame>& frames) {
  const std::vector<FrameView> views(frames.begin(), frames.end());
  return Capture::of(views);
}

class ForwarderTest : public testing::Test {
 protected:
  std::uint64_t outstanding() { return pool.info().outstanding(); }

  PageAllocator pages{{.capacity = 16_MiB}};
  PagePool pool{pages};
  Source source{pool};
};

TEST_F(ForwarderTest, SendsRewrittenPacketsAndDropsTheOthersByCause) {
  const Capture capture = capture_of(
      {test::ipv4_frame(1), test::ipv4_frame(64), Frame(5, std::byte{0}), test::ipv6_frame(0),
       test::arp_frame(), test::ipv6_frame(7), Frame(4000, std::byte{1}), Frame(13, std::byte{0})});
  PcapPort<Source> rx{source, &capture, Replay::once};
  MemoryPort<Source> tx{source};
  Forwarder forwarder{rx, tx, {.hop = kHop}};
  EXPECT_EQ(forwarder.poll_once(), 7U);
  EXPECT_EQ(forwarder.poll_once(), 0U);
  EXPECT_TRUE(forwarder.done());
  EXPECT_EQ(forwarder.counters().drop_ttl.get(), 2U);
  EXPECT_EQ(forwarder.counters().drop_malformed.get(), 2U);
  EXPECT_EQ(forwarder.counters().drop_tx_full.get(), 0U);
  EXPECT_EQ(rx.counters().received.get(), 7U);
  EXPECT_EQ(rx.counters().drop_too_long.get(), 1U);
  EXPECT_EQ(outstanding(), 3U);
  std::array<Packet, 8> sent;
  ASSERT_EQ(tx.collect(sent), 3U);
  EXPECT_EQ(sent[0].size(), test::ipv4_frame(64).size());
  EXPECT_EQ(sent[1].size(), test::arp_frame().size());
  EXPECT_EQ(sent[2].size(), test::ipv6_frame(7).size());
}

TEST_F(ForwarderTest, WaitsWhenTheSendRingIsFullAndReceivesNothingMeanwhile) {
  const Capture capture = capture_of(std::vector<Frame>(100, test::ipv4_frame(64)));
  PcapPort<Source> rx{source, &capture, Replay::once};
  MemoryPort<Source> tx{source, {.tx_ring = 16}};
  Forwarder forwarder{rx, tx, {.hop = kHop}};
  EXPECT_EQ(forwarder.poll_once(), kBurstPackets);
  EXPECT_EQ(forwarder.waiting(), 16U);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(forwarder.poll_once(), 0U);
  }
  EXPECT_EQ(rx.counters().received.get(), kBurstPackets);
  EXPECT_EQ(forwarder.counters().tx_waits.get(), 1U);
  std::size_t reaped = 0;
  while (!forwarder.done()) {
    reaped += tx.reap();
    static_cast<void>(forwarder.poll_once());
  }
  while (const std::size_t n = tx.reap()) {
    reaped += n;
  }
  EXPECT_EQ(reaped, 100U);
  EXPECT_EQ(forwarder.counters().drop_tx_full.get(), 0U);
}

TEST_F(ForwarderTest, DropsWhatTheSendRingRefusesWhenTold) {
  const Capture capture = capture_of(std::vector<Frame>(100, test::ipv4_frame(64)));
  PcapPort<Source> rx{source, &capture, Replay::once};
  MemoryPort<Source> tx{source, {.tx_ring = 16}};
  Forwarder forwarder{rx, tx, {.hop = kHop, .when_full = WhenFull::drop}};
  const Atomic<bool> stop{false};
  forwarder.run(stop);
  EXPECT_EQ(rx.counters().received.get(), 100U);
  EXPECT_EQ(tx.counters().transmitted.get(), 16U);
  EXPECT_EQ(forwarder.counters().drop_tx_full.get(), 84U);
  EXPECT_EQ(outstanding(), 16U);
}

TEST_F(ForwarderTest, StopsWhenToldAlsoWithAFullSendRing) {
  const Capture capture = capture_of({test::ipv4_frame(64)});
  PcapPort<Source> rx{source, &capture, Replay::loop};
  MemoryPort<Source> tx{source, {.tx_ring = 16}};
  Forwarder forwarder{rx, tx, {.hop = kHop}};
  Atomic<bool> stop{false};
  std::thread runner{[&] {
    pool.adopt_owner();
    forwarder.run(stop);
    pool.release_owner();
  }};
  while (tx.in_tx_ring() != tx.tx_capacity()) {
    std::this_thread::yield();
  }
  stop.store(true);
  runner.join();
  EXPECT_EQ(forwarder.waiting(), 0U);
  EXPECT_EQ(tx.counters().transmitted.get(), 16U);
  EXPECT_EQ(rx.counters().received.get(), 16 + forwarder.counters().drop_tx_full.get());
  EXPECT_EQ(outstanding(), 16U);
}

TEST_F(ForwarderTest, ReapsItselfWhereNobodyElseDoes) {
  const Capture capture = capture_of(std::vector<Frame>(500, test::arp_frame()));
  PcapPort<Source> rx{source, &capture, Replay::once};
  MemoryPort<Source> tx{source, {.tx_ring = 8}};
  Forwarder forwarder{rx, tx, {.hop = kHop, .reap = true}};
  const Atomic<bool> stop{false};
  forwarder.run(stop);
  EXPECT_TRUE(forwarder.done());
  EXPECT_EQ(tx.counters().transmitted.get(), 500U);
}

TEST_F(ForwarderTest, GoesOnWhenBuffersComeBack) {
  PageAllocator tiny{{.capacity = 64_KiB}};  // 16 frames, most of them soon in the send ring
  PagePool tiny_pool{tiny};
  Source tiny_source{tiny_pool};
  const Capture capture = capture_of(std::vector<Frame>(200, test::arp_frame()));
  PcapPort<Source> rx{tiny_source, &capture, Replay::once};
  MemoryPort<Source> tx{tiny_source, {.tx_ring = 64}};
  Forwarder forwarder{rx, tx, {.hop = kHop}};
  std::size_t reaped = 0;
  while (!forwarder.done()) {
    if (forwarder.poll_once() == 0) {
      reaped += tx.reap();
    }
  }
  while (const std::size_t n = tx.reap()) {
    reaped += n;
  }
  EXPECT_EQ(reaped, 200U);
  EXPECT_GT(rx.counters().no_buffer.get(), 0U);
  EXPECT_EQ(tiny_pool.info().outstanding(), 0U);
}

TEST_F(ForwarderTest, FreesPacketsThatStillWaitAtItsEnd) {
  const Capture capture = capture_of(std::vector<Frame>(32, test::arp_frame()));
  PcapPort<Source> rx{source, &capture, Replay::once};
  MemoryPort<Source> tx{source, {.tx_ring = 1}};
  {
    Forwarder forwarder{rx, tx, {.hop = kHop}};
    static_cast<void>(forwarder.poll_once());
    EXPECT_EQ(outstanding(), 32U);
  }
  EXPECT_EQ(outstanding(), 1U);
}

TEST_F(ForwarderTest, RunsReceiveAndCompletionOnTwoThreads) {
  const Capture capture = capture_of({test::ipv4_frame(64), test::arp_frame(), test::ipv4_frame(1),
                                      test::ipv6_frame(64), Frame(3, std::byte{0})});
  constexpr std::uint64_t kRounds = 20'000;
  {
    PcapPort<Source> rx{source, &capture, Replay::loop};
    MemoryPort<Source> tx{source, {.tx_ring = 256}};
    Atomic<bool> sent{false};
    std::uint64_t reaped = 0;
    std::thread completion{[&] { reaped = reap_until(tx, sent); }};
    Forwarder forwarder{rx, tx, {.hop = kHop}};
    while (rx.rounds() < kRounds) {
      if (forwarder.poll_once() == 0) {
        std::this_thread::yield();
      }
    }
    while (forwarder.waiting() != 0) {
      static_cast<void>(forwarder.poll_once());
    }
    sent.store(true, memory_order_release);
    completion.join();
    const std::uint64_t received = rx.counters().received.get();
    EXPECT_EQ(received, reaped + forwarder.counters().drop_ttl.get() +
                            forwarder.counters().drop_malformed.get());
    EXPECT_EQ(reaped, tx.completion_counters().completed.get());
    EXPECT_GE(received, kRounds * 5);
    const PoolInfo info = pool.info();
    EXPECT_EQ(info.outstanding(), 0U);
    // In a steady flow pages circle in the pool: the allocator is asked for what is on the way, not
    // for every packet.
    EXPECT_LT(info.counters.from_allocator, received / 20);
  }
}

// ---- a recorded capture --------------------------------------------------------------------------

// What one hop makes of a frame, written down a second time: byte by byte, with the checksum
// computed anew. Empty: not forwarded.
Frame one_hop(const Frame& frame) {
  Frame out = frame;
  std::size_t at = 12;
  while (at + 2 <= frame.size() &&
         (load_be16(&frame[at]) == 0x8100 || load_be16(&frame[at]) == 0x88a8)) {
    at += 4;
  }
  const unsigned type = load_be16(&frame[at]);
  const std::size_t ip = at + 2;
  if (type == 0x0800) {
    const auto ttl = std::to_integer<unsigned>(frame[ip + 8]);
    if (ttl <= 1) {
      return {};
    }
    out[ip + 8] = static_cast<std::byte>(ttl - 1);
    store_be16(&out[ip + 10], 0);
    const std::size_t header = std::to_integer<std::size_t>(frame[ip] & std::byte{0xf}) * 4;
    store_be16(&out[ip + 10], checksum(std::span(out).subspan(ip, header)));
  } else if (type == 0x86dd) {
    const auto hops = std::to_integer<unsigned>(frame[ip + 7]);
    if (hops <= 1) {
      return {};
    }
    out[ip + 7] = static_cast<std::byte>(hops - 1);
  }
  std::copy(kHop.destination.bytes.begin(), kHop.destination.bytes.end(),
            reinterpret_cast<std::uint8_t*>(out.data()));
  std::copy(kHop.source.bytes.begin(), kHop.source.bytes.end(),
            reinterpret_cast<std::uint8_t*>(out.data()) + 6);
  return out;
}

class RecordedCapture : public ForwarderTest {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kCapture)) {
      GTEST_SKIP() << kCapture << " is not there";
    }
    Result<Capture> loaded = Capture::load(kCapture);
    ASSERT_TRUE(loaded) << capture_problem(kCapture, loaded.error());
    capture = std::move(loaded).value();
    for (const Capture::Frame frame : capture.frames()) {
      expected.push_back(one_hop(Frame(frame.begin(), frame.end())));
    }
    expired = static_cast<std::size_t>(std::erase(expected, Frame{}));
    ASSERT_GT(expected.size(), 1000U);
  }

  Capture capture = Capture::of({});
  std::vector<Frame> expected;  // of the frames that are forwarded
  std::size_t expired = 0;
};

TEST_F(RecordedCapture, HasTheKindsOfTrafficThatTheForwarderTellsApart) {
  std::map<std::pair<unsigned, EtherType>, std::size_t> kinds;
  for (const Capture::Frame frame : capture.frames()) {
    Frame copy(frame.begin(), frame.end());
    const auto eth = EthView::parse(copy);
    ASSERT_TRUE(eth);
    ++kinds[{eth->tags(), eth->type()}];
    EXPECT_GE(frame.size(), 60U);
    EXPECT_LE(frame.size(), 1518U + 8);
    if (eth->type() == EtherType::ipv4) {
      EXPECT_TRUE(Ipv4View::parse(eth->payload())->checksum_right());
    }
  }
  for (const unsigned tags : {0U, 1U, 2U}) {
    EXPECT_GT((kinds[{tags, EtherType::ipv4}]), 0U);
    EXPECT_GT((kinds[{tags, EtherType::ipv6}]), 0U);
    EXPECT_GT((kinds[{tags, EtherType::arp}]), 0U);
  }
}

TEST_F(RecordedCapture, GoesThroughFrameByFrameIntoMemory) {
  PcapPort<Source> rx{source, &capture, Replay::once};
  MemoryPort<Source> tx{source, {.tx_ring = 64}};
  Forwarder forwarder{rx, tx, {.hop = kHop}};
  std::size_t next = 0;
  std::array<Packet, 16> sent;
  while (!forwarder.done() || tx.in_tx_ring() != 0) {
    static_cast<void>(forwarder.poll_once());
    const std::size_t n = tx.collect(sent);
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_LT(next, expected.size());
      ASSERT_TRUE(std::ranges::equal(std::span(sent[i].data(), sent[i].size()), expected[next]))
          << "frame " << next;
      ++next;
    }
    source.free_burst(std::span(sent).first(n));
  }
  EXPECT_EQ(next, expected.size());
  EXPECT_EQ(forwarder.counters().drop_ttl.get(), expired);
  EXPECT_EQ(forwarder.counters().drop_malformed.get(), 0U);
  EXPECT_EQ(outstanding(), 0U);
}

TEST_F(RecordedCapture, GoesThroughIntoAFileOnFragments) {
  FragCache frags{pages};
  FragPacketSource fragments{frags};
  const test::TemporaryFile file;
  {
    Result<CaptureWriter> writer = CaptureWriter::create(file.path());
    ASSERT_TRUE(writer);
    PcapPort<FragPacketSource> rx{fragments, &capture, Replay::once};
    PcapPort<FragPacketSource> tx{fragments, *writer};
    Forwarder forwarder{rx, tx, {.hop = kHop}};
    const Atomic<bool> stop{false};
    forwarder.run(stop);
    EXPECT_EQ(tx.counters().transmitted.get(), expected.size());
    EXPECT_FALSE(writer->close().failed());
  }
  const Result<Capture> written = Capture::load(file.path());
  ASSERT_TRUE(written);
  ASSERT_EQ(written.value().size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_TRUE(std::ranges::equal(written.value().frame(i), expected[i])) << "frame " << i;
  }
}

// ---- packets of somebody else --------------------------------------------------------------------

// A packet as a plain value over malloc, as a program without weir would have it.
struct PlainPacket {
  std::byte* bytes = nullptr;
  std::uint32_t length = 0;

  [[nodiscard]] std::byte* data() const { return bytes; }
  [[nodiscard]] std::uint32_t size() const { return length; }
  void set_size(std::uint32_t n) { length = n; }
};

class MallocSource {
 public:
  using Packet = PlainPacket;
  std::size_t alloc_burst(std::span<Packet> slots) {
    for (Packet& packet : slots) {
      packet = {static_cast<std::byte*>(std::malloc(room())), 0};
      ++live_;
    }
    return slots.size();
  }
  void free_burst(std::span<Packet> packets) {
    for (Packet& packet : packets) {
      std::free(packet.bytes);
      packet = {};
      --live_;
    }
  }
  [[nodiscard]] std::uint32_t room() const { return 2048; }
  [[nodiscard]] long live() const { return live_.load(); }

 private:
  std::atomic<long> live_{0};
};
static_assert(PacketSource<MallocSource>);
static_assert(Port<MemoryPort<MallocSource>>);

TEST(ForwarderOverMalloc, MovesPlainPacketsWithoutLosingOrFreeingOneTwice) {
  MallocSource source;
  {
    const Capture capture =
        capture_of({test::ipv4_frame(1), test::ipv4_frame(64), test::arp_frame(),
                    Frame(2049, std::byte{0}), Frame(1, std::byte{0}), test::ipv6_frame(3)});
    PcapPort<MallocSource> rx{source, &capture, Replay::loop};
    MemoryPort<MallocSource> tx{source, {.tx_ring = 64}};
    Atomic<bool> sent{false};
    std::uint64_t reaped = 0;
    std::thread completion{[&] { reaped = reap_until(tx, sent); }};
    {
      Forwarder forwarder{rx, tx, {.hop = kHop}};
      while (rx.rounds() < 5000) {
        if (forwarder.poll_once() == 0) {
          std::this_thread::yield();
        }
      }
    }
    sent.store(true, memory_order_release);
    completion.join();
    EXPECT_GE(reaped, 3U * 4000);
  }
  EXPECT_EQ(source.live(), 0);
}

}  // namespace
}  // namespace weir
