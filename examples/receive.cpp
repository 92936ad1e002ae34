// SPDX-License-Identifier: MIT
// examples/receive.cpp — one thread receives, another one finishes: packets go over a ring and their
// pages come home to the pool of the receiving thread.
#include <array>
#include <atomic>
#include <cstdio>
#include <span>
#include <thread>

#include "weir/io/spsc_ring.hpp"
#include "weir/weir.hpp"

using namespace weir::literals;

int main() {
  weir::PageAllocator pages{{.capacity = 64_MiB}};
  weir::PagePool pool{pages, {.ring = 2048}};  // at least what can be under way at once
  weir::PoolPacketSource source{pool};
  weir::SpscRing<weir::Packet> queue{1024};
  std::atomic<bool> done{false};

  std::thread receiver{[&] {  // the first thread that takes from a pool owns it
    for (int left = 100'000; left > 0;) {
      std::array<weir::Packet, 32> burst;
      std::span<weir::Packet> packets = std::span{burst}.first(source.alloc_burst(burst));
      for (weir::Packet& packet : packets) {
        packet.set_size(60);  // a device would have written the frame to packet.data()
      }
      left -= static_cast<int>(queue.push_burst(packets));
    }  // what found no room in the queue is dropped here
    done.store(true, std::memory_order_release);
  }};

  std::array<weir::Packet, 32> burst;
  std::size_t finished = 0;
  for (bool last = false; !last;) {
    last = done.load(std::memory_order_acquire);
    while (const std::size_t n = queue.pop_burst(burst)) {
      source.free_burst(std::span{burst}.first(n));
      finished += n;
    }
  }
  receiver.join();
  std::printf("%zu packets over %llu pages; %llu are still out\n", finished,
              static_cast<unsigned long long>(pool.info().in_flight),
              static_cast<unsigned long long>(pool.info().outstanding()));
}
