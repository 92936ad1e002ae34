// SPDX-License-Identifier: MIT
// Requests for frames one after the other: a block, or several, cut to measure.
#include <bit>
#include <cstring>

#include "weir/base/bits.hpp"
#include "weir/page/attempt.hpp"
#include "weir/page/compaction.hpp"
#include "weir/page/release.hpp"

namespace weir::attempt {
namespace {

// The part of a block that was kept: as live as its head, and of the reserve as well if that is.
void keep(Page* part, std::uint32_t flags) noexcept {
  if constexpr (kCheckedDrops) {
    mark_live(part);
  }
  if (flags != 0) {
    part->word.fetch_or(flags, memory_order_relaxed);
  }
}

// Of a block that this thread has: the first n frames stay, the others are given back.
void cut(CachedZone& zone, PageIndex block, Order order, std::uint64_t n) noexcept {
  const std::uint32_t flags = page_at(block)->word.load(memory_order_relaxed) & kReserveFlag;
  while (n < frames_in(order)) {
    zone.zone().split(block, order);
    order = Order{order.value - 1};
    const PageIndex upper = advance(block, frames_in(order));
    if (n <= frames_in(order)) {
      zone.free_to_engine(upper, order);
    } else {
      keep(page_at(upper), flags);
      block = upper;
      n -= frames_in(order);
    }
  }
}

}  // namespace

PageRun run(CachedZone& zone, std::uint64_t frames, AllocFlags flags) noexcept {
  const Order order{static_cast<unsigned>(std::bit_width(frames - 1))};
  Page* const block = page(zone, order, flags);
  if (block == nullptr) {
    return {};
  }
  cut(zone, index_of(block), order, frames);
  return PageRun{block, {frames}};
}

PageRun long_run(CachedZone& zone, std::uint64_t frames, AllocFlags flags) noexcept {
  const std::uint64_t blocks = div_round_up<std::uint64_t>(frames, kPageblockFrames);
  const PageIndex first = compaction::take_range(zone, frames);
  if (first == kNoPage) {
    zone.zone().note_refused(frames, false, nullptr);
    return {};
  }
  for (std::uint64_t i = 0; i < blocks; ++i) {
    keep(page_at(advance(first, static_cast<std::uint32_t>(i * kPageblockFrames))), 0);
  }
  const std::uint64_t last = (blocks - 1) * kPageblockFrames;
  cut(zone, advance(first, static_cast<std::uint32_t>(last)), kPageblockOrder, frames - last);
  if (has(flags, AllocFlags::zero)) {
    std::memset(address_of(first), 0, bytes(PageCount{frames}).value);
  }
  return PageRun{page_at(first), {frames}};
}

}  // namespace weir::attempt
