// SPDX-License-Identifier: MIT
// page/page_mover.hpp — PageMover: the owner of pages that may be carried elsewhere, and how it does that.
// Registered with PageAllocator::add_mover(); page/compaction asks. Calls page/callback.
//
//   isolate    the owner stops using a page and keeps it where it is
//   migrate    it copies what it holds, and uses the copy from here on
//   put back   it was not carried after all, and is used as before
//
// The steps are those of the kernel (struct movable_operations, Documentation/mm/page_migration.rst).
#pragma once

#include "weir/page/callback.hpp"
#include "weir/zone/frame.hpp"

namespace weir {

// All are called in the thread that compacts, one page after the other, any of them while the owner frees
// the page in another thread. They must not wait for a lock under which the owner allocates pages (try it,
// and refuse), and not fork.
struct MoveSteps {
  // False: not this page, or not now. True: the owner will not free it, and nobody else takes a reference
  // on it, before migrate or put_back.
  bool (*isolate)(void* context, Page* page) noexcept = nullptr;
  // `to` is of the same order, with the private word of `from`, and one reference which is the owner's when
  // this returns true; the reference on `from` then is the owner's no more. False: nothing has changed,
  // and put_back follows.
  bool (*migrate)(void* context, Page* from, Page* to) noexcept = nullptr;
  void (*put_back)(void* context, Page* page) noexcept = nullptr;
};

class PageMover : public Callback {
 public:
  explicit PageMover(const MoveSteps& steps, void* context = nullptr) noexcept
      : Callback(CallbackKind::move), steps_(steps), context_(context) {}

  bool isolate(Page* page) const noexcept { return steps_.isolate(context_, page); }
  bool migrate(Page* from, Page* to) const noexcept { return steps_.migrate(context_, from, to); }
  void put_back(Page* page) const noexcept { steps_.put_back(context_, page); }

 private:
  const MoveSteps steps_;
  void* const context_;
};

}  // namespace weir
