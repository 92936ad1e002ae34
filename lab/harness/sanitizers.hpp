// SPDX-License-Identifier: MIT
// lab/harness/sanitizers.hpp — tells the sanitizers what they cannot see in libraries that are not
// instrumented: orders between threads, and memory kept for ever on purpose. Empty in other builds.
// Calls the sanitizers' runtime.
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

// There in builds with the address or leak sanitizer only.
extern "C" {
[[gnu::weak]] void __lsan_disable();
[[gnu::weak]] void __lsan_enable();
}

namespace weir::lab {

// What this thread allocates meanwhile is never called a leak.
class KeptForEver {
 public:
  KeptForEver() {
    if (__lsan_disable != nullptr) {
      __lsan_disable();
    }
  }
  ~KeptForEver() {
    if (__lsan_enable != nullptr) {
      __lsan_enable();
    }
  }
  KeptForEver(const KeptForEver&) = delete;
  KeptForEver& operator=(const KeptForEver&) = delete;
};

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
