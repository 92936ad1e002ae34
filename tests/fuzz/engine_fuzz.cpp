// SPDX-License-Identifier: MIT
// tests/fuzz/engine_fuzz.cpp — BuddyEngine and BitmapEngine side by side, each with frames of its own and
// the same requests. Which frame an engine hands out is its own business; what it says it has must be true
// of its own frames, a refusal too, and with everything given back both show the same blocks. The first
// bytes choose the range, the others are steps.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "tests/fuzz/input.hpp"
#include "tests/model/reference_buddy.hpp"
#include "tests/unit/zone/engine_range.hpp"
#include "weir/zone/bitmap_engine.hpp"
#include "weir/zone/buddy_engine.hpp"

namespace weir {
namespace {

using fuzz::Input;
using fuzz::require;

using Blocks = std::array<std::uint64_t, kOrderCount>;

// Both engines behind the same calls.
struct Bitmap {
  BitmapEngine engine;
  void adopt(PageIndex first, std::uint64_t frames) {
    require(!engine.adopt(first, PageCount{frames}).failed(), "adopt");
  }
  std::uint32_t take_many(Order order, PageIndex* out, std::uint32_t n, std::uint32_t cpu) {
    return n == 1 ? (out[0] = engine.take(order, 0, cpu), out[0] != kNoPage ? 1 : 0)
                  : engine.take_many(order, out, n, 0, cpu);
  }
  bool begin_trim(PageIndex page) { return engine.begin_trim(page, 0); }
  bool isolate(PageIndex page) { return engine.isolate(page, 0); }
  void end_isolation(PageIndex page) { engine.end_isolation(page); }
  PageIndex take_in(PageIndex page, Order order) {
    return order < kPageblockOrder ? engine.take_in(page, order, 0, Mobility::movable) : kNoPage;
  }
  // Many of no frames at all, or of fewer than were asked for: nothing.
  static constexpr bool kAllOrNothingOfFrames = true;
};
struct Buddy {
  BuddyEngine engine;
  void adopt(PageIndex first, std::uint64_t frames) { engine.adopt(first, frames); }
  std::uint32_t take_many(Order order, PageIndex* out, std::uint32_t n, std::uint32_t) {
    return engine.take_many(order, out, n);
  }
  bool begin_trim(PageIndex page) { return engine.begin_trim(page); }
  bool isolate(PageIndex page) {
    const bool begun = engine.begin_isolation(page);
    for (std::uint32_t i = 0; begun && i < frames_in(kPageblockOrder); i += kClusterFrames) {
      engine.withhold(advance(page, i));
    }
    return begun;
  }
  void end_isolation(PageIndex page) {
    engine.end_isolation(page);
    for (std::uint32_t i = 0; i < frames_in(kPageblockOrder); i += kClusterFrames) {
      engine.release(advance(page, i));
    }
  }
  PageIndex take_in(PageIndex page, Order order) {
    return order < kPageblockOrder ? engine.take_in(page, order) : kNoPage;
  }
  static constexpr bool kAllOrNothingOfFrames = false;
};

// One engine, its frames, and a table of those that are out, told by the calls alone.
template <class E>
class Side {
 public:
  Side(std::uint64_t frames, std::uint64_t offset) : range_(frames, offset), out_(frames) {
    side_.adopt(range_.first(), frames);
  }

