// SPDX-License-Identifier: MIT
// What each restartable section does when nothing interrupts it, for the place of every list: on
// private memory, with an area that the kernel does not know. What happens when something does is
// tests/stress/rseq_abort_test.cpp.
#include "weir/arch/rseq.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "tests/support/list_steps.hpp"
#include "tests/support/section_table.hpp"
#include "weir/percpu/slab.hpp"

namespace weir {
namespace {

using test::ListAt;
using test::ListCopy;
using test::PrivateArea;
using test::Step;
using test::StepKind;

constexpr int kCpu = 1;
constexpr std::uint64_t kHeadWordOfEntries = 0x0001'0200'0000'0001;

struct alignas(32) Entry {
  std::uint64_t first = kHeadWordOfEntries;
  std::array<std::uint64_t, 3> rest{};
};
static_assert(sizeof(Entry) == 32);

template <class Place>
class RseqSections : public testing::Test {
 protected:
  static constexpr ListAt kListAt = ListAt::of<Place>();
  static constexpr int kBlocks = 5;  // of the CPUs -2 to 2

  void SetUp() override {
    if (!kHasRseq) GTEST_SKIP() << "no sections in this build";
    std::memset(memory_->data(), 0, memory_->size());
  }

  std::byte* blocks() { return memory_->data() + 2 * arch::kBlockBytes; }
  std::byte* block(int cpu) { return blocks() + cpu * std::ptrdiff_t{arch::kBlockBytes}; }
  void* entry(std::uint32_t i) { return &entries_[i]; }
  std::byte* base() { return reinterpret_cast<std::byte*>(entries_.data()); }

  // A list with the entries first, first + 1, ... on its places from `floor` on.
  void fill(std::uint32_t floor, std::uint32_t count, std::uint32_t capacity,
            std::uint32_t first = 0, std::uint64_t pops = 7, int cpu = kCpu) {
    ListCopy list = ListCopy::read(block(cpu), kListAt);
    list.word = pops << 16 | (floor + count);
    list.bounds = test::make_bounds(floor, floor + capacity, floor + capacity);
    for (std::uint32_t i = 0; i < count; ++i) {
      list.at(floor + i) = reinterpret_cast<std::uint64_t>(entry(first + i));
    }
    list.write(block(cpu), kListAt);
  }
  void set_bounds(std::uint64_t bounds) {
    ListCopy list = now();
    list.bounds = bounds;
    list.write(block(kCpu), kListAt);
  }
  ListCopy now(int cpu = kCpu) { return ListCopy::read(block(cpu), kListAt); }
  // Numbers of the entries, the oldest first.
  std::vector<std::uint32_t> content(int cpu = kCpu) {
    std::vector<std::uint32_t> numbers;
    for (const std::uint64_t value : now(cpu).content()) numbers.push_back(number_of(value));
    return numbers;
  }
  std::uint32_t number_of(std::uint64_t value) {
    return static_cast<std::uint32_t>((value - reinterpret_cast<std::uint64_t>(base())) /
                                      sizeof(Entry));
  }
  std::uint32_t number_of(const void* entry) {
    return number_of(reinterpret_cast<std::uint64_t>(entry));
  }

