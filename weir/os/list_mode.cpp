// SPDX-License-Identifier: MIT
#include "weir/os/list_mode.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "weir/base/atomic.hpp"
#include "weir/base/report.hpp"
#include "weir/os/fence.hpp"
#include "weir/os/rseq_area.hpp"

namespace weir {
namespace {

using rseq_area::Registrar;

// Everything that can be decided is one of the constants below: a decision is a pointer, published
// by one compare-and-swap.
struct Decision {
  ListMode mode;
  Registrar registrar = Registrar::none;
};

constexpr Decision locked(const char* reason) { return {{ListForm::locked, reason}}; }

constexpr Decision kByCLibrary{
    {ListForm::rseq, "rseq registered by the C library, membarrier ready"}, Registrar::c_library};
constexpr Decision kByWeir{{ListForm::rseq, "rseq registered by weir, membarrier ready"},
                           Registrar::weir};

constexpr Decision kLockedByEnvironment = locked("asked for by WEIR_LISTS");
constexpr Decision kOffByEnvironment{{ListForm::off, "asked for by WEIR_LISTS"}};
constexpr Decision kLockedByProgram = locked("asked for by the program");
constexpr Decision kOffByProgram{{ListForm::off, "asked for by the program"}};

#if defined(WEIR_LOCKED_LISTS) && WEIR_LOCKED_LISTS
constexpr Decision kNotInThisBuild = locked("built without restartable sequences");
#elif defined(__x86_64__) && !defined(__ILP32__)
constexpr Decision kNotInThisBuild =
    locked("built without restartable sequences (ThreadSanitizer)");
#else
constexpr Decision kNotInThisBuild = locked("no assembly for this processor");
#endif
constexpr Decision kThreadRefused =
    locked("the C library registers rseq, but not for the thread that decided");

struct Refusal {
  int why;  // errno; 0 = any other
  Decision decision;
};

constexpr std::array<Refusal, 6> kMembarrierRefused{{
    {ENOSYS, locked("membarrier refuses its rseq command: Function not implemented")},
    {EINVAL, locked("membarrier has no rseq command in this kernel")},
    {EPERM, locked("membarrier refuses its rseq command: Operation not permitted")},
    {EACCES, locked("membarrier refuses its rseq command: Permission denied")},
    {ENOMEM, locked("membarrier refuses its rseq command: Cannot allocate memory")},
    {0, locked("membarrier refuses its rseq command with an unusual error")},
}};
// The kernel says EINVAL when this thread has registered another area.
constexpr std::array<Refusal, 6> kRseqRefused{{
    {ENOSYS, locked("the C library has no rseq and rseq(2) refused: Function not implemented")},
    {EINVAL, locked("the C library has no rseq and another library registered its own")},
    {EBUSY, locked("the C library has no rseq and rseq(2) refused: Device or resource busy")},
    {EPERM, locked("the C library has no rseq and rseq(2) refused: Operation not permitted")},
    {EACCES, locked("the C library has no rseq and rseq(2) refused: Permission denied")},
    {0, locked("the C library has no rseq and rseq(2) refused with an unusual error")},
}};

const Decision* refusal(const std::array<Refusal, 6>& refusals, int why) noexcept {
  std::size_t i = 0;
  while (refusals[i].why != 0 && refusals[i].why != why) {
    ++i;
  }
  return &refusals[i].decision;
}

// Both change once, from null. A decision is effective when every thread that goes by it finds the
// right area; whoever comes in between helps, with the same stores.
Atomic<const Decision*> g_decided{nullptr};
Atomic<const Decision*> g_effective{nullptr};

// What can be had for rseq. Leaves this thread's own area registered if the decision is kByWeir.
struct Attempt {
  const Decision* decision;
  Errc code = Errc::ok;
  int why = 0;
};

Attempt try_rseq() noexcept {
  if constexpr (!kHasRseq) {
    return {&kNotInThisBuild, Errc::unsupported};
  }
  if (rseq_area::c_library_registers() && !rseq_area::c_library_registered_thread()) {
    return {&kThreadRefused, Errc::system};
  }
  // The fence comes first: it leaves nothing to undo when the other is refused.
  if (const Error error = fence::enable(); error.failed()) {
    return {refusal(kMembarrierRefused, error.os_errno), error.code, error.os_errno};
  }
  if (rseq_area::c_library_registers()) {
    return {&kByCLibrary};
  }
  if (const int why = rseq_area::register_own()) {
    const bool never = why == ENOSYS || why == EINVAL || why == EBUSY;
    return {refusal(kRseqRefused, why), never ? Errc::unsupported : Errc::system, why};
  }
  return {&kByWeir};
}

std::optional<ListForm> asked_form() noexcept {
  const char* const value = std::getenv("WEIR_LISTS");
  if (value == nullptr || *value == '\0') {
    return std::nullopt;
  }
  for (const ListForm form : {ListForm::rseq, ListForm::locked, ListForm::off}) {
    if (std::string_view(value) == list_form_name(form)) {
      return form;
    }
  }
  static bool told = false;
  notice_once(told, "WEIR_LISTS is none of rseq, locked and off: ignored");
  return std::nullopt;
}

const Decision* decide() noexcept {
  const std::optional<ListForm> asked = asked_form();
  if (asked == ListForm::locked) return &kLockedByEnvironment;
  if (asked == ListForm::off) return &kOffByEnvironment;
  const Attempt attempt = try_rseq();
  if (asked == ListForm::rseq && attempt.code != Errc::ok) {
    std::array<char, 200> text{};
    std::snprintf(text.data(), text.size(),
                  "WEIR_LISTS=rseq cannot be had, the lists are locked: %s",
                  attempt.decision->mode.reason);
    static bool told = false;
    notice_once(told, text.data());
  }
  return attempt.decision;
}

// The first candidate wins; returns the winner, effective.
const Decision& settle(const Decision* candidate) noexcept {
  const Decision* winner = nullptr;
  // pairs: itself and list_mode acquire. Constants are published, so only the pointer matters.
  if (g_decided.compare_exchange_strong(winner, candidate, memory_order_acq_rel)) {
    winner = candidate;
  } else if (candidate == &kByWeir && winner != &kByWeir) {
    rseq_area::unregister_own();  // else this thread's cpu_id would name a list in a mode without
  }
  rseq_area::use_areas_of(winner->registrar);
  g_effective.store(winner, memory_order_release);  // pairs: list_mode acquire
  return *winner;
}

}  // namespace

const ListMode& list_mode() noexcept {
  // pairs: settle release: whoever sees a decision sees the registrar as well
  if (const Decision* effective = g_effective.load(memory_order_acquire)) [[likely]] {
    return effective->mode;
  }
  return settle(decide()).mode;
}

Error force_list_mode(ListForm form) noexcept {
  constexpr const char* kDecided = "another form of lists is in use";
  if (const Decision* decided = g_decided.load(memory_order_acquire)) {  // pairs: settle release
    return settle(decided).mode.form == form ? kOk : Error{Errc::in_use, kDecided};
  }
  Attempt attempt{form == ListForm::off ? &kOffByProgram : &kLockedByProgram};
  if (form == ListForm::rseq) {
    attempt = try_rseq();
    if (attempt.code != Errc::ok) {
      return {attempt.code, attempt.decision->mode.reason, attempt.why};
    }
  }
  return settle(attempt.decision).mode.form == form ? kOk : Error{Errc::in_use, kDecided};
}

const char* list_form_name(ListForm form) noexcept {
  switch (form) {
    case ListForm::rseq:
      return "rseq";
    case ListForm::locked:
      return "locked";
    case ListForm::off:
      return "off";
  }
  return "unknown";
}

}  // namespace weir
