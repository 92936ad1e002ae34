// SPDX-License-Identifier: MIT
// A copy of a lock would be another lock.
// expect: deleted
#include "weir/os/lock.hpp"

weir::Lock original;
#ifdef WEIR_CONTROL
weir::Lock& copy = original;
#else
weir::Lock copy = original;
#endif
