// SPDX-License-Identifier: MIT
// The bitmap engine's own code, on atomics that stop before every access, in the orders of its steps: no
// frame is handed out twice or lost, what is claimed is found without waiting for anybody, a block is
// refused to all only if nobody could have it, and at rest every count and hint is right. Schedules of
// takes are many: those tests bound the number of preemptions. And the same code on words that change
// without comparing, where the explorer must find the fault.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "tests/model/interleave.hpp"
#include "tests/unit/zone/engine_range.hpp"
#include "weir/zone/bitmap_engine.hpp"
#include "weir/zone/bitmap_engine_give.hpp"
#include "weir/zone/bitmap_engine_life.hpp"
#include "weir/zone/bitmap_engine_take.hpp"
#include "weir/zone/bitmap_engine_trim.hpp"

namespace weir::test {
namespace {

struct Op {
  enum class Kind : unsigned char { take, give, claim, claimed, unclaim, trim, pinned };
  Kind kind;
  unsigned order = 0;
  std::uint32_t n = 1;
};
constexpr Op take(unsigned order = 0) { return {Op::Kind::take, order}; }
constexpr Op take_many(std::uint32_t n, unsigned order = 0) { return {Op::Kind::take, order, n}; }
// Of what this thread holds the oldest.
constexpr Op give() { return {Op::Kind::give}; }
constexpr Op claim(std::uint32_t n) { return {Op::Kind::claim, 0, n}; }
// Takes what was claimed, if it was.
constexpr Op claimed() { return {Op::Kind::claimed}; }
constexpr Op unclaim() { return {Op::Kind::unclaim}; }
// Of this pageblock, if it is wholly free; the frames are this thread's while the system takes them.
constexpr Op trim(std::uint32_t block, bool done = true) {
  return {Op::Kind::trim, done ? 1U : 0U, block};
}
constexpr Op forget_trim(std::uint32_t block) { return {Op::Kind::pinned, 0, block}; }
using Program = std::vector<Op>;

struct Piece {
  std::uint32_t at;
  unsigned order;
};

// Two pageblocks with these free pieces, what each thread holds from the start, and whether the threads
// are on one CPU.
struct Shape {
  std::vector<Piece> free;
  std::vector<std::vector<Piece>> held{};
  bool one_cpu = false;
};

template <template <class> class AtomicT>
class Rig {
 public:
  Rig(Shape shape, std::vector<Program> programs)
      : shape_(std::move(shape)), programs_(std::move(programs)), range_(kFrames) {
    shape_.held.resize(programs_.size());
    EXPECT_FALSE(engine_.adopt(range_.first(), PageCount{kFrames}).failed());
    take_all();
  }

  Explored run(Limits limits = {}) {
    Scenario scenario{[this] { start(); }, {}, [this] { finish(); }};
    for (std::size_t i = 0; i < programs_.size(); ++i) {
      scenario.threads.emplace_back([this, i] { work(i); });
    }
    return explore(scenario, limits);
  }
  // Takes of one schedule that were served: fewest and most over all schedules.
  [[nodiscard]] std::uint32_t fewest() const { return fewest_; }
  [[nodiscard]] std::uint32_t most() const { return most_; }
  // Trims of all schedules.
  [[nodiscard]] std::uint64_t trims() const { return trims_; }

 private:
  static constexpr std::uint32_t kFrames = 1024;
  struct Held {
    PageIndex page;
    unsigned order;
  };

  // Between schedules the pieces of the shape are out, as blocks of their orders, and all else is out
  // as well: so that a schedule begins with a give of each and ends with a take of each.
  void take_all() {
    std::vector<Piece> pieces = shape_.free;
    for (const std::vector<Piece>& held : shape_.held) {
      pieces.insert(pieces.end(), held.begin(), held.end());
    }
    for (std::uint32_t i = 0; i < kFrames; ++i) {
      static_cast<void>(engine_.take(Order{0}, 0, 0));
    }
    for (const Piece& piece : pieces) {
      for (std::uint32_t i = 0; i < frames_in(Order{piece.order}); ++i) {
        engine_.give(range_.frame(piece.at + i), Order{0});
      }
      EXPECT_EQ(engine_.take(Order{piece.order}, 0, 0), range_.frame(piece.at));
    }
  }

