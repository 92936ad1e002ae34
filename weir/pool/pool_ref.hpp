// SPDX-License-Identifier: MIT
// pool/pool_ref.hpp — PoolRef, the move-only owner of one reference on a page of a pool. Dropped in
// any thread, the last reference sends the page home. Calls pool/pool_block.
//
// PoolRef, PageRef and a plain unref() are the same to the page: whichever comes last takes it home.
#pragma once

#include <cstddef>
#include <utility>

#include "weir/base/types.hpp"
#include "weir/page/page_ref.hpp"
#include "weir/pool/pool_block.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir {

class [[nodiscard]] PoolRef {
 public:
  PoolRef() = default;
  // Takes over one reference that the caller holds.
  explicit PoolRef(Page* page) noexcept : page_(page) {}
  PoolRef(PoolRef&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}
  PoolRef& operator=(PoolRef&& other) noexcept {
    if (this != &other) {
      pool_put(std::exchange(page_, std::exchange(other.page_, nullptr)));
    }
    return *this;
  }
  PoolRef(const PoolRef&) = delete;
  PoolRef& operator=(const PoolRef&) = delete;
  ~PoolRef() { pool_put(page_); }

  // True when it owns nothing: the pool found no memory.
  [[nodiscard]] bool empty() const noexcept { return page_ == nullptr; }
  explicit operator bool() const noexcept { return page_ != nullptr; }

  [[nodiscard]] Page* get() const noexcept { return page_; }
  // First byte of the frame. Must not be empty.
  [[nodiscard]] std::byte* data() const noexcept { return address_of(page_); }
  [[nodiscard]] static constexpr Bytes size() noexcept { return Bytes{kFrameBytes}; }

  // Another owner of the same page; empty when the count is at its limit (or this is empty).
  [[nodiscard]] PoolRef share() const noexcept {
    return page_ != nullptr && ref(page_) ? PoolRef{page_} : PoolRef{};
  }

  // Gives the reference to the caller.
  [[nodiscard]] Page* detach() noexcept { return std::exchange(page_, nullptr); }
  void reset() noexcept { pool_put(std::exchange(page_, nullptr)); }

 private:
  Page* page_ = nullptr;
};
static_assert(sizeof(PoolRef) == sizeof(Page*));

}  // namespace weir
