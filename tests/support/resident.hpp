// SPDX-License-Identifier: MIT
// support/resident.hpp — how much of a range the system really holds in memory, by mincore(2): of private memory
// what this process has, of a file what anybody has.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include "weir/base/config.hpp"
#include "weir/base/types.hpp"

namespace weir::test {

[[nodiscard]] inline Bytes resident_bytes(const std::byte* base, Bytes size) {
  std::vector<unsigned char> pages(size.value / kFrameBytes);
  if (::mincore(const_cast<std::byte*>(base), size.value, pages.data()) != 0) {
    throw std::runtime_error("mincore");
  }
  return Bytes{kFrameBytes} * static_cast<std::uint64_t>(std::count_if(
                                  pages.begin(), pages.end(), [](auto page) { return page & 1; }));
}

}  // namespace weir::test
