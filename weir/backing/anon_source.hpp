// SPDX-License-Identifier: MIT
// backing/anon_source.hpp — extents of ordinary memory, with the wish for or against transparent
// huge pages. Calls os/memory. Keeps no record of its extents. Thread-safe.
#pragma once

#include "weir/backing/source.hpp"
#include "weir/os/memory.hpp"
#include "weir/os/options.hpp"

namespace weir {

class AnonSource final : public Source {
 public:
  // `memory` must outlive the source.
  AnonSource(Memory& memory, ThpChoice thp) noexcept : memory_(memory), thp_(thp) {}

  // A kernel that cannot do what `thp` asks is no failure: the extent's note tells, and so does one
  // line on standard error.
  Result<Extent> obtain(Bytes size) override;
  void give_back(const Extent& extent) noexcept override;
  Error trim(const Extent& extent, Bytes offset, Bytes size) noexcept override;
  [[nodiscard]] SourceKind kind() const noexcept override { return SourceKind::anonymous; }

 private:
  Memory& memory_;
  ThpChoice thp_;
};

}  // namespace weir
