// SPDX-License-Identifier: MIT
// lab/contenders/floor_rseq.hpp — an array of pointers for each CPU, taken from and given to in
// restartable sequences, and nothing else: no zone, no counter, no way to take the array away. The
// floor of per-CPU lists. Own assembly, own descriptors, the area that the C library registered.
// x86-64 only; elsewhere the contender is missing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "lab/contenders/buffers.hpp"
#include "lab/contenders/mapping.hpp"
#include "weir/os/topology.hpp"

#if defined(__x86_64__) && __has_include(<sys/rseq.h>)
  #define WEIR_LAB_RSEQ 1
  #include <sys/rseq.h>
#endif

namespace weir::lab {

#if defined(WEIR_LAB_RSEQ)

  // area: offset of the C library's area from the thread pointer. The descriptor: version and flags,
  // start and length of the section, where it goes on when it was interrupted. The question mark
  // keeps both beside the function they are for: the linker drops them with its copies.
  #define WEIR_LAB_RSEQ_BEGIN             \
    ".pushsection __rseq_cs, \"aw?\"\n\t" \
    ".balign 32\n"                        \
    "9:\n\t"                              \
    ".long 0, 0\n\t"                      \
    ".quad 1f, 2f - 1f, 3f\n\t"           \
    ".popsection\n"                       \
    "0:\n\t"                              \
    "leaq 9b(%%rip), %[array]\n\t"        \
    "movq %[array], %%fs:8(%[area])\n"    \
    "1:\n\t"                              \
    "movl %%fs:4(%[area]), %k[array]\n\t" \
    "shlq %[shift], %[array]\n\t"         \
    "addq %[arrays], %[array]\n\t"
  // The kernel continues at 3 and insists on the signature before it.
  #define WEIR_LAB_RSEQ_END                    \
    "2:\n\t"                                   \
    ".pushsection __rseq_failure, \"ax?\"\n\t" \
    ".byte 0x0f, 0xb9, 0x3d\n\t"               \
    ".long 0x53053053\n"                       \
    "3:\n\t"                                   \
    "jmp 0b\n\t"                               \
    ".popsection\n\t"

// Why it cannot take part here, or "".
inline std::string rseq_problem() {
  if (__rseq_size == 0) {
    return "the C library registered no area for restartable sequences";
  }
  const auto* area = reinterpret_cast<const struct rseq*>(
      static_cast<const char*>(__builtin_thread_pointer()) + __rseq_offset);
  return static_cast<std::int32_t>(area->cpu_id) < 0
             ? "the kernel has no restartable sequences for this thread"
             : "";
}

class RseqBuffers : public OneByOne<RseqBuffers>, public Plain {
 public:
  using Handle = std::byte*;
  static constexpr bool kPagesOnly = true;

  // All buffers lie on the array of each CPU in turn: the first thread that enters fills its own.
  explicit RseqBuffers(std::size_t)
      : mapping_(kMost * kBufferBytes),
        cpus_(topology().cpu_limit),
        arrays_(std::make_unique<PerCpu[]>(cpus_)) {}
  [[nodiscard]] const Mapping& mapping() const { return mapping_; }

  // restart: area.rseq_cs = descriptor
  //          array = arrays + (area.cpu_id << kShift); n = array.count
  //          if n == 0: none
  //          buffer = array.slots[n - 1]
  //          array.count = n - 1                           <- commits
  [[gnu::always_inline]] Handle alloc() noexcept {
    std::uint64_t array = 0;
    std::uint64_t count = 0;
    Handle buffer;
    asm volatile(WEIR_LAB_RSEQ_BEGIN
                 "movq %c[count](%[array]), %[n]\n\t"
                 "xorl %k[buffer], %k[buffer]\n\t"
                 "subq $1, %[n]\n\t"
                 "jc 2f\n\t"
                 "movq %c[slots](%[array],%[n],8), %[buffer]\n\t"
                 "movq %[n], %c[count](%[array])\n\t" WEIR_LAB_RSEQ_END
                 : [array] "=&r"(array), [n] "=&r"(count), [buffer] "=&r"(buffer)
                 : [area] "r"(area_), [arrays] "r"(arrays_.get()), [shift] "i"(kShift),
                   [count] "i"(offsetof(PerCpu, count)), [slots] "i"(offsetof(PerCpu, slots))
                 : "memory", "cc");
    return buffer;
  }

  // restart: area.rseq_cs = descriptor
  //          array = arrays + (area.cpu_id << kShift); n = array.count
  //          if n == kMost: lost
  //          array.slots[n] = buffer
  //          array.count = n + 1                           <- commits
  [[gnu::always_inline]] void free(Handle buffer) noexcept {
    std::uint64_t array = 0;
    std::uint64_t count = 0;
    asm volatile(WEIR_LAB_RSEQ_BEGIN
                 "movq %c[count](%[array]), %[n]\n\t"
                 "cmpq %[most], %[n]\n\t"
                 "jae 2f\n\t"
                 "movq %[buffer], %c[slots](%[array],%[n],8)\n\t"
                 "addq $1, %[n]\n\t"
                 "movq %[n], %c[count](%[array])\n\t" WEIR_LAB_RSEQ_END
                 : [array] "=&r"(array), [n] "=&r"(count)
                 : [area] "r"(area_), [arrays] "r"(arrays_.get()), [shift] "i"(kShift),
                   [count] "i"(offsetof(PerCpu, count)), [slots] "i"(offsetof(PerCpu, slots)),
                   [most] "i"(kMost), [buffer] "r"(buffer)
                 : "memory", "cc");
  }
  static std::byte* address(Handle buffer) noexcept { return buffer; }

  // Fills the array of the CPU this thread is pinned to; buffers that lay on another are forgotten.
  void enter_thread() noexcept {
    for (std::uint32_t cpu = 0; cpu < cpus_; ++cpu) {
      arrays_[cpu].count = 0;
    }
    for (std::size_t i = 0; i < kMost; ++i) {
      free(mapping_.base() + i * kBufferBytes);
    }
  }

 private:
  static constexpr std::size_t kShift = 13;
  static constexpr std::size_t kMost = 512;
  struct alignas(1U << kShift) PerCpu {
    std::uint64_t count = 0;
    std::array<Handle, kMost> slots{};
  };
  static_assert(sizeof(PerCpu) == 1U << kShift);

  Mapping mapping_;
  std::ptrdiff_t area_ = __rseq_offset;
  std::uint32_t cpus_;
  std::unique_ptr<PerCpu[]> arrays_;
};

  #undef WEIR_LAB_RSEQ_BEGIN
  #undef WEIR_LAB_RSEQ_END
#else

inline std::string rseq_problem() { return "its assembly is for x86-64 and a C library with rseq"; }

#endif

}  // namespace weir::lab
