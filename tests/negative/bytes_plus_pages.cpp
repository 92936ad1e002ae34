// SPDX-License-Identifier: MIT
// A length and a number of frames do not add up.
// expect: no match for .operator\+.|invalid operands to binary expression
#include "weir/base/types.hpp"

#ifdef WEIR_CONTROL
weir::Bytes sum() { return weir::Bytes{4096} + bytes(weir::PageCount{1}); }
#else
weir::Bytes sum() { return weir::Bytes{4096} + weir::PageCount{1}; }
#endif
