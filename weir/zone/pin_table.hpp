// SPDX-License-Identifier: MIT
// zone/pin_table.hpp — how many pins touch each pageblock of a zone. Owns one count a pageblock (4 bytes for
// 2 MiB). Calls base only. Never waits; who must not pin meanwhile is its user's business.
//
//   piece of frames 700..2100  |  pageblocks 1..4  |  counts[0..3]      pin of 1000..1100 -> counts[0], counts[1]
#pragma once

#include <cstdint>
#include <vector>

#include "weir/base/atomic.hpp"
#include "weir/base/config.hpp"
#include "weir/base/types.hpp"

namespace weir {

class PinTable {
 public:
  // Not thread-safe: before the zone is known to others. Forgets what was. May throw std::bad_alloc; nothing is
  // kept then.
  void open(std::uint64_t frames, std::size_t pieces) {
    close();
    // A piece of any place within its first pageblock touches two more than it fills.
    std::vector<Atomic<std::uint32_t>> counts(frames / kPageblockFrames + 2 * pieces);
    pieces_.reserve(pieces);
    counts_.swap(counts);
  }
  void add_piece(PageIndex first, std::uint64_t frames) noexcept {
    const std::uint32_t begin = first.value / kPageblockFrames;
    const auto end = static_cast<std::uint32_t>((first.value + frames - 1) / kPageblockFrames + 1);
    const std::size_t at = pieces_.empty() ? 0 : pieces_.back().at + pieces_.back().blocks;
    pieces_.push_back({begin, end - begin, at, first.value, frames});
  }
  void close() noexcept {
    pieces_.clear();
    std::vector<Atomic<std::uint32_t>>{}.swap(counts_);
    live_.store(0, memory_order_relaxed);
  }

  // Any thread. The frames are of one piece.
  void add(PageIndex first, std::uint64_t frames) noexcept {
    live_.fetch_add(1, memory_order_relaxed);
    for_each(first, frames,
             [](Atomic<std::uint32_t>& count) { count.fetch_add(1, memory_order_relaxed); });
  }
  void remove(PageIndex first, std::uint64_t frames) noexcept {
    for_each(first, frames, [](Atomic<std::uint32_t>& count) {
      // pairs: is_pinned acquire: whoever pinned is done with the memory
      count.fetch_sub(1, memory_order_release);
    });
    ended_.fetch_add(1, memory_order_relaxed);
    live_.fetch_sub(1, memory_order_seq_cst);  // pairs: live(), CachedZone::retire
  }
  // Pins that were and are no more.
  [[nodiscard]] std::uint64_t ended() const noexcept { return ended_.load(memory_order_relaxed); }
  // Frames of no piece are not pinned.
  [[nodiscard]] bool is_pinned(PageIndex first, std::uint64_t frames) const noexcept {
    bool pinned = false;
    for_each(first, frames, [&pinned](const Atomic<std::uint32_t>& count) {
      pinned = pinned || count.load(memory_order_acquire) != 0;  // pairs: remove release
    });
    return pinned;
  }
  // Memory of the counts.
  [[nodiscard]] Bytes metadata() const noexcept {
    return Bytes{counts_.size() * sizeof(counts_[0]) + pieces_.size() * sizeof(Piece)};
  }
  [[nodiscard]] std::uint64_t live() const noexcept {
    return live_.load(memory_order_seq_cst);  // pairs: remove()
  }

 private:
  struct Piece {
    std::uint32_t first_block;
    std::uint32_t blocks;
    std::size_t at;  // of its counts
    std::uint32_t first;
    std::uint64_t frames;
  };

  template <class Use>
  void for_each(PageIndex first, std::uint64_t frames, Use use) const noexcept {
    for (const Piece& piece : pieces_) {
      if (first.value - piece.first >= piece.frames) {
        continue;
      }
      const std::uint64_t end = (std::uint64_t{first.value} + frames - 1) / kPageblockFrames + 1;
      for (std::uint64_t block = first.value / kPageblockFrames;
           block < end && block < piece.first_block + piece.blocks; ++block) {
        use(counts_[piece.at + (block - piece.first_block)]);
      }
    }
  }

  std::vector<Piece> pieces_;
  mutable std::vector<Atomic<std::uint32_t>> counts_;
  Atomic<std::uint64_t> ended_{0};
  Atomic<std::uint64_t> live_{0};
};

}  // namespace weir
