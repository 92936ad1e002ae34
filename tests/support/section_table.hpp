// SPDX-License-Identifier: MIT
// support/section_table.hpp — the restartable sections of the running program, by the descriptors
// the linker gathered, and their instructions as objdump prints them. x86-64 with sections only.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "weir/os/rseq_area.hpp"

namespace weir::test {

// The kernel's struct rseq_cs.
struct alignas(32) SectionDescriptor {
  std::uint32_t version = 0;
  std::uint32_t flags = 0;
  std::uint64_t start = 0;
  std::uint64_t length = 0;  // the kernel's post_commit_offset
  std::uint64_t abort = 0;

  [[nodiscard]] std::uint64_t end() const { return start + length; }
  [[nodiscard]] bool holds(std::uint64_t address) const { return address - start < length; }
};
static_assert(sizeof(SectionDescriptor) == 32);

// Of every section that was linked into this program, and the array of pointers that debuggers read.
[[nodiscard]] std::span<const SectionDescriptor> section_descriptors();
[[nodiscard]] std::span<const SectionDescriptor* const> section_pointers();

// Address -> instruction, of the whole program's code as it lies in the file; empty without objdump.
[[nodiscard]] std::map<std::uint64_t, std::string> disassemble_program();

// Makes the program's code writable, for breakpoints; false when the system forbids it.
[[nodiscard]] bool make_code_writable();

}  // namespace weir::test
