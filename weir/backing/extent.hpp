// SPDX-License-Identifier: MIT
// backing/extent.hpp — a run of memory and where it came from. Calls base only. A plain value;
// the Source that made it takes it back.
#pragma once

#include <cstddef>

#include "weir/base/types.hpp"

namespace weir {

enum class SourceKind : unsigned char { anonymous, hugetlb, memfd, borrowed };

[[nodiscard]] constexpr const char* source_name(SourceKind kind) noexcept {
  switch (kind) {
    case SourceKind::anonymous:
      return "anonymous";
    case SourceKind::hugetlb:
      return "hugetlb";
    case SourceKind::memfd:
      return "memfd";
    case SourceKind::borrowed:
      return "borrowed";
  }
  return "unknown";
}

// What was really obtained, not what was asked for.
struct Extent {
  std::byte* base = nullptr;
  Bytes size;
  SourceKind source = SourceKind::anonymous;
  Bytes page_size{kFrameBytes};   // of the mapping: 4 KiB, 2 MiB or 1 GiB
  bool transparent_huge = false;  // the kernel was asked for transparent huge pages and agreed
  bool zeroed = false;            // reads as zero until first written
  int fd = -1;                    // memfd: the file, owned by the extent
  NodeId node = kAnyNode;         // whose memory the kernel was asked for, and agreed
  const char* node_note = "";     // why it was not; empty when it was, or nobody asked
  const char* note = "";          // why less than asked was obtained; empty when nothing fell short
};

}  // namespace weir
