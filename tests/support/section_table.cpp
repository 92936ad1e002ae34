// SPDX-License-Identifier: MIT
#include "tests/support/section_table.hpp"

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

namespace weir::test {
namespace {

// The linker defines these for a section whose name is an identifier; null where there is none.
extern "C" {
extern const SectionDescriptor __start___rseq_cs[]  // NOLINT(bugprone-reserved-identifier)
    __attribute__((weak, visibility("hidden")));
extern const SectionDescriptor __stop___rseq_cs[]  // NOLINT(bugprone-reserved-identifier)
    __attribute__((weak, visibility("hidden")));
extern const SectionDescriptor* const
    __start___rseq_cs_ptr_array[]  // NOLINT(bugprone-reserved-identifier)
    __attribute__((weak, visibility("hidden")));
extern const SectionDescriptor* const
    __stop___rseq_cs_ptr_array[]  // NOLINT(bugprone-reserved-identifier)
    __attribute__((weak, visibility("hidden")));
}

// Calls visit for the program's own headers alone.
template <class Visit>
void look_at_program(Visit visit) {
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* visitor) {
        (*static_cast<Visit*>(visitor))(*info);
        return 1;  // the program comes first
      },
      &visit);
}

}  // namespace

std::span<const SectionDescriptor> section_descriptors() {
  return {__start___rseq_cs, __stop___rseq_cs};
}

std::span<const SectionDescriptor* const> section_pointers() {
  return {__start___rseq_cs_ptr_array, __stop___rseq_cs_ptr_array};
}

std::map<std::uint64_t, std::string> disassemble_program() {
  std::map<std::uint64_t, std::string> instructions;
  std::array<char, 4096> text{};
  const ssize_t length = ::readlink("/proc/self/exe", text.data(), text.size() - 1);
  if (length <= 0) {
    return instructions;
  }
  std::uint64_t bias = 0;
  look_at_program([&bias](const dl_phdr_info& info) { bias = info.dlpi_addr; });
  const std::string command =
      "objdump -d --no-show-raw-insn '" + std::string(text.data()) + "' 2>/dev/null";
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) {
    return instructions;
  }
  // "    1a2b:\tmov    %rax,(%rdx)"
  while (std::fgets(text.data(), text.size(), pipe) != nullptr) {
    char* end = nullptr;
    const std::uint64_t address = std::strtoull(text.data(), &end, 16);
    if (end != text.data() && end[0] == ':' && end[1] == '\t') {
      std::string instruction(end + 2);
      instruction.erase(instruction.find_last_not_of(" \n") + 1);
      instructions[address + bias] = instruction;
    }
  }
  ::pclose(pipe);
  return instructions;
}

bool make_code_writable() {
  bool writable = true;
  look_at_program([&writable](const dl_phdr_info& info) {
    for (unsigned i = 0; i < info.dlpi_phnum; ++i) {
      const auto& header = info.dlpi_phdr[i];
      if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0) {
        continue;
      }
      const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
      const std::uint64_t begin = (info.dlpi_addr + header.p_vaddr) & ~(page - 1);
      const std::uint64_t end = info.dlpi_addr + header.p_vaddr + header.p_memsz;
      writable = ::mprotect(reinterpret_cast<void*>(begin), end - begin,
                            PROT_READ | PROT_WRITE | PROT_EXEC) == 0 &&
                 writable;
    }
  });
  return writable;
}

}  // namespace weir::test
