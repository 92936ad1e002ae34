// SPDX-License-Identifier: MIT
// examples/receive.cpp — a receive queue: packets from a pool, finished in another thread.
#include <array>
#include <cstdio>
#include <span>
#include <thread>

#include "weir/weir.hpp"

using namespace weir::literals;

int main() {
  weir::PageAllocator pages{{.capacity = 64_MiB}};
  weir::PagePool pool{pages, {.ring = 1024}};  // one per receive queue
  weir::PoolPacketSource source{pool};

  for (int round = 0; round < 1000; ++round) {
    std::array<weir::Packet, 32> burst;
    const std::size_t n = source.alloc_burst(burst);
    for (weir::Packet& packet : std::span{burst}.first(n)) {
      static_cast<void>(packet.set_size(60));  // a device would write the frame to packet.data()
    }
    if (round % 100 == 0) {
      // Packets go home to their pool from any thread.
      std::thread{[&source, &burst, n] { source.free_burst(std::span{burst}.first(n)); }}.join();
    }  // else dropped here, at the end of their life
  }
  const weir::PoolInfo info = pool.info();
  std::printf("%llu pages served 32000 packets; all are home: %s\n",
              static_cast<unsigned long long>(info.in_flight),
              info.outstanding() == 0 ? "yes" : "no");
}
