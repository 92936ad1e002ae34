// SPDX-License-Identifier: MIT
// base/counter.hpp — a statistics cell with one writer at a time, and the counter structs of each
// layer, made from base/counters.def. Calls base/atomic only. 64 bits; add() is no atomic
// read-modify-write: whoever calls it holds the lock or owns the object the cell lies in.
//
// For a layer, say zone, there are
//   ZoneCounters       the cells
//   ZoneCounterValues  plain numbers: values_of(cells), `a += b`, and
//   for_each(values, visit)  visit(CounterInfo, value) for every counter, in the order of the list;
//   for_each_cell is the same with a reference to the value
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "weir/base/atomic.hpp"
#include "weir/base/counters.def"

namespace weir {

class Counter {
 public:
  void add(std::uint64_t n) noexcept {
    cell_.store(cell_.load(memory_order_relaxed) + n, memory_order_relaxed);
  }
  void raise_to(std::uint64_t n) noexcept {
    if (n > cell_.load(memory_order_relaxed)) {
      cell_.store(n, memory_order_relaxed);
    }
  }
  // For the few cells that several threads add to, in slow paths: one atomic addition.
  void add_shared(std::uint64_t n) noexcept { cell_.fetch_add(n, memory_order_relaxed); }
  // Any thread; exact when the writer is at rest.
  [[nodiscard]] std::uint64_t get() const noexcept { return cell_.load(memory_order_relaxed); }

 private:
  Atomic<std::uint64_t> cell_{0};
};

enum class CounterKind : unsigned char { event, peak };

struct CounterInfo {
  std::string_view layer;
  CounterKind kind;
  std::string_view unit;
  std::string_view name;
  std::string_view help;
};

// Events of several writers add up; of peaks the largest counts.
constexpr void merge_counter(CounterKind kind, std::uint64_t& into, std::uint64_t value) noexcept {
  into = kind == CounterKind::event ? into + value : std::max(into, value);
}

#define WEIR_COUNTER_CELL(layer, kind, unit, name, help) Counter name;
#define WEIR_COUNTER_VALUE(layer, kind, unit, name, help) std::uint64_t name = 0;
#define WEIR_COUNTER_READ(layer, kind, unit, name, help) values.name = cells.name.get();
#define WEIR_COUNTER_MERGE(layer, kind, unit, name, help) \
  merge_counter(CounterKind::kind, into.name, other.name);
#define WEIR_COUNTER_VISIT(layer, kind, unit, name, help) \
  visit(CounterInfo{#layer, CounterKind::kind, #unit, #name, help}, values.name);

#define WEIR_DEFINE_COUNTERS(Layer, list)                                                      \
  struct Layer##Counters {                                                                     \
    list(WEIR_COUNTER_CELL)                                                                    \
  };                                                                                           \
  struct Layer##CounterValues {                                                                \
    list(WEIR_COUNTER_VALUE)                                                                   \
  };                                                                                           \
  [[nodiscard]] inline Layer##CounterValues values_of(const Layer##Counters& cells) noexcept { \
    Layer##CounterValues values;                                                               \
    list(WEIR_COUNTER_READ) return values;                                                     \
  }                                                                                            \
  inline Layer##CounterValues& operator+=(Layer##CounterValues& into,                          \
                                          const Layer##CounterValues& other) noexcept {        \
    list(WEIR_COUNTER_MERGE) return into;                                                      \
  }                                                                                            \
  template <class Visit>                                                                       \
  void for_each(const Layer##CounterValues& values, Visit&& visit) {                           \
    list(WEIR_COUNTER_VISIT)                                                                   \
  }                                                                                            \
  template <class Visit>                                                                       \
  void for_each_cell(Layer##CounterValues& values, Visit&& visit) {                            \
    list(WEIR_COUNTER_VISIT)                                                                   \
  }

WEIR_DEFINE_COUNTERS(Zone, WEIR_COUNTERS_zone)
WEIR_DEFINE_COUNTERS(Percpu, WEIR_COUNTERS_percpu)
WEIR_DEFINE_COUNTERS(Node, WEIR_COUNTERS_node)
WEIR_DEFINE_COUNTERS(Frag, WEIR_COUNTERS_frag)
WEIR_DEFINE_COUNTERS(Pool, WEIR_COUNTERS_pool)
WEIR_DEFINE_COUNTERS(Io, WEIR_COUNTERS_io)

#undef WEIR_DEFINE_COUNTERS
#undef WEIR_COUNTER_CELL
#undef WEIR_COUNTER_VALUE
#undef WEIR_COUNTER_READ
#undef WEIR_COUNTER_MERGE
#undef WEIR_COUNTER_VISIT

}  // namespace weir
