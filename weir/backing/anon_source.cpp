// SPDX-License-Identifier: MIT
#include "weir/backing/anon_source.hpp"

#include "weir/base/failpoint.hpp"

namespace weir {

Result<Extent> AnonSource::obtain(Bytes size) {
  if (fails(Failpoint::source_obtain)) return {Errc::denied, "obtaining ordinary memory"};
  const Result<Bytes> length = rounded_request(size, Bytes{kFrameBytes});
  if (!length) return length.error();
  const Result<std::byte*> base = memory_.reserve(length.value(), kExtentAlign);
  if (!base) return base.error();
  if (const Error error = memory_.commit(base.value(), length.value()); error.failed()) {
    memory_.release(base.value(), length.value());
    return error;
  }
  Extent extent;
  extent.base = base.value();
  extent.size = length.value();
  extent.source = SourceKind::anonymous;
  extent.zeroed = true;
  advise_transparent_huge(memory_, thp_, extent);
  return extent;
}

void AnonSource::give_back(const Extent& extent) noexcept {
  memory_.release(extent.base, extent.size);
}

Error AnonSource::trim(const Extent& extent, Bytes offset, Bytes size) noexcept {
  if (const Error error = check_part(extent, offset, size); error.failed()) return error;
  return memory_.try_discard(extent.base + offset.value, size);
}

}  // namespace weir
