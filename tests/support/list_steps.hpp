// SPDX-License-Identifier: MIT
// support/list_steps.hpp — a step on a per-CPU list as a value: what goes in and comes out, how a
// restartable section does it, and what it must do. The second is written down from the contract in
// arch/rseq.hpp, in C++ and on copies, so that the first can be compared with it. Calls arch/rseq.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "weir/arch/rseq.hpp"
#include "weir/os/rseq_area.hpp"

namespace weir::test {

enum class StepKind { pop, push, pop_many, push_many, push_alike, refill, spill, replace_bounds };
inline constexpr StepKind kAllSteps[] = {
    StepKind::pop,        StepKind::push,   StepKind::pop_many, StepKind::push_many,
    StepKind::push_alike, StepKind::refill, StepKind::spill,    StepKind::replace_bounds};
[[nodiscard]] constexpr const char* name_of(StepKind kind) {
  constexpr const char* kNames[] = {"pop",        "push",   "pop_many", "push_many",
                                    "push_alike", "refill", "spill",    "replace_bounds"};
  return kNames[static_cast<int>(kind)];
}
[[nodiscard]] constexpr bool puts(StepKind kind) {
  return kind == StepKind::push || kind == StepKind::push_many || kind == StepKind::push_alike ||
         kind == StepKind::refill;
}

struct Step {
  static constexpr std::uint32_t kMost = 64;

  std::uint32_t n = 1;
  void* in[kMost] = {};                  // push, push_many, push_alike
  std::uint32_t in_index[kMost] = {};    // refill
  std::byte* base = nullptr;             // refill and spill: of the entries that indexes name
  std::uint64_t head = 0;                // push_alike: the word that entries begin with
  std::uint64_t expected = 0, next = 0;  // replace_bounds
  bool wide = false;                     // pop_many, push_many, push_alike

  bool done = false;
  void* out[kMost] = {};                // pop, pop_many
  std::uint32_t out_index[kMost] = {};  // spill
  std::byte* at = nullptr;              // refill and spill: the block
};

// The section itself, one for each Place, in a function of its own.
template <StepKind kKind, class Place>
[[gnu::noinline]] void run_section(std::byte* blocks, std::ptrdiff_t area, Step& step) noexcept {
  namespace rseq = arch::rseq;
  if constexpr (kKind == StepKind::pop) {
    step.done = rseq::pop<Place>(blocks, area, step.out[0]);
  } else if constexpr (kKind == StepKind::push) {
    step.done = rseq::push<Place>(blocks, area, step.in[0]);
  } else if constexpr (kKind == StepKind::pop_many) {
    step.done = rseq::pop_many<Place>(blocks, area, step.out, step.n, step.wide);
  } else if constexpr (kKind == StepKind::push_many) {
    step.done = rseq::push_many<Place>(blocks, area, step.in, step.n, step.wide);
  } else if constexpr (kKind == StepKind::push_alike) {
    step.done = rseq::push_alike<Place>(blocks, area, step.in, step.n, step.head, step.wide);
  } else if constexpr (kKind == StepKind::refill) {
    step.done = rseq::refill<Place>(blocks, area, step.in_index, step.n, step.base, step.at);
  } else if constexpr (kKind == StepKind::spill) {
    step.done = rseq::spill<Place>(blocks, area, step.out_index, step.n, step.base, step.at);
  } else {
    step.done = rseq::replace_bounds<Place>(blocks, area, step.expected, step.next);
  }
}

using Section = void (*)(std::byte* blocks, std::ptrdiff_t area, Step& step) noexcept;

template <class Place>
[[nodiscard]] Section section_of(StepKind kind) {
  constexpr Section kSections[] = {
      &run_section<StepKind::pop, Place>,        &run_section<StepKind::push, Place>,
      &run_section<StepKind::pop_many, Place>,   &run_section<StepKind::push_many, Place>,
      &run_section<StepKind::push_alike, Place>, &run_section<StepKind::refill, Place>,
      &run_section<StepKind::spill, Place>,      &run_section<StepKind::replace_bounds, Place>};
  return kSections[static_cast<int>(kind)];
}

// Where a list lies in its block, at run time.
struct ListAt {
  std::size_t head = 0, ring = 0;
  std::uint32_t size = 0;
  template <class Place>
  [[nodiscard]] static constexpr ListAt of() {
    return {Place::kHead, Place::kRing, Place::kSize};
  }
};

[[nodiscard]] constexpr std::uint64_t make_bounds(std::uint64_t floor, std::uint64_t ceil,
                                                  std::uint64_t limit) {
  return limit << 32 | ceil << 16 | floor;
}

// A copy of one list.
struct ListCopy {
  std::uint64_t word = 0, bounds = 0;
  std::vector<std::uint64_t> ring;

  [[nodiscard]] static ListCopy read(const std::byte* block, const ListAt& at) {
    ListCopy copy;
    std::memcpy(&copy.word, block + at.head + arch::kHeadWord, sizeof copy.word);
    std::memcpy(&copy.bounds, block + at.head + arch::kHeadBounds, sizeof copy.bounds);
    copy.ring.resize(at.size);
    std::memcpy(copy.ring.data(), block + at.ring, at.size * sizeof(std::uint64_t));
    return copy;
  }
  void write(std::byte* block, const ListAt& at) const {
    std::memcpy(block + at.head + arch::kHeadWord, &word, sizeof word);
    std::memcpy(block + at.head + arch::kHeadBounds, &bounds, sizeof bounds);
    std::memcpy(block + at.ring, ring.data(), at.size * sizeof(std::uint64_t));
  }

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(ring.size()); }
  [[nodiscard]] std::uint32_t top() const { return word & 0xffff; }
  [[nodiscard]] std::uint64_t pops() const { return word >> 16; }
  [[nodiscard]] std::uint32_t floor() const { return bounds & 0xffff; }
  [[nodiscard]] std::uint32_t ceil() const { return bounds >> 16 & 0xffff; }
  [[nodiscard]] std::uint32_t limit() const { return bounds >> 32 & 0xffff; }
  [[nodiscard]] std::uint64_t& at(std::uint32_t position) { return ring[position % size()]; }

