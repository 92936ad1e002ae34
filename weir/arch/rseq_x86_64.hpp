// SPDX-License-Identifier: MIT
// arch/rseq_x86_64.hpp — all restartable sections, for x86-64. arch/rseq.hpp says what each does.
// Calls nothing.
//
// The frame of every section:
//   6:  rseq_cs = descriptor      from here the kernel knows the section
//   1:  ...                       a signal, a preemption or a fence in here goes on at 4
//       commit                    one store, the last instruction
//   2:
//   4:  back to 6                 after the signature that the kernel asks for
// Descriptors lie in __rseq_cs, abort code in __rseq_failure; both belong to the section group of the
// function they serve, so that a linker which drops one copy of an inline function drops them too.
// rseq_cs is not cleared at the end: the kernel does it when it finds the thread elsewhere. What the
// descriptors lie in must therefore never be unmapped (-z nodelete).
//
// `asm inline`: a compiler that counts lines takes a section for a long function and would not inline
// what contains it.
//
// A section may store anything beyond top before it commits: nobody looks there.
//
// Copies go by 32 bytes where `wide` says that the processor and the system have AVX: half as many
// stores, which is what copying is bound by (a third of a bulk's time). Not so compiled: the library
// is built for any x86-64. Whoever aborts between a wide load and vzeroupper leaves upper halves
// behind; the next wide copy of the thread clears them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weir/arch/rseq_abi.hpp"
#include "weir/base/hot.hpp"

