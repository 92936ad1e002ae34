// SPDX-License-Identifier: MIT
// backing/memfd_source.hpp — extents of a memory file, which another process can map when it is
// given the descriptor. Calls os/memory. Each extent owns its file. Thread-safe.
#pragma once

#include "weir/backing/source.hpp"

namespace weir {

class MemfdSource final : public Source {
 public:
  // huge_page: 0 for base pages, or 2 MiB or 1 GiB (thp then has no meaning and is not asked for).
  // `memory` must outlive the source.
  MemfdSource(Memory& memory, ThpChoice thp, Bytes huge_page = Bytes{0}) noexcept
      : memory_(memory), thp_(thp), huge_page_(huge_page) {}

  Result<Extent> obtain(Bytes size) override;
  // Unmaps and closes the file; whoever has mapped it too keeps the memory.
  void give_back(const Extent& extent) noexcept override;
  // Punches a hole: whoever has mapped the file too reads zero there from then on.
  Error trim(const Extent& extent, Bytes offset, Bytes size) noexcept override;
  [[nodiscard]] SourceKind kind() const noexcept override { return SourceKind::memfd; }

 private:
  Memory& memory_;
  ThpChoice thp_;
  Bytes huge_page_;
};

}  // namespace weir
