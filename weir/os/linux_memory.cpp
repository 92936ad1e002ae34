// SPDX-License-Identifier: MIT
#include "weir/os/linux_memory.hpp"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <string_view>

#include "weir/base/bits.hpp"
#include "weir/base/check.hpp"
#include "weir/base/failpoint.hpp"
#include "weir/os/text_file.hpp"

// Younger than the oldest headers weir builds with; the numbers are kernel ABI.
#ifndef MADV_POPULATE_WRITE
  #define MADV_POPULATE_WRITE 23
#endif
#ifndef MFD_NOEXEC_SEAL
  #define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MFD_HUGE_SHIFT
  #define MFD_HUGE_SHIFT 26
#endif
#ifndef MAP_HUGE_SHIFT
  #define MAP_HUGE_SHIFT 26
#endif
#ifndef MAP_FIXED_NOREPLACE
  #define MAP_FIXED_NOREPLACE 0x100000
#endif

namespace weir {
namespace {

// User addresses end at 2^47 (x86-64) or 2^48 (aarch64): nothing larger can ever be mapped, and
// below it no sum of a size and an alignment overflows.
constexpr std::uint64_t kMaxMapping = std::uint64_t{1} << 47;

constexpr Bytes kFrame{kFrameBytes};
constexpr Bytes kHuge2M = kMiB * 2;
constexpr Bytes kHuge1G = kGiB;

Error os_error(const char* what, int code) noexcept {
  switch (code) {
    case ENOMEM:
    case EAGAIN:
    case EPERM:
    case EACCES:
    case EMFILE:
    case ENFILE:
    case ENOSPC:
      return {Errc::denied, what, code};
    case ENOSYS:
    case EOPNOTSUPP:
      return {Errc::unsupported, what, code};
    default:
      return {Errc::system, what, code};
  }
}

Error injected(const char* what) noexcept { return os_error(what, ENOMEM); }

// A range the kernel could know: not empty, whole pages, not beyond the address space.
Error check_size(Bytes size, Bytes page) noexcept {
  if (size.value == 0) {
    return {Errc::zero_size, "size of a mapping"};
  }
  if (size.value > kMaxMapping) {
    return {Errc::too_large, "size of a mapping"};
  }
  if (!is_aligned(size.value, page.value)) {
    return {Errc::misaligned, "size of a mapping"};
  }
  return kOk;
}

Error check_range(const std::byte* base, Bytes size) noexcept {
  if (!is_aligned(reinterpret_cast<std::uintptr_t>(base), std::uintptr_t{kFrameBytes})) {
    return {Errc::misaligned, "base of a mapping"};
  }
  return check_size(size, kFrame);
}

Error check_align(Bytes align) noexcept {
  if (align.value > kMaxMapping) {
    return {Errc::too_large, "alignment of a mapping"};
  }
  if (!is_power_of_two(align.value) || align < kFrame) {
    return {Errc::misaligned, "alignment of a mapping"};
  }
  return kOk;
}

std::byte* map(std::byte* where, Bytes size, int protection, int flags, int fd) noexcept {
  void* base = ::mmap(where, size.value, protection, flags, fd, 0);
  return base == MAP_FAILED ? nullptr : static_cast<std::byte*>(base);
}

bool is_aligned_to(const std::byte* base, Bytes align) noexcept {
  return is_aligned(reinterpret_cast<std::uintptr_t>(base), std::uintptr_t{align.value});
}

constexpr int kReserveFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

// Reserves with the wanted alignment by asking for more and cutting both ends off.
std::byte* reserve_aligned(Bytes size, Bytes align) noexcept {
  const Bytes spare = align - kFrame;
  std::byte* raw = map(nullptr, size + spare, PROT_NONE, kReserveFlags, -1);
  if (raw == nullptr || spare.value == 0) {
    return raw;
  }
  const auto start = reinterpret_cast<std::uintptr_t>(raw);
  const std::uint64_t head = align_up(start, std::uintptr_t{align.value}) - start;
  const std::uint64_t tail = spare.value - head;
  // Either may fail when the kernel joined this mapping with a neighbour and may not split it again
  // (vm.max_map_count). What is left then is inaccessible address space.
  if (head != 0) {
    ::munmap(raw, head);
  }
  if (tail != 0) {
    ::munmap(raw + head + size.value, tail);
  }
  return raw + head;
}

// Maps what cannot be trimmed (huge pages, whole files) at an aligned place: finds a hole by
// reserving one, frees it, and maps there without replacing anything, again when another thread
// was faster. Never MAP_FIXED: where that fails the old reservation may be gone already, and what
// another thread has put there since would be unmapped in cleaning up.
std::byte* map_aligned(Bytes size, Bytes align, int flags, int fd) noexcept {
  constexpr int kAttempts = 16;
  std::byte* base = map(nullptr, size, PROT_READ | PROT_WRITE, flags, fd);
  for (int attempt = 0; base != nullptr && !is_aligned_to(base, align); ++attempt) {
    ::munmap(base, size.value);
    if (attempt == kAttempts) {
      errno = EAGAIN;
      return nullptr;
    }
    std::byte* hole = reserve_aligned(size, align);
    if (hole == nullptr) {
      return nullptr;
    }
    ::munmap(hole, size.value);
    // A kernel before 4.17 takes the address as a hint: the loop checks what came.
    base = map(hole, size, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, fd);
    if (base == nullptr && errno == EEXIST) {
      base = map(nullptr, size, PROT_READ | PROT_WRITE, flags, fd);
    }
  }
  return base;
}

bool kernel_populates() noexcept {
  // An empty range: only the advice itself is judged.
  static const bool known = ::madvise(nullptr, 0, MADV_POPULATE_WRITE) == 0;
  return known;
}

struct Mapping {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

// "7f12a000-7f12b000 rw-p ..." opens each mapping in smaps; every other line has a name there.
std::optional<Mapping> mapping_line(std::string_view line) noexcept {
  const std::size_t dash = line.find('-');
  const std::size_t space = line.find(' ');
  if (dash == std::string_view::npos || space == std::string_view::npos || space < dash) {
    return std::nullopt;
  }
  Mapping mapping;
  const char* begin = line.data();
  const auto first = std::from_chars(begin, begin + dash, mapping.begin, 16);
  const auto second = std::from_chars(begin + dash + 1, begin + space, mapping.end, 16);
  if (first.ptr != begin + dash || second.ptr != begin + space) {
    return std::nullopt;
  }
  return mapping;
}

// Calls visit(line, overlap) for each line of smaps about a mapping that overlaps the range.
template <class Visit>
void for_each_smaps_line(const std::byte* base, Bytes size, Visit visit) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(base);
  const auto end = begin + size.value;
  TextFile smaps("/proc/self/smaps");
  std::uint64_t overlap = 0;
  while (const auto line = smaps.next_line()) {
    if (const auto mapping = mapping_line(*line)) {
      if (mapping->begin >= end) {
        return;
      }
      const std::uintptr_t from = std::max(begin, mapping->begin);
      const std::uintptr_t to = std::min(end, mapping->end);
      overlap = from < to ? to - from : 0;
    } else if (overlap != 0) {
      visit(*line, overlap);
    }
  }
}

// Asking for transparent huge pages succeeds even where they are switched off; the kernel tells in
// smaps whether the mapping can really get any. A kernel before 4.20 does not say: believed.
bool can_get_huge_pages(const std::byte* base, Bytes size) noexcept {
  bool eligible = true;
  for_each_smaps_line(base, size, [&](std::string_view line, std::uint64_t) {
    if (const auto answer = number_after(line, "THPeligible")) {
      eligible = eligible && *answer != 0;
    }
  });
  return eligible;
}

}  // namespace

Result<std::byte*> LinuxMemory::reserve(Bytes size, Bytes align) {
  if (fails(Failpoint::memory_map)) return injected("reserving address space");
  if (const Error error = check_size(size, kFrame); error.failed()) return error;
  if (const Error error = check_align(align); error.failed()) return error;
  std::byte* base = reserve_aligned(size, align);
  if (base == nullptr) return os_error("reserving address space", errno);
  return base;
}

Error LinuxMemory::commit(std::byte* base, Bytes size) {
  if (fails(Failpoint::memory_commit)) return injected("making memory usable");
  if (const Error error = check_range(base, size); error.failed()) return error;
  if (::mprotect(base, size.value, PROT_READ | PROT_WRITE) != 0) {
    const Error error = os_error("making memory usable", errno);
    // It may have got half way.
    ::mprotect(base, size.value, PROT_NONE);
    return error;
  }
  return kOk;
}

Error LinuxMemory::decommit(std::byte* base, Bytes size) {
  if (const Error error = check_range(base, size); error.failed()) return error;
  if (map(base, size, PROT_NONE, kReserveFlags | MAP_FIXED, -1) == nullptr) {
    return os_error("giving memory back", errno);
  }
  return kOk;
}

void LinuxMemory::discard(std::byte* base, Bytes size) noexcept {
  // Refused only for locked memory, which keeps its contents: overwrite them.
  if (::madvise(base, size.value, MADV_DONTNEED) != 0) {
    std::memset(base, 0, size.value);
  }
}

Error LinuxMemory::try_discard(std::byte* base, Bytes size) noexcept {
  if (const Error error = check_range(base, size); error.failed()) return error;
  if (::madvise(base, size.value, MADV_DONTNEED) == 0) {
    return kOk;
  }
  // EINVAL: locked memory, or explicit huge pages of a kernel that cannot.
  if (errno == EINVAL) return {Errc::unsupported, "giving back locked or huge pages", EINVAL};
  return os_error("giving memory back", errno);
}

Error LinuxMemory::punch_hole(int fd, Bytes offset, Bytes size) noexcept {
  if (const Error error = check_size(size, kFrame); error.failed()) return error;
  int result = 0;
  do {
    result = ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                         static_cast<off_t>(offset.value), static_cast<off_t>(size.value));
  } while (result != 0 && errno == EINTR);
  return result == 0 ? kOk : os_error("giving a part of a file back", errno);
}