  void take_many(Order order, std::uint32_t n, std::uint32_t cpu) {
    const Blocks before = blocks();
    const std::uint64_t free_before = side_.engine.free_pages();
    std::uint64_t there = 0;
    for (unsigned k = order.value; k < kOrderCount; ++k) {
      there += before[k] << (k - order.value);
    }
    PageIndex pages[64];
    const std::uint32_t got = side_.take_many(order, pages, n, cpu);
    for (std::uint32_t i = 0; i < got; ++i) {
      mark(pages[i], order, true);
      taken_.emplace_back(pages[i], order);
    }
    if (E::kAllOrNothingOfFrames && free_before < std::uint64_t{n} << order.value) {
      require(got == 0, "some were taken where not all frames were there");
    } else {
      require(got == std::min<std::uint64_t>(n, there), "not as many as there were");
    }
  }
  void give(std::size_t which) {
    std::swap(taken_[which], taken_.back());
    const auto [page, order] = taken_.back();
    taken_.pop_back();
    mark(page, order, false);
    side_.engine.give(page, order);
  }
  // Of one order, from the end on or from all over.
  void give_many(Order order, std::uint32_t n, std::uint32_t stride) {
    std::vector<PageIndex> pages;
    for (std::size_t i = taken_.size(); i-- > 0 && pages.size() < n;) {
      if (taken_[i].second == order && i % stride == 0) {
        pages.push_back(taken_[i].first);
        mark(pages.back(), order, false);
        taken_.erase(taken_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    side_.engine.give_many(order, pages.data(), static_cast<std::uint32_t>(pages.size()));
  }
  void give_all() {
    while (!taken_.empty()) {
      give(taken_.size() - 1);
    }
  }
  // A block that is out becomes two.
  void split(std::size_t which) {
    auto& [page, order] = taken_[which];
    if (order.value == 0) {
      return;
    }
    side_.engine.split(page, order);
    order = Order{order.value - 1};
    const std::pair upper{advance(page, frames_in(order)), order};
    taken_.push_back(upper);
  }
  // What is withheld is served to nobody, and given back meanwhile it stays; then it is taken whole, or the
  // isolation ends.
  void isolate(std::uint32_t which, std::uint32_t n) {
    const PageIndex page = pageblock(which);
    if (page < range_.first()) {
      return;  // its name is no frame of the range
    }
    const auto here = [page](PageIndex other) {
      return other.value / kBlock == page.value / kBlock;
    };
    const bool out_whole = std::any_of(taken_.begin(), taken_.end(), [&](const auto& block) {
      return block.second >= kPageblockOrder &&
             (here(block.first) ||
              (block.second == kMaxOrder && here(advance(block.first, kBlock))));
    });
    require(side_.isolate(page) != out_whole, "an isolation is refused or begun, wrongly");
    if (out_whole) {
      return;
    }
    require(!side_.isolate(page), "isolated twice");
    require(side_.take_in(page, Order{0}) == kNoPage, "a frame of what is withheld");
    for (std::uint32_t i = 0; i < n % 32; ++i) {
      PageIndex taken;
      const Order order{i % 10};
      if (side_.take_many(order, &taken, 1, i) == 1) {
        require(!here(taken), "a block of what is withheld");
        mark(taken, order, true);
        taken_.emplace_back(taken, order);
      }
    }
    for (std::size_t i = taken_.size(); i-- > 0;) {
      if (here(taken_[i].first) && (n >> 5) % 4 != i % 4) {
        give(i);
      }
    }
    if (const bool whole = wholly_free(page); side_.engine.take_isolated(page)) {
      require(whole, "taken as a whole while some of it is out");
      mark(page, kPageblockOrder, true);
      taken_.emplace_back(page, kPageblockOrder);
    } else {
      require(!whole, "not taken as a whole though all of it is there");
      side_.end_isolation(page);
    }
  }
  // A block out of a pageblock that is named, if there is one.
  void take_in(std::uint32_t which, Order order) {
    const PageIndex page = pageblock(which);
    if (page < range_.first()) {
      return;
    }
    const PageIndex taken = side_.take_in(page, order);
    if (taken != kNoPage) {
      require(taken.value / kBlock == page.value / kBlock, "a block out of another pageblock");
      mark(taken, order, true);
      taken_.emplace_back(taken, order);
      return;
    }
    for (std::uint32_t at = 0; order < kPageblockOrder && at < kBlock; at += frames_in(order)) {
      const std::uint64_t from = std::uint64_t{page.value} + at - range_.first().value;
      const bool inside =
          page.value + at >= range_.first().value && from + frames_in(order) <= out_.size();
      require(!inside ||
                  std::any_of(out_.begin() + static_cast<std::ptrdiff_t>(from),
                              out_.begin() + static_cast<std::ptrdiff_t>(from + frames_in(order)),
                              [](bool out) { return out; }),
              "no block though there is one");
    }
  }
  // Some pageblock of the range, or part of one at its ends.
  void trim(std::uint32_t which, bool done, bool forget) {
    const PageIndex page = pageblock(which);
    const std::uint64_t before = side_.engine.trimmed_blocks();
    const bool was = side_.engine.is_trimmed(page);
    if (forget) {
      side_.engine.forget_trim(page);
      require(!side_.engine.is_trimmed(page), "a mark was not forgotten");
      require(side_.engine.trimmed_blocks() == before - (was ? 1 : 0),
              "another mark was forgotten");
      return;
    }
    require(side_.begin_trim(page) == (wholly_free(page) && !was), "a trim begins or not, wrongly");
    if (wholly_free(page) && !was) {
      side_.engine.end_trim(page, done);
      require(side_.engine.is_trimmed(page) == done, "the mark of a trim");
      require(side_.engine.trimmed_blocks() == before + (done ? 1 : 0), "the number of marks");
    }
  }
  [[nodiscard]] bool empty() const { return taken_.empty(); }
  [[nodiscard]] std::size_t size() const { return taken_.size(); }
  [[nodiscard]] E& side() { return side_; }

  [[nodiscard]] Blocks blocks() const {
    Blocks all{};
    for (unsigned k = 0; k < kOrderCount; ++k) {
      all[k] = side_.engine.free_blocks(Order{k});
    }
    return all;
  }
  void compare() const {
    test::ReferenceBuddy model;
    std::uint64_t free = 0;
    for (std::uint64_t i = 0; i < out_.size(); ++i) {
      if (!out_[i]) {
        model.adopt(range_.frame(i), 1);
        ++free;
      }
    }
    std::uint64_t trimmed = 0;
    for (std::uint64_t at = align_up<std::uint64_t>(range_.first().value, kBlock);
         at + kBlock <= range_.first().value + out_.size(); at += kBlock) {
      const PageIndex page{static_cast<std::uint32_t>(at)};
      if (side_.engine.is_trimmed(page)) {
        require(wholly_free(page), "a trimmed pageblock is not wholly free");
        ++trimmed;
      }
    }
    require(side_.engine.trimmed_blocks() == trimmed, "the number of marks differs");
    require(side_.engine.free_pages() == free, "free pages differ from the table");
    require(side_.engine.audit() == free, "the audit counts otherwise");
    for (unsigned k = 0; k < kOrderCount; ++k) {
      require(side_.engine.free_blocks(Order{k}) == model.free_blocks(Order{k}),
              "free blocks of an order differ from the table");
    }
  }

 private:
  static constexpr std::uint32_t kBlock = frames_in(kPageblockOrder);

  [[nodiscard]] PageIndex pageblock(std::uint32_t which) const {
    const std::uint64_t first = range_.first().value / kBlock;
    const std::uint64_t count = (range_.first().value + out_.size() - 1) / kBlock + 1 - first;
    return {static_cast<std::uint32_t>((first + which % count) * kBlock)};
  }
  [[nodiscard]] bool wholly_free(PageIndex page) const {
    const std::uint64_t at = std::uint64_t{page.value} - range_.first().value;
    return page >= range_.first() && at + kBlock <= out_.size() &&
           std::none_of(out_.begin() + static_cast<std::ptrdiff_t>(at),
                        out_.begin() + static_cast<std::ptrdiff_t>(at + kBlock),
                        [](bool out) { return out; });
  }
  void mark(PageIndex page, Order order, bool out) {
    const std::uint64_t at = page.value - range_.first().value;
    require(at + frames_in(order) <= out_.size(), "a page outside of the range");
    require(page.value % frames_in(order) == 0, "a page that is not aligned");
    for (std::uint64_t i = at; i < at + frames_in(order); ++i) {
      require(out_[i] != out, "a frame has two owners");
      out_[i] = out;
    }
  }

  test::EngineRange range_;
  E side_;
  std::vector<bool> out_;
  std::vector<std::pair<PageIndex, Order>> taken_;
};

class Run {
 public:
  Run(std::uint64_t frames, std::uint64_t offset)
      : bitmap_(frames, offset), buddy_(frames, offset), frames_(frames) {}

  void step(Input& input) {
    const std::uint8_t what = input.byte();
    const Order order{(what >> 3) % kOrderCount};
    switch (what % 8) {
      case 0:
      case 1: {
        const std::uint32_t cpu = input.byte();
        bitmap_.take_many(order, 1, cpu);
        buddy_.take_many(order, 1, cpu);
        break;
      }
      case 2: {
        const std::uint32_t n = input.below(65);
        bitmap_.take_many(order, n, what >> 6);
        buddy_.take_many(order, n, 0);
        break;
      }
      case 3:
        both([which = input.number()](auto& side) {
          if (!side.empty()) {
            side.give(which % side.size());
          }
        });
        break;
      case 4: {
        const std::uint32_t most = std::max(1U, 64U >> order.value);
        const std::uint32_t n = 1 + input.below(most);
        const std::uint32_t stride = 1 + input.below(5);
        both([&](auto& side) { side.give_many(order, std::min(n, most), stride); });
        break;
      }
      case 5:
        claim(1 + input.below(64), input.byte());
        break;
      case 6:
        by_name(what >> 3, input);
        break;
      default:
        // A burst of single frames, so that both ends are reached with few bytes.
        for (std::uint32_t n = input.below(256); n != 0; --n) {
          both([&](auto& side) {
            if ((what >> 3) % 2 == 0) {
              side.take_many(Order{0}, 1, what >> 4);
            } else if (!side.empty()) {
              side.give(side.size() - 1);
            }
          });
        }
    }
  }
  void compare() const {
    bitmap_.compare();
    buddy_.compare();
  }
  void give_all() {
    both([](auto& side) { side.give_all(); });
    compare();
    require(bitmap_.blocks() == buddy_.blocks(), "the engines differ with everything back");
    require(bitmap_.side().engine.free_pages() == frames_, "frames are lost");
  }

 private:
  // What is done to a pageblock, or a block, that is named.
  void by_name(unsigned what, Input& input) {
    const std::uint32_t which = input.number();
    switch (what % 8) {
      case 0:
        bitmap_.side().engine.recover_in_child();
        break;
      case 1:
      case 2:
      case 3:
        both([&](auto& side) { side.trim(which, what >> 4 == 0, what % 8 == 1); });
        break;
      case 4:
        both([&](auto& side) { side.isolate(which, which >> 8); });
        break;
      case 5:
        both([&](auto& side) { side.take_in(which, Order{(which >> 8) % kOrderCount}); });
        break;
      default:
        both([&](auto& side) {
          if (!side.empty()) {
            side.split(which % side.size());
          }
        });
    }
  }
  template <class Do>
  void both(Do what) {
    what(bitmap_);
    what(buddy_);
  }
  // A claim is out of reach for others, and there for its owner.
  void claim(std::uint32_t n, std::uint32_t leave) {
    BitmapEngine& engine = bitmap_.side().engine;
    const std::uint64_t free = engine.free_pages();
    const bool claimed = engine.claim(n, leave);
    require(claimed == (free >= std::uint64_t{n} + leave), "a claim is refused or granted wrongly");
    if (!claimed) {
      return;
    }
    require(engine.free_pages() == free - n && engine.claimed_pages() == n, "counts of a claim");
    PageIndex pages[64];
    engine.take_claimed(pages, n, leave);
    engine.give_many(Order{0}, pages, n);
  }

  Side<Bitmap> bitmap_;
  Side<Buddy> buddy_;
  std::uint64_t frames_;
};

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  weir::fuzz::Input input(data, size);
  const std::uint64_t frames = 1 + input.number() % (input.byte() % 4 == 0 ? 6000U : 700U);
  const std::uint64_t offset = input.number() % weir::kMaxBlockFrames;
  weir::Run run(frames, offset);
  std::uint64_t steps = 0;
  while (!input.empty()) {
    run.step(input);
    if (++steps % 32 == 0) {
      run.compare();
    }
    if (steps % 256 == 0) {
      run.give_all();
    }
  }
  run.give_all();
  return 0;
}
