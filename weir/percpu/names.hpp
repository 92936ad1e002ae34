// SPDX-License-Identifier: MIT
// percpu/names.hpp — a batch of single frames by index and by address. Calls zone/frame_table.
#pragma once

#include <cstdint>

#include "weir/base/types.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir {

// Between names and addresses of single frames. Whole clusters have a loop of their own, whose length
// the compiler knows: it becomes vector code.
inline void to_pages(const PageIndex* from, Page** to, std::uint32_t n) noexcept {
  Page* const base = frame_table::g_pages;
  if (n == kClusterFrames) {
    for (std::uint32_t i = 0; i < kClusterFrames; ++i) {
      to[i] = base + from[i].value;
    }
    return;
  }
  for (std::uint32_t i = 0; i < n; ++i) {
    to[i] = base + from[i].value;
  }
}

inline void to_indexes(Page* const* from, PageIndex* to, std::uint32_t n) noexcept {
  const auto base = reinterpret_cast<std::uintptr_t>(frame_table::g_pages);
  const auto index = [base](const Page* page) {
    const std::uintptr_t bytes = reinterpret_cast<std::uintptr_t>(page) - base;
    return PageIndex{static_cast<std::uint32_t>(bytes / sizeof(Page))};
  };
  if (n == kClusterFrames) {
    for (std::uint32_t i = 0; i < kClusterFrames; ++i) {
      to[i] = index(from[i]);
    }
    return;
  }
  for (std::uint32_t i = 0; i < n; ++i) {
    to[i] = index(from[i]);
  }
}

}  // namespace weir
