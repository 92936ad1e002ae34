// SPDX-License-Identifier: MIT
// A PageRef owns one reference: it moves, it is not copied.
// expect: (deleted|use of deleted function)
#include "weir/page/page_ref.hpp"

void owner(weir::PageRef page) {
#ifdef WEIR_CONTROL
  weir::PageRef other = page.share();
#else
  weir::PageRef other = page;
#endif
}
