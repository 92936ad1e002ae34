// SPDX-License-Identifier: MIT
#include "weir/base/report.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "weir/base/atomic.hpp"

namespace weir {
namespace {

Atomic<ReportHandler> g_handler{nullptr};

void write_line(const char* text) noexcept {
  char line[512];
  const int length = std::snprintf(line, sizeof line, "%s\n", text);
  if (length > 0) {
    const auto wanted = static_cast<std::size_t>(length);
    const std::size_t n = wanted < sizeof line ? wanted : sizeof line - 1;
    // Nothing can be done about a failed write to standard error.
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line, n);
  }
}

[[noreturn]] void finish(Finding finding, const char* line) {
  // pairs: set_report_handler release
  if (ReportHandler handler = g_handler.load(memory_order_acquire)) {
    handler(finding, line);
  } else {
    write_line(line);
  }
  std::abort();
}

template <class... Args>
[[noreturn]] void finish(Finding finding, const char* format, Args... args) {
  char detail[400];
  std::snprintf(detail, sizeof detail, format,
                args...);  // NOLINT(cppcoreguidelines-pro-type-vararg)
  char line[480];
  std::snprintf(line, sizeof line, "weir: fatal: %s: %s", finding_name(finding), detail);
  finish(finding, static_cast<const char*>(line));
}

}  // namespace

const char* finding_name(Finding finding) noexcept {
  switch (finding) {
    case Finding::check_failed:
      return "check failed";
    case Finding::double_free:
      return "double free";
    case Finding::foreign_pointer:
      return "foreign pointer";
    case Finding::tail_free:
      return "free of a tail";
    case Finding::wrong_order:
      return "wrong order";
    case Finding::reference_underflow:
      return "reference underflow";
    case Finding::reference_overflow:
      return "reference overflow";
    case Finding::wrong_thread:
      return "wrong thread";
    case Finding::corrupt_list:
      return "corrupt list";
  }
  return "unknown finding";
}

ReportHandler set_report_handler(ReportHandler handler) noexcept {
  return g_handler.exchange(handler, memory_order_acq_rel);  // pairs: finish acquire
}

void report_check_failed(const char* condition, const char* invariant, const char* file, int line) {
  finish(Finding::check_failed, "%s (%s) at %s:%d", invariant, condition, file, line);
}

void report_double_free(PageIndex page, const char* state_seen) {
  finish(Finding::double_free, "page %u is already free (state %s)", page.value, state_seen);
}

void report_foreign_pointer(const void* address, const char* call) {
  finish(Finding::foreign_pointer, "%s: %p is no memory of weir", call, address);
}

void report_tail_free(PageIndex page, const char* call) {
  finish(Finding::tail_free, "%s: frame %u is inside a page, not its start", call, page.value);
}

void report_wrong_order(PageIndex page, Order given, Order actual) {
  finish(Finding::wrong_order, "page %u has order %u, not %u", page.value, actual.value,
         given.value);
}

void report_reference_underflow(PageIndex page) {
  finish(Finding::reference_underflow, "page %u: a reference was dropped that nobody held",
         page.value);
}

void report_reference_overflow(PageIndex page, std::uint32_t count) {
  finish(Finding::reference_overflow, "page %u has %u references, no more fit", page.value, count);
}

void report_wrong_thread(const char* object) {
  finish(Finding::wrong_thread, "%s is used from a thread that does not own it", object);
}

void report_corrupt_list(PageIndex page, const char* list) {
  finish(Finding::corrupt_list, "%s is damaged at page %u", list, page.value);
}

void notice_once(bool& once, const char* text) noexcept {
  if (!__atomic_exchange_n(&once, true, __ATOMIC_RELAXED)) {
    char line[480];
    std::snprintf(line, sizeof line, "weir: notice: %s", text);
    write_line(line);
  }
}

}  // namespace weir
