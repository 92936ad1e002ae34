// SPDX-License-Identifier: MIT
#include "weir/backing/memfd_source.hpp"

#include <algorithm>

#include "weir/base/failpoint.hpp"

namespace weir {

Result<Extent> MemfdSource::obtain(Bytes size) {
  if (fails(Failpoint::source_obtain)) return {Errc::denied, "obtaining a memory file"};
  const bool huge = huge_page_.value != 0;
  const Bytes page = huge ? huge_page_ : Bytes{kFrameBytes};
  const Result<Bytes> length = rounded_request(size, page);
  if (!length) return length.error();
  const Result<int> fd = memory_.create_file("weir", length.value(), huge_page_);
  if (!fd) return fd.error();
  const Result<std::byte*> base =
      memory_.map_file(fd.value(), length.value(), std::max(kExtentAlign, page));
  if (!base) {
    memory_.close_file(fd.value());
    return base.error();
  }
  Extent extent;
  extent.base = base.value();
  extent.size = length.value();
  extent.source = SourceKind::memfd;
  extent.page_size = page;
  extent.zeroed = true;
  extent.fd = fd.value();
  if (!huge) {
    advise_transparent_huge(memory_, thp_, extent);
    return extent;
  }
  // Huge pages are scarce: a shortage is to show now, not as a SIGBUS in the middle of work.
  if (const Error error = memory_.populate(extent.base, extent.size); error.failed()) {
    give_back(extent);
    return error;
  }
  return extent;
}

void MemfdSource::give_back(const Extent& extent) noexcept {
  memory_.release(extent.base, extent.size);
  memory_.close_file(extent.fd);
}

Error MemfdSource::trim(const Extent& extent, Bytes offset, Bytes size) noexcept {
  if (const Error error = check_part(extent, offset, size); error.failed()) return error;
  return memory_.punch_hole(extent.fd, offset, size);
}

}  // namespace weir
