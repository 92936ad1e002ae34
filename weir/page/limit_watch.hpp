// SPDX-License-Identifier: MIT
// page/limit_watch.hpp — LimitWatch: whoever wants to know when a zone reaches its limits. Registered with
// PageAllocator::add_limit_watch(); page/attempt.cpp tells. Calls page/callback.
#pragma once

#include <cstdint>

#include "weir/base/types.hpp"
#include "weir/page/callback.hpp"

namespace weir {

enum class LimitKind : unsigned char { soft, hard };

// used <= limit < used + asked, exact to the frame; but `used` is above a limit that came down below it,
// and a no_wait request, which does not look at lists and depot, counts what they hold as used.
struct LimitEvent {
  LimitKind which;
  std::uint64_t used;   // frames in use without the request
  std::uint64_t asked;  // frames that the request wanted beyond them
};

class LimitWatch : public Callback {
 public:
  // Called in the thread of the request, after it was served (soft) or before it is refused (hard), with
  // no lock of weir held; may do what a reclaimer may. The soft limit: once each time it is crossed upward.
  // The hard one: for each request that it refuses, as often as that is; who wants it less often counts.
  using Tell = void (*)(void* context, const LimitEvent& event) noexcept;

  explicit LimitWatch(Tell callback, void* context = nullptr) noexcept
      : Callback(CallbackKind::limit), tell_(callback), context_(context) {}

  void tell(const LimitEvent& event) const noexcept { tell_(context_, event); }

 private:
  const Tell tell_;
  void* const context_;
};

}  // namespace weir
