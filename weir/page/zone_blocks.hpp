// SPDX-License-Identifier: MIT
// page/zone_blocks.hpp — the pageblocks of a zone that are wholly its own, by number, in ascending order of
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
  // The first frame of pageblock i, i < count(). As many steps as there are pieces.
  [[nodiscard]] PageIndex at(std::uint64_t i) const noexcept {
    for (const CachedZone::Piece& piece : zone_.pieces()) {
      const std::uint64_t here = blocks_in(piece);
      if (i < here) {
        return {static_cast<std::uint32_t>(begin_of(piece) + i * kFrames)};
      }
      i -= here;
    }
    return kNoPage;
  }

 private:
  static constexpr std::uint64_t kFrames = 1U << kPageblockOrderValue;

  [[nodiscard]] static std::uint64_t begin_of(const CachedZone::Piece& piece) noexcept {
    return align_up<std::uint64_t>(piece.first.value, kFrames);
  }
  [[nodiscard]] static std::uint64_t blocks_in(const CachedZone::Piece& piece) noexcept {
    const std::uint64_t end = align_down<std::uint64_t>(
        piece.first.value + whole_pages(piece.extent.size).value, kFrames);
    return end > begin_of(piece) ? (end - begin_of(piece)) / kFrames : 0;
  }

  const CachedZone& zone_;
  std::uint64_t count_ = 0;
};

}  // namespace weir