void LinuxMemory::release(std::byte* base, Bytes size) noexcept {
  if (::munmap(base, size.value) == 0) {
    return;
  }
  WEIR_ASSERT(errno == ENOMEM, "a released mapping is one that this interface made");
  // vm.max_map_count forbids the split: give the memory back at least, only addresses stay.
  ::madvise(base, size.value, MADV_DONTNEED);
}

Error LinuxMemory::advise_huge(std::byte* base, Bytes size, bool on) {
  if (const Error error = check_range(base, size); error.failed()) return error;
  if (::madvise(base, size.value, on ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) != 0) {
    if (errno != EINVAL) return os_error("advice on huge pages", errno);
    // A kernel built without them: then there are none to forbid.
    return on ? Error{Errc::unsupported, "transparent huge pages are not in this kernel", EINVAL}
              : kOk;
  }
  if (on && !can_get_huge_pages(base, size)) {
    return {Errc::unsupported, "transparent huge pages are off for this kind of memory"};
  }
  return kOk;
}

Error LinuxMemory::populate(std::byte* base, Bytes size) {
  if (fails(Failpoint::memory_commit)) return injected("populating memory");
  if (const Error error = check_range(base, size); error.failed()) return error;
  if (kernel_populates()) {
    int result = 0;
    do {
      result = ::madvise(base, size.value, MADV_POPULATE_WRITE);
    } while (result != 0 && (errno == EINTR || errno == EAGAIN));
    return result == 0 ? kOk : os_error("populating memory", errno);
  }
  // A kernel before 5.14: touch each page and keep what it holds. Explicit huge pages are set aside
  // when they are mapped, so this cannot run short of them.
  for (std::uint64_t offset = 0; offset < size.value; offset += kFrameBytes) {
    auto* word = reinterpret_cast<std::uint8_t*>(base + offset);
    __atomic_fetch_or(word, 0, __ATOMIC_RELAXED);
  }
  return kOk;
}

