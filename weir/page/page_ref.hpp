// SPDX-License-Identifier: MIT
// page/page_ref.hpp — PageRef, the move-only owner of one reference on a page. Calls
// page/ref_count.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "weir/base/hot.hpp"
#include "weir/base/types.hpp"
#include "weir/page/ref_count.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir {

class [[nodiscard]] PageRef {
 public:
  PageRef() = default;
  // Takes over one reference that the caller holds.
  WEIR_HOT explicit PageRef(Page* page) noexcept : page_(page) {}
  WEIR_HOT PageRef(PageRef&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}
  PageRef& operator=(PageRef&& other) noexcept {
    if (this != &other) {
      unref(std::exchange(page_, std::exchange(other.page_, nullptr)));
    }
    return *this;
  }
  PageRef(const PageRef&) = delete;
  PageRef& operator=(const PageRef&) = delete;
  WEIR_HOT ~PageRef() { unref(page_); }

  // True when it owns nothing: an allocation that found no memory.
  [[nodiscard]] bool empty() const noexcept { return page_ == nullptr; }
  explicit operator bool() const noexcept { return page_ != nullptr; }
  friend bool operator==(const PageRef& ref, std::nullptr_t) noexcept {
    return ref.page_ == nullptr;
  }

  [[nodiscard]] Page* get() const noexcept { return page_; }
  // First byte, aligned to the size. Must not be empty.
  [[nodiscard]] std::byte* data() const noexcept { return address_of(page_); }
  [[nodiscard]] Order order() const noexcept { return order_of(page_); }
  [[nodiscard]] Bytes size() const noexcept { return bytes(order()); }

  // It came out of the reserve. Must not be empty.
  [[nodiscard]] bool is_emergency() const noexcept { return weir::is_emergency(page_); }

  // Another owner of the same page; empty when the count is at its limit (or this is empty).
  [[nodiscard]] PageRef share() const noexcept {
    return page_ != nullptr && ref(page_) ? PageRef{page_} : PageRef{};
  }

  // Gives the reference to the caller.
  [[nodiscard]] WEIR_HOT Page* detach() noexcept { return std::exchange(page_, nullptr); }
  WEIR_HOT void reset() noexcept { unref(std::exchange(page_, nullptr)); }

  // Where owners in a row keep their pages, for bulk calls that move references themselves.
  [[nodiscard]] static Page** places_of(std::span<PageRef> owners) noexcept {
    return owners.empty() ? nullptr : &owners.front().page_;
  }

 private:
  Page* page_ = nullptr;
};
static_assert(sizeof(PageRef) == sizeof(Page*));

}  // namespace weir
