// SPDX-License-Identifier: MIT
// Limits of a zone that runs. The zone keeps them; what stands on lists and in the depot when a limit
// comes down would be beyond it, and is taken back here.
#include <algorithm>

#include "weir/percpu/carry.hpp"

namespace weir {

// Frames free in the engine that end a shortage: of what ordinary requests may take, an eighth or the
// low watermark, whichever is less, above what they may not.
std::uint64_t CachedZone::enough(PageCount hard) const noexcept {
  const PageCount managed = zone_.managed();
  const PageCount available = hard.value != 0 ? std::min(hard, managed) : managed;
  const std::uint64_t reserve = zone_.reserve().value;
  const std::uint64_t ordinary = available.value > reserve ? available.value - reserve : 0;
  return managed.value - available.value + reserve +
         std::min(zone_.watermarks().low.value, ordinary / 8);
}

Error CachedZone::set_limits(PageCount hard, PageCount soft) noexcept {
  if (hard.value != 0 && hard <= zone_.reserve()) {
    return {Errc::bad_option, "the limit must be larger than the reserve", 0};
  }
  if (thread_is_marked()) {
    return {Errc::would_block, "limits set inside a signal handler", 0};
  }
  if (detached()) {
    return kOk;
  }
  {
    const ThreadMark mark;
    const LockGuard guard{shortage_lock_};
    if (hard.value != 0 || soft.value != 0) {
      // Lists serve without a look at any limit: none runs until what is out is below the new one.
      if (const Error error = enter_shortage(); error.failed()) {
        return error;
      }
      leave_above_.store(enough(hard), memory_order_relaxed);
      drain_depot();
      for (std::uint32_t spin = 0; carriers() != 0; ++spin) {
        wait_a_little(spin);
      }
      drain_depot();
    } else {
      leave_above_.store(enough(hard), memory_order_relaxed);
    }
    zone_.set_limits(hard, soft);
  }
  maybe_leave_shortage();
  return kOk;
}

}  // namespace weir