  void start() {
    engine_.recover_in_child();
    out_.fill(true);
    for (const Piece& piece : shape_.free) {
      engine_.give(range_.frame(piece.at), Order{piece.order});
      mark({range_.frame(piece.at), piece.order}, false);
    }
    hands_.assign(programs_.size(), {});
    for (std::size_t i = 0; i < programs_.size(); ++i) {
      for (const Piece& piece : shape_.held[i]) {
        hands_[i].push_back({range_.frame(piece.at), piece.order});
      }
    }
    claimed_.assign(programs_.size(), 0);
    served_ = 0;
  }

  void mark(Held held, bool out) {
    for (std::uint32_t i = 0; i < frames_in(Order{held.order}); ++i) {
      if (std::exchange(out_[held.page.value - range_.first().value + i], out) == out) {
        Explorer::violated(out ? "a frame has two holders" : "a frame was given that nobody had");
      }
    }
  }

  void work(std::size_t me) {
    const std::uint32_t cpu = shape_.one_cpu ? 0 : static_cast<std::uint32_t>(me);
    std::vector<Held>& hand = hands_[me];
    for (const Op op : programs_[me]) {
      PageIndex pages[64];
      std::uint32_t got = 0;
      switch (op.kind) {
        case Op::Kind::take:
          got = engine_.take_many(Order{op.order}, pages, op.n, 0, cpu);
          if (op.order == 0 && got != 0 && got != op.n) {
            Explorer::violated("some single frames, but not all");
          }
          served_ += got;
          break;
        case Op::Kind::give:
          if (!hand.empty()) {
            const Held held = hand.front();
            hand.erase(hand.begin());
            mark(held, false);  // from the change of a bit inside on, anybody may hold it
            engine_.give(held.page, Order{held.order});
          }
          break;
        case Op::Kind::claim:
          claimed_[me] = engine_.claim(op.n, 0) ? op.n : 0;
          break;
        case Op::Kind::claimed:
          got = std::exchange(claimed_[me], 0);
          served_ += got;
          if (got != 0) {
            engine_.take_claimed(pages, got, cpu);
          }
          break;
        case Op::Kind::unclaim:
          if (const std::uint32_t n = std::exchange(claimed_[me], 0); n != 0) {
            engine_.unclaim(n);
          }
          break;
        case Op::Kind::trim: {
          const Held held{range_.frame(op.n * kPageblockFrames), kPageblockOrderValue};
          if (engine_.begin_trim(held.page, 0)) {
            mark(held, true);
            ++trims_;
            mark(held, false);
            engine_.end_trim(held.page, op.order != 0);
          }
          break;
        }
        case Op::Kind::pinned:
          engine_.forget_trim(range_.frame(op.n * kPageblockFrames));
          break;
      }
      for (std::uint32_t i = 0; i < got; ++i) {
        mark({pages[i], op.order}, true);
        hand.push_back({pages[i], op.order});
      }
    }
  }

