// SPDX-License-Identifier: MIT
// How LockedEngine withholds a pageblock: the lock is held for 64 frames, or one larger block, at a time.
#include "weir/base/bits.hpp"
#include "weir/zone/locked_hold.hpp"

namespace weir {
namespace {

PageIndex block_of(PageIndex page) noexcept { return {align_down(page.value, kPageblockFrames)}; }

}  // namespace

bool LockedEngine::isolate(PageIndex page, std::uint64_t leave) noexcept {
  const PageIndex block = block_of(page);
  {
    const Hold hold{*this};
    if (!allowed(buddy_.pageblock(block).free, leave) || !buddy_.begin_isolation(block)) {
      return false;
    }
  }
  merge_all();  // from here on nothing of this pageblock begins to wait
  for (std::uint32_t i = 0; i < kPageblockFrames; i += kClusterFrames) {
    Hold hold{*this};
    hold.touched(buddy_.withhold(advance(block, i)));
    if (!allowed(0, leave)) {  // others have taken since
      hold.touched(buddy_.release(advance(block, i)));
      break;
    }
    if (i + kClusterFrames == kPageblockFrames) {
      return true;
    }
  }
  end_isolation(block);
  return false;
}

void LockedEngine::end_isolation(PageIndex page) noexcept {
  const PageIndex block = block_of(page);
  {
    const Hold hold{*this};
    buddy_.end_isolation(block);  // what comes back from here on merges as ever
  }
  for (std::uint32_t i = 0; i < kPageblockFrames; i += kClusterFrames) {
    Hold hold{*this};
    hold.touched(buddy_.release(advance(block, i)));
  }
}

bool LockedEngine::take_isolated(PageIndex page) noexcept {
  Hold hold{*this};
  if (!buddy_.take_isolated(block_of(page))) {
    return false;
  }
  hold.took(kPageblockFrames);
  return true;
}

PageIndex LockedEngine::take_in(PageIndex page, Order order, std::uint64_t leave,
                                Mobility) noexcept {
  Hold hold{*this};
  const PageIndex taken =
      allowed(frames_in(order), leave) ? buddy_.take_in(block_of(page), order) : kNoPage;
  if (taken != kNoPage) {
    hold.took(frames_in(order));
  }
  return taken;
}

PageblockView LockedEngine::pageblock(PageIndex page) const noexcept {
  const ThreadMark mark;
  const LockGuard guard{lock_};
  return buddy_.pageblock(block_of(page));
}

}  // namespace weir
