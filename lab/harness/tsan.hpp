// SPDX-License-Identifier: MIT
// lab/harness/tsan.hpp — tells the thread sanitizer of orders it cannot see, in code that is not
// instrumented. Empty in every other build. Calls the sanitizer's runtime.
#pragma once

#if defined(__SANITIZE_THREAD__)
  #define WEIR_LAB_TSAN 1
#elif defined(__has_feature)
  #if __has_feature(thread_sanitizer)
    #define WEIR_LAB_TSAN 1
  #endif
#endif

#if defined(WEIR_LAB_TSAN)
extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

namespace weir::lab {

inline void tsan_acquire([[maybe_unused]] void* address) noexcept {
#if defined(WEIR_LAB_TSAN)
  if (address != nullptr) {
    __tsan_acquire(address);
  }
#endif
}

inline void tsan_release([[maybe_unused]] void* address) noexcept {
#if defined(WEIR_LAB_TSAN)
  __tsan_release(address);
#endif
}

}  // namespace weir::lab
