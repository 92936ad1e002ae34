// SPDX-License-Identifier: MIT
// percpu/zone_blocks.hpp — the pageblocks of a zone that are wholly its own, by number, in ascending order of
// each piece of its memory. Calls percpu. A view: the zone must stay open.
#pragma once

#include <algorithm>
#include <cstdint>

#include "weir/base/bits.hpp"
#include "weir/percpu/cached_zone.hpp"

namespace weir {

class ZoneBlocks {
 public:
  explicit ZoneBlocks(const CachedZone& zone) noexcept : zone_(zone) {
    for (const CachedZone::Piece& piece : zone.pieces()) {
      count_ += blocks_in(piece);
    }
  }
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  // The first frame of pageblock i, i < count(), and the piece that it is in. As many steps as there are
  // pieces.
  [[nodiscard]] CachedZone::Pageblock place(std::uint64_t i) const noexcept {
    auto piece = zone_.pieces().begin();
    while (i >= blocks_in(*piece)) {
      i -= blocks_in(*piece++);
    }
    return {{static_cast<std::uint32_t>(begin_of(*piece) + i * kPageblockFrames)}, *piece};
  }
  [[nodiscard]] PageIndex at(std::uint64_t i) const noexcept { return place(i).first; }

 private:
  [[nodiscard]] static std::uint64_t begin_of(const CachedZone::Piece& piece) noexcept {
    return align_up<std::uint64_t>(piece.first.value, kPageblockFrames);
  }
  [[nodiscard]] static std::uint64_t blocks_in(const CachedZone::Piece& piece) noexcept {
    const std::uint64_t end = align_down<std::uint64_t>(
        piece.first.value + whole_pages(piece.extent.size).value, kPageblockFrames);
    return end > begin_of(piece) ? (end - begin_of(piece)) / kPageblockFrames : 0;
  }

  const CachedZone& zone_;
  std::uint64_t count_ = 0;
};

}  // namespace weir