  void finish() {
    fewest_ = std::min(fewest_, served_);
    most_ = std::max(most_, served_);
    const auto left = static_cast<std::uint64_t>(std::count(out_.begin(), out_.end(), false));
    std::uint64_t claims = 0;
    for (const std::uint32_t n : claimed_) {
      claims += n;
    }
    if (engine_.free_pages() + claims != left || engine_.claimed_pages() != claims) {
      Explorer::violated("the counts of the zone are not what is left");
      return;
    }
    static_cast<void>(engine_.audit());
    engine_.unclaim(claims);
    for (const std::vector<Held>& hand : hands_) {
      for (const Held held : hand) {
        engine_.give(held.page, Order{held.order});
      }
    }
    // Everything the shape had is here: out again, in its pieces.
    while (engine_.take(Order{0}, 0, 0) != kNoPage) {
    }
    for (const std::vector<Piece>* pieces : all_pieces()) {
      for (const Piece& piece : *pieces) {
        for (std::uint32_t i = 0; piece.order > 0 && i < frames_in(Order{piece.order}); ++i) {
          engine_.give(range_.frame(piece.at + i), Order{0});
        }
        if (piece.order > 0 && engine_.take(Order{piece.order}, 0, 0) != range_.frame(piece.at)) {
          Explorer::violated("what the schedule began with is not there at its end");
        }
      }
    }
  }
  [[nodiscard]] std::vector<const std::vector<Piece>*> all_pieces() const {
    std::vector<const std::vector<Piece>*> all{&shape_.free};
    for (const std::vector<Piece>& held : shape_.held) {
      all.push_back(&held);
    }
    return all;
  }

  Shape shape_;
  std::vector<Program> programs_;
  EngineRange range_;
  BasicBitmapEngine<AtomicT> engine_;
  std::array<bool, kFrames> out_{};
  std::vector<std::vector<Held>> hands_;
  std::vector<std::uint32_t> claimed_;
  std::uint32_t served_ = 0;
  std::uint32_t fewest_ = ~std::uint32_t{0};
  std::uint32_t most_ = 0;
  std::uint64_t trims_ = 0;
};

// Adds up what a test explored, for its last line.
class Sum {
 public:
  explicit Sum(const char* what) : what_(what) {}
  ~Sum() {
    std::printf("%llu schedules of up to %u steps: %s\n", static_cast<unsigned long long>(sum_),
                longest_, what_);
  }
  Sum(const Sum&) = delete;
  Sum& operator=(const Sum&) = delete;
  void expect_right(const Explored& explored) {
    EXPECT_EQ(explored.failure, "") << "schedule " << explored.witness;
    sum_ += explored.schedules;
    longest_ = std::max(longest_, explored.longest);
  }

