// SPDX-License-Identifier: MIT
#include "weir/zone/zone.hpp"

#include <algorithm>
#include <memory>
#include <new>

#include "weir/base/failpoint.hpp"
#include "weir/os/cpu_id.hpp"
#include "weir/os/memory.hpp"
#include "weir/zone/frame_table.hpp"

namespace weir {
namespace {

static_assert(Engine<LockedEngine>);
static_assert(Engine<BitmapEngine>);

// Whether a test refuses this request.
bool told_to_fail(Order order) noexcept {
  return fails(Failpoint::zone_take) || (order.value > 0 && fails(Failpoint::zone_take_high));
}

std::uint32_t cpu_here() noexcept { return current_cpu().value; }

Result<BitmapEngine*> make_bitmap_engine() noexcept {
  const Bytes size{align_up<std::uint64_t>(sizeof(BitmapEngine), kFrameBytes)};
  Result<std::byte*> base = system_memory().reserve(size, Bytes{kFrameBytes});
  if (!base) {
    return base.error();
  }
  if (const Error error = system_memory().commit(*base, size); error.failed()) {
    system_memory().release(*base, size);
    return error;
  }
  return new (*base) BitmapEngine;
}

}  // namespace

// ---- opening and closing ----

Error Zone::open(PageCount reserve, EngineChoice engine, BuddyMerge merge) noexcept {
  if (engine == EngineChoice::bitmap && bitmap_ == nullptr) {
    Result<BitmapEngine*> made = make_bitmap_engine();
    if (!made) {
      return made.error();
    }
    bitmap_ = *made;
  }
  std::construct_at(&counters_);  // the slot may have held another zone before
  lock_free_.store(engine == EngineChoice::bitmap, memory_order_relaxed);
  locked_.open(merge);
  managed_ = PageCount{0};
  reserve_ = reserve;
  limits_.set(managed_, PageCount{0}, PageCount{0}, 0);
  watermarks_ = Watermarks{};
  return kOk;
}

Error Zone::adopt(PageIndex first, PageCount frames) noexcept {
  const Error error = with_engine([&](auto& to) { return to.adopt(first, frames); });
  if (!error.failed()) {
    managed_ += frames;
  }
  return error;
}

void Zone::seal() noexcept { watermarks_ = watermarks_of(managed_); }

void Zone::close() noexcept {
  if (lock_free()) {
    bitmap_->close();
  }
}

void Zone::recover_in_child() noexcept {
  if (lock_free()) {
    bitmap_->recover_in_child();
  } else {
    locked_.forget_claims();
  }
}

// ---- limits and what a request learns ----

void Zone::set_limits(PageCount hard, PageCount soft) noexcept {
  limits_.set(managed_, hard, soft, out());
}

// Frames have left, or are promised. The locked engine counts what it takes itself, under its lock.
void Zone::note_served(std::uint64_t frames, bool may_use_reserve, TakeReport* report) noexcept {
  if (lock_free()) {
    counters_.taken.add_shared(frames);
  }
  const std::uint64_t free = free_pages() + frames;  // before
  const std::uint64_t before = managed_.value - free;
  const bool crosses = limits_.crosses(before, frames) && limits_.cross();
  if (crosses) {
    counters_.soft_crossings.add_shared(1);
  }
  if (report == nullptr) {
    return;
  }
  if (crosses) {
    report->crossings = report->crossings + 1;
    // Others may have taken since; what was out when it was crossed was no more than the limit.
    report->crossing_used = std::min(before, limits_.soft().value);
    report->crossing_asked = frames;
  }
  const std::uint64_t needed = frames + stays(false);
  if (may_use_reserve && needed > free) {
    report->from_reserve += std::min(frames, needed - free);
  }
}

void Zone::note_refused(std::uint64_t frames, bool may_use_reserve, TakeReport* report) noexcept {
  const bool by_limit = limits_.exceeds(out(), frames);
  if (report == nullptr || !report->tries_again) {
    counters_.refusals.add_shared(1);
    counters_.limit_refusals.add_shared(by_limit ? 1 : 0);
  }
  if (report != nullptr) {
    report->refused = true;
    report->by_limit = by_limit;
    report->used = out();
    report->usable =
        static_cast<std::int64_t>(free_pages()) - static_cast<std::int64_t>(stays(may_use_reserve));
  }
}

// ---- taking ----

PageIndex Zone::take(Order order, bool may_use_reserve, TakeReport* report,
                     Mobility mobility) noexcept {
  if (told_to_fail(order) || limits_.crosses(out(), frames_in(order))) {
    return kNoPage;
  }
  const PageIndex page = with_engine(
      [&](auto& from) { return from.take(order, stays(may_use_reserve), cpu_here(), mobility); });
  if (page != kNoPage) {
    note_served(frames_in(order), may_use_reserve, report);
  }
  return page;
}

std::uint32_t Zone::take_many(Order order, PageIndex* out, std::uint32_t n,
                              bool may_use_reserve) noexcept {
  if (fails(Failpoint::zone_take_cluster) ||
      (order.value > 0 && fails(Failpoint::zone_take_high)) ||
      limits_.crosses(this->out(), std::uint64_t{n} << order.value)) {
    return 0;
  }
  const std::uint32_t got = with_engine([&](auto& from) {
    return from.take_many(order, out, n, stays(may_use_reserve), cpu_here());
  });
  if (lock_free()) {
    counters_.taken.add_shared(std::uint64_t{got} << order.value);
  }
  return got;
}

// Looks outside first, then asks: whoever brought a page here did so before it was seen to be quiet, and
// nobody does any more, so an answer that comes after is final. What would cross the soft limit must be
// certain to do so.
template <class Ask>
bool Zone::ask_or_tell(Ask&& ask, std::uint64_t frames, bool may_use_reserve, bool told_to_fail,
                       const Outside& outside, bool last_try, bool& quiet,
                       TakeReport* report) noexcept {
  const bool settled = outside.quiet() && !has_loose();
  const bool waits = !settled && !last_try && limits_.crosses(out(), frames);
  if (!told_to_fail && !waits && ask()) {
    note_served(frames, may_use_reserve, report);
    return true;
  }
  quiet = told_to_fail || settled;
  if (quiet || last_try) {
    note_refused(frames, may_use_reserve, report);
  }
  return false;
}

PageIndex Zone::take_or_tell(Order order, bool may_use_reserve, const Outside& outside,
                             bool last_try, bool& quiet, TakeReport* report) noexcept {
  PageIndex page = kNoPage;
  const auto ask = [&] {
    page = with_engine([&](auto& from) {
      return from.take(order, stays(may_use_reserve), cpu_here(), Mobility::pinned);
    });
    return page != kNoPage;
  };
  static_cast<void>(ask_or_tell(ask, frames_in(order), may_use_reserve, told_to_fail(order),
                                outside, last_try, quiet, report));
  return page;
}

bool Zone::claim(std::uint64_t n, bool may_use_reserve, TakeReport* report) noexcept {
  if (fails(Failpoint::zone_take_cluster) || limits_.crosses(out(), n)) {
    return false;
  }
  const bool claimed = with_engine([&](auto& in) { return in.claim(n, stays(may_use_reserve)); });
  if (claimed) {
    note_served(n, may_use_reserve, report);
  }
  return claimed;
}

bool Zone::claim_or_tell(std::uint64_t n, bool may_use_reserve, const Outside& outside,
                         bool last_try, bool& quiet, TakeReport* report) noexcept {
  const auto ask = [&] {
    return with_engine([&](auto& in) { return in.claim(n, stays(may_use_reserve)); });
  };
  return ask_or_tell(ask, n, may_use_reserve, fails(Failpoint::zone_take_cluster), outside,
                     last_try, quiet, report);
}

void Zone::take_claimed(PageIndex* out, std::uint32_t n) noexcept {
  with_engine([&](auto& from) { from.take_claimed(out, n, cpu_here()); });
}

// ---- giving: nothing of the zone is looked at after its count has grown, for it may close ----

void Zone::count_given(std::uint64_t frames) noexcept {
  if (lock_free()) {
    counters_.given.add_shared(frames);
  }
}

void Zone::give(PageIndex page, Order order) noexcept {
  count_given(frames_in(order));
  with_engine([&](auto& to) { to.give(page, order); });
}

void Zone::give_many(const PageIndex* pages, std::uint32_t n, Order order) noexcept {
  count_given(std::uint64_t{n} << order.value);
  with_engine([&](auto& to) { to.give_many(order, pages, n); });
}

// ---- pageblocks by name ----

bool Zone::isolate(PageIndex page) noexcept {
  return with_engine([&](auto& in) { return in.isolate(page, reserve_.value); });
}

void Zone::end_isolation(PageIndex page) noexcept {
  with_engine([&](auto& in) { in.end_isolation(page); });
}

bool Zone::take_isolated(PageIndex page) noexcept {
  const bool taken = with_engine([&](auto& from) { return from.take_isolated(page); });
  if (taken && lock_free()) {
    counters_.taken.add_shared(frames_in(kPageblockOrder));
  }
  return taken;
}

PageIndex Zone::take_in(PageIndex page, Order order, Mobility mobility) noexcept {
  if (told_to_fail(order)) {
    return kNoPage;
  }
  const PageIndex taken =
      with_engine([&](auto& from) { return from.take_in(page, order, reserve_.value, mobility); });
  if (taken != kNoPage && lock_free()) {
    counters_.taken.add_shared(frames_in(order));
  }
  return taken;
}

PageIndex Zone::take_room(Order order) noexcept {
  if (told_to_fail(order)) {
    return kNoPage;
  }
  const PageIndex taken = with_engine(
      [&](auto& from) { return from.take(order, reserve_.value, cpu_here(), Mobility::movable); });
  if (taken != kNoPage && lock_free()) {
    counters_.taken.add_shared(frames_in(order));
  }
  return taken;
}

void Zone::split(PageIndex page, Order order) noexcept {
  with_engine([&](auto& in) { in.split(page, order); });
}

bool Zone::is_taken(PageIndex page) const noexcept {
  if (lock_free()) {
    return !bitmap_->is_free(page);
  }
  const FrameState state = page_at(page)->state.load(memory_order_relaxed);
  return state == FrameState::kTaken || state == FrameState::kLive;
}

}  // namespace weir
