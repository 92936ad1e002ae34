// SPDX-License-Identifier: MIT
// os/memory.hpp — the kernel's memory calls as an interface, so that tests can fake them.
// Calls base only. Cold: every call is a system call. Thread-safe.
#pragma once

#include <cstddef>

#include "weir/base/result.hpp"
#include "weir/base/types.hpp"

namespace weir {

class Memory {
 public:
  virtual ~Memory() = default;

  // Reserves inaccessible address space without backing. size: multiple of the frame size;
  // align: power of two, at least the frame size.
  virtual Result<std::byte*> reserve(Bytes size, Bytes align) = 0;
  // Makes part of a reservation readable and writable; zero on first touch.
  virtual Error commit(std::byte* base, Bytes size) = 0;
  // Gives the backing of a committed part back and makes it inaccessible; the reservation stays.
  virtual Error decommit(std::byte* base, Bytes size) = 0;
  // Drops the contents of a committed private part: it stays accessible and reads as zero.
  virtual void discard(std::byte* base, Bytes size) noexcept = 0;
  // The same, but leaves all as it is where the kernel refuses (locked memory; explicit huge pages before
  // Linux 5.18): unsupported, denied, system.
  virtual Error try_discard(std::byte* base, Bytes size) noexcept = 0;
  // Gives back the memory of a part of a file, for all who have mapped it: it reads as zero from then on. On
  // refusal all is as it was.
  virtual Error punch_hole(int fd, Bytes offset, Bytes size) noexcept = 0;
  // Ends a reservation or mapping made by any call here.
  virtual void release(std::byte* base, Bytes size) noexcept = 0;

  // Asks for (true) or against (false) transparent huge pages. unsupported when it asks for them and
  // the kernel would give none to this range; forbidding them works on every kernel.
  virtual Error advise_huge(std::byte* base, Bytes size, bool on) = 0;
  // Touches every page now, so that a shortage is an Error here and no SIGBUS later.
  virtual Error populate(std::byte* base, Bytes size) = 0;

  // Asks that the pages of a mapping come from this node's memory: from no other (strict: a touch for which
  // the node has no page then ends the process), or from others only when that one has none. Pages that are
  // there already are moved, as far as there is room. denied: the system forbids it (a sandbox, another
  // user's); unsupported: no such node has memory for this process, or the kernel knows no nodes.
  virtual Error bind(std::byte* base, Bytes size, NodeId node, bool strict) = 0;

  // Maps explicit huge pages of page_size (2 MiB or 1 GiB), private, backed at once, its base
  // aligned to page_size and to the largest page (4 MiB). denied: not enough of them are free.
  virtual Result<std::byte*> map_huge(Bytes size, Bytes page_size) = 0;

  // Creates a memfd of this size; huge_page 0 means base pages.
  virtual Result<int> create_file(const char* name, Bytes size, Bytes huge_page) = 0;
  // Maps a whole file shared, aligned.
  virtual Result<std::byte*> map_file(int fd, Bytes size, Bytes align) = 0;
  virtual void close_file(int fd) noexcept = 0;

  // Bytes of [base, base + size) that huge pages (transparent or explicit) back at this moment. An
  // upper bound where the kernel has joined the range with a neighbour into one mapping.
  virtual Bytes huge_backed(const std::byte* base, Bytes size) = 0;
};

// The one that really calls the kernel; lives as long as the process.
[[nodiscard]] Memory& system_memory() noexcept;

}  // namespace weir
