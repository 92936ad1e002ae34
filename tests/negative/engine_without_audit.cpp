// SPDX-License-Identifier: MIT
// What cannot be recounted is no engine.
// expect: (constraints not satisfied|does not satisfy|static assertion failed)
#include "weir/zone/engine.hpp"
#include "weir/zone/locked_engine.hpp"

class Unchecked : private weir::LockedEngine {
 public:
  using LockedEngine::adopt;
  using LockedEngine::begin_trim;
  using LockedEngine::claim;
  using LockedEngine::end_isolation;
  using LockedEngine::end_trim;
  using LockedEngine::forget_trim;
  using LockedEngine::free_blocks;
  using LockedEngine::free_pages;
  using LockedEngine::give;
  using LockedEngine::give_many;
  using LockedEngine::is_trimmed;
  using LockedEngine::isolate;
  using LockedEngine::pageblock;
  using LockedEngine::split;
  using LockedEngine::take;
  using LockedEngine::take_claimed;
  using LockedEngine::take_in;
  using LockedEngine::take_isolated;
  using LockedEngine::take_many;
  using LockedEngine::trimmed_blocks;
  using LockedEngine::unclaim;
#ifdef WEIR_CONTROL
  using LockedEngine::audit;
#endif
};
static_assert(weir::Engine<Unchecked>);
