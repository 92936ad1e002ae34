// SPDX-License-Identifier: MIT
#include "weir/base/counter.hpp"

#include <gtest/gtest.h>

#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>

namespace weir {
namespace {

struct Entry {
  std::string_view layer, kind, unit, name, help;
};
#define WEIR_TEST_ENTRY(layer, kind, unit, name, help) {#layer, #kind, #unit, #name, help},
constexpr Entry kEntries[] = {
    WEIR_COUNTERS_zone(WEIR_TEST_ENTRY)    //
    WEIR_COUNTERS_percpu(WEIR_TEST_ENTRY)  //
    WEIR_COUNTERS_frag(WEIR_TEST_ENTRY)    //
    WEIR_COUNTERS_pool(WEIR_TEST_ENTRY)    //
    WEIR_COUNTERS_io(WEIR_TEST_ENTRY)      //
};
#undef WEIR_TEST_ENTRY

constexpr std::size_t entries_of(std::string_view layer) {
  std::size_t count = 0;
  for (const Entry& entry : kEntries) {
    count += entry.layer == layer ? 1 : 0;
  }
  return count;
}

// Every line of the list is one cell and one value, in its layer and in no other.
static_assert(sizeof(ZoneCounters) == entries_of("zone") * sizeof(Counter));
static_assert(sizeof(PercpuCounters) == entries_of("percpu") * sizeof(Counter));
static_assert(sizeof(FragCounters) == entries_of("frag") * sizeof(Counter));
static_assert(sizeof(PoolCounters) == entries_of("pool") * sizeof(Counter));
static_assert(sizeof(IoCounters) == entries_of("io") * sizeof(Counter));
static_assert(sizeof(ZoneCounterValues) == entries_of("zone") * sizeof(std::uint64_t));
static_assert(sizeof(PercpuCounterValues) == entries_of("percpu") * sizeof(std::uint64_t));
static_assert(sizeof(FragCounterValues) == entries_of("frag") * sizeof(std::uint64_t));
static_assert(sizeof(PoolCounterValues) == entries_of("pool") * sizeof(std::uint64_t));
static_assert(sizeof(IoCounterValues) == entries_of("io") * sizeof(std::uint64_t));
static_assert(entries_of("zone") + entries_of("percpu") + entries_of("frag") + entries_of("pool") +
                  entries_of("io") ==
              std::size(kEntries));
static_assert(std::is_same_v<decltype(ZoneCounters::splits), Counter>);
static_assert(std::is_same_v<decltype(PoolCounterValues::from_ring), std::uint64_t>);

TEST(Counters, ListIsWellFormed) {
  std::set<std::pair<std::string_view, std::string_view>> names;
  for (const Entry& entry : kEntries) {
    EXPECT_TRUE(entry.kind == "event" || entry.kind == "peak") << entry.name;
    EXPECT_FALSE(entry.help.empty()) << entry.name;
    EXPECT_TRUE(names.emplace(entry.layer, entry.name).second) << entry.name << " stands twice";
  }
}

TEST(Counters, ValuesOfCellsAreReadAndVisitedInTheOrderOfTheList) {
  ZoneCounters cells;
  cells.lock_acquisitions.add(1);
  cells.lock_longest_hold.raise_to(300);
  cells.drains.add(12);
  const ZoneCounterValues values = values_of(cells);
  EXPECT_EQ(values.lock_acquisitions, 1U);
  EXPECT_EQ(values.lock_longest_hold, 300U);
  EXPECT_EQ(values.lock_waits, 0U);
  EXPECT_EQ(values.drains, 12U);

  const Entry* entry = std::begin(kEntries);  // zone stands first
  std::uint64_t sum = 0;
  for_each(values, [&](const CounterInfo& info, std::uint64_t value) {
    EXPECT_EQ(info.layer, entry->layer);
    EXPECT_EQ(info.name, entry->name);
    EXPECT_EQ(info.unit, entry->unit);
    EXPECT_EQ(info.help, entry->help);
    EXPECT_EQ(info.kind == CounterKind::peak, entry->kind == "peak");
    sum += value;
    ++entry;
  });
  EXPECT_EQ(entry - std::begin(kEntries), static_cast<std::ptrdiff_t>(entries_of("zone")));
  EXPECT_EQ(sum, 313U);
}

TEST(Counters, CellsOfValuesCanBeWritten) {
  PoolCounterValues values;
  std::uint64_t next = 1;
  for_each_cell(values, [&](const CounterInfo&, std::uint64_t& value) { value = next++; });
  EXPECT_EQ(next, entries_of("pool") + 1);
  EXPECT_EQ(values.from_cache, 1U);
  EXPECT_EQ(values.from_ring, 2U);
}

TEST(Counters, EventsOfSeveralWritersAddUpAndOfPeaksTheLargestCounts) {
  ZoneCounterValues a;
  a.taken = 5;
  a.lock_longest_hold = 70;
  ZoneCounterValues b;
  b.taken = 6;
  b.lock_longest_hold = 60;
  b.lock_most_frames = 3;
  a += b;
  EXPECT_EQ(a.taken, 11U);
  EXPECT_EQ(a.lock_longest_hold, 70U);
  EXPECT_EQ(a.lock_most_frames, 3U);
  EXPECT_EQ(a.given, 0U);
}

TEST(Counters, AddSumsAndRaiseKeepsTheLargest) {
  Counter event;
  EXPECT_EQ(event.get(), 0U);
  event.add(3);
  event.add(0);
  event.add(std::uint64_t{1} << 40);
  EXPECT_EQ(event.get(), (std::uint64_t{1} << 40) + 3);

  Counter peak;
  peak.raise_to(7);
  peak.raise_to(5);
  EXPECT_EQ(peak.get(), 7U);
  peak.raise_to(8);
  EXPECT_EQ(peak.get(), 8U);
}

TEST(Counters, CanBeReadWhileTheWriterWrites) {
  Counter counter;
  constexpr std::uint64_t kAdds = 100'000;
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < kAdds; ++i) {
      counter.add(1);
    }
  });
  std::uint64_t last = 0;
  while (last < kAdds) {
    const std::uint64_t now = counter.get();
    ASSERT_GE(now, last);
    last = now;
  }
  writer.join();
  EXPECT_EQ(counter.get(), kAdds);
}

}  // namespace
}  // namespace weir
