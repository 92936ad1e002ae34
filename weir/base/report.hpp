// SPDX-License-Identifier: MIT
// base/report.hpp — every fatal finding, one typed noreturn function each, and the one-line
// notices that tell of a fallback. Calls write(2) and abort(3) only; allocates nothing, so it may
// run in a signal handler and when memory is gone.
#pragma once

#include <cstdint>

#include "weir/base/hot.hpp"
#include "weir/base/types.hpp"

namespace weir {

enum class Finding : unsigned char {
  check_failed,         // a condition that must hold does not
  double_free,          // a page that is already free was freed
  foreign_pointer,      // an address that is no memory of weir
  tail_free,            // an address inside a page, where its start is needed
  wrong_order,          // a page freed with an order it does not have
  reference_underflow,  // a reference dropped that nobody held
  reference_overflow,   // more references than the count can hold
  wrong_thread,         // an object of one context used from another
  corrupt_list,         // a free list or index ring is damaged
};

[[nodiscard]] const char* finding_name(Finding finding) noexcept;

// Called with the finding and its one line (no newline) before the process aborts. It may log,
// throw nothing, and longjmp or _exit at its own risk; when it returns, the process aborts.
using ReportHandler = void (*)(Finding finding, const char* line);

// Installs a handler; returns the one before, nullptr being the default (line to standard error).
// Any thread.
ReportHandler set_report_handler(ReportHandler handler) noexcept;

[[noreturn]] WEIR_COLD void report_check_failed(const char* condition, const char* invariant,
                                                const char* file, int line);
[[noreturn]] WEIR_COLD void report_double_free(PageIndex page, const char* state_seen);
[[noreturn]] WEIR_COLD void report_foreign_pointer(const void* address, const char* call);
[[noreturn]] WEIR_COLD void report_tail_free(PageIndex page, const char* call);
[[noreturn]] WEIR_COLD void report_wrong_order(PageIndex page, Order given, Order actual);
[[noreturn]] WEIR_COLD void report_reference_underflow(PageIndex page);
[[noreturn]] WEIR_COLD void report_reference_overflow(PageIndex page, std::uint32_t count);
[[noreturn]] WEIR_COLD void report_wrong_thread(const char* object);
[[noreturn]] WEIR_COLD void report_corrupt_list(PageIndex page, const char* list);

// One line on standard error, once per site and process: a fallback that the user should know of.
// `once` is a static flag of the caller.
WEIR_COLD void notice_once(bool& once, const char* text) noexcept;

}  // namespace weir
