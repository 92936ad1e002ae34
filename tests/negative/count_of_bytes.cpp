// SPDX-License-Identifier: MIT
// A length is no count of frames; whole_pages() converts and says that it cuts the rest off.
// expect: could not convert|cannot convert|no viable conversion
#include "weir/base/types.hpp"

#ifdef WEIR_CONTROL
weir::PageCount count(weir::Bytes length) { return whole_pages(length); }
#else
weir::PageCount count(weir::Bytes length) { return length; }
#endif
