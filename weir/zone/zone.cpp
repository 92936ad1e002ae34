// SPDX-License-Identifier: MIT
#include "weir/zone/zone.hpp"

#include <memory>

#include "weir/base/failpoint.hpp"

namespace weir {
namespace {

// Whether a test refuses this request.
bool told_to_fail(Order order) noexcept {
  return fails(Failpoint::zone_take) || (order.value > 0 && fails(Failpoint::zone_take_high));
}

// Callers that have no number of a CPU at hand: the locked engine asks for none.
constexpr std::uint32_t kAnyCpu = 0;

}  // namespace

void Zone::open(PageCount reserve, BuddyMerge merge) noexcept {
  std::construct_at(&counters_);  // the slot may have held another zone before
  engine_.open(merge);
  managed_ = PageCount{0};
  reserve_ = reserve;
  watermarks_ = Watermarks{};
}

Error Zone::adopt(PageIndex first, PageCount frames) noexcept {
  if (const Error error = engine_.adopt(first, frames); error.failed()) {
    return error;
  }
  managed_ += frames;
  return kOk;
}

void Zone::seal() noexcept { watermarks_ = watermarks_of(managed_); }

PageIndex Zone::take(Order order, bool may_use_reserve) noexcept {
  return told_to_fail(order) ? kNoPage : engine_.take(order, leave(may_use_reserve), kAnyCpu);
}

std::uint32_t Zone::take_many(Order order, PageIndex* out, std::uint32_t n,
                              bool may_use_reserve) noexcept {
  if (fails(Failpoint::zone_take_cluster) ||
      (order.value > 0 && fails(Failpoint::zone_take_high))) {
    return 0;
  }
  return engine_.take_many(order, out, n, leave(may_use_reserve), kAnyCpu);
}

// Looks outside first, then asks: whoever brought a page here did so before it was seen to be quiet, and
// nobody does any more, so an answer that comes after is final.
template <class Ask>
bool Zone::ask_or_tell(Ask&& ask, bool told_to_fail, const Outside& outside, bool last_try,
                       bool& quiet) noexcept {
  quiet = told_to_fail || (outside.quiet() && !has_loose());
  if (!told_to_fail && ask()) {
    return true;
  }
  counters_.refusals.add_shared(quiet || last_try ? 1 : 0);
  return false;
}

PageIndex Zone::take_or_tell(Order order, bool may_use_reserve, const Outside& outside,
                             bool last_try, bool& quiet) noexcept {
  PageIndex page = kNoPage;
  const auto ask = [&] {
    page = engine_.take(order, leave(may_use_reserve), kAnyCpu);
    return page != kNoPage;
  };
  static_cast<void>(ask_or_tell(ask, told_to_fail(order), outside, last_try, quiet));
  return page;
}

bool Zone::claim(std::uint64_t n, bool may_use_reserve) noexcept {
  return !fails(Failpoint::zone_take_cluster) && engine_.claim(n, leave(may_use_reserve));
}

bool Zone::claim_or_tell(std::uint64_t n, bool may_use_reserve, const Outside& outside,
                         bool last_try, bool& quiet) noexcept {
  const auto ask = [&] { return engine_.claim(n, leave(may_use_reserve)); };
  return ask_or_tell(ask, fails(Failpoint::zone_take_cluster), outside, last_try, quiet);
}

void Zone::take_claimed(PageIndex* out, std::uint32_t n) noexcept {
  engine_.take_claimed(out, n, kAnyCpu);
}

void Zone::give(PageIndex page, Order order) noexcept { engine_.give(page, order); }

void Zone::give_many(const PageIndex* pages, std::uint32_t n, Order order) noexcept {
  engine_.give_many(order, pages, n);
}

}  // namespace weir
