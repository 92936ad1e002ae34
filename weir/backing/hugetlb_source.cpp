// SPDX-License-Identifier: MIT
#include "weir/backing/hugetlb_source.hpp"

#include "weir/base/failpoint.hpp"
#include "weir/base/report.hpp"

namespace weir {
namespace {

const char* reason(Errc code) noexcept {
  switch (code) {
    case Errc::denied:
      return "not enough free huge pages of this size: ordinary pages instead";
    case Errc::unsupported:
      return "no huge pages of this size in this kernel: ordinary pages instead";
    default:
      return "huge pages could not be mapped: ordinary pages instead";
  }
}

}  // namespace

Result<Extent> HugetlbSource::obtain(Bytes size) {
  if (fails(Failpoint::source_obtain)) return {Errc::denied, "obtaining huge pages"};
  const Result<Bytes> length = rounded_request(size, page_size_);
  if (!length) return length.error();
  const Result<std::byte*> base = memory_.map_huge(length.value(), page_size_);
  if (base) {
    Extent extent;
    extent.base = base.value();
    extent.size = length.value();
    extent.source = SourceKind::hugetlb;
    extent.page_size = page_size_;
    extent.zeroed = true;
    return extent;
  }
  if (!fall_back_) {
    return base.error();
  }
  Result<Extent> extent = ordinary_.obtain(size);
  if (extent) {
    static bool told = false;
    extent->note = reason(base.error().code);
    notice_once(told, extent->note);
  }
  return extent;
}

void HugetlbSource::give_back(const Extent& extent) noexcept {
  memory_.release(extent.base, extent.size);
}

Error HugetlbSource::trim(const Extent& extent, Bytes offset, Bytes size) noexcept {
  if (const Error error = check_part(extent, offset, size); error.failed()) return error;
  return memory_.try_discard(extent.base + offset.value, size);
}

}  // namespace weir
