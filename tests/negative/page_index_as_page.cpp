// SPDX-License-Identifier: MIT
// An index names a frame, it is not the frame's descriptor.
// expect: (cannot convert|could not convert|no viable conversion|no matching)
#include "weir/page/ref_count.hpp"

void drop(weir::PageIndex index) {
#ifdef WEIR_CONTROL
  weir::unref(weir::page_at(index));
#else
  weir::unref(index);
#endif
}
