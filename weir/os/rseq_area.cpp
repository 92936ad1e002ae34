// SPDX-License-Identifier: MIT
#include "weir/os/rseq_area.hpp"

#include <sys/rseq.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "weir/arch/rseq_abi.hpp"
#include "weir/base/atomic.hpp"

namespace weir {

static_assert(offsetof(RseqArea, cpu_id_start) == offsetof(struct rseq, cpu_id_start));
static_assert(offsetof(RseqArea, cpu_id) == offsetof(struct rseq, cpu_id));
static_assert(offsetof(RseqArea, rseq_cs) == offsetof(struct rseq, rseq_cs));
static_assert(offsetof(RseqArea, flags) == offsetof(struct rseq, flags));
static_assert(offsetof(RseqArea, cpu_id) == arch::kAreaCpuId);
static_assert(offsetof(RseqArea, rseq_cs) == arch::kAreaRseqCs);
#if defined(__x86_64__)
static_assert(kRseqSignature == RSEQ_SIG);
#endif

constinit thread_local RseqArea t_rseq_area;

namespace rseq_area {

// g_offset and g_wide under the names that may be written, once: declared constant for everybody else.
// Until then the offset leads to no address at all.
extern std::ptrdiff_t g_offset_cell asm("weir_rseq_area_offset");
[[gnu::visibility("default"), gnu::used]] std::ptrdiff_t g_offset_cell = std::ptrdiff_t{1} << 62;
extern bool g_wide_cell asm("weir_rseq_wide");
[[gnu::visibility("default"), gnu::used]] bool g_wide_cell = false;

namespace {

Atomic<Registrar> g_registrar{Registrar::none};
Atomic<std::uint64_t> g_refused_threads{0};
// This thread has been refused and counted.
constinit thread_local bool t_refused [[gnu::tls_model("initial-exec")]] = false;

// The distance from the thread pointer is known to the linker or the loader but is no constant
// expression of the language, and linkers refuse it as a relocation of data.
std::ptrdiff_t own_offset() noexcept {
  return reinterpret_cast<std::byte*>(&t_rseq_area) -
         static_cast<std::byte*>(__builtin_thread_pointer());
}

// Before the constructors of programs, which have no priority or a later one.
[[gnu::constructor(101)]] void point_to_areas() noexcept {
  g_offset_cell = __rseq_size != 0 ? std::ptrdiff_t{__rseq_offset} : own_offset();
#if defined(__x86_64__)
  __builtin_cpu_init();
  g_wide_cell = __builtin_cpu_supports("avx") != 0;
#endif
}

volatile RseqArea* area_at(std::ptrdiff_t offset) noexcept {
  return reinterpret_cast<volatile RseqArea*>(static_cast<std::byte*>(__builtin_thread_pointer()) +
                                              offset);
}

int call_rseq(int flags) noexcept {
#if defined(SYS_rseq)
  const int saved = errno;
  const long result =
      ::syscall(SYS_rseq, area_at(own_offset()), sizeof(RseqArea), flags, kRseqSignature);
  const int why = result == 0 ? 0 : errno;
  errno = saved;
  return why;
#else
  static_cast<void>(flags);
  return ENOSYS;
#endif
}

}  // namespace

bool thread_registered() noexcept { return current().cpu_id >= 0; }

bool register_thread() noexcept {
  const Registrar registrar = g_registrar.load(memory_order_relaxed);
  if (registrar == Registrar::none) {
    return false;
  }
  if (thread_registered()) {
    return true;
  }
  if (t_refused || (registrar == Registrar::weir && register_own() == 0)) {
    return !t_refused;
  }
  // Exchanged, not stored: a signal handler of this thread may have been refused just now.
  if (!__atomic_exchange_n(&t_refused, true, __ATOMIC_RELAXED)) {
    g_refused_threads.fetch_add(1, memory_order_relaxed);
  }
  return false;
}

std::uint64_t refused_threads() noexcept { return g_refused_threads.load(memory_order_relaxed); }

bool c_library_registers() noexcept { return __rseq_size != 0; }

bool c_library_registered_thread() noexcept {
  return c_library_registers() && area_at(__rseq_offset)->cpu_id >= 0;
}

int register_own() noexcept {
  const int why = call_rseq(0);
  // Busy and yet up to date: a signal handler of this thread was here first.
  return area_at(own_offset())->cpu_id >= 0 ? 0 : why;
}

int unregister_own() noexcept { return call_rseq(RSEQ_FLAG_UNREGISTER); }

void use_areas_of(Registrar registrar) noexcept {
  g_registrar.store(registrar, memory_order_relaxed);
}

}  // namespace rseq_area
}  // namespace weir
