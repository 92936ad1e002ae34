// SPDX-License-Identifier: MIT
// backing/source.hpp — the interface of everything memory can come from, and what all sources share.
// Calls backing/extent, os/memory, os/options.
#pragma once

#include "weir/backing/extent.hpp"
#include "weir/base/config.hpp"
#include "weir/base/result.hpp"
#include "weir/os/memory.hpp"
#include "weir/os/options.hpp"

namespace weir {

class Source {
 public:
  virtual ~Source() = default;

  // One extent of at least `size` (rounded up to the mapping's page size), its base aligned to the
  // largest page (4 MiB) where the source is free to choose. Errors: zero_size, too_large,
  // misaligned and in_use (borrowed), denied, unsupported, system. Nothing is kept on failure.
  virtual Result<Extent> obtain(Bytes size) = 0;

  // Ends an extent of this source. Borrowed memory is left as it is, mapped and readable.
  virtual void give_back(const Extent& extent) noexcept = 0;

  // Gives the memory of a part of an extent back to the system: it stays the extent's and reads as zero. Whole
  // pages of the mapping. On failure all is as it was: misaligned, unsupported (also memory that is not this
  // source's to give), denied, system.
  virtual Error trim(const Extent& extent, Bytes offset, Bytes size) noexcept = 0;

  [[nodiscard]] virtual SourceKind kind() const noexcept = 0;
};

// For the sources themselves.

// So a block of the largest order may begin at the first frame, and a huge page too.
inline constexpr Bytes kExtentAlign = bytes(kMaxOrder);
// More frames than this have no index.
inline constexpr Bytes kMaxExtent = bytes(PageCount{kMaxFrames});

// `size` rounded up to whole pages of this size; zero_size, too_large.
[[nodiscard]] Result<Bytes> rounded_request(Bytes size, Bytes page) noexcept;
// Whether the part lies within the extent and is whole pages of it; not empty.
[[nodiscard]] Error check_part(const Extent& extent, Bytes offset, Bytes size) noexcept;
// Passes the wish on and writes into the extent what became of it; tells once when it was refused.
void advise_transparent_huge(Memory& memory, ThpChoice thp, Extent& extent);
// Asks for memory of this node, from others when it has none, and writes into the extent what became of it;
// tells once when it was refused. kAnyNode: nothing to do.
void bind_to_node(Memory& memory, NodeId node, Extent& extent);

}  // namespace weir
