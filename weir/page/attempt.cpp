// SPDX-License-Identifier: MIT
#include "weir/page/attempt.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "weir/page/compaction.hpp"
#include "weir/page/limit_watch.hpp"
#include "weir/page/reclaim.hpp"
#include "weir/page/release.hpp"

namespace weir::attempt {
namespace {

TakeRights rights(AllocFlags flags, TakeReport& report) noexcept {
  return {.reserve = has(flags, AllocFlags::emergency),
          .no_wait = has(flags, AllocFlags::no_wait),
          .report = &report};
}

bool may_ask(AllocFlags flags) noexcept {
  return !has(flags, AllocFlags::no_wait) && !has(flags, AllocFlags::no_reclaim);
}

// Between the zone and a user: the page becomes live.
void hand_out(Page* page, Order order, AllocFlags flags, bool from_reserve) noexcept {
  if constexpr (kCheckedDrops) {
    mark_live(page);
  }
  if (from_reserve) [[unlikely]] {
    page->word.fetch_or(kReserveFlag, memory_order_relaxed);
  }
  if (has(flags, AllocFlags::zero)) {
    std::memset(address_of(page), 0, bytes(order).value);
  }
}

// Of n pages taken together, the last `from_reserve` count as those of the reserve.
void hand_out_all(Page* const* pages, std::size_t n, AllocFlags flags,
                  std::uint64_t from_reserve) noexcept {
  if (!kCheckedDrops && from_reserve == 0 && !has(flags, AllocFlags::zero)) [[likely]] {
    return;
  }
  for (std::size_t i = 0; i < n; ++i) {
    hand_out(pages[i], Order{0}, flags, i + from_reserve >= n);
  }
}

void tell(CachedZone& zone, const LimitEvent& event) noexcept {
  CallbackWalk walk{zone, CallbackKind::limit, true};
  while (walk.next([&event](Callback& node) { static_cast<LimitWatch&>(node).tell(event); })) {
  }
}

void tell_crossings(CachedZone& zone, const TakeReport& report, AllocFlags flags) noexcept {
  for (std::uint32_t i = 0; i < report.crossings && !has(flags, AllocFlags::no_reclaim); ++i) {
    tell(zone, {LimitKind::soft, report.crossing_used, report.crossing_asked});
  }
}

void tell_limits(CachedZone& zone, const TakeReport& report, std::uint64_t missing,
                 AllocFlags flags) noexcept {
  tell_crossings(zone, report, flags);
  if (report.by_limit && !has(flags, AllocFlags::no_reclaim)) {
    tell(zone, {LimitKind::hard, report.used, missing});
  }
}

// What reclaimers gave, another thread may take. So whoever needs single frames asks all of them again, as
// long as they gave something; so often at most, for one may say that it gave and did not.
constexpr unsigned kRounds = 16;

// Asks those whom nobody asked yet in this walk, until they gave what is needed. Returns what they gave.
std::uint64_t ask(CachedZone& zone, CallbackWalk& walk, std::uint64_t needed,
                  Order order) noexcept {
  std::uint64_t given = 0;
  while (given < needed && walk.next([&](Callback& node) {
    given += static_cast<Reclaimer&>(node).give({needed - given}, order);
  })) {
    zone.zone().counters().reclaims.add_shared(1);
  }
  zone.zone().counters().reclaimed.add_shared(given);
  return given;
}

// again(): a try; returns the frames that are still missing. The last try's answer is the request's.
template <class Again>
std::uint64_t until_refused(CachedZone& zone, AllocFlags flags, Order order, TakeReport& report,
                            Again&& again) noexcept {
  for (unsigned round = 1;; ++round) {
    CallbackWalk walk{zone, CallbackKind::reclaim, may_ask(flags)};
    for (std::uint64_t given = 0;;) {
      const bool more = walk.more();
      report.tries_again = more || (given != 0 && order == Order{0} && round < kRounds);
      report.refused = false;
      report.by_limit = false;
      const std::uint64_t missing = again();
      if (missing == 0 || !report.tries_again) {
        return missing;
      }
      if (!more) {
        break;
      }
      // What the zone must first get back for itself comes on top; what it has, but in pieces or too
      // little of, need not come twice.
      const std::int64_t needed =
          static_cast<std::int64_t>(missing) - (report.refused ? report.usable : 0);
      given += ask(zone, walk, needed > 0 ? static_cast<std::uint64_t>(needed) : missing, order);
    }
  }
}

std::size_t ordinary_singles(CachedZone& zone, Page** out, std::size_t n,
                             AllocFlags flags) noexcept {
  TakeReport report;
  std::size_t got = 0;
  until_refused(zone, flags, Order{0}, report, [&] {
    got += zone.alloc_bulk(out + got, n - got, rights(flags, report));
    return std::uint64_t{n - got};
  });
  hand_out_all(out, got, flags, 0);
  tell_limits(zone, report, n - got, flags);
  return got;
}

template <class Take>
bool all_or_nothing(CachedZone& zone, std::size_t n, AllocFlags flags, TakeReport& report,
                    Take&& take) noexcept {
  const std::uint64_t missing =
      until_refused(zone, flags, Order{0}, report, [&] { return take() ? 0 : std::uint64_t{n}; });
  return missing == 0;
}

// Makes pages live on their way into another sink. How many are of the reserve is known before the first.
class HandOut final : public PageSink {
 public:
  HandOut(PageSink& next, std::size_t n, AllocFlags flags, const TakeReport& report) noexcept
      : next_(next), left_(n), flags_(flags), report_(report) {}
  void put(Page* const* pages, std::uint32_t n) noexcept override {
    for (std::uint32_t i = 0; i < n; ++i) {
      hand_out(pages[i], Order{0}, flags_, left_-- <= report_.from_reserve);
    }
    next_.put(pages, n);
  }

