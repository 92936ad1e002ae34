// SPDX-License-Identifier: MIT
// backing/borrowed_source.hpp — one extent of memory that the user brings and keeps. Calls nothing
// of the system: never maps, unmaps, advises or touches it. Thread-safe.
#pragma once

#include "weir/backing/source.hpp"
#include "weir/base/atomic.hpp"

namespace weir {

class BorrowedSource final : public Source {
 public:
  // Any values: obtain() judges them. The memory must stay mapped, readable and writable until
  // give_back().
  BorrowedSource(std::byte* base, Bytes size) noexcept : base_(base), size_(size) {}

  // The first `size` bytes, rounded up to whole frames. misaligned: base or length of the memory is
  // no multiple of the frame; foreign: null; too_large: more than was brought, or the memory would
  // end beyond the address space; in_use: until it has been given back.
  Result<Extent> obtain(Bytes size) override;
  void give_back(const Extent& extent) noexcept override;
  // Unsupported: it is the user's, who alone gives it back.
  Error trim(const Extent& extent, Bytes offset, Bytes size) noexcept override;
  [[nodiscard]] SourceKind kind() const noexcept override { return SourceKind::borrowed; }

 private:
  std::byte* base_;
  Bytes size_;
  Atomic<bool> out_{false};
};

}  // namespace weir
