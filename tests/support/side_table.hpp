// SPDX-License-Identifier: MIT
// support/side_table.hpp — a test's own book of which frames are handed out. Knows nothing of what
// the library thinks: a page that is handed out twice, given back twice, out of range, misaligned or
// of the wrong size is a violation, counted and described once. Any thread.
//
//   uniqueness     took() marks every frame of a block; a frame marked before is a violation
//   conservation   live_frames() is what must be out of the zone when every thread is at rest
//   stamps         stamp() writes a word into both ends of a page, intact() checks it at the free
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "weir/base/types.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir::test {

class SideTable {
 public:
  SideTable(PageIndex first, std::uint64_t frames)
      : first_(first), frames_(frames), marks_(new std::atomic<std::uint8_t>[frames]) {
    for (std::uint64_t i = 0; i < frames; ++i) {
      marks_[i].store(0, std::memory_order_relaxed);
    }
  }

  // A block left the library for its user.
  bool took(PageIndex page, Order order) {
    if (!in_range(page, order)) {
      return violation("handed out a page that is not of the zone", page, order);
    }
    const auto mark = static_cast<std::uint8_t>(order.value + 1);
    for (std::uint32_t i = 0; i < frames_in(order); ++i) {
      // Only the first frame bears the order, so that a wrong start is seen at the free.
      const std::uint8_t wanted = i == 0 ? mark : kInside;
      if (marks_[at(page) + i].exchange(wanted, std::memory_order_relaxed) != 0) {
        return violation("handed out twice", page, order);
      }
    }
    live_.fetch_add(frames_in(order), std::memory_order_relaxed);
    return true;
  }

  // A block is about to go back to the library.
  bool gave(PageIndex page, Order order) {
    if (!in_range(page, order)) {
      return violation("the test gives a page that is not of the zone", page, order);
    }
    const auto mark = static_cast<std::uint8_t>(order.value + 1);
    for (std::uint32_t i = 0; i < frames_in(order); ++i) {
      if (marks_[at(page) + i].exchange(0, std::memory_order_relaxed) !=
          (i == 0 ? mark : kInside)) {
        return violation("given back but not handed out so", page, order);
      }
    }
    live_.fetch_sub(frames_in(order), std::memory_order_relaxed);
    return true;
  }

  [[nodiscard]] std::uint64_t live_frames() const { return live_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool is_live(PageIndex frame) const {
    return frame.value - first_.value < frames_ &&
           marks_[at(frame)].load(std::memory_order_relaxed) != 0;
  }
  [[nodiscard]] std::uint64_t violations() const {
    return violations_.load(std::memory_order_relaxed);
  }
  // What the first violation was; empty when there is none. For the end of a test.
  [[nodiscard]] std::string report() const {
    const std::lock_guard guard(mutex_);
    return report_;
  }

  static void stamp(PageIndex page, Order order, std::uint64_t value) {
    std::memcpy(address_of(page), &value, sizeof value);
    std::memcpy(end_of(page, order), &value, sizeof value);
  }
  [[nodiscard]] static bool intact(PageIndex page, Order order, std::uint64_t value) {
    return std::memcmp(address_of(page), &value, sizeof value) == 0 &&
           std::memcmp(end_of(page, order), &value, sizeof value) == 0;
  }

 private:
  static constexpr std::uint8_t kInside = 0xff;

  [[nodiscard]] std::uint64_t at(PageIndex page) const { return page.value - first_.value; }
  [[nodiscard]] bool in_range(PageIndex page, Order order) const {
    const std::uint64_t begin = at(page);
    return begin < frames_ && frames_ - begin >= frames_in(order) &&
           page.value % frames_in(order) == 0;
  }
  static std::byte* end_of(PageIndex page, Order order) {
    return address_of(page) + bytes(order).value - sizeof(std::uint64_t);
  }
  bool violation(const char* what, PageIndex page, Order order) {
    violations_.fetch_add(1, std::memory_order_relaxed);
    const std::lock_guard guard(mutex_);
    if (report_.empty()) {
      report_ = std::string(what) + ": page " + std::to_string(page.value) + " order " +
                std::to_string(order.value);
    }
    return false;
  }

  PageIndex first_;
  std::uint64_t frames_;
  std::unique_ptr<std::atomic<std::uint8_t>[]> marks_;
  std::atomic<std::uint64_t> live_{0};
  std::atomic<std::uint64_t> violations_{0};
  mutable std::mutex mutex_;  // guards report_
  std::string report_;
};

}  // namespace weir::test
