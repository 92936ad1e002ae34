// SPDX-License-Identifier: MIT
// zone/watermarks.hpp — min, low, high by the kernel's formulas (mm/page_alloc.c,
// calculate_min_free_kbytes and __setup_per_zone_wmarks), for one zone that is all of memory.
// Pure functions. Calls base only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "weir/base/bits.hpp"
#include "weir/base/types.hpp"

namespace weir {

struct Watermarks {
  PageCount min;
  PageCount low;
  PageCount high;
};

inline constexpr std::uint64_t kWatermarkScaleFactor = 10;  // in 1/10000 of the zone, as Linux

// min_free_kbytes = isqrt(KiB * 16), within 128 KiB and 256 MiB.
[[nodiscard]] constexpr std::uint64_t min_free_kbytes(PageCount managed) noexcept {
  return std::clamp<std::uint64_t>(isqrt((bytes(managed).value >> 10) * 16), 128, 262144);
}

[[nodiscard]] constexpr Watermarks watermarks_of(PageCount managed) noexcept {
  const std::uint64_t min = min_free_kbytes(managed) >> (kFrameShift - 10);
  const std::uint64_t step = std::max(min / 4, managed.value * kWatermarkScaleFactor / 10000);
  return {{min}, {min + step}, {min + 2 * step}};
}
static_assert(watermarks_of(whole_pages(16_MiB)).low == PageCount{160});
static_assert(watermarks_of(whole_pages(16_GiB)).high == PageCount{12484});

}  // namespace weir
