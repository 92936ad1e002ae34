// SPDX-License-Identifier: MIT
#include "weir/stats/snapshot.hpp"

namespace weir {
namespace {

// later - earlier for events, later for peaks; through the visitor, so that no counter is forgotten.
template <class Values>
Values grown(const Values& later, const Values& earlier) {
  std::vector<std::uint64_t> before;
  for_each(earlier,
           [&before](const CounterInfo&, std::uint64_t value) { before.push_back(value); });
  Values result = later;
  std::size_t i = 0;
  for_each_cell(result, [&before, &i](const CounterInfo& info, std::uint64_t& value) {
    if (info.kind == CounterKind::event) {
      value -= before[i];
    }
    ++i;
  });
  return result;
}

void add_line(std::string& text, std::string_view layer, std::string_view name, std::uint64_t value,
              std::string_view unit) {
  text += layer;
  text += '.';
  text += name;
  text += ' ';
  text += std::to_string(value);
  text += ' ';
  text += unit;
  text += '\n';
}

}  // namespace

Snapshot collect(PageAllocator& pages) {
  CachedZone& zone = pages.zone();
  Snapshot snapshot;
  for (std::uint32_t cpu = 0; cpu < zone.lists().count(); ++cpu) {
    snapshot.by_cpu.push_back(zone.lists().counters(cpu));
    snapshot.lists += snapshot.by_cpu.back();
    snapshot.cached_by_cpu.push_back(zone.lists().cached(cpu));
  }
  snapshot.census = zone.census();
  snapshot.state = pages.zone_state();
  snapshot.watermarks = zone.zone().watermarks();
  snapshot.reserve = zone.zone().reserve();
  snapshot.in_shortage = zone.in_shortage();
  for (unsigned order = 0; order < kOrderCount; ++order) {
    snapshot.free_blocks[order] = zone.zone().free_blocks(Order{order});
  }
  snapshot.trimmed = zone.trimmed_pages();
  snapshot.zone = values_of(zone.zone().counters());
  return snapshot;
}

Snapshot difference(const Snapshot& later, const Snapshot& earlier) {
  Snapshot result = later;
  result.zone = grown(later.zone, earlier.zone);
  result.lists = grown(later.lists, earlier.lists);
  for (std::size_t cpu = 0; cpu < result.by_cpu.size() && cpu < earlier.by_cpu.size(); ++cpu) {
    result.by_cpu[cpu] = grown(later.by_cpu[cpu], earlier.by_cpu[cpu]);
  }
  return result;
}

std::string to_text(const Snapshot& snapshot) {
  std::string text;
  const auto line = [&text](const CounterInfo& info, std::uint64_t value) {
    add_line(text, info.layer, info.name, value, info.unit);
  };
  for_each(snapshot.zone, line);
  for_each(snapshot.lists, line);
  add_line(text, "frames", "managed", snapshot.census.managed, "frames");
  add_line(text, "frames", "engine", snapshot.census.engine, "frames");
  add_line(text, "frames", "lists", snapshot.census.lists, "frames");
  add_line(text, "frames", "depot", snapshot.census.depot, "frames");
  add_line(text, "frames", "out", snapshot.census.out(), "frames");
  add_line(text, "frames", "trimmed", snapshot.trimmed, "frames");
  const ZoneState& state = snapshot.state;
  add_line(text, "zone", "free", state.free, "frames");
  add_line(text, "zone", "used", state.used, "frames");
  add_line(text, "zone", "min", state.min, "frames");
  add_line(text, "zone", "low", state.low, "frames");
  add_line(text, "zone", "high", state.high, "frames");
  add_line(text, "zone", "reserve", state.reserve, "frames");
  add_line(text, "zone", "limit", state.limit, "frames");
  add_line(text, "zone", "soft_limit", state.soft_limit, "frames");
  add_line(text, "zone", "below_mark", static_cast<std::uint64_t>(state.below), "marks");
  return text;
}

}  // namespace weir
