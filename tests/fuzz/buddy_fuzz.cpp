// SPDX-License-Identifier: MIT
// tests/fuzz/buddy_fuzz.cpp — BuddyEngine beside the slow obvious model, on ranges of any size at any
// place of a largest block. The first bytes choose the range, the others are steps.
#include <algorithm>
#include <utility>
#include <vector>

#include "tests/fuzz/input.hpp"
#include "tests/model/reference_buddy.hpp"
#include "tests/unit/zone/engine_range.hpp"
#include "weir/zone/buddy_engine.hpp"

namespace weir {
namespace {

using fuzz::fail;
using fuzz::Input;
using fuzz::require;

class Run {
 public:
  Run(std::uint64_t frames, std::uint64_t offset) : range_(frames, offset) {
    engine_.adopt(range_.first(), frames);
    model_.adopt(range_.first(), frames);
  }

  void step(Input& input) {
    const std::uint8_t what = input.byte();
    const Order order{(what >> 3) % kOrderCount};
    switch (what % 8) {
      case 0:
      case 1:
      case 2:
        took(engine_.take(order), order);
        break;
      case 3:
      case 4:
        if (!taken_.empty()) {
          give(input.below(taken_.size()));
        }
        break;
      case 5: {
        PageIndex pages[64];
        const std::uint32_t n = input.below(65);
        const std::uint32_t got = engine_.take_many(order, pages, n);
        for (std::uint32_t i = 0; i < got; ++i) {
          took(pages[i], order);
        }
        require(got == n || model_.took(kNoPage, order), "take_many stopped too early");
        break;
      }
      case 6: {
        // Of one order, wherever they are.
        std::vector<PageIndex> pages;
        const std::uint32_t n = input.below(65);
        for (std::size_t i = taken_.size(); i-- > 0 && pages.size() < n;) {
          if (taken_[i].second == order) {
            pages.push_back(taken_[i].first);
            require(model_.gave(pages.back(), order), "the model knows no such page");
            taken_.erase(taken_.begin() + static_cast<std::ptrdiff_t>(i));
          }
        }
        engine_.give_many(order, pages.data(), static_cast<std::uint32_t>(pages.size()));
        break;
      }
      default:
        // A burst of one kind, so that both ends are reached with few bytes.
        for (std::uint32_t n = input.below(256); n != 0; --n) {
          const Order burst_order{what >> 7 != 0 ? 1U : 0U};
          if ((what >> 3) % 2 == 0) {
            took(engine_.take(burst_order), burst_order);
          } else if (!taken_.empty()) {
            give(taken_.size() - 1);
          }
        }
    }
    require(engine_.free_pages() == model_.free_pages(), "free pages differ");
    for (unsigned k = 0; k < kOrderCount; ++k) {
      require(engine_.free_blocks(Order{k}) == model_.free_blocks(Order{k}),
              "free blocks of an order differ");
    }
  }

  void compare() const {
    if (const std::string difference = model_.difference(engine_); !difference.empty()) {
      fail(difference);
    }
    require(engine_.audit() == model_.free_pages(), "the audit counts otherwise");
  }

  void finish() {
    while (!taken_.empty()) {
      give(taken_.size() - 1);
    }
    compare();
    require(engine_.free_pages() == range_.frames(), "frames are lost");
  }

 private:
  void took(PageIndex page, Order order) {
    require(model_.took(page, order), "the wrong block was taken, or refused");
    if (page != kNoPage) {
      taken_.emplace_back(page, order);
    }
  }
  void give(std::size_t which) {
    std::swap(taken_[which], taken_.back());
    const auto [page, order] = taken_.back();
    taken_.pop_back();
    engine_.give(page, order);
    require(model_.gave(page, order), "the model knows no such page");
  }

  test::EngineRange range_;
  BuddyEngine engine_;
  test::ReferenceBuddy model_;
  std::vector<std::pair<PageIndex, Order>> taken_;
};

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  weir::fuzz::Input input(data, size);
  // Small ranges are likelier; there every step can be compared whole.
  const std::uint64_t frames = 1 + input.number() % (input.byte() % 4 == 0 ? 3000U : 80U);
  const std::uint64_t offset = input.number() % weir::kMaxBlockFrames;
  weir::Run run(frames, offset);
  std::uint64_t steps = 0;
  while (!input.empty()) {
    run.step(input);
    if (frames <= 80 || ++steps % 64 == 0) {
      run.compare();
    }
  }
  run.finish();
  return 0;
}
