// SPDX-License-Identifier: MIT
// support/slow_section.hpp — a restartable section that dawdles before it commits, so that a fence
// that does not end it is seen to be too weak. Calls os/rseq_area. x86-64 only.
#pragma once

#include <cstdint>

#include "weir/os/rseq_area.hpp"

namespace weir::test {

enum class SectionEnd : std::uint32_t { aborted, committed, stopped };

// In one section: reads *stop; unless it is set, waits for `turns` (at least 1) pauses, then adds one
// to *total by its last instruction.
[[nodiscard]] inline SectionEnd add_slowly(const std::uint64_t* stop, std::uint64_t* total,
                                           std::uint32_t turns) {
#if defined(__x86_64__)
  std::uint32_t end = 0;
  asm volatile(R"(
      .pushsection __rseq_cs, "aw"
      .balign 32
    3:
      .long 0, 0
      .quad 1f, 2f - 1f, 4f
      .popsection
      leaq 3b(%%rip), %%rax
      movq %%rax, 8(%[area])
    1:
      cmpq $0, (%[stop])
      jne 5f
    6:
      pause
      decl %[turns]
      jnz 6b
      addq $1, (%[total])
    2:
      movl $1, %[end]
      jmp 7f
      .byte 0x0f, 0xb9, 0x3d
      .long 0x53053053
    4:
      movl $0, %[end]
      jmp 7f
    5:
      movl $2, %[end]
    7:
      )"
               : [end] "=&r"(end), [turns] "+&r"(turns)
               : [area] "r"(&rseq_area::current()), [stop] "r"(stop), [total] "r"(total)
               : "rax", "memory", "cc");
  return static_cast<SectionEnd>(end);
#else
  static_cast<void>(stop);
  static_cast<void>(total);
  static_cast<void>(turns);
  return SectionEnd::stopped;
#endif
}

}  // namespace weir::test
