// SPDX-License-Identifier: MIT
// zone/engine.hpp — what a zone asks of the structure that finds and takes back frames. Calls base.
// An engine is asked by any thread at any time and sees to its own exclusion; watermarks, reserve
// and the meaning of a refusal are the zone's.
//
//   leave   how many frames must stay free beyond what is taken: the reserve, for those without the right
//   cpu     where the caller runs, or a guess: callers with different numbers disturb each other less
//   claim   frames set aside by number: nobody else gets them until they are taken or unclaimed
#pragma once

#include <concepts>
#include <cstdint>

#include "weir/base/result.hpp"
#include "weir/base/types.hpp"

namespace weir {

template <class E>
concept Engine = requires(E engine, const E view, PageIndex page, PageCount frames, Order order,
                          PageIndex* out, const PageIndex* in, std::uint32_t n, std::uint64_t leave,
                          std::uint32_t cpu) {
  { engine.adopt(page, frames) } -> std::same_as<Error>;
  { engine.claim(leave, leave) } -> std::same_as<bool>;
  { engine.unclaim(leave) } -> std::same_as<void>;
  { engine.take_claimed(out, n, cpu) } -> std::same_as<void>;
  { engine.take(order, leave, cpu) } -> std::same_as<PageIndex>;
  { engine.take_many(order, out, n, leave, cpu) } -> std::same_as<std::uint32_t>;
  { engine.give(page, order) } -> std::same_as<void>;
  { engine.give_many(order, in, n) } -> std::same_as<void>;
  { view.free_pages() } -> std::same_as<std::uint64_t>;
  { view.free_blocks(order) } -> std::same_as<std::uint64_t>;
  { view.audit() } -> std::same_as<std::uint64_t>;
};

}  // namespace weir
