// SPDX-License-Identifier: MIT
// A page index is a name, not a number: it compares with its like only.
// expect: no match for .operator<.|invalid operands to binary expression
#include "weir/base/types.hpp"

#ifdef WEIR_CONTROL
bool below(weir::PageIndex page) { return page < weir::PageIndex{100}; }
#else
bool below(weir::PageIndex page) { return page < 100U; }
#endif
