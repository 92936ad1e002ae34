// SPDX-License-Identifier: MIT
// model/reference_buddy.hpp — a buddy allocator that is slow and obvious: one std::set of free blocks
// an order, and a set of the taken ones. Runs beside BuddyEngine in unit tests and fuzzers.
//
// What is determined is compared exactly: which order is split (the smallest that has a block), that
// the lower half is kept, every merge, every refusal. Which of several free blocks of that order
// leaves first is the engine's business (its lists have an order, a set has another): the model is
// told which one it was and says whether it was one of them.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "weir/base/types.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir::test {

class ReferenceBuddy {
 public:
  using Frame = std::uint64_t;

  // Gives the frames one by one: merging alone makes the blocks of a range.
  void adopt(PageIndex first, std::uint64_t frames) {
    begin_ = first.value;
    end_ = begin_ + frames;
    for (Frame frame = begin_; frame < end_; ++frame) {
      insert(frame, 0);
    }
  }

  // The engine answered `page` to a request for this order. False when that is wrong.
  [[nodiscard]] bool took(PageIndex page, Order order) {
    unsigned from = order.value;
    while (from < kOrderCount && free_[from].empty()) {
      ++from;
    }
    if (from == kOrderCount) {
      return page == kNoPage;
    }
    if (page == kNoPage || free_[from].erase(page.value) == 0) {
      return false;
    }
    while (from > order.value) {
      --from;
      free_[from].insert(Frame{page.value} + (Frame{1} << from));
    }
    taken_.emplace(page.value, order.value);
    return true;
  }

  // False when no such block is taken.
  [[nodiscard]] bool gave(PageIndex page, Order order) {
    if (taken_.erase({page.value, order.value}) == 0) {
      return false;
    }
    insert(page.value, order.value);
    return true;
  }

  [[nodiscard]] std::uint64_t free_pages() const {
    std::uint64_t frames = 0;
    for (unsigned order = 0; order < kOrderCount; ++order) {
      frames += free_blocks(Order{order}) << order;
    }
    return frames;
  }
  [[nodiscard]] std::uint64_t free_blocks(Order order) const { return free_[order.value].size(); }
  [[nodiscard]] const std::set<std::pair<Frame, unsigned>>& taken() const { return taken_; }

  // Holds the engine's counts and every descriptor of the range against the sets. Empty when they
  // agree, else what differs first.
  template <class AnyEngine>
  [[nodiscard]] std::string difference(const AnyEngine& engine) const {
    if (engine.free_pages() != free_pages()) {
      return "free pages: engine " + std::to_string(engine.free_pages()) + ", model " +
             std::to_string(free_pages());
    }
    for (unsigned order = 0; order < kOrderCount; ++order) {
      if (engine.free_blocks(Order{order}) != free_[order].size()) {
        return "free blocks of order " + std::to_string(order) + ": engine " +
               std::to_string(engine.free_blocks(Order{order})) + ", model " +
               std::to_string(free_[order].size());
      }
    }
    for (Frame frame = begin_; frame < end_; ++frame) {
      const Page* page = page_at({static_cast<std::uint32_t>(frame)});
      const unsigned order = page->order.load(memory_order_relaxed);
      const FrameState state = page->state.load(memory_order_relaxed);
      const bool is_free = order < kOrderCount && free_[order].contains(frame);
      const bool is_taken = taken_.contains({frame, order});
      const FrameState wanted = is_free    ? FrameState::kFree
                                : is_taken ? FrameState::kTaken
                                           : FrameState::kInner;
      if (state != wanted) {
        return "frame " + std::to_string(frame) + ": engine " + state_name(state) + ", model " +
               state_name(wanted);
      }
    }
    return {};
  }

 private:
  void insert(Frame frame, unsigned order) {
    while (order < kMaxOrderValue) {
      const Frame buddy = frame ^ (Frame{1} << order);
      if (free_[order].erase(buddy) == 0) {
        break;
      }
      frame = frame < buddy ? frame : buddy;
      ++order;
    }
    free_[order].insert(frame);
  }

  Frame begin_ = 0;
  Frame end_ = 0;
  std::array<std::set<Frame>, kOrderCount> free_;
  std::set<std::pair<Frame, unsigned>> taken_;
};

}  // namespace weir::test
