// SPDX-License-Identifier: MIT
#include "weir/page/page_run.hpp"

namespace weir {

void PageRun::reset() noexcept {
  Page* page = std::exchange(first_, nullptr);
  for (std::uint64_t left = std::exchange(frames_, PageCount{}).value; left != 0;) {
    const std::uint32_t frames = frames_in(order_of(page));
    unref(page);
    page += frames;
    left -= frames;
  }
}

}  // namespace weir
