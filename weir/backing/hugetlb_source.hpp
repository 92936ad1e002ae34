// SPDX-License-Identifier: MIT
// backing/hugetlb_source.hpp — extents of explicit huge pages, which the administrator has set
// aside; on request ordinary pages where there are none. Calls os/memory, backing/anon_source.
// Keeps no record of its extents. Thread-safe.
#pragma once

#include "weir/backing/anon_source.hpp"
#include "weir/backing/source.hpp"

namespace weir {

class HugetlbSource final : public Source {
 public:
  // page_size: 2 MiB or 1 GiB. `memory` must outlive the source.
  HugetlbSource(Memory& memory, Bytes page_size, bool fall_back,
                ThpChoice thp = ThpChoice::system) noexcept
      : memory_(memory), ordinary_(memory, thp), page_size_(page_size), fall_back_(fall_back) {}

  // When it falls back: the extent says anonymous and 4 KiB, its note says why, and one line on
  // standard error says so once.
  Result<Extent> obtain(Bytes size) override;
  void give_back(const Extent& extent) noexcept override;
  Error trim(const Extent& extent, Bytes offset, Bytes size) noexcept override;
  [[nodiscard]] SourceKind kind() const noexcept override { return SourceKind::hugetlb; }

 private:
  Memory& memory_;
  AnonSource ordinary_;
  Bytes page_size_;
  bool fall_back_;
};

}  // namespace weir
