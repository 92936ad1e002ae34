// SPDX-License-Identifier: MIT
// A bare number has no unit.
// expect: could not convert|cannot convert|no viable conversion
#include "weir/base/types.hpp"

#ifdef WEIR_CONTROL
weir::Bytes size() { return weir::Bytes{4096}; }
#else
weir::Bytes size() { return 4096; }
#endif
