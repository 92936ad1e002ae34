// SPDX-License-Identifier: MIT
// zone/engine.hpp — what a zone asks of the structure that finds and takes back frames. Calls base.
// An engine is asked by any thread at any time and sees to its own exclusion; watermarks, reserve
// and the meaning of a refusal are the zone's.
//
//   leave   how many frames must stay free beyond what is taken: the reserve, for those without the right
//   cpu     where the caller runs, or a guess: callers with different numbers disturb each other less
//   claim   frames set aside by number: nobody else gets them until they are taken or unclaimed
//   isolate a pageblock, named by any frame of it, is withheld: what is free there, and what comes back.
//           One thread at a time isolates in a zone: one pageblock, or several that adjoin one another in
//           ascending order, and ends or takes them in ascending order. No claim ever meets them.
//   trim    a wholly free pageblock whose memory goes back to the system: it is taken meanwhile, then free and
//           marked as trimmed until any frame of it is taken; those are taken last
#pragma once

#include <concepts>
#include <cstdint>

#include "weir/base/result.hpp"
#include "weir/base/types.hpp"
#include "weir/zone/mobility.hpp"
#include "weir/zone/pageblock_view.hpp"

namespace weir {

template <class E>
concept Engine = requires(E engine, const E view, PageIndex page, PageCount frames, Order order,
                          PageIndex* out, const PageIndex* in, std::uint32_t n, std::uint64_t leave,
                          std::uint32_t cpu, Mobility mobility) {
  { engine.adopt(page, frames) } -> std::same_as<Error>;
  { engine.claim(leave, leave) } -> std::same_as<bool>;
  { engine.unclaim(leave) } -> std::same_as<void>;
  { engine.take_claimed(out, n, cpu) } -> std::same_as<void>;
  { engine.take(order, leave, cpu, mobility) } -> std::same_as<PageIndex>;
  { engine.take_many(order, out, n, leave, cpu) } -> std::same_as<std::uint32_t>;
  { engine.give(page, order) } -> std::same_as<void>;
  { engine.give_many(order, in, n) } -> std::same_as<void>;
  { engine.isolate(page, leave) } -> std::same_as<bool>;
  { engine.end_isolation(page) } -> std::same_as<void>;
  { engine.take_isolated(page) } -> std::same_as<bool>;
  { engine.take_in(page, order, leave, mobility) } -> std::same_as<PageIndex>;
  { engine.split(page, order) } -> std::same_as<void>;
  { view.pageblock(page) } -> std::same_as<PageblockView>;
  { engine.begin_trim(page, leave) } -> std::same_as<bool>;
  { engine.end_trim(page, bool{}) } -> std::same_as<void>;
  { engine.forget_trim(page) } -> std::same_as<void>;
  { view.is_trimmed(page) } -> std::same_as<bool>;
  { view.trimmed_blocks() } -> std::same_as<std::uint64_t>;
  { view.free_pages() } -> std::same_as<std::uint64_t>;
  { view.free_blocks(order) } -> std::same_as<std::uint64_t>;
  { view.audit() } -> std::same_as<std::uint64_t>;
};

}  // namespace weir
