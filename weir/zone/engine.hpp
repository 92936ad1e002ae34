// SPDX-License-Identifier: MIT
// zone/engine.hpp — what a zone asks of the structure that finds and takes back frames. Calls base.
// An engine knows descriptors and indexes; locks, watermarks and counters are the zone's.
#pragma once

#include <concepts>
#include <cstdint>

#include "weir/base/types.hpp"

namespace weir {

template <class E>
concept Engine = requires(E engine, const E view, PageIndex page, Order order, PageIndex* out,
                          const PageIndex* in, std::uint32_t n, std::uint64_t frames) {
  { engine.adopt(page, frames) } -> std::same_as<void>;
  { engine.take(order) } -> std::same_as<PageIndex>;
  { engine.give(page, order) } -> std::same_as<void>;
  { engine.take_many(order, out, n) } -> std::same_as<std::uint32_t>;
  { engine.give_many(order, in, n) } -> std::same_as<void>;
  { view.free_pages() } -> std::same_as<std::uint64_t>;
  { view.free_blocks(order) } -> std::same_as<std::uint64_t>;
  { view.audit() } -> std::same_as<std::uint64_t>;
};

}  // namespace weir
