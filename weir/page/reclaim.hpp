// SPDX-License-Identifier: MIT
// page/reclaim.hpp — Reclaimer: the owner of a cache of pages, to be asked for some before a request is
// refused. Registered with PageAllocator::add_reclaimer(); page/attempt.cpp asks. Calls page/callback.
//
// This is the one edge of weir that is upside down: a lower layer reaches whoever stands above it, but
// only by what that one has left here, with no lock held, and from the page layer alone.
#pragma once

#include <cstdint>

#include "weir/base/types.hpp"
#include "weir/page/callback.hpp"

namespace weir {

class Reclaimer : public Callback {
 public:
  // Gives pages back to the allocator, about `needed` frames of them, and returns how many frames it
  // gave; 0 when it has nothing. order: of the blocks that are wanted; frames that merge to none are of
  // no use then. Called in the thread whose request found nothing, in several threads at once if there
  // are several. It may free and allocate (its own requests ask nobody), register and remove. It must not
  // wait for another thread that may itself be waiting for memory.
  using Give = std::uint64_t (*)(void* context, PageCount needed, Order order) noexcept;

  explicit Reclaimer(Give callback, void* context = nullptr) noexcept
      : Callback(CallbackKind::reclaim), give_(callback), context_(context) {}

  std::uint64_t give(PageCount needed, Order order) const noexcept {
    return give_(context_, needed, order);
  }

 private:
  const Give give_;
  void* const context_;
};

}  // namespace weir
