// SPDX-License-Identifier: MIT
// os/list_mode.hpp — which form of per-CPU lists this process uses, and why. Calls os/rseq_area and
// os/fence to find out what can be had, and the environment variable WEIR_LISTS (rseq, locked or
// off) to hear what is wanted. Decided once; never taken back. Nobody waits for anybody here, so a
// fork or a signal in the middle of the decision does no harm.
#pragma once

#include <cstdint>

#include "weir/base/result.hpp"

namespace weir {

enum class ListForm : std::uint8_t {
  rseq,    // plain loads and stores in restartable sections
  locked,  // a lock word that is only ever tried
  off,     // no lists
};

struct ListMode {
  ListForm form;
  const char* reason;  // one phrase, for people; static
};

// The first call decides: what WEIR_LISTS asks for; else rseq, when sections are in this build, the
// thread has an area that the kernel keeps, and the kernel grants the fence; else locked. Asked for
// rseq that cannot be had, it says so on standard error, once, and is locked. Any thread; the same
// for all; constant afterwards.
[[nodiscard]] const ListMode& list_mode() noexcept;

// The program's own choice, before anything has been decided; it counts more than WEIR_LISTS. in_use
// when another form has been decided already. When rseq cannot be had: unsupported, denied or a
// system error, `what` being the reason, and the decision is left to be made. Any thread.
[[nodiscard]] Error force_list_mode(ListForm form) noexcept;

// "rseq", "locked", "off": also the values of WEIR_LISTS.
[[nodiscard]] const char* list_form_name(ListForm form) noexcept;

}  // namespace weir
