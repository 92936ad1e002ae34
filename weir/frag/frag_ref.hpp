// SPDX-License-Identifier: MIT
// frag/frag_ref.hpp — FragRef, the move-only owner of one fragment: a byte range of a page and one
// reference on that page. Calls page/ref_count.
//
// The bytes are exactly those that were granted. What lies behind them belongs to the cache or to
// somebody else, whatever the count of the page says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "weir/base/hot.hpp"
#include "weir/base/types.hpp"
#include "weir/page/ref_count.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir {

class [[nodiscard]] FragRef {
 public:
  FragRef() = default;
  // Takes over one reference on `page` for [data, data + size), which lies inside it.
  FragRef(Page* page, std::byte* data, std::uint32_t size) noexcept
      : data_(data), page_(page), size_(size) {}
  FragRef(FragRef&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        page_(std::exchange(other.page_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  FragRef& operator=(FragRef&& other) noexcept {
    if (this != &other) {
      unref(page_);
      data_ = std::exchange(other.data_, nullptr);
      page_ = std::exchange(other.page_, nullptr);
      size_ = std::exchange(other.size_, 0);
    }
    return *this;
  }
  FragRef(const FragRef&) = delete;
  FragRef& operator=(const FragRef&) = delete;
  ~FragRef() { unref(page_); }

  // True when it owns nothing: a request that was refused.
  [[nodiscard]] bool empty() const noexcept { return page_ == nullptr; }
  explicit operator bool() const noexcept { return page_ != nullptr; }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  // Usable bytes: what was asked for, no more.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] Page* page() const noexcept { return page_; }
  // Memory that cannot be used again before this fragment and its neighbours are dropped.
  [[nodiscard]] Bytes pinned() const noexcept {
    return page_ != nullptr ? bytes(order_of(page_)) : Bytes{0};
  }

  // Another owner of the same bytes; empty when the count is at its limit (or this is empty).
  [[nodiscard]] FragRef share() const noexcept {
    return page_ != nullptr && ref(page_) ? FragRef{page_, data_, size_} : FragRef{};
  }

  // Gives the reference to the caller, who ends it with unref() or, by address, free_at().
  [[nodiscard]] Page* detach() noexcept {
    data_ = nullptr;
    size_ = 0;
    return std::exchange(page_, nullptr);
  }
  void reset() noexcept { unref(detach()); }

 private:
  std::byte* data_ = nullptr;
  Page* page_ = nullptr;
  std::uint32_t size_ = 0;
};
static_assert(sizeof(FragRef) == 24);

}  // namespace weir
