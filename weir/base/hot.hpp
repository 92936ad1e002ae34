// SPDX-License-Identifier: MIT
// base/hot.hpp — the spelling of hot and cold. Calls nothing.
#pragma once

#define WEIR_HOT [[gnu::always_inline]] inline
#define WEIR_COLD [[gnu::noinline, gnu::cold]]
