// SPDX-License-Identifier: MIT
// What BuddyEngine does with a pageblock that is named: withholds it, takes out of it, looks at it.
#include <algorithm>

#include "weir/base/bits.hpp"
#include "weir/zone/buddy_engine.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir {
namespace {

// Calls look(frame, its state, its order) for the heads of blocks in [from, from + n), each once.
template <class Look>
void for_each_head(PageIndex from, std::uint32_t n, Look look) {
  for (std::uint32_t i = 0; i < n;) {
    const PageIndex at = advance(from, i);
    const FrameState state = page_at(at)->state.load(memory_order_relaxed);
    const bool inside = state == FrameState::kInner || state == FrameState::kAbsent;
    const Order order = inside ? Order{0} : order_of(page_at(at));
    if (!inside) {
      look(at, state, order);
    }
    i += frames_in(order);
  }
}

}  // namespace

bool BuddyEngine::begin_isolation(PageIndex block) noexcept {
  const bool adjoins = block.value == isolated_from_ + isolated_frames_;
  if ((isolates() && !adjoins) || pageblock(block).whole) {
    return false;
  }
  const PageIndex pair{align_down(block.value, kMaxBlockFrames)};
  if (is_free_block(pair, kMaxOrder)) {
    const unsigned trimmed = trimmed_in(pair, kMaxOrder);
    remove(pair, kMaxOrder, touched_taking_);
    insert(pair, kPageblockOrder, false, touched_taking_, trimmed & 1);
    insert(advance(pair, kPageblockFrames), kPageblockOrder, false, touched_taking_, trimmed >> 1);
    ++splits_;
  }
  isolated_from_ = isolates() ? isolated_from_ : block.value;
  isolated_frames_ += kPageblockFrames;
  return true;
}

std::uint32_t BuddyEngine::withhold(PageIndex from) noexcept {
  std::uint32_t frames = 0;
  for_each_head(from, kClusterFrames, [&](PageIndex at, FrameState state, Order order) {
    if (state == FrameState::kFree) {
      remove(at, order, touched_taking_);
      page_at(at)->state.store(FrameState::kIsolated, memory_order_relaxed);
      frames += frames_in(order);
    }
  });
  free_pages_ -= frames;
  return frames;
}

void BuddyEngine::end_isolation(PageIndex block) noexcept {
  if (isolates(block)) {  // the first or the last of them
    isolated_from_ += block.value == isolated_from_ ? kPageblockFrames : 0;
    isolated_frames_ -= kPageblockFrames;
  }
}

std::uint32_t BuddyEngine::release(PageIndex from) noexcept {
  std::uint32_t frames = 0;
  for_each_head(from, kClusterFrames, [&](PageIndex at, FrameState state, Order order) {
    if (state == FrameState::kIsolated) {
      frames += frames_in(order);
      merge_in(at, order);
    }
  });
  free_pages_ += frames;
  return frames;
}

bool BuddyEngine::take_isolated(PageIndex block) noexcept {
  std::uint32_t frames = 0;
  const auto add = [&](PageIndex, FrameState state, Order order) {
    frames += state == FrameState::kIsolated ? frames_in(order) : 0;
  };
  for_each_head(block, kPageblockFrames, add);
  if (!isolates(block) || frames != kPageblockFrames) {
    return false;
  }
  for_each_head(block, kPageblockFrames, [](PageIndex at, FrameState, Order) {
    page_at(at)->state.store(FrameState::kInner, memory_order_relaxed);
  });
  end_isolation(block);
  Page* const head = page_at(block);
  head->order.store(static_cast<std::uint8_t>(kPageblockOrderValue), memory_order_relaxed);
  head->state.store(FrameState::kTaken, memory_order_relaxed);
  head->word.store(word_of_order(kPageblockOrder), memory_order_relaxed);
  return true;
}

// The smallest that serves, so that the larger ones stay.
PageIndex BuddyEngine::take_in(PageIndex block, Order order) noexcept {
  const PageIndex pair{align_down(block.value, kMaxBlockFrames)};
  PageIndex best = kNoPage;
  unsigned best_order = kOrderCount;
  if (is_free_block(pair, kMaxOrder)) {
    best = pair;
    best_order = kMaxOrderValue;
  } else {
    for_each_head(block, kPageblockFrames, [&](PageIndex at, FrameState state, Order has) {
      if (state == FrameState::kFree && has >= order && has.value < best_order) {
        best = at;
        best_order = has.value;
      }
    });
  }
  return best == kNoPage ? kNoPage
                         : cut(best, Order{best_order}, best == pair ? block : best, order);
}

void BuddyEngine::split(PageIndex page, Order order) noexcept {
  split_head(page_at(page), Order{order.value - 1});
}

PageblockView BuddyEngine::pageblock(PageIndex block) const noexcept {
  PageblockView view;
  view.mobility = Mobility::movable;  // nobody keeps them apart
  view.isolated = isolates(block);
  view.trimmed = is_trimmed(block);
  const PageIndex pair{align_down(block.value, kMaxBlockFrames)};
  const FrameState of_pair = page_at(pair)->state.load(memory_order_relaxed);
  if (order_of(page_at(pair)) == kMaxOrder && of_pair != FrameState::kInner &&
      of_pair != FrameState::kAbsent) {
    view.whole = of_pair != FrameState::kFree;
    view.free = view.whole ? 0 : kPageblockFrames;
    return view;
  }
  for_each_head(block, kPageblockFrames, [&](PageIndex, FrameState state, Order order) {
    const bool free = state == FrameState::kFree || state == FrameState::kUnmerged ||
                      state == FrameState::kIsolated;
    view.free += free ? frames_in(order) : 0;
    view.whole = view.whole || (!free && order >= kPageblockOrder);
  });
  return view;
}

}  // namespace weir
