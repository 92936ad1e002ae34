// SPDX-License-Identifier: MIT
// Walking from frame to frame is advance(), not addition.
// expect: no match for .operator\+.|invalid operands to binary expression
#include "weir/base/types.hpp"

#ifdef WEIR_CONTROL
weir::PageIndex next(weir::PageIndex page) { return advance(page, 1); }
#else
weir::PageIndex next(weir::PageIndex page) { return page + 1; }
#endif