  // From the oldest to the hottest; nothing while the list is stopped.
  [[nodiscard]] std::vector<std::uint64_t> content() {
    std::vector<std::uint64_t> entries;
    for (std::uint32_t position = floor(); position < top(); ++position) {
      entries.push_back(at(position));
    }
    return entries;
  }
  // Word, bounds and content; places beyond the top are nobody's.
  [[nodiscard]] bool operator==(const ListCopy& other) const {
    ListCopy a = *this, b = other;
    return word == other.word && bounds == other.bounds && a.content() == b.content();
  }
};

// What the contract says of a step: changes the copy and fills in what comes out.
inline void run_contract(StepKind kind, ListCopy& list, Step& step) {
  const std::uint32_t size = list.size();
  const std::uint32_t top = list.top();
  const std::uint32_t n = step.n;
  const auto across_the_end = [&](std::uint32_t position) { return position % size + n > size; };
  const auto entry_at = [&](std::uint32_t position) {
    return reinterpret_cast<void*>(list.at(position));
  };
  step.done = false;
  switch (kind) {
    case StepKind::pop:
      if (top <= list.floor()) return;
      step.out[0] = entry_at(top - 1);
      list.word += (1 << 16) - 1;
      break;
    case StepKind::push:
      if (top >= list.ceil()) return;
      list.at(top) = reinterpret_cast<std::uint64_t>(step.in[0]);
      list.word += 1;
      break;
    case StepKind::pop_many:
      if (top < list.floor() + n) return;
      for (std::uint32_t i = 0; i < n; ++i) step.out[i] = entry_at(top - n + i);
      list.word += (std::uint64_t{n} << 16) - n;
      break;
    case StepKind::push_alike:
      for (std::uint32_t i = 0; i < n; ++i) {
        std::uint64_t first = 0;
        std::memcpy(&first, step.in[i], sizeof first);
        if (first != step.head) return;
      }
      [[fallthrough]];
    case StepKind::push_many:
      if (top + n > list.ceil()) return;
      for (std::uint32_t i = 0; i < n; ++i) {
        list.at(top + i) = reinterpret_cast<std::uint64_t>(step.in[i]);
      }
      list.word += n;
      break;
    case StepKind::refill:
      if (top + n > list.limit() || across_the_end(top)) return;
      for (std::uint32_t i = 0; i < n; ++i) {
        list.at(top + i) =
            reinterpret_cast<std::uint64_t>(step.base) + std::uint64_t{step.in_index[i]} * 32;
      }
      list.word += n;
      break;
    case StepKind::spill:
      if (list.bounds == arch::kStoppedBounds || top < list.ceil() || top < list.floor() + n ||
          across_the_end(list.floor())) {
        return;
      }
      for (std::uint32_t i = 0; i < n; ++i) {
        step.out_index[i] = static_cast<std::uint32_t>(
            (list.at(list.floor() + i) - reinterpret_cast<std::uint64_t>(step.base)) / 32);
      }
      list.bounds = make_bounds(list.floor() + n, list.ceil() + n, list.limit() + n);
      if (list.floor() >= size) {
        list.bounds = make_bounds(list.floor() - size, list.ceil() - size, list.limit() - size);
        list.word -= size;
      }
      break;
    case StepKind::replace_bounds:
      if (list.bounds != step.expected) return;
      list.bounds = step.next;
      break;
  }
  step.done = true;
}

// Whether two runs of one step gave the same.
[[nodiscard]] inline bool same_result(StepKind kind, const Step& a, const Step& b) {
  if (a.done != b.done) return false;
  if (!a.done) return true;
  for (std::uint32_t i = 0; i < a.n; ++i) {
    if ((kind == StepKind::pop || kind == StepKind::pop_many) && a.out[i] != b.out[i]) return false;
    if (kind == StepKind::spill && a.out_index[i] != b.out_index[i]) return false;
  }
  return true;
}

// An area that the kernel does not know: nothing interrupts a section that uses it but the test.
class PrivateArea {
 public:
  explicit PrivateArea(std::int32_t cpu) {
    area_.cpu_id = cpu;
    // A difference of pointers does not tell the compiler that others can reach the object.
    asm volatile("" : : "r"(&area_) : "memory");
  }
  [[nodiscard]] std::ptrdiff_t offset() const {
    return reinterpret_cast<const std::byte*>(&area_) -
           static_cast<const std::byte*>(__builtin_thread_pointer());
  }
  [[nodiscard]] const RseqArea& get() const { return area_; }
  // Address of the descriptor of the section that began last; 0 = none.
  [[nodiscard]] std::uint64_t descriptor() const {
    return *static_cast<const volatile std::uint64_t*>(&area_.rseq_cs);
  }
  void forget() { area_.rseq_cs = 0; }

 private:
  RseqArea area_;
};

}  // namespace weir::test
