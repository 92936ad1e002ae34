// SPDX-License-Identifier: MIT
// os/linux_memory.hpp — os/memory over the real kernel: mmap, mprotect, madvise, mbind, hugetlb, memfd.
// No other file of weir maps memory. Owns nothing: every mapping belongs to its caller.
#pragma once

#include "weir/os/memory.hpp"

namespace weir {

// Without state. Reservations use MAP_NORESERVE, so memory that is only committed does not count
// against the kernel's over-commit limit (except in its mode "never over-commit").
class LinuxMemory final : public Memory {
 public:
  Result<std::byte*> reserve(Bytes size, Bytes align) override;
  Error commit(std::byte* base, Bytes size) override;
  Error decommit(std::byte* base, Bytes size) override;
  void discard(std::byte* base, Bytes size) noexcept override;
  Error try_discard(std::byte* base, Bytes size) noexcept override;
  Error punch_hole(int fd, Bytes offset, Bytes size) noexcept override;
  void release(std::byte* base, Bytes size) noexcept override;
  Error advise_huge(std::byte* base, Bytes size, bool on) override;
  Error populate(std::byte* base, Bytes size) override;
  Error bind(std::byte* base, Bytes size, NodeId node, bool strict) override;
  Result<std::byte*> map_huge(Bytes size, Bytes page_size) override;
  Result<int> create_file(const char* name, Bytes size, Bytes huge_page) override;
  Result<std::byte*> map_file(int fd, Bytes size, Bytes align) override;
  void close_file(int fd) noexcept override;
  Bytes huge_backed(const std::byte* base, Bytes size) override;
};

}  // namespace weir