Error LinuxMemory::bind(std::byte* base, Bytes size, NodeId node, bool strict) {
  if (fails(Failpoint::memory_bind)) {
    return {Errc::denied, "binding memory to a node", EPERM};
  }
  if (const Error error = check_range(base, size); error.failed()) return error;
  if (node.value < 0 || node.value > kMaxNode) {
    return {Errc::unsupported, "a node of this number"};
  }
  constexpr unsigned kBits = CHAR_BIT * sizeof(unsigned long);
  unsigned long mask[(kMaxNode + 1) / kBits] = {};
  const auto number = static_cast<unsigned>(node.value);
  mask[number / kBits] = 1UL << (number % kBits);
  // The kernel looks at one bit less than it is told of, and minds none beyond its own that is not set.
  if (::syscall(SYS_mbind, base, size.value, strict ? MPOL_BIND : MPOL_PREFERRED, mask,
                kMaxNode + 2UL, MPOL_MF_MOVE) != 0) {
    // The arguments are good, so it is the node.
    if (errno == EINVAL) return {Errc::unsupported, "a node of this number", EINVAL};
    return os_error("binding memory to a node", errno);
  }
  return kOk;
}

Result<std::byte*> LinuxMemory::map_huge(Bytes size, Bytes page_size) {
  if (fails(Failpoint::memory_huge)) return injected("mapping huge pages");
  if (page_size != kHuge2M && page_size != kHuge1G) {
    return {Errc::unsupported, "huge pages of this size"};
  }
  if (const Error error = check_size(size, page_size); error.failed()) return error;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB |
                    static_cast<int>(log2_floor(page_size.value) << MAP_HUGE_SHIFT);
  const Bytes align = std::max(page_size, bytes(kMaxOrder));
  std::byte* base = map_aligned(size, align, flags, -1);
  if (base == nullptr) {
    // EINVAL: the arguments are good, so the kernel has no pages of this size.
    if (errno == EINVAL) return Error{Errc::unsupported, "huge pages of this size", EINVAL};
    return os_error("mapping huge pages", errno);
  }
  if (const Error error = populate(base, size); error.failed()) {
    release(base, size);
    return error;
  }
  return base;
}

