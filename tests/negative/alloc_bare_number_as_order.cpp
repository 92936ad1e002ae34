// SPDX-License-Identifier: MIT
// An order is no number: three of what?
// expect: (cannot convert|could not convert|no viable conversion|no matching)
#include "weir/page/page_allocator.hpp"

weir::PageRef run(weir::PageAllocator& pages) {
#ifdef WEIR_CONTROL
  return pages.alloc(weir::Order{3});
#else
  return pages.alloc(3);
#endif
}
