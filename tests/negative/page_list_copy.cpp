// SPDX-License-Identifier: MIT
// A PageList owns the references of its pages: there is one of it.
// expect: (deleted|use of deleted function)
#include "weir/page/page_list.hpp"

void own(weir::PageList& list) {
#ifdef WEIR_CONTROL
  weir::PageList& other = list;
#else
  weir::PageList other = list;
#endif
  static_cast<void>(other.size());
}
