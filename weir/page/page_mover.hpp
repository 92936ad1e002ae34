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

#include <stdexcept>

#include "weir/page/callback.hpp"
#include "weir/zone/frame.hpp"

namespace weir {

// All three must be there. They are called in the thread that compacts, one page after the other. They must
// not wait for a lock under which the owner allocates pages (try it, and refuse), and not fork.
struct MoveSteps {
  // False: not this page, or not now; so also if it is not the owner's any more, for he may free it at the
  // same moment. True: until migrate or put_back he does not free it (whoever wants to remembers that), and
  // nobody takes a reference on it.
  bool (*isolate)(void* context, Page* page) noexcept;
  // `to` is of the same order, with the private word of `from`; the owner copies the bytes. True: the
  // reference on `to` is his from now on, and the one on `from` weir's, which drops it: he does not. False:
  // nothing has changed, and put_back follows.
  bool (*migrate)(void* context, Page* from, Page* to) noexcept;
  void (*put_back)(void* context, Page* page) noexcept;
};

class PageMover : public Callback {
 public:
  // Throws std::invalid_argument when a step is missing.
  explicit PageMover(const MoveSteps& steps, void* context = nullptr)
      : Callback(CallbackKind::move), steps_(steps), context_(context) {
    if (steps.isolate == nullptr || steps.migrate == nullptr || steps.put_back == nullptr) {
      throw std::invalid_argument("weir: a mover needs all three of its steps");
    }
  }

  bool isolate(Page* page) const noexcept { return steps_.isolate(context_, page); }
  bool migrate(Page* from, Page* to) const noexcept { return steps_.migrate(context_, from, to); }
  void put_back(Page* page) const noexcept { steps_.put_back(context_, page); }

 private:
  const MoveSteps steps_;
  void* const context_;
};

}  // namespace weir
