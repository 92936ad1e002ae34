// SPDX-License-Identifier: MIT
// An error that nobody looks at does not compile where warnings are errors.
// expect: ignoring return(ed)? value
#pragma GCC diagnostic error "-Wunused-result"
#include "weir/base/result.hpp"

weir::Error may_fail();
#ifdef WEIR_CONTROL
bool call() { return may_fail().failed(); }
#else
void call() { may_fail(); }
#endif
