// SPDX-License-Identifier: MIT
#include "weir/backing/borrowed_source.hpp"

#include "weir/base/bits.hpp"
#include "weir/base/check.hpp"
#include "weir/base/failpoint.hpp"

namespace weir {

Result<Extent> BorrowedSource::obtain(Bytes size) {
  if (fails(Failpoint::source_obtain)) return {Errc::denied, "obtaining borrowed memory"};
  const std::uint64_t where = reinterpret_cast<std::uintptr_t>(base_);
  if (base_ == nullptr) return {Errc::foreign, "borrowed memory is null"};
  if (size_.value == 0) return {Errc::zero_size, "size of borrowed memory"};
  if (!is_aligned(where, std::uint64_t{kFrameBytes})) {
    return {Errc::misaligned, "base of borrowed memory"};
  }
  if (!is_aligned(size_.value, std::uint64_t{kFrameBytes})) {
    return {Errc::misaligned, "size of borrowed memory"};
  }
  if (add_overflows(where, size_.value)) return {Errc::too_large, "size of borrowed memory"};
  const Result<Bytes> length = rounded_request(size, Bytes{kFrameBytes});
  if (!length) return length.error();
  if (length.value() > size_) return {Errc::too_large, "more than the borrowed memory"};
  // pairs: give_back release
  if (out_.exchange(true, memory_order_acquire)) return {Errc::in_use, "borrowed memory"};
  Extent extent;
  extent.base = base_;
  extent.size = length.value();
  extent.source = SourceKind::borrowed;
  return extent;
}

void BorrowedSource::give_back(const Extent& extent) noexcept {
  WEIR_ASSERT(extent.base == base_ && extent.source == SourceKind::borrowed,
              "an extent goes back to its own source");
  out_.store(false, memory_order_release);  // pairs: obtain acquire
}

Error BorrowedSource::trim(const Extent& extent, Bytes offset, Bytes size) noexcept {
  if (const Error error = check_part(extent, offset, size); error.failed()) return error;
  return {Errc::unsupported, "borrowed memory is its owner's to give back"};
}

}  // namespace weir