Result<int> LinuxMemory::create_file(const char* name, Bytes size, Bytes huge_page) {
  if (fails(Failpoint::memory_memfd)) return injected("creating a memfd");
  unsigned flags = MFD_CLOEXEC;
  Bytes page = kFrame;
  if (huge_page.value != 0) {
    if (huge_page != kHuge2M && huge_page != kHuge1G) {
      return {Errc::unsupported, "huge pages of this size"};
    }
    page = huge_page;
    flags |= MFD_HUGETLB | (log2_floor(huge_page.value) << MFD_HUGE_SHIFT);
  }
  if (const Error error = check_size(size, page); error.failed()) return error;
  // Systems may insist that nobody executes the file; a kernel before 6.3 does not know the flag.
  int fd = ::memfd_create(name, flags | MFD_NOEXEC_SEAL);
  if (fd < 0 && errno == EINVAL) {
    fd = ::memfd_create(name, flags);
  }
  if (fd < 0) {
    if (errno == ENODEV || (errno == EINVAL && huge_page.value != 0)) {
      return Error{Errc::unsupported, "huge pages of this size", errno};
    }
    return os_error("creating a memfd", errno);
  }
  if (::ftruncate(fd, static_cast<off_t>(size.value)) != 0) {
    const Error error = os_error("sizing a memfd", errno);
    ::close(fd);
    return error;
  }
  return fd;
}

Result<std::byte*> LinuxMemory::map_file(int fd, Bytes size, Bytes align) {
  if (fails(Failpoint::memory_map)) return injected("mapping a memfd");
  if (const Error error = check_size(size, kFrame); error.failed()) return error;
  if (const Error error = check_align(align); error.failed()) return error;
  std::byte* base = map_aligned(size, align, MAP_SHARED, fd);
  if (base == nullptr) return os_error("mapping a memfd", errno);
  return base;
}

void LinuxMemory::close_file(int fd) noexcept { ::close(fd); }

Bytes LinuxMemory::huge_backed(const std::byte* base, Bytes size) {
  // One mapping has at most one of these above zero; where the kernel joined it with a neighbour
  // outside the range, more than the overlap cannot be ours.
  constexpr std::string_view kNames[] = {"AnonHugePages", "ShmemPmdMapped", "FilePmdMapped",
                                         "Shared_Hugetlb", "Private_Hugetlb"};
  Bytes total;
  for_each_smaps_line(base, size, [&](std::string_view line, std::uint64_t overlap) {
    for (const std::string_view name : kNames) {
      if (const auto kib = number_after(line, name)) {
        total = total + Bytes{std::min(*kib << 10, overlap)};
      }
    }
  });
  return total;
}

Memory& system_memory() noexcept {
  // Never destroyed: memory may be given back by objects that die after main().
  alignas(LinuxMemory) static std::byte storage[sizeof(LinuxMemory)];
  static Memory* const memory = ::new (storage) LinuxMemory;
  return *memory;
}

}  // namespace weir
