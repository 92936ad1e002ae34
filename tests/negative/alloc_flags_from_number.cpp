// SPDX-License-Identifier: MIT
// Rights are named, not numbered.
// expect: (cannot convert|cannot initialize)
#include "weir/page/page_allocator.hpp"

weir::PageRef zeroed(weir::PageAllocator& pages) {
#ifdef WEIR_CONTROL
  return pages.alloc(weir::Order{0}, weir::AllocFlags::zero | weir::AllocFlags::no_wait);
#else
  return pages.alloc(weir::Order{0}, 1 | 2);
#endif
}
