// SPDX-License-Identifier: MIT
// packet/packet_source.hpp — where packets come from and go to: the concepts that ports and the
// forwarder are written against, and weir's own two sources. Calls pool, frag, packet/packet.
// Others bring their own packet type and source; nothing here is virtual.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "weir/base/config.hpp"
#include "weir/base/hot.hpp"
#include "weir/frag/frag_cache.hpp"
#include "weir/packet/packet.hpp"
#include "weir/pool/page_pool.hpp"

namespace weir {

// A buffer with bytes in it. A default-made one is empty; moving one out of a place leaves nothing
// there that would have to be freed.
template <class P>
concept PacketLike = std::default_initializable<P> && std::movable<P> && requires(P packet) {
  { packet.data() } -> std::convertible_to<std::byte*>;
  { packet.size() } -> std::convertible_to<std::size_t>;
  packet.set_size(std::uint32_t{});
};

// alloc_burst  puts fresh packets of size 0 into empty slots, from the first on; returns how many.
//              Called by one thread at a time.
// free_burst   takes back packets that are not empty and leaves empty ones. Any thread, also while
//              another allocates.
// room         bytes that fit into every fresh packet.
template <class S>
concept PacketSource = PacketLike<typename S::Packet> &&
    requires(S source, std::span<typename S::Packet> slots) {
  { source.alloc_burst(slots) } -> std::same_as<std::size_t>;
  { source.free_burst(slots) } -> std::same_as<void>;
  { source.room() } -> std::same_as<std::uint32_t>;
};

// Bytes kept free in front of a fresh packet, for headers to come.
inline constexpr std::uint32_t kPacketHeadroom = 128;
// Page-aligned buffers would put all their first lines into the same few cache sets; a colour moves
// the head by whole lines, depending on the page.
inline constexpr std::uint32_t kPacketColours = 8;
inline constexpr std::uint32_t kPacketColourStep = static_cast<std::uint32_t>(kCacheLine);

// Takes back packets over pages of pools, fragments and pages, mixed as they come. Any thread.
inline void free_packets(std::span<Packet> packets) noexcept {
  Page* pages[kClusterFrames];
  while (!packets.empty()) {
    const std::size_t n = std::min<std::size_t>(packets.size(), kClusterFrames);
    for (std::size_t i = 0; i < n; ++i) {
      pages[i] = packets[i].detach();
    }
    pool_put_bulk(pages, n);
    packets = packets.subspan(n);
  }
}

// One frame of a pool a packet.
class PoolPacketSource {
 public:
  using Packet = weir::Packet;

  // The pool must outlive the source, not its packets.
  explicit PoolPacketSource(PagePool& pool) noexcept : pool_(pool) {}

  // The pool's owner.
  std::size_t alloc_burst(std::span<Packet> slots) noexcept {
    Page* pages[kClusterFrames];
    std::size_t done = 0;
    while (done < slots.size()) {
      const std::size_t want = std::min<std::size_t>(slots.size() - done, kClusterFrames);
      const std::size_t got = pool_.get_bulk(std::span(pages, want));
      for (std::size_t i = 0; i < got; ++i) {
        const std::uint32_t colour =
            (index_of(pages[i]).value % kPacketColours) * kPacketColourStep;
        slots[done + i].adopt(pages[i], address_of(pages[i]),
                              static_cast<std::uint32_t>(kFrameBytes), kPacketHeadroom + colour);
      }
      done += got;
      if (got < want) {
        break;
      }
    }
    return done;
  }
  void free_burst(std::span<Packet> packets) noexcept { free_packets(packets); }
  [[nodiscard]] std::uint32_t room() const noexcept { return kRoom; }

 private:
  static constexpr std::uint32_t kRoom = static_cast<std::uint32_t>(kFrameBytes) - kPacketHeadroom -
                                         (kPacketColours - 1) * kPacketColourStep;
  static_assert(kRoom == 3520);

  PagePool& pool_;
};

// One fragment a packet, several to a page.
class FragPacketSource {
 public:
  using Packet = weir::Packet;

  // The cache must outlive the source, not its packets. room: clipped to what a fragment can hold.
  explicit FragPacketSource(FragCache& frags, std::uint32_t room = kDefaultRoom) noexcept
      : frags_(frags), room_(std::min(room, kMostRoom)) {}

  // The cache's owner.
  std::size_t alloc_burst(std::span<Packet> slots) noexcept {
    std::size_t done = 0;
    for (; done < slots.size(); ++done) {
      FragRef frag = frags_.alloc(kPacketHeadroom + room_, Align{kCacheLine});
      if (frag.empty()) {
        break;
      }
      std::byte* start = frag.data();
      slots[done].adopt(frag.detach(), start, kPacketHeadroom + room_, kPacketHeadroom);
    }
    return done;
  }
  void free_burst(std::span<Packet> packets) noexcept { free_packets(packets); }
  [[nodiscard]] std::uint32_t room() const noexcept { return room_; }

 private:
  static constexpr std::uint32_t kMostRoom =
      static_cast<std::uint32_t>(kFragPageBytes) - kPacketHeadroom;
  // 16 packets a page, and an odd number of cache lines from head to head, which spreads them over
  // the cache sets as a colour would.
  static constexpr std::uint32_t kDefaultRoom = 31 * kPacketColourStep - kPacketHeadroom;

  FragCache& frags_;
  std::uint32_t room_;
};

static_assert(PacketSource<PoolPacketSource>);
static_assert(PacketSource<FragPacketSource>);
static_assert(!PacketSource<PagePool>);

}  // namespace weir
