// SPDX-License-Identifier: MIT
// stats/metadata.hpp — what weir keeps beside the frames of an allocator, part by part. Reads zone, lists and
// depot; no layer includes it. Memory as it is in use: address space that nobody has touched counts nothing.
//
//   example: 256 MiB are 65536 frames: descriptors 2 MiB (0.781 %), engine, depot, lists and maps some 64 KiB
#pragma once

#include "weir/base/types.hpp"
#include "weir/page/page_allocator.hpp"

namespace weir {

struct Metadata {
  Bytes descriptors;  // 32 bytes for each frame of each 4 MiB that the memory has a part in
  // Bits, counts and index of the bitmap engine; the buddy engine has its lists in descriptors.
  Bytes engine;
  Bytes depot;  // bodies of clusters, 256 bytes each, and their links
  Bytes lists;  // of CPUs that came by
  Bytes maps;   // from addresses to frames
  Bytes zone;   // the rest of the zone's state: counters, and a count of pins a pageblock

  [[nodiscard]] Bytes total() const noexcept {
    return descriptors + engine + depot + lists + maps + zone;
  }
};

// Any thread, no lock.
[[nodiscard]] Metadata metadata_of(const PageAllocator& pages) noexcept;

}  // namespace weir
