// SPDX-License-Identifier: MIT
// page/page_list.hpp — an intrusive list of live pages, linked by index through their descriptors.
// Calls zone/frame_table. Owns the references of its pages; not thread-safe.
#pragma once

#include <cstddef>

#include "weir/page/ref_count.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir {

class PageList {
 public:
  PageList() = default;
  PageList(const PageList&) = delete;
  PageList& operator=(const PageList&) = delete;
  ~PageList() { clear(); }

  [[nodiscard]] bool empty() const noexcept { return head_ == kNoPage; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  // The page's reference goes to the list.
  void push(Page* page) noexcept {
    page->next = head_;
    head_ = index_of(page);
    ++size_;
  }
  // The most recent page and its reference, or nullptr.
  [[nodiscard]] Page* pop() noexcept {
    if (empty()) {
      return nullptr;
    }
    Page* page = page_at(head_);
    head_ = page->next;
    page->next = kNoPage;
    --size_;
    return page;
  }
  // Drops every reference.
  void clear() noexcept {
    while (Page* page = pop()) {
      unref(page);
    }
  }

 private:
  PageIndex head_ = kNoPage;
  std::size_t size_ = 0;
};

}  // namespace weir
