// SPDX-License-Identifier: MIT
// A raw pointer becomes an owner only where it says so.
// expect: (could not convert|no viable conversion|no known conversion)
#include "weir/page/page_ref.hpp"

weir::PageRef owner(weir::Page* page) {
#ifdef WEIR_CONTROL
  return weir::PageRef{page};
#else
  return page;
#endif
}
