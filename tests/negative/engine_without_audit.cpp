// SPDX-License-Identifier: MIT
// What cannot be recounted is no engine.
// expect: (constraints not satisfied|does not satisfy|static assertion failed)
#include "weir/zone/buddy_engine.hpp"
#include "weir/zone/engine.hpp"

class Unchecked : private weir::BuddyEngine {
 public:
  using BuddyEngine::adopt;
  using BuddyEngine::free_blocks;
  using BuddyEngine::free_pages;
  using BuddyEngine::give;
  using BuddyEngine::give_many;
  using BuddyEngine::take;
  using BuddyEngine::take_many;
#ifdef WEIR_CONTROL
  using BuddyEngine::audit;
#endif
};
static_assert(weir::Engine<Unchecked>);
