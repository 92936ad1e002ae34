// SPDX-License-Identifier: MIT
// Memory that goes back to the system, and pins that forbid it (docs/design/trim.md).
#include <time.h>

#include <algorithm>

#include "weir/base/bits.hpp"
#include "weir/base/report.hpp"
#include "weir/os/clock.hpp"
#include "weir/percpu/carry.hpp"
#include "weir/percpu/zone_blocks.hpp"

namespace weir {
namespace {

constexpr const char* kBorrowed = "borrowed memory is its owner's to give back";
constexpr const char* kInHandler = "a trim inside a signal handler";
constexpr const char* kDetached = "a zone that a forked child does not serve";
constexpr const char* kShort = "the zone is in shortage";
constexpr const char* kRefused = "the system refused to take free memory back";

// How often a trim waits for the end of a shortage or of a fork before it gives up, and how long each time.
constexpr std::uint32_t kTrimPatience = 60;
constexpr long kTrimNapNs = 50'000;

}  // namespace

// ---- pins ----

Result<Pin> CachedZone::pin(std::span<const std::byte> range) noexcept {
  if (range.empty()) {
    return Error{Errc::zero_size, "a range to pin"};
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(range.data());
  if (thread_is_marked()) {
    return Error{Errc::would_block, "a pin inside a signal handler"};
  }
  for (const Piece& piece : pieces_) {
    const auto base = reinterpret_cast<std::uintptr_t>(piece.extent.base);
    if (begin - base >= piece.extent.size.value) {
      continue;
    }
    if (!is_aligned<std::uintptr_t>(begin, kFrameBytes) || !is_aligned(range.size(), kFrameBytes)) {
      return Error{Errc::misaligned, "a range to pin"};
    }
    if (range.size() > piece.extent.size.value - (begin - base)) {
      return Error{Errc::too_large, "a range to pin ends outside the zone"};
    }
    const PageIndex first = advance(piece.first, (begin - base) / kFrameBytes);
    const std::uint64_t frames = range.size() / kFrameBytes;
    const ThreadMark mark;
    const LockGuard guard{trim_lock_};
    pins_.add(first, frames);
    // Whoever pins lets the kernel touch the memory: it is resident from now on.
    const std::uint64_t end = first.value + frames;
    for (std::uint64_t at = align_down<std::uint64_t>(first.value, kPageblockFrames); at < end;
         at += kPageblockFrames) {
      const PageIndex pageblock{static_cast<std::uint32_t>(at)};
      zone_.forget_trim(pageblock);
    }
    return Pin{*this, first, frames};
  }
  return Error{Errc::foreign, "a range to pin"};
}

void CachedZone::unpin(PageIndex first, std::uint64_t frames) noexcept {
  pins_.remove(first, frames);
  // pairs: retire(): either that one sees the pin gone or this one the retirement
  if (retired_.load(memory_order_seq_cst) && !detached()) {
    maybe_close();
  }
}

void Pin::release() noexcept {
  if (CachedZone* const zone = std::exchange(zone_, nullptr)) {
    zone->unpin(first_, frames_);
  }
}

// ---- trims ----

// One pageblock. It is a carrier's: no request is refused while it is on its way. While the lists are stopped, for
// a shortage or around a fork, none sets out.
CachedZone::TrimStep CachedZone::trim_one(const Pageblock& at) noexcept {
  const PageIndex pageblock = at.first;
  const ThreadMark mark;
  const LockGuard guard{trim_lock_};
  if (pins_.is_pinned(pageblock, kPageblockFrames)) {
    return TrimStep::pinned;
  }
  const Counted carry{*this};
  if (stopped_.load(memory_order_seq_cst)) {  // pairs: halt seq_cst
    return TrimStep::stopped;
  }
  if (!zone_.begin_trim(pageblock, high_)) {
    return TrimStep::not_free;
  }
  const Bytes offset = bytes(PageCount{pageblock.value - at.piece.first.value});
  const Error error = source_->trim(at.piece.extent, offset, bytes(kPageblockOrder));
  zone_.end_trim(pageblock, !error.failed());
  if (!error.failed()) {
    zone_.counters().trims.add_shared(1);
    return TrimStep::done;
  }
  zone_.counters().trims_refused.add_shared(1);
  static bool told = false;
  notice_once(told, kRefused);
  return TrimStep::refused;
}

// Whether the lists run: a shortage that has passed ends here at the latest.
bool CachedZone::outlast_shortage() noexcept {
  for (std::uint32_t i = 0; i < kTrimPatience; ++i) {
    maybe_leave_shortage();
    if (!in_shortage()) {
      return true;
    }
    const timespec nap{0, kTrimNapNs};
    ::nanosleep(&nap, nullptr);
  }
  return false;
}

Bytes CachedZone::trim(Bytes target, TrimReport* report) noexcept {
  TrimReport told;
  if (thread_is_marked()) {
    told.note = kInHandler;
  } else if (detached()) {
    told.note = kDetached;
  } else if (source_ == nullptr) {
    told.note = kBorrowed;
  } else if (!outlast_shortage()) {
    told.note = kShort;
  } else {
    static_cast<void>(drain_all());  // without a fence: what lists hold stays there
    std::uint32_t waits = 0;
    const ZoneBlocks blocks{*this};
    for (std::uint64_t i = 0; i < blocks.count() && *told.note == '\0' &&
                              target - told.returned >= bytes(kPageblockOrder);) {
      switch (trim_one(blocks.place(i))) {
        case TrimStep::done:
          told.returned = told.returned + bytes(kPageblockOrder);
          break;
        case TrimStep::pinned:
          told.pinned = told.pinned + bytes(kPageblockOrder);
          break;
        case TrimStep::not_free:
          break;
        case TrimStep::refused:
          told.note = kRefused;
          break;
        case TrimStep::stopped:
          if (++waits > kTrimPatience || !outlast_shortage()) {
            told.note = kShort;
          }
          continue;
      }
      ++i;
    }
  }
  if (report != nullptr) {
    *report = told;
  }
  return told.returned;
}

// Of a tick. Nobody has taken anything from the engine for a while: pageblocks go back, from where the last tick
// ended on, until the resident free frames are hardly more than the high watermark. It ends as soon as somebody
// takes; a round that has seen every pageblock is not repeated until something has been given.
void CachedZone::trim_idle() noexcept {
  if (idle_trim_ns_ == 0 || retired_.load(memory_order_relaxed) ||
      zone_.counters().trims_refused.get() != 0) {
    return;
  }
  const std::uint64_t taken = zone_.counters().taken.get();
  const std::uint64_t now = system_clock().now_ns();
  if (taken != idle_taken_.exchange(taken, memory_order_relaxed)) {
    idle_since_.store(now, memory_order_relaxed);
    idle_next_.store(0, memory_order_relaxed);
    return;
  }
  if (now - idle_since_.load(memory_order_relaxed) < idle_trim_ns_) {
    return;
  }
  if (depot_.partial_clusters() != 0) {  // no tick has merged those: they are never the oldest
    const ThreadMark mark;
    const LockGuard guard{shortage_lock_};
    if (!in_shortage()) {
      drain_partial_clusters();
    }
  }
  // What a pin has kept is as good as given when it ends.
  const std::uint64_t given = zone_.counters().given.get() + pins_.ended();
  if (given == idle_given_.load(memory_order_relaxed)) {
    return;
  }
  const std::uint64_t free = zone_.free_pages();
  std::uint64_t resident = free - std::min(free, zone_.trimmed_pages());
  std::uint64_t next = idle_next_.load(memory_order_relaxed);
  if (next == 0) {
    idle_round_.store(given, memory_order_relaxed);
  }
  const ZoneBlocks blocks{*this};
  std::uint32_t trims = 0;
  for (; next < blocks.count(); ++next) {
    const bool enough = trims == kTrimsPerTick || resident < high_ + kPageblockFrames ||
                        zone_.counters().taken.get() != taken;
    const TrimStep step = enough ? TrimStep::stopped : trim_one(blocks.place(next));
    if (step == TrimStep::refused || step == TrimStep::stopped) {
      idle_next_.store(next, memory_order_relaxed);
      return;
    }
    trims += step == TrimStep::done ? 1 : 0;
    resident -= step == TrimStep::done ? kPageblockFrames : 0;
  }
  idle_next_.store(0, memory_order_relaxed);
  // What was given meanwhile may lie before: then there is another round.
  idle_given_.store(idle_round_.load(memory_order_relaxed), memory_order_relaxed);
}

}  // namespace weir
