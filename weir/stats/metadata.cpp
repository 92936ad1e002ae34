// SPDX-License-Identifier: MIT
#include "weir/stats/metadata.hpp"

#include "weir/base/bits.hpp"

namespace weir {
namespace {

// Pages of memory that `each` bytes for each of n things one after the other lie in.
Bytes table_of(std::uint64_t n, std::uint64_t each) noexcept {
  return Bytes{align_up<std::uint64_t>(n * each, kFrameBytes)};
}

}  // namespace

Metadata metadata_of(const PageAllocator& pages) noexcept {
  constexpr std::uint64_t kGranuleEntry = sizeof(std::uint32_t);  // of backing/granule_map.hpp
  const CachedZone& zone = pages.zone();
  Metadata metadata;
  for (const CachedZone::Piece& piece : zone.pieces()) {
    const std::uint64_t frames = whole_pages(piece.extent.size).value;
    const std::uint64_t offset = piece.first.value % kMaxBlockFrames;
    const std::uint64_t chunks = div_round_up<std::uint64_t>(offset + frames, kMaxBlockFrames);
    metadata.descriptors = metadata.descriptors + Bytes{chunks * kMaxBlockFrames * sizeof(Page)};
    metadata.maps = metadata.maps + table_of(chunks, sizeof(std::byte*)) +
                    table_of(chunks * (kMaxBlockFrames >> kPageblockOrderValue), kGranuleEntry);
  }
  metadata.engine = zone.zone().metadata();
  metadata.depot = zone.depot().metadata();
  metadata.lists = zone.lists().touched();
  metadata.zone = Bytes{sizeof(CachedZone)} + zone.pins_metadata();
  return metadata;
}

}  // namespace weir