namespace weir::arch::rseq {

// clang-format off
#define WEIR_RSEQ_BEGIN(scratch)                                                      \
  ".pushsection __rseq_cs, \"aw?\"\n"                                                 \
  ".balign 32\n"                                                                      \
  "9: .long 0, 0\n"                      /* version, flags */                         \
  "   .quad 1f, 2f - 1f, 4f\n"           /* start, length, abort */                   \
  ".popsection\n"                                                                     \
  ".pushsection __rseq_cs_ptr_array, \"aw?\"\n"                                       \
  "   .quad 9b\n"                                                                     \
  ".popsection\n"                                                                     \
  ".pushsection __rseq_failure, \"ax?\"\n"                                            \
  "   .byte 0x0f, 0xb9, 0x3d\n"          /* ud1 with the signature as displacement */ \
  "   .long 0x53053053\n"                                                             \
  "4: jmp 6f\n"                                                                       \
  ".popsection\n"                                                                     \
  "6: lea 9b(%%rip), " scratch "\n"                                                   \
  "   mov " scratch ", %%fs:%c[cs](%[area])\n"                                        \
  "1: movslq %%fs:%c[cpu](%[area]), %[block]\n"                                       \
  "   shl %[shift], %[block]\n"                                                       \
  "   add %[blocks], %[block]\n"

#define WEIR_RSEQ_COMMON                                                              \
  [blocks] "r"(blocks), [area] "r"(area), [cpu] "i"(kAreaCpuId), [cs] "i"(kAreaRseqCs), \
  [shift] "i"(kBlockShift), [head] "i"(Place::kHead), [ring] "i"(Place::kRing),       \
  [mask] "i"(Place::kSize - 1), [floor] "i"(Place::kHead + kBoundsFloor)

// The hottest entry; false when the list is empty or stopped.
template <class Place>
[[nodiscard]] WEIR_HOT bool pop(std::byte* blocks, std::ptrdiff_t area, void*& entry) noexcept {
  std::uint64_t block;
  std::uint64_t word;
  std::uint64_t place;
  bool taken;
  asm inline volatile(
      WEIR_RSEQ_BEGIN("%[word]")
      "   mov %c[head](%[block]), %[word]\n"
      "   lea -1(%[word]), %k[place]\n"
      "   and %[mask], %k[place]\n"
      "   cmpw %c[floor](%[block]), %w[word]\n"
      "   jbe 2f\n"
      "   mov %c[ring](%[block],%[place],8), %[place]\n"
      "   lea %c[step](%[word]), %[word]\n"
      "   mov %[word], %c[head](%[block])\n"  // commit
      "2:\n"
      : [block] "=&r"(block), [word] "=&r"(word), [place] "=&r"(place), "=@cca"(taken)
      : WEIR_RSEQ_COMMON, [step] "i"(kPopStep)
      : "memory");
  entry = reinterpret_cast<void*>(place);
  return taken;
}

// False when the list is full or stopped.
template <class Place>
[[nodiscard]] WEIR_HOT bool push(std::byte* blocks, std::ptrdiff_t area, void* entry) noexcept {
  std::uint64_t block;
  std::uint64_t word;
  std::uint64_t place;
  bool taken;
  asm inline volatile(
      WEIR_RSEQ_BEGIN("%[word]")
      "   mov %c[head](%[block]), %[word]\n"
      "   mov %k[word], %k[place]\n"
      "   and %[mask], %k[place]\n"
      "   cmpw %c[ceil](%[block]), %w[word]\n"
      "   jae 2f\n"
      "   mov %[entry], %c[ring](%[block],%[place],8)\n"
      "   lea 1(%[word]), %[word]\n"
      "   mov %[word], %c[head](%[block])\n"  // commit
      "2:\n"
      : [block] "=&r"(block), [word] "=&r"(word), [place] "=&r"(place), "=@ccb"(taken)
      : WEIR_RSEQ_COMMON, [ceil] "i"(Place::kHead + kBoundsCeil), [entry] "r"(entry)
      : "memory");
  return taken;
}

// Copies count (>= 1) words of 8 bytes from [from] to [to] and uses all three up; unaligned, in
// sixteens if `wide`, in eights, then one by one.
#define WEIR_COPY_POINTERS                                                            \
  "   cmp $16, %k[count]\n"                                                          \
  "   jb 20f\n"                                                                      \
  "   testb $1, %b[wide]\n"                                                          \
  "   jz 20f\n"                                                                      \
  "17: vmovups (%[from]), %%ymm0\n"                                                  \
  "   vmovups 32(%[from]), %%ymm1\n"                                                 \
  "   vmovups 64(%[from]), %%ymm2\n"                                                 \
  "   vmovups 96(%[from]), %%ymm3\n"                                                 \
  "   vmovups %%ymm0, (%[to])\n"                                                     \
  "   vmovups %%ymm1, 32(%[to])\n"                                                   \
  "   vmovups %%ymm2, 64(%[to])\n"                                                   \
  "   vmovups %%ymm3, 96(%[to])\n"                                                   \
  "   add $128, %[from]\n"                                                           \
  "   add $128, %[to]\n"                                                             \
  "   sub $16, %k[count]\n"                                                          \
  "   cmp $16, %k[count]\n"                                                          \
  "   jae 17b\n"                                                                     \
  "   vzeroupper\n"                                                                  \
  "   test %k[count], %k[count]\n"                                                   \
  "   jz 22f\n"                                                                      \
  "20: cmp $8, %k[count]\n"                                                           \
  "   jb 21f\n"                                                                       \
  "   movups (%[from]), %%xmm0\n"                                                     \
  "   movups 16(%[from]), %%xmm1\n"                                                   \
  "   movups 32(%[from]), %%xmm2\n"                                                   \
  "   movups 48(%[from]), %%xmm3\n"                                                   \
  "   movups %%xmm0, (%[to])\n"                                                       \
  "   movups %%xmm1, 16(%[to])\n"                                                     \
  "   movups %%xmm2, 32(%[to])\n"                                                     \
  "   movups %%xmm3, 48(%[to])\n"                                                     \
  "   add $64, %[from]\n"                                                             \
  "   add $64, %[to]\n"                                                               \
  "   sub $8, %k[count]\n"                                                            \
  "   jnz 20b\n"                                                                      \
  "   jmp 22f\n"                                                                      \
  "21: mov (%[from]), %[temp]\n"                                                      \
  "   mov %[temp], (%[to])\n"                                                         \
  "   add $8, %[from]\n"                                                              \
  "   add $8, %[to]\n"                                                                \
  "   dec %k[count]\n"                                                                \
  "   jnz 21b\n"                                                                      \
  "22:\n"

// vzeroupper writes all of them, which matters to a caller compiled for AVX.
#define WEIR_WIDE_CLOBBERS                                                            \
  "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",     \
  "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

// Exactly n (1 to 64) hottest entries, the hottest last; false when there are fewer.
template <class Place>
[[nodiscard]] inline bool pop_many(std::byte* blocks, std::ptrdiff_t area, void** out,
                                   std::uint32_t n, bool wide) noexcept {
  std::uint64_t block;
  std::uint64_t word;
  std::uint64_t from;
  std::uint64_t to;
  std::uint64_t count;
  std::uint64_t temp;
  std::uint64_t rest;
  asm inline volatile(
      WEIR_RSEQ_BEGIN("%[word]")
      "   mov %k[n], %k[count]\n"                    // not 0 when this fails
      "   mov %c[head](%[block]), %[word]\n"
      "   movzwl %w[word], %k[from]\n"
      "   sub %k[n], %k[from]\n"                     // the coldest of them, negative if none there
      "   movzwl %c[floor](%[block]), %k[temp]\n"
      "   cmp %k[temp], %k[from]\n"
      "   jl 2f\n"
      "   and %[mask], %k[from]\n"
      "   mov %[out], %[to]\n"
      "   mov %k[n], %k[rest]\n"
      "18: mov %[size], %k[count]\n"                // up to the ring's end, then from its start
      "   sub %k[from], %k[count]\n"
      "   cmp %k[rest], %k[count]\n"
      "   jbe 19f\n"
      "   mov %k[rest], %k[count]\n"
      "19: sub %k[count], %k[rest]\n"
      "   lea %c[ring](%[block],%[from],8), %[from]\n"
      WEIR_COPY_POINTERS
      "   xor %k[from], %k[from]\n"
      "   test %k[rest], %k[rest]\n"
      "   jnz 18b\n"
      "   imul %[step], %q[n], %[temp]\n"
      "   add %[temp], %[word]\n"
      "   mov %[word], %c[head](%[block])\n"  // commit
      "2:\n"
      : [block] "=&r"(block), [word] "=&r"(word), [from] "=&r"(from), [to] "=&r"(to),
        [count] "=&r"(count), [temp] "=&r"(temp), [rest] "=&r"(rest)
      : WEIR_RSEQ_COMMON, [size] "i"(Place::kSize), [out] "r"(out), [n] "r"(std::uint64_t{n}),
        [step] "i"(kPopStep), [wide] "r"(wide)
      : WEIR_WIDE_CLOBBERS);
  return count == 0;  // all are through
}

// Exactly n (1 to 64) entries, the last becoming the hottest; false when there is no room for all.
template <class Place>
[[nodiscard]] inline bool push_many(std::byte* blocks, std::ptrdiff_t area, void* const* in,
                                    std::uint32_t n, bool wide) noexcept {
  std::uint64_t block;
  std::uint64_t word;
  std::uint64_t from;
  std::uint64_t to;
  std::uint64_t count;
  std::uint64_t temp;
  std::uint64_t rest;
  asm inline volatile(
      WEIR_RSEQ_BEGIN("%[word]")
      "   mov %c[head](%[block]), %[word]\n"
      "   movzwl %w[word], %k[to]\n"
      "   lea (%[to],%q[n]), %k[count]\n"            // where top will be
      "   movzwl %c[ceil](%[block]), %k[temp]\n"
      "   cmp %k[temp], %k[count]\n"
      "   ja 2f\n"
      "   and %[mask], %k[to]\n"
      "   mov %[in], %[from]\n"
      "   mov %k[n], %k[rest]\n"
      "18: mov %[size], %k[count]\n"                // up to the ring's end, then from its start
      "   sub %k[to], %k[count]\n"
      "   cmp %k[rest], %k[count]\n"
      "   jbe 19f\n"
      "   mov %k[rest], %k[count]\n"
      "19: sub %k[count], %k[rest]\n"
      "   lea %c[ring](%[block],%[to],8), %[to]\n"
      WEIR_COPY_POINTERS
      "   xor %k[to], %k[to]\n"
      "   test %k[rest], %k[rest]\n"
      "   jnz 18b\n"
      "   add %q[n], %[word]\n"
      "   mov %[word], %c[head](%[block])\n"  // commit
      "2:\n"
      : [block] "=&r"(block), [word] "=&r"(word), [from] "=&r"(from), [to] "=&r"(to),
        [count] "=&r"(count), [temp] "=&r"(temp), [rest] "=&r"(rest)
      : WEIR_RSEQ_COMMON, [ceil] "i"(Place::kHead + kBoundsCeil), [size] "i"(Place::kSize),
        [in] "r"(in), [n] "r"(std::uint64_t{n}), [wide] "r"(wide)
      : WEIR_WIDE_CLOBBERS);
  return count == 0;  // all are through
}

// As push_many, for entries that each begin with a word equal to `head`; false also when one does not.
template <class Place>
[[nodiscard]] inline bool push_alike(std::byte* blocks, std::ptrdiff_t area, void* const* in,
                                     std::uint32_t n, std::uint64_t head, bool wide) noexcept {
  std::uint64_t block;
  std::uint64_t word;
  std::uint64_t from;
  std::uint64_t to;
  std::uint64_t count;
  std::uint64_t temp;
  std::uint64_t rest;
  asm inline volatile(
      WEIR_RSEQ_BEGIN("%[word]")
      "   mov %c[head](%[block]), %[word]\n"
      "   movzwl %w[word], %k[to]\n"
      "   lea (%[to],%q[n]), %k[count]\n"
      "   movzwl %c[ceil](%[block]), %k[temp]\n"
      "   cmp %k[temp], %k[count]\n"
      "   ja 2f\n"
      "   and %[mask], %k[to]\n"
      "   mov %[in], %[from]\n"
      "   mov %k[n], %k[rest]\n"
      "18: mov %[size], %k[count]\n"                // up to the ring's end, then from its start
      "   sub %k[to], %k[count]\n"
      "   cmp %k[rest], %k[count]\n"
      "   jbe 19f\n"
      "   mov %k[rest], %k[count]\n"
      "19: sub %k[count], %k[rest]\n"
      "   lea %c[ring](%[block],%[to],8), %[to]\n"
      "   cmp $8, %k[count]\n"
      "   jb 20f\n"
      "   testb $1, %b[wide]\n"
      "   jz 20f\n"
      "17: vmovups (%[from]), %%ymm0\n"              // copied in fours, looked at one by one
      "   vmovups 32(%[from]), %%ymm1\n"
      "   mov (%[from]), %[temp]\n"
      "   cmp %[alike], (%[temp])\n"
      "   jne 2f\n"
      "   mov 8(%[from]), %[temp]\n"
      "   cmp %[alike], (%[temp])\n"
      "   jne 2f\n"
      "   mov 16(%[from]), %[temp]\n"
      "   cmp %[alike], (%[temp])\n"
      "   jne 2f\n"
      "   mov 24(%[from]), %[temp]\n"
      "   cmp %[alike], (%[temp])\n"
      "   jne 2f\n"
      "   mov 32(%[from]), %[temp]\n"
      "   cmp %[alike], (%[temp])\n"
      "   jne 2f\n"
      "   mov 40(%[from]), %[temp]\n"
      "   cmp %[alike], (%[temp])\n"
      "   jne 2f\n"
      "   mov 48(%[from]), %[temp]\n"
      "   cmp %[alike], (%[temp])\n"
      "   jne 2f\n"
      "   mov 56(%[from]), %[temp]\n"
      "   cmp %[alike], (%[temp])\n"
      "   jne 2f\n"
      "   vmovups %%ymm0, (%[to])\n"
      "   vmovups %%ymm1, 32(%[to])\n"
      "   add $64, %[from]\n"
      "   add $64, %[to]\n"
      "   sub $8, %k[count]\n"
      "   cmp $8, %k[count]\n"
      "   jae 17b\n"
      "   vzeroupper\n"
      "   test %k[count], %k[count]\n"
      "   jz 22f\n"
      "20: cmp $4, %k[count]\n"
      "   jb 21f\n"
      "   movups (%[from]), %%xmm0\n"               // the same in twos
      "   movups 16(%[from]), %%xmm1\n"
      "   mov (%[from]), %[temp]\n"
      "   cmp %[alike], (%[temp])\n"
      "   jne 2f\n"
      "   mov 8(%[from]), %[temp]\n"
      "   cmp %[alike], (%[temp])\n"
      "   jne 2f\n"
      "   movups %%xmm0, (%[to])\n"
      "   mov 16(%[from]), %[temp]\n"
      "   cmp %[alike], (%[temp])\n"
      "   jne 2f\n"
      "   mov 24(%[from]), %[temp]\n"
      "   cmp %[alike], (%[temp])\n"
      "   jne 2f\n"
      "   movups %%xmm1, 16(%[to])\n"
      "   add $32, %[from]\n"
      "   add $32, %[to]\n"
      "   sub $4, %k[count]\n"
      "   jnz 20b\n"
      "   jmp 22f\n"
      "21: mov (%[from]), %[temp]\n"
      "   cmp %[alike], (%[temp])\n"
      "   jne 2f\n"
      "   mov %[temp], (%[to])\n"
      "   add $8, %[from]\n"
      "   add $8, %[to]\n"
      "   dec %k[count]\n"
      "   jnz 21b\n"
      "22: xor %k[to], %k[to]\n"
      "   test %k[rest], %k[rest]\n"
      "   jnz 18b\n"
      "   add %q[n], %[word]\n"
      "   mov %[word], %c[head](%[block])\n"  // commit
      "2:\n"
      : [block] "=&r"(block), [word] "=&r"(word), [from] "=&r"(from), [to] "=&r"(to),
        [count] "=&r"(count), [temp] "=&r"(temp), [rest] "=&r"(rest)
      : WEIR_RSEQ_COMMON, [ceil] "i"(Place::kHead + kBoundsCeil), [size] "i"(Place::kSize),
        [in] "r"(in), [n] "r"(std::uint64_t{n}), [wide] "r"(wide), [alike] "r"(head)
      : WEIR_WIDE_CLOBBERS);
  return count == 0;  // all are through
}

// As push_many up to the limit instead of the ceil; false also when the entries would lie across the
// ring's end. They are named by index: an entry is
// base + (index << 5). `at`: the block it was done on.
template <class Place>
[[nodiscard]] inline bool refill(std::byte* blocks, std::ptrdiff_t area, const std::uint32_t* in,
                                 std::uint32_t n, void* base, std::byte*& at) noexcept {
  std::uint64_t block;
  std::uint64_t word;
  std::uint64_t from;
  std::uint64_t to;
  std::uint64_t count;
  std::uint64_t temp;
  std::uint64_t taken;
  asm inline volatile(
      WEIR_RSEQ_BEGIN("%[word]")
      "   xor %k[taken], %k[taken]\n"               // here: a restart may have left it 1
      "   mov %c[head](%[block]), %[word]\n"
      "   movzwl %w[word], %k[to]\n"
      "   lea (%[to],%q[n]), %k[count]\n"
      "   movzwl %c[limit](%[block]), %k[temp]\n"
      "   cmp %k[temp], %k[count]\n"
      "   ja 2f\n"
      "   and %[mask], %k[to]\n"
      "   lea (%[to],%q[n]), %k[count]\n"
      "   cmp %[size], %k[count]\n"
      "   ja 2f\n"
      "   lea %c[ring](%[block],%[to],8), %[to]\n"
      "   mov %[in], %[from]\n"
      "   mov %k[n], %k[count]\n"
      "   movq %[base], %%xmm4\n"
      "   punpcklqdq %%xmm4, %%xmm4\n"
      "   pxor %%xmm3, %%xmm3\n"
      "20: cmp $4, %k[count]\n"
      "   jb 21f\n"
      "   movdqu (%[from]), %%xmm0\n"
      "   movdqa %%xmm0, %%xmm1\n"
      "   punpckldq %%xmm3, %%xmm0\n"
      "   punpckhdq %%xmm3, %%xmm1\n"
      "   psllq $5, %%xmm0\n"
      "   psllq $5, %%xmm1\n"
      "   paddq %%xmm4, %%xmm0\n"
      "   paddq %%xmm4, %%xmm1\n"
      "   movups %%xmm0, (%[to])\n"
      "   movups %%xmm1, 16(%[to])\n"
      "   add $16, %[from]\n"
      "   add $32, %[to]\n"
      "   sub $4, %k[count]\n"
      "   jnz 20b\n"
      "   jmp 22f\n"
      "21: mov (%[from]), %k[temp]\n"
      "   shl $5, %[temp]\n"
      "   add %[base], %[temp]\n"
      "   mov %[temp], (%[to])\n"
      "   add $4, %[from]\n"
      "   add $8, %[to]\n"
      "   dec %k[count]\n"
      "   jnz 21b\n"
      "22: add %q[n], %[word]\n"
      "   mov $1, %k[taken]\n"
      "   mov %[word], %c[head](%[block])\n"  // commit
      "2:\n"
      : [block] "=&r"(block), [word] "=&r"(word), [from] "=&r"(from), [to] "=&r"(to),
        [count] "=&r"(count), [temp] "=&r"(temp), [taken] "=&r"(taken)
      : WEIR_RSEQ_COMMON, [limit] "i"(Place::kHead + kBoundsLimit), [size] "i"(Place::kSize),
        [in] "r"(in), [n] "r"(std::uint64_t{n}), [base] "r"(base)
      : "memory", "cc", "xmm0", "xmm1", "xmm3", "xmm4");
  at = reinterpret_cast<std::byte*>(block);
  return taken != 0;
}

// The n (1 to 64) oldest entries of a list without room, as indexes; floor, ceil and limit move up by
// n. False when the list has room or is stopped, when it has fewer, or when they lie across the ring's
// end. Commits word and bounds in one aligned 16-byte store: one instruction is done or not done
// when a section is aborted, whatever a drainer on another CPU may see of it
// (percpu/page_lists_drain.cpp says why either half alone does no harm).
template <class Place>
[[nodiscard]] inline bool spill(std::byte* blocks, std::ptrdiff_t area, std::uint32_t* out,
                                std::uint32_t n, void* base, std::byte*& at) noexcept {
  std::uint64_t block;
  std::uint64_t word;
  std::uint64_t from;
  std::uint64_t to;
  std::uint64_t count;
  std::uint64_t temp;
  std::uint64_t taken;
  asm inline volatile(
      WEIR_RSEQ_BEGIN("%[word]")
      "   xor %k[taken], %k[taken]\n"               // here: a restart may have left it 1
      "   mov %c[head](%[block]), %[word]\n"
      "   movzwl %w[word], %k[count]\n"
      "   mov %c[bounds](%[block]), %[temp]\n"
      "   cmp %[stopped], %[temp]\n"
      "   je 2f\n"
      "   mov %k[temp], %k[from]\n"
      "   shr $16, %k[from]\n"                       // ceil
      "   cmp %k[from], %k[count]\n"
      "   jb 2f\n"                                   // there is room
      "   movzwl %w[temp], %k[from]\n"               // floor
      "   sub %k[from], %k[count]\n"
      "   cmp %k[n], %k[count]\n"
      "   jl 2f\n"                                   // fewer than n
      "   and %[mask], %k[from]\n"
      "   lea (%[from],%q[n]), %k[count]\n"
      "   cmp %[size], %k[count]\n"
      "   ja 2f\n"
      "   lea %c[ring](%[block],%[from],8), %[from]\n"
      "   mov %[out], %[to]\n"
      "   mov %k[n], %k[count]\n"
      "   movq %[base], %%xmm4\n"
      "   punpcklqdq %%xmm4, %%xmm4\n"
      "20: cmp $4, %k[count]\n"
      "   jb 21f\n"
      "   movups (%[from]), %%xmm0\n"
      "   movups 16(%[from]), %%xmm1\n"
      "   psubq %%xmm4, %%xmm0\n"
      "   psubq %%xmm4, %%xmm1\n"
      "   psrlq $5, %%xmm0\n"
      "   psrlq $5, %%xmm1\n"
      "   shufps $0x88, %%xmm1, %%xmm0\n"
      "   movups %%xmm0, (%[to])\n"
      "   add $32, %[from]\n"
      "   add $16, %[to]\n"
      "   sub $4, %k[count]\n"
      "   jnz 20b\n"
      "   jmp 22f\n"
      "21: mov (%[from]), %[taken]\n"
      "   sub %[base], %[taken]\n"
      "   shr $5, %[taken]\n"
      "   mov %k[taken], (%[to])\n"
      "   add $8, %[from]\n"
      "   add $4, %[to]\n"
      "   dec %k[count]\n"
      "   jnz 21b\n"
      "22: add %[step], %[temp]\n"                   // the new bounds
      "   cmp %[sizew], %w[temp]\n"
      "   jb 23f\n"
      "   movabs %[rebase], %[to]\n"
      "   sub %[to], %[temp]\n"
      "   sub %[size], %[word]\n"
      "23: movq %[word], %%xmm0\n"
      "   movq %[temp], %%xmm1\n"
      "   punpcklqdq %%xmm1, %%xmm0\n"
      "   mov $1, %k[taken]\n"
      "   movaps %%xmm0, %c[head](%[block])\n"  // commit
      "2:\n"
      : [block] "=&r"(block), [word] "=&r"(word), [from] "=&r"(from), [to] "=&r"(to),
        [count] "=&r"(count), [temp] "=&r"(temp), [taken] "=&r"(taken)
      : WEIR_RSEQ_COMMON, [bounds] "i"(Place::kHead + kHeadBounds), [size] "i"(Place::kSize),
        [sizew] "i"(Place::kSize), [stopped] "i"(static_cast<int>(kStoppedBounds)), [out] "r"(out),
        [n] "r"(std::uint64_t{n}), [base] "r"(base), [step] "r"(std::uint64_t{n} * kAllBounds),
        [rebase] "i"(Place::kSize * kAllBounds)
      : "memory", "cc", "xmm0", "xmm1", "xmm4");
  at = reinterpret_cast<std::byte*>(block);
  return taken != 0;
}

// Replaces the bounds of the list if they are still `expected`.
template <class Place>
[[nodiscard]] inline bool replace_bounds(std::byte* blocks, std::ptrdiff_t area,
                                         std::uint64_t expected, std::uint64_t next) noexcept {
  std::uint64_t block;
  std::uint64_t word;
  bool replaced;
  asm inline volatile(
      WEIR_RSEQ_BEGIN("%[word]")
      "   cmp %[expected], %c[bounds](%[block])\n"
      "   jne 2f\n"
      "   mov %[next], %c[bounds](%[block])\n"  // commit
      "2:\n"
      : [block] "=&r"(block), [word] "=&r"(word), "=@cce"(replaced)
      : [blocks] "r"(blocks), [area] "r"(area), [cpu] "i"(kAreaCpuId), [cs] "i"(kAreaRseqCs),
        [shift] "i"(kBlockShift), [bounds] "i"(Place::kHead + kHeadBounds),
        [expected] "r"(expected), [next] "r"(next)
      : "memory");
  return replaced;
}

#undef WEIR_RSEQ_BEGIN
#undef WEIR_RSEQ_COMMON
#undef WEIR_COPY_POINTERS
#undef WEIR_WIDE_CLOBBERS
// clang-format on

}  // namespace weir::arch::rseq