 private:
  const char* what_;
  std::uint64_t sum_ = 0;
  std::uint32_t longest_ = 0;
};

#if defined(WEIR_MODEL_TSAN) || defined(WEIR_MODEL_ASAN)
constexpr Limits kSome{.preemptions = 2};
constexpr Limits kMore{.preemptions = 2};
constexpr Limits kMost{.preemptions = 2};
#else
constexpr Limits kSome{.preemptions = 3};
constexpr Limits kMore{.preemptions = 4};
constexpr Limits kMost{};
#endif

TEST(BitmapInterleave, TwoGivesInEveryOrder) {
  Sum sum{"give beside give"};
  // Into one word, into two words of a pageblock, into both pageblocks of a pair.
  for (const std::uint32_t other : {6U, 100U, 700U}) {
    Rig<ModelAtomic> rig{{{}, {{{5, 0}}, {{other, 0}}}}, {{give()}, {give()}}};
    sum.expect_right(rig.run(kMost));
  }
}

TEST(BitmapInterleave, TwoTakesFindTwoFrames) {
  Sum sum{"take beside take"};
  // In one word; in two words; the last of one pageblock and the last of the other.
  for (const std::uint32_t other : {6U, 100U, 700U}) {
    Rig<ModelAtomic> rig{{{{5, 0}, {other, 0}}}, {{take()}, {take()}}};
    sum.expect_right(rig.run(kMore));
    EXPECT_EQ(rig.fewest(), 2U) << "what is claimed is found";
  }
}

TEST(BitmapInterleave, TwoTakesOfOneFrameServeOne) {
  Sum sum{"two takes of one frame"};
  Rig<ModelAtomic> rig{{{{5, 0}}}, {{take()}, {take()}}};
  sum.expect_right(rig.run(kMore));
  EXPECT_EQ(rig.fewest(), 1U);
  EXPECT_EQ(rig.most(), 1U);
}

TEST(BitmapInterleave, ATakeBesideAGive) {
  Sum sum{"take beside give"};
  for (const std::uint32_t at : {6U, 100U, 700U}) {
    Rig<ModelAtomic> rig{{{{5, 0}}, {{}, {{at, 0}}}}, {{take()}, {give()}}};
    sum.expect_right(rig.run(kMore));
    EXPECT_EQ(rig.fewest(), 1U);
  }
  Rig<ModelAtomic> empty{{{}, {{}, {{9, 0}}}}, {{take()}, {give()}}};
  sum.expect_right(empty.run(kMost));
  EXPECT_EQ(empty.fewest(), 0U);
  EXPECT_EQ(empty.most(), 1U);
}

TEST(BitmapInterleave, FramesGoRoundBetweenTwo) {
  Sum sum{"take and give beside take and give"};
  Rig<ModelAtomic> rig{{{{5, 0}, {700, 0}}}, {{take(), give(), take()}, {take(), give(), take()}}};
  sum.expect_right(rig.run(kSome));
  EXPECT_EQ(rig.fewest(), 4U);
}

// Both reserve a pageblock for the same CPU: one of them gives its own up again (E4, by the audit).
TEST(BitmapInterleave, TwoThreadsOfOneCpuLeaveNoPageblockReservedForNobody) {
  Sum sum{"two threads of one CPU"};
  const Shape shape{{{5, 0}, {6, 0}, {7, 0}, {700, 0}, {701, 0}, {702, 0}}, {}, true};
  Rig<ModelAtomic> rig{shape, {{take_many(2)}, {take_many(2)}}};
  sum.expect_right(rig.run(kMore));
  EXPECT_EQ(rig.fewest(), 4U);
  Rig<ModelAtomic> longer{shape, {{take(), take()}, {take(), take()}}};
  sum.expect_right(longer.run(kSome));
  EXPECT_EQ(longer.fewest(), 4U);
}

TEST(BitmapInterleave, ManyAtOnceBesideOne) {
  Sum sum{"several at once"};
  Rig<ModelAtomic> rig{{{{5, 0}, {6, 0}, {70, 0}, {700, 0}}}, {{take_many(3)}, {take(), give()}}};
  sum.expect_right(rig.run(kSome));
  EXPECT_EQ(rig.fewest(), 4U);
  Rig<ModelAtomic> all{{{{5, 0}, {6, 0}, {70, 0}}}, {{take_many(2)}, {take_many(2)}}};
  sum.expect_right(all.run(kSome));
  EXPECT_EQ(all.fewest(), 2U);
  EXPECT_EQ(all.most(), 2U);
}

// A count that crosses the border of a bucket up and down: no hint is lost (E3, by the audit).
TEST(BitmapInterleave, HintsSurviveAPageblockThatComesAndGoes) {
  Sum sum{"hints"};
  Rig<ModelAtomic> rig{{{}, {{{5, 0}}, {{6, 0}}}}, {{give(), take()}, {give(), take()}}};
  sum.expect_right(rig.run(kSome));
  EXPECT_EQ(rig.fewest(), 2U);
  Rig<ModelAtomic> border{{{{0, 6}}, {{{64, 0}}, {{65, 0}}}}, {{give(), take(6)}, {give()}}};
  sum.expect_right(border.run(kSome));
}

TEST(BitmapInterleave, RunsBesideSingleFrames) {
  Sum sum{"runs beside single frames"};
  for (const unsigned order : {1U, 3U, 6U}) {
    Rig<ModelAtomic> rig{{{{64, order}}}, {{take(order)}, {take()}}};
    sum.expect_right(rig.run(kSome));
    EXPECT_EQ(rig.fewest(), 1U) << "one of the two is served";
    EXPECT_EQ(rig.most(), 1U);
  }
  // A single frame more: then there is enough for both, but not all ways round.
  Rig<ModelAtomic> more{{{{64, 3}, {200, 0}}}, {{take(3), give()}, {take(), give()}}};
  sum.expect_right(more.run(kSome));
  EXPECT_GE(more.fewest(), 1U);
}

TEST(BitmapInterleave, ARequestForABlockThatIsNotThereRefusesNobodyElse) {
  Sum sum{"a block that is not there"};
  for (const unsigned order : {1U, 3U, 7U, 9U}) {
    // So many frames, but no buddies.
    Rig<ModelAtomic> rig{{{{0, order - 1}, {3U << (order - 1), order - 1}}},
                         {{take(order)}, {take()}}};
    sum.expect_right(rig.run(kSome));
    EXPECT_EQ(rig.fewest(), 1U) << order;
    EXPECT_EQ(rig.most(), 1U) << order;
  }
}

// Blocks of several words are taken word by word and put back when one is missing: the single frame
// is there all the time.
TEST(BitmapInterleave, WordsBesideSingleFrames) {
  Sum sum{"blocks of several words"};
  Rig<ModelAtomic> rig{{{{128, 7}}}, {{take(7)}, {take(7)}}};
  sum.expect_right(rig.run(kSome));
  EXPECT_EQ(rig.fewest(), 1U);
  EXPECT_EQ(rig.most(), 1U);
  Rig<ModelAtomic> beside{{{{128, 7}, {5, 0}}}, {{take(7)}, {take(), take()}}};
  sum.expect_right(beside.run(kSome));
  EXPECT_GE(beside.fewest(), 2U) << "single frames that are claimed are found";
  Rig<ModelAtomic> given{{{}, {{{128, 7}}}}, {{give()}, {take(), take()}}};
  sum.expect_right(given.run(kMore));
  Rig<ModelAtomic> four{{{}, {{{256, 8}}}}, {{give()}, {take(8)}}};
  sum.expect_right(four.run(kMore));
}

TEST(BitmapInterleave, APageblockBesideSingleFrames) {
  Sum sum{"order 9 beside single frames"};
  Rig<ModelAtomic> rig{{{{0, 9}}}, {{take(9)}, {take()}}};
  sum.expect_right(rig.run(kMore));
  EXPECT_EQ(rig.fewest(), 1U);
  EXPECT_EQ(rig.most(), 1U);
  // The single frame comes out of the other pageblock: both are served, always.
  Rig<ModelAtomic> both{{{{0, 9}, {700, 0}}}, {{take(9)}, {take()}}};
  sum.expect_right(both.run(kMore));
  EXPECT_EQ(both.fewest(), 2U);
  Rig<ModelAtomic> round{{{{0, 9}, {700, 0}}}, {{take(9), give()}, {take(), give()}}};
  sum.expect_right(round.run(kSome));
  Rig<ModelAtomic> given{{{}, {{{512, 9}}}}, {{give()}, {take(), take()}}};
  sum.expect_right(given.run(kMore));
}

TEST(BitmapInterleave, TheLargestBlockBesideAPageblock) {
  Sum sum{"order 10 beside order 9"};
  Rig<ModelAtomic> rig{{{{0, 10}}}, {{take(10)}, {take(9)}}};
  sum.expect_right(rig.run(kMore));
  EXPECT_EQ(rig.fewest(), 1U);
  EXPECT_EQ(rig.most(), 1U);
  Rig<ModelAtomic> given{{{{0, 9}}, {{}, {{512, 9}}}}, {{take(10)}, {give()}}};
  sum.expect_right(given.run(kMore));
  EXPECT_EQ(given.fewest(), 0U);
  EXPECT_EQ(given.most(), 1U);
  Rig<ModelAtomic> round{{{{0, 10}}}, {{take(10), give()}, {take(9), give()}}};
  sum.expect_right(round.run(kSome));
  Rig<ModelAtomic> singles{{{{0, 10}}}, {{take(10)}, {take()}}};
  sum.expect_right(singles.run(kSome));
  EXPECT_EQ(singles.fewest(), 1U);
}

// Hints, marks and counts agree at the end of each (E1..E6, by the audit); a trimmed pageblock is found by whoever
// needs it.
TEST(BitmapInterleave, ATrimBesideTakesAndGives) {
  Sum sum{"a trim beside others"};
  // The only free pageblock: the take gets it before, after, or not at all.
  Rig<ModelAtomic> single{{{{0, 9}}}, {{trim(0)}, {take()}}};
  sum.expect_right(single.run(kMore));
  EXPECT_EQ(single.fewest(), 0U);
  EXPECT_EQ(single.most(), 1U);
  EXPECT_GT(single.trims(), 0U);
  // Something else is there: then nobody is refused.
  Rig<ModelAtomic> beside{{{{0, 9}, {700, 0}}}, {{trim(0)}, {take(), give()}}};
  sum.expect_right(beside.run(kSome));
  EXPECT_EQ(beside.fewest(), 1U);
  Rig<ModelAtomic> whole{{{{0, 9}, {512, 9}}}, {{trim(0)}, {take(9)}}};
  sum.expect_right(whole.run(kMore));
  EXPECT_EQ(whole.fewest(), 1U) << "the other one is resident and there";
  Rig<ModelAtomic> largest{{{{0, 10}}}, {{trim(1)}, {take(10), give()}}};
  sum.expect_right(largest.run(kMore));
  Rig<ModelAtomic> last{
      {{{0, 8}, {256, 7}, {384, 6}, {448, 5}, {480, 4}, {496, 3}, {504, 2}, {508, 1}, {510, 0}},
       {{}, {{511, 0}}}},
      {{trim(0)}, {give()}}};
  sum.expect_right(last.run(kMore));
  EXPECT_GT(last.trims(), 0U) << "the give that makes it whole came first";
  Rig<ModelAtomic> refused{{{{0, 9}}}, {{trim(0, false)}, {take(9), give()}}};
  sum.expect_right(refused.run(kMore));
  Rig<ModelAtomic> again{{{{0, 9}}}, {{trim(0), trim(0)}, {take(), give()}}};
  sum.expect_right(again.run(kSome));
  Rig<ModelAtomic> forgotten{{{{0, 9}}}, {{trim(0), forget_trim(0)}, {take(), give()}}};
  sum.expect_right(forgotten.run(kSome));
}

TEST(BitmapInterleave, AClaimIsKeptUntilItIsTakenOrUndone) {
  Sum sum{"claims"};
  const Shape three{{{5, 0}, {6, 0}, {700, 0}}};
  Rig<ModelAtomic> rig{three, {{claim(2), claimed()}, {take(), give(), take()}}};
  sum.expect_right(rig.run(kSome));
  EXPECT_EQ(rig.fewest(), 4U) << "two for the claim, and one for the other as often as it asks";
  Rig<ModelAtomic> both{three, {{claim(2), claimed()}, {claim(2), claimed()}}};
  sum.expect_right(both.run(kSome));
  EXPECT_EQ(both.fewest(), 2U);
  EXPECT_EQ(both.most(), 2U);
  Rig<ModelAtomic> undone{three, {{claim(3), unclaim()}, {take()}}};
  sum.expect_right(undone.run(kMore));
  EXPECT_EQ(undone.fewest(), 0U);
  EXPECT_EQ(undone.most(), 1U);
}

// Words that are stored whatever they hold by now: what the engine would be without its comparisons.
template <class T>
class RashAtomic : public ModelAtomic<T> {
 public:
  using ModelAtomic<T>::ModelAtomic;
  bool compare_exchange_weak(T&, T desired, std::memory_order = memory_order_seq_cst,
                             std::memory_order = memory_order_seq_cst) {
    this->store(desired);
    return true;
  }
};

TEST(BitmapInterleave, WithoutComparingTheExplorerFindsTheFault) {
  Rig<RashAtomic> rig{{{{5, 0}, {6, 0}}}, {{take()}, {take()}}};
  const Explored found = rig.run();
  EXPECT_NE(found.failure, "");
  std::printf("found in schedule %llu: %s\n", static_cast<unsigned long long>(found.schedules),
              found.failure.c_str());
}

}  // namespace
}  // namespace weir::test
