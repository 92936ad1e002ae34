// SPDX-License-Identifier: MIT
#include "weir/os/lock.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "weir/arch/cpu.hpp"

namespace weir {
namespace {

// Longer than the ordinary hold (one cluster moved, about a microsecond), far shorter than a time
// slice: 128 pauses are 1 to 5 microseconds on x86-64.
constexpr int kSpins = 128;

// The futex word is the atomic itself; the kernel only compares it. errno belongs to the caller:
// a free from a signal handler may come through here.
long futex(Atomic<std::uint32_t>& word, int operation, std::uint32_t value) noexcept {
  const int saved = errno;
  const long result = ::syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
  errno = saved;
  return result;
}

static_assert(sizeof(Atomic<std::uint32_t>) == sizeof(std::uint32_t));
static_assert(Atomic<std::uint32_t>::is_always_lock_free);

}  // namespace

void Lock::lock_slow() noexcept {
  for (int spin = 0; spin < kSpins; ++spin) {
    cpu_pause();
    if (word_.load(memory_order_relaxed) == kFree && try_lock()) {
      return;
    }
  }
  // Whoever may have to sleep takes the lock in the state "with sleepers": it cannot know whether
  // others sleep as well, and one wake too many is harmless where one too few is not.
  // pairs: unlock release
  while (word_.exchange(kHeldWithSleepers, memory_order_acquire) != kFree) {
    futex(word_, FUTEX_WAIT_PRIVATE, kHeldWithSleepers);  // returns at once if the word changed
  }
}

void Lock::wake_one() noexcept { futex(word_, FUTEX_WAKE_PRIVATE, 1); }

}  // namespace weir
