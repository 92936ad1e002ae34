// SPDX-License-Identifier: MIT
// stats/snapshot.hpp — the state of an allocator as a plain struct, and as text. Reads its zone and
// lists, not pools, fragment caches or ports; no layer includes it. Taking a snapshot takes each lock briefly; numbers agree with each other
// when every thread is at rest.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "weir/base/counter.hpp"
#include "weir/page/page_allocator.hpp"

namespace weir {

struct Snapshot {
  CachedZone::Census census;  // where the frames are
  ZoneState state;            // how much is free, beside watermarks and limits
  Watermarks watermarks;
  PageCount reserve;
  bool in_shortage = false;
  std::array<std::uint64_t, kOrderCount> free_blocks{};  // in the engine, by order
  std::uint64_t trimmed = 0;  // of the engine's: frames whose memory is with the system
  ZoneCounterValues zone;
  PercpuCounterValues lists;  // summed over CPUs
  std::vector<PercpuCounterValues> by_cpu;
  std::vector<std::uint64_t> cached_by_cpu;  // frames

  // Frames that crossed between zone and lists or users, in either direction.
  [[nodiscard]] std::uint64_t frames_crossing() const noexcept { return zone.taken + zone.given; }
};

[[nodiscard]] Snapshot collect(PageAllocator& pages);

// The growth of event counters between two snapshots of one allocator; peaks and states are the
// later one's.
[[nodiscard]] Snapshot difference(const Snapshot& later, const Snapshot& earlier);

// Lines of "layer.name value unit", one a counter, then the frames.
[[nodiscard]] std::string to_text(const Snapshot& snapshot);

}  // namespace weir