 private:
  PageSink& next_;
  std::size_t left_;
  const AllocFlags flags_;
  const TakeReport& report_;
};

// What beyond_list() does, as fast code. The first try stands alone, here and in page(): mostly it is the
// last.
[[gnu::noinline]] std::size_t cluster_or_more(CachedZone& zone, Page** out,
                                              std::size_t n) noexcept {
  TakeReport report;
  report.tries_again = callbacks::any();  // else there is nobody to ask, and nobody to tell
  const std::size_t got = zone.alloc_bulk_slow(out, n, {.report = &report});
  hand_out_all(out, got, AllocFlags::none, 0);
  if (!report.tries_again) [[likely]] {
    return got;
  }
  tell_crossings(zone, report, AllocFlags::none);
  return got == n ? n : got + ordinary_singles(zone, out + got, n - got, AllocFlags::none);
}

// take(rights): a try.
template <class Take>
[[gnu::always_inline]] inline Page* one_page(CachedZone& zone, Order order, AllocFlags flags,
                                             Take&& take) noexcept {
  TakeReport report;
  report.tries_again = callbacks::any() && may_ask(flags);
  PageIndex index = take(rights(flags, report));
  std::uint64_t missing = is_page(index) ? 0 : frames_in(order);
  if (missing != 0 && report.tries_again) {
    const auto again = [&] {
      index = take(rights(flags, report));
      return is_page(index) ? 0 : std::uint64_t{frames_in(order)};
    };
    if (order.value > 0 && compaction::make_room(zone, order)) {
      missing = again();
    }
    if (missing != 0) {
      missing = until_refused(zone, flags, order, report, again);
    }
  }
  Page* taken = nullptr;
  if (missing == 0) {
    taken = page_at(index);
    hand_out(taken, order, flags, report.from_reserve != 0);
  }
  if (report.by_limit || report.crossings != 0) [[unlikely]] {
    tell_limits(zone, report, missing, flags);
  }
  return taken;
}

}  // namespace

Page* page(CachedZone& zone, Order order, AllocFlags flags) noexcept {
  return one_page(zone, order, flags, [&](TakeRights rights) { return zone.alloc(order, rights); });
}

Page* movable_page(CachedZone& zone, Order order, AllocFlags flags, std::uint64_t mover) noexcept {
  Page* const page = one_page(zone, order, flags,
                              [&](TakeRights rights) { return zone.alloc_movable(order, rights); });
  if (page != nullptr) {
    compaction::mark_movable(page, mover);
  }
  return page;
}

Page* page_at_hand(CachedZone& zone, Order order, AllocFlags flags) noexcept {
  TakeReport report;
  report.tries_again = true;
  const PageIndex index = zone.alloc(order, {.no_wait = true, .report = &report});
  if (!is_page(index)) {
    return nullptr;
  }
  Page* const page = page_at(index);
  hand_out(page, order, flags, false);
  tell_crossings(zone, report, flags);
  return page;
}

std::size_t singles_at_hand(CachedZone& zone, Page** out, std::size_t n,
                            AllocFlags flags) noexcept {
  TakeReport report;
  report.tries_again = true;
  const std::size_t got = zone.alloc_bulk(out, n, {.no_wait = true, .report = &report});
  hand_out_all(out, got, flags, 0);
  tell_crossings(zone, report, flags);
  return got;
}

std::size_t singles(CachedZone& zone, Page** out, std::size_t n, AllocFlags flags) noexcept {
  if (!has(flags, AllocFlags::emergency)) {
    return ordinary_singles(zone, out, n, flags);
  }
  TakeReport report;
  // What ordinary requests may have, then one by one: each knows whether it came out of the reserve.
  report.tries_again = true;
  std::size_t got = zone.alloc_bulk(out, n, rights(without(flags, AllocFlags::emergency), report));
  hand_out_all(out, got, flags, 0);
  tell_crossings(zone, report, flags);
  while (got < n) {
    Page* const next = page(zone, Order{0}, flags);
    if (next == nullptr) {
      break;
    }
    out[got++] = next;
  }
  return got;
}

std::size_t beyond_list(CachedZone& zone, Page** out, std::size_t n) noexcept {
  return cluster_or_more(zone, out, n);
}

bool exactly(CachedZone& zone, Page** out, std::size_t n, AllocFlags flags) noexcept {
  TakeReport report;
  const bool served = all_or_nothing(
      zone, n, flags, report, [&] { return zone.alloc_exactly(out, n, rights(flags, report)); });
  if (served) {
    hand_out_all(out, n, flags, report.from_reserve);
  }
  tell_limits(zone, report, served ? 0 : n, flags);
  return served;
}

bool exactly(CachedZone& zone, PageSink& sink, std::size_t n, AllocFlags flags) noexcept {
  TakeReport report;
  HandOut live{sink, n, flags, report};
  const bool served = all_or_nothing(
      zone, n, flags, report, [&] { return zone.alloc_exactly(live, n, rights(flags, report)); });
  tell_limits(zone, report, served ? 0 : n, flags);
  return served;
}

}  // namespace weir::attempt