  // A step that puts the entries first, first + 1, ...
  Step step(std::uint32_t n = 1, std::uint32_t first = 100) {
    Step step;
    step.n = n;
    step.base = base();
    step.head = kHeadWordOfEntries;
    for (std::uint32_t i = 0; i < n; ++i) {
      step.in[i] = entry(first + i);
      step.in_index[i] = first + i;
    }
    return step;
  }
  // Also with wide copies, where there are any, from the same beginning.
  bool run(StepKind kind, Step& step, int cpu = kCpu) {
    if (rseq_area::g_wide) {
      const Aligned before = *memory_;
      Step wide = step;
      wide.wide = true;
      run_once(kind, wide, cpu);
      const ListCopy after = now(cpu);
      *memory_ = before;
      run_once(kind, step, cpu);
      EXPECT_TRUE(test::same_result(kind, wide, step)) << name_of(kind) << " n " << step.n;
      EXPECT_EQ(after, now(cpu)) << name_of(kind) << " n " << step.n;
    } else {
      run_once(kind, step, cpu);
    }
    return step.done;
  }
  bool run_once(StepKind kind, Step& step, int cpu) {
    const PrivateArea area(cpu);
    test::section_of<Place>(kind)(blocks(), area.offset(), step);
    return step.done;
  }
  // The step is refused and the memory is as before, but for places that are nobody's.
  void expect_refused(StepKind kind, Step step, int cpu = kCpu) {
    const ListCopy before = now(cpu);
    EXPECT_FALSE(run(kind, step, cpu)) << name_of(kind) << " n " << step.n;
    EXPECT_EQ(now(cpu), before) << name_of(kind);
  }
  static std::vector<std::uint32_t> from_to(std::uint32_t first, std::uint32_t end) {
    std::vector<std::uint32_t> numbers;
    for (; first < end; ++first) numbers.push_back(first);
    return numbers;
  }
  static std::vector<std::uint32_t> together(std::vector<std::uint32_t> a,
                                             const std::vector<std::uint32_t>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  // Numbers that a bulk step is tried with.
  static std::vector<std::uint32_t> counts() {
    return from_to(1, std::min<std::uint32_t>(Place::kSize, Step::kMost) + 1);
  }

  using Memory = std::array<std::byte, kBlocks * arch::kBlockBytes>;
  struct alignas(arch::kBlockBytes) Aligned : Memory {};
  std::unique_ptr<Aligned> memory_ = std::make_unique<Aligned>();
  std::vector<Entry> entries_ = std::vector<Entry>(4096);
};

using Places = testing::Types<ListPlaceOf<0>, ListPlaceOf<1>, ListPlaceOf<2>, ListPlaceOf<3>,
                              ListPlaceOf<4>, ListPlaceOf<5>>;
TYPED_TEST_SUITE(RseqSections, Places);

TYPED_TEST(RseqSections, PopTakesTheHottestAndCounts) {
  this->fill(0, 3, 8);
  Step step;
  for (std::uint32_t left = 3; left-- > 0;) {
    ASSERT_TRUE(this->run(StepKind::pop, step));
    EXPECT_EQ(step.out[0], this->entry(left));
    EXPECT_EQ(this->content(), this->from_to(0, left));
    EXPECT_EQ(this->now().pops(), 7U + 3 - left);
  }
  this->expect_refused(StepKind::pop, step);
}

TYPED_TEST(RseqSections, PushPutsOnTopUntilTheCeiling) {
  this->fill(0, 6, 8);
  Step first = this->step(1, 20);
  Step second = this->step(1, 21);
  EXPECT_TRUE(this->run(StepKind::push, first));
  EXPECT_TRUE(this->run(StepKind::push, second));
  EXPECT_EQ(this->content(), this->together(this->from_to(0, 6), {20, 21}));
  EXPECT_EQ(this->now().pops(), 7U);
  this->expect_refused(StepKind::push, this->step());
}

TYPED_TEST(RseqSections, EveryPlaceOfTheRingIsUsedOnceBeforeTheFirstAgain) {
  constexpr std::uint32_t kSize = TypeParam::kSize;
  for (const std::uint32_t floor : {0U, 1U, kSize / 2, kSize - 1}) {
    this->fill(floor, 0, kSize);
    for (std::uint32_t i = 0; i < kSize; ++i) {
      Step step = this->step(1, i);
      ASSERT_TRUE(this->run(StepKind::push, step)) << i;
    }
    EXPECT_EQ(this->content(), this->from_to(0, kSize));
    this->expect_refused(StepKind::push, this->step());
    for (std::uint32_t i = kSize; i-- > 0;) {
      Step step;
      ASSERT_TRUE(this->run(StepKind::pop, step));
      ASSERT_EQ(step.out[0], this->entry(i));
    }
    this->expect_refused(StepKind::pop, Step{});
    EXPECT_EQ(this->now().pops(), 7U + kSize);
  }
}

TYPED_TEST(RseqSections, PopManyTakesExactlySoManyTheHottestLast) {
  for (const std::uint32_t n : this->counts()) {
    this->fill(0, TypeParam::kSize, TypeParam::kSize);
    Step step = this->step(n);
    ASSERT_TRUE(this->run(StepKind::pop_many, step)) << n;
    for (std::uint32_t i = 0; i < n; ++i) {
      ASSERT_EQ(this->number_of(step.out[i]), TypeParam::kSize - n + i) << n;
    }
    EXPECT_EQ(this->content(), this->from_to(0, TypeParam::kSize - n));
    EXPECT_EQ(this->now().pops(), 7U + n);

    this->fill(0, n - 1, TypeParam::kSize);
    this->expect_refused(StepKind::pop_many, this->step(n));
    this->fill(3, n - 1, TypeParam::kSize);
    this->expect_refused(StepKind::pop_many, this->step(n));
  }
}

TYPED_TEST(RseqSections, PushManyPutsExactlySoManyInTheirOrder) {
  for (const std::uint32_t n : this->counts()) {
    for (const StepKind kind : {StepKind::push_many, StepKind::push_alike, StepKind::refill}) {
      const std::uint32_t room = TypeParam::kSize;
      this->fill(0, room - n, room);
      Step step = this->step(n, 2000);
      ASSERT_TRUE(this->run(kind, step)) << name_of(kind) << n;
      EXPECT_EQ(this->content(),
                this->together(this->from_to(0, room - n), this->from_to(2000, 2000 + n)));
      EXPECT_EQ(this->now().pops(), 7U);

      this->fill(0, room - n + 1, room);
      this->expect_refused(kind, this->step(n));
    }
  }
}

TYPED_TEST(RseqSections, PushAlikeRefusesWhenAnyOneIsUnlikeTheOthers) {
  for (const std::uint32_t n : this->counts()) {
    for (std::uint32_t odd = 0; odd < n; ++odd) {
      for (const std::uint64_t bit : {std::uint64_t{1}, std::uint64_t{1} << 63}) {
        this->fill(0, 0, TypeParam::kSize);
        this->entries_[100 + odd].first ^= bit;
        this->expect_refused(StepKind::push_alike, this->step(n));
        this->entries_[100 + odd].first ^= bit;
      }
    }
  }
}

TYPED_TEST(RseqSections, PopManyAndPushManyGoAcrossTheRingsEnd) {
  constexpr std::uint32_t kSize = TypeParam::kSize;
  for (const std::uint32_t n : this->counts()) {
    // The n places begin so many before the ring's end.
    for (std::uint32_t before_end = 0; before_end <= n; ++before_end) {
      const std::uint32_t floor = before_end < kSize ? kSize - before_end : 0;
      this->fill(floor, n, n);
      Step pop = this->step(n);
      ASSERT_TRUE(this->run(StepKind::pop_many, pop)) << n << " at " << before_end;
      for (std::uint32_t i = 0; i < n; ++i) {
        ASSERT_EQ(pop.out[i], this->entry(i)) << n << " at " << before_end;
      }
      EXPECT_EQ(this->now().top(), floor);
      EXPECT_EQ(this->now().pops(), 7U + n);
      for (const StepKind kind : {StepKind::push_many, StepKind::push_alike}) {
        this->fill(floor, 0, n);
        Step push = this->step(n, 500);
        ASSERT_TRUE(this->run(kind, push)) << name_of(kind) << n << " at " << before_end;
        EXPECT_EQ(this->content(), this->from_to(500, 500 + n));
        EXPECT_EQ(this->now().top(), floor + n);
      }
    }
  }
}

TYPED_TEST(RseqSections, RefillAndSpillAcrossTheRingsEndAreRefused) {
  constexpr std::uint32_t kSize = TypeParam::kSize;
  for (const std::uint32_t n : this->counts()) {
    for (std::uint32_t before_end = 0; before_end <= n; ++before_end) {
      const std::uint32_t floor = before_end < kSize ? kSize - before_end : 0;
      const bool across = before_end != 0 && before_end < n;
      for (const StepKind kind : {StepKind::refill, StepKind::spill}) {
        this->fill(floor, kind == StepKind::spill ? n : 0, n);
        Step step = this->step(n);
        if (across) {
          this->expect_refused(kind, step);
        } else {
          EXPECT_TRUE(this->run(kind, step)) << name_of(kind) << n << " at " << before_end;
        }
      }
    }
  }
}

TYPED_TEST(RseqSections, RefillGoesBeyondTheCeilingToTheLimit) {
  this->fill(0, 4, 8);
  this->set_bounds(test::make_bounds(0, 4, 8));
  this->expect_refused(StepKind::push, this->step());
  this->expect_refused(StepKind::push_many, this->step(2));
  this->expect_refused(StepKind::refill, this->step(5));
  Step step = this->step(4, 30);
  ASSERT_TRUE(this->run(StepKind::refill, step));
  EXPECT_EQ(this->content(), this->together(this->from_to(0, 4), this->from_to(30, 34)));
  EXPECT_EQ(step.at, this->block(kCpu));
  this->expect_refused(StepKind::refill, this->step(1));
}

TYPED_TEST(RseqSections, RefillNamesEntriesByAnyIndex) {
  this->fill(0, 0, 8);
  Step step = this->step(5);
  step.base = reinterpret_cast<std::byte*>(std::uintptr_t{0x7000'0000'0000});
  const std::array<std::uint32_t, 5> indexes = {0, 0xffff'ffff, 0x8000'0000, 0x0800'0000, 1};
  std::copy(indexes.begin(), indexes.end(), step.in_index);
  ASSERT_TRUE(this->run(StepKind::refill, step));
  std::vector<std::uint64_t> wanted;
  for (const std::uint64_t index : indexes) wanted.push_back(0x7000'0000'0000 + 32 * index);
  EXPECT_EQ(this->now().content(), wanted);

  this->set_bounds(test::make_bounds(0, 5, 5));
  step.n = 5;
  ASSERT_TRUE(this->run(StepKind::spill, step));
  EXPECT_TRUE(std::equal(indexes.begin(), indexes.end(), step.out_index));
}

TYPED_TEST(RseqSections, SpillTakesTheOldestOfAListWithoutRoom) {
  for (const std::uint32_t n : this->counts()) {
    this->fill(0, TypeParam::kSize, TypeParam::kSize);
    Step step = this->step(n);
    ASSERT_TRUE(this->run(StepKind::spill, step)) << n;
    for (std::uint32_t i = 0; i < n; ++i) ASSERT_EQ(step.out_index[i], i);
    EXPECT_EQ(this->content(), this->from_to(n, TypeParam::kSize));
    EXPECT_EQ(this->now().pops(), 7U) << "a spill is no pop";
    EXPECT_EQ(step.at, this->block(kCpu));

    // Room for one.
    this->fill(0, TypeParam::kSize - 1, TypeParam::kSize);
    this->expect_refused(StepKind::spill, this->step(n));
    // Fewer than that.
    this->fill(0, n - 1, n - 1);
    this->expect_refused(StepKind::spill, this->step(n));
  }
}

TYPED_TEST(RseqSections, SpillBringsPositionsBackBelowTheRingsSize) {
  constexpr std::uint32_t kSize = TypeParam::kSize;
  for (const std::uint32_t n : this->counts()) {
    this->fill(kSize - n, n + 3 > kSize ? kSize : n + 3, n + 3 > kSize ? kSize : n + 3, 0, 900);
    const ListCopy before = this->now();
    Step step = this->step(n);
    ASSERT_TRUE(this->run(StepKind::spill, step)) << n;
    const ListCopy after = this->now();
    EXPECT_EQ(after.floor(), 0U);
    EXPECT_EQ(after.top(), before.top() - kSize);
    EXPECT_EQ(after.ceil(), before.ceil() + n - kSize);
    EXPECT_EQ(after.limit(), before.limit() + n - kSize);
    EXPECT_EQ(after.pops(), 900U);
    EXPECT_EQ(this->content().size(), before.top() - before.floor() - n);
    if (n < TypeParam::kSize) {
      EXPECT_EQ(this->content().front(), n);
    }
  }
  // One position below: nothing to take off.
  this->fill(kSize - 2, 4, 4);
  Step step = this->step(1);
  ASSERT_TRUE(this->run(StepKind::spill, step));
  EXPECT_EQ(this->now().floor(), kSize - 1);
  EXPECT_EQ(this->now().top(), kSize + 2);
}

TYPED_TEST(RseqSections, ReplaceBoundsWantsTheBoundsItWasTold) {
  this->fill(0, 4, 8);
  Step step;
  step.next = test::make_bounds(0, 6, 7);
  for (int bit = 0; bit < 64; ++bit) {
    step.expected = this->now().bounds ^ std::uint64_t{1} << bit;
    this->expect_refused(StepKind::replace_bounds, step);
  }
  const std::uint64_t word = this->now().word;
  step.expected = this->now().bounds;
  ASSERT_TRUE(this->run(StepKind::replace_bounds, step));
  EXPECT_EQ(this->now().bounds, test::make_bounds(0, 6, 7));
  EXPECT_EQ(this->now().word, word);
}

TYPED_TEST(RseqSections, AStoppedListRefusesAll) {
  constexpr std::uint32_t kSize = TypeParam::kSize;
  for (const std::uint32_t floor : {0U, kSize - 1}) {
    for (const std::uint32_t count : {0U, 1U, kSize}) {
      this->fill(floor, count, kSize);
      const std::uint64_t bounds = this->now().bounds;
      this->set_bounds(arch::kStoppedBounds);
      for (const StepKind kind : test::kAllSteps) {
        for (const std::uint32_t n : {1U, 2U, 8U}) {
          Step step = this->step(n);
          step.expected = bounds;
          this->expect_refused(kind, step);
        }
      }
    }
  }
}

TYPED_TEST(RseqSections, ABlockOfZerosRefusesAll) {
  for (const StepKind kind : test::kAllSteps) {
    for (const std::uint32_t n : this->counts()) {
      Step step = this->step(n);
      step.expected = arch::kStoppedBounds;
      this->expect_refused(kind, step);
    }
  }
}

TYPED_TEST(RseqSections, ThreadsWithoutACpuFindTheBlocksBefore) {
  for (const int cpu : {-1, -2}) {
    for (const StepKind kind : test::kAllSteps) {
      this->fill(0, 8, 8, 0, 7, kCpu);
      this->fill(0, 8, 8, 0, 7, 0);
      Step step = this->step();
      step.expected = this->now().bounds;
      this->expect_refused(kind, step, cpu);
      EXPECT_EQ(this->content(kCpu).size(), 8U);
      EXPECT_EQ(this->content(0).size(), 8U);
    }
    // And it is those blocks that are looked at, not none.
    this->fill(0, 1, 8, cpu == -1 ? 40 : 50, 7, cpu);
    Step step;
    EXPECT_TRUE(this->run(StepKind::pop, step, cpu));
    EXPECT_EQ(this->number_of(step.out[0]), cpu == -1 ? 40U : 50U);
    this->fill(0, 0, 0, 0, 0, cpu);
  }
}

TYPED_TEST(RseqSections, OfTheAreaOnlyTheDescriptorsAddressIsWritten) {
  for (const StepKind kind : test::kAllSteps) {
    this->fill(0, 8, 8);
    PrivateArea area(kCpu);
    Step step = this->step();
    test::section_of<TypeParam>(kind)(this->blocks(), area.offset(), step);
    const std::uint64_t descriptor = area.descriptor();
    const auto known = test::section_descriptors();
    EXPECT_TRUE(std::any_of(known.begin(), known.end(), [descriptor](const auto& one) {
      return reinterpret_cast<std::uint64_t>(&one) == descriptor;
    })) << name_of(kind);
    area.forget();
    const PrivateArea fresh(kCpu);
    EXPECT_EQ(std::memcmp(&area.get(), &fresh.get(), sizeof(RseqArea)), 0) << name_of(kind);
  }
}

// Random programs against the contract, which runs on a copy. Everything outside the list, the other
// blocks included, stays as it was.
TYPED_TEST(RseqSections, DoWhatTheContractSays) {
  constexpr std::uint32_t kSize = TypeParam::kSize;
  constexpr ListAt kAt = ListAt::of<TypeParam>();
  std::mt19937 random(20240607 + kSize);
  const auto below = [&random](std::uint32_t end) {
    return std::uniform_int_distribution<std::uint32_t>(0, end - 1)(random);
  };
  std::array<int, std::size(test::kAllSteps)> done{};
  std::array<int, std::size(test::kAllSteps)> refused{};
  for (int program = 0; program < 60; ++program) {
    for (std::byte& byte : *this->memory_) byte = static_cast<std::byte>(below(256));
    const std::uint32_t capacity = 1 + below(kSize);
    this->fill(below(kSize), below(capacity + 1), capacity);
    ListCopy model = this->now();
    auto elsewhere = std::make_unique<typename TestFixture::Aligned>(*this->memory_);
    for (int i = 0; i < 150; ++i) {
      const auto kind = static_cast<StepKind>(below(std::size(test::kAllSteps)));
      Step step =
          this->step(1 + below(below(2) != 0 ? 4 : std::min(kSize, Step::kMost)), below(4000));
      if (below(8) == 0) step.head ^= 1;
      step.expected = model.bounds ^ (below(4) == 0 ? 1 : 0);
      const std::uint32_t room = below(kSize + 1);
      step.next =
          test::make_bounds(model.floor(), model.floor() + below(room + 1), model.floor() + room);
      if (below(16) == 0) step.next = arch::kStoppedBounds;
      if (model.bounds == arch::kStoppedBounds && below(8) == 0) {
        const std::uint32_t floor = model.top() % kSize;  // what a drainer makes of an empty list
        model.word = model.pops() << 16 | floor;
        model.bounds = test::make_bounds(floor, floor + room, floor + room);
        model.write(this->block(kCpu), kAt);
      }
      Step wanted = step;
      test::run_contract(kind, model, wanted);
      this->run(kind, step);
      ASSERT_TRUE(test::same_result(kind, step, wanted))
          << name_of(kind) << " n " << step.n << ", step " << i << " of program " << program;
      ASSERT_EQ(this->now(), model) << name_of(kind) << " n " << step.n;
      ++(step.done ? done : refused)[static_cast<std::size_t>(kind)];
    }
    this->now().write(elsewhere->data() + (2 + kCpu) * arch::kBlockBytes, kAt);
    ASSERT_EQ(std::memcmp(elsewhere->data(), this->memory_->data(), elsewhere->size()), 0);
  }
  for (const StepKind kind : test::kAllSteps) {
    EXPECT_GT(done[static_cast<std::size_t>(kind)], 20) << name_of(kind);
    EXPECT_GT(refused[static_cast<std::size_t>(kind)], 20) << name_of(kind);
  }
}

}  // namespace
}  // namespace weir
