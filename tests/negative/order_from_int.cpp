// SPDX-License-Identifier: MIT
// A number becomes an order only where somebody says so.
// expect: could not convert|cannot convert|no viable conversion|no known conversion|no matching function
#include "weir/base/types.hpp"

#ifdef WEIR_CONTROL
weir::PageCount eight() { return pages(weir::Order{3}); }
#else
weir::PageCount eight() { return weir::pages(3); }
#endif
