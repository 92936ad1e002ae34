// SPDX-License-Identifier: MIT
// A number of frames is no length: the conversion has a name.
// expect: no (known conversion|match for)
#include "weir/page/page_allocator.hpp"

weir::Options sized(weir::PageCount frames) {
  weir::Options options;
#ifdef WEIR_CONTROL
  options.capacity = weir::bytes(frames);
#else
  options.capacity = frames;
#endif
  return options;
}
