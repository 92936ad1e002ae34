// SPDX-License-Identifier: MIT
// base/check.hpp — checks at three prices. Calls base/report.
//   WEIR_CHECK   always: what input from users can break
//   WEIR_ASSERT  in checked builds: what only a fault in weir can break, cheap
//   WEIR_AUDIT   in checked builds: recounts that name a numbered invariant, dear
#pragma once

#include "weir/base/config.hpp"
#include "weir/base/report.hpp"

#define WEIR_CHECK(condition, invariant)             \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? static_cast<void>(0)                        \
       : ::weir::report_check_failed(#condition, invariant, __FILE__, __LINE__))

#define WEIR_ASSERT(condition, invariant) \
  do {                                    \
    if constexpr (::weir::kAudit) {       \
      WEIR_CHECK(condition, invariant);   \
    }                                     \
  } while (false)

#define WEIR_AUDIT(condition, invariant) WEIR_ASSERT(condition, invariant)
