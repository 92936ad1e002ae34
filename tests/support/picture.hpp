// SPDX-License-Identifier: MIT
// support/picture.hpp — draws the frames of a range as text, so that a test shows what it expects.
// Reads descriptors only; nobody may change them meanwhile.
//
//   picture(zone)   "##..#..."   # taken (or on a per-CPU list), . free in the engine, blank: no frame
//   blocks(zone)    "1-01-0##"   head of a free block: its order; - inside of it; head of a taken
//                                block: its order in letters (A = 0, B = 1, ...); = inside of it
#pragma once

#include <string>

#include "weir/percpu/cached_zone.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir::test {

[[nodiscard]] inline std::string blocks(PageIndex first, std::uint64_t frames) {
  std::string text;
  char inside = ' ';
  std::uint64_t left = 0;  // frames of the block that was opened last
  for (std::uint64_t i = 0; i < frames; ++i) {
    const Page* page = page_at(advance(first, i));
    const auto order = static_cast<char>(page->order.load(memory_order_relaxed));
    const FrameState state = page->state.load(memory_order_relaxed);
    const bool taken = state == FrameState::kTaken || state == FrameState::kLive;
    if (state == FrameState::kFree || taken) {
      text += static_cast<char>((taken ? 'A' : order < 10 ? '0' : 'a' - 10) + order);
      inside = taken ? '=' : '-';
      left = frames_in(order_of(page));
    } else {
      text += left != 0 && state == FrameState::kInner ? inside : ' ';
    }
    left -= left != 0 ? 1 : 0;
  }
  return text;
}

[[nodiscard]] inline std::string picture(PageIndex first, std::uint64_t frames) {
  std::string text = blocks(first, frames);
  for (char& c : text) {
    c = c == ' ' ? ' ' : (c >= 'A' && c <= 'Z') || c == '=' ? '#' : '.';
  }
  return text;
}

// The first piece of a zone.
[[nodiscard]] inline std::string picture(const CachedZone& zone) {
  const CachedZone::Piece& piece = zone.pieces().front();
  return picture(piece.first, whole_pages(piece.extent.size).value);
}
[[nodiscard]] inline std::string blocks(const CachedZone& zone) {
  const CachedZone::Piece& piece = zone.pieces().front();
  return blocks(piece.first, whole_pages(piece.extent.size).value);
}

}  // namespace weir::test
