// SPDX-License-Identifier: MIT
#include "weir/stats/frag_map.hpp"

#include <algorithm>
#include <cstdio>

#include "weir/percpu/zone_blocks.hpp"

namespace weir {
namespace {

char sign_of(const PageblockView& view) noexcept {
  const bool movable = view.mobility == Mobility::movable;
  if (view.isolated) {
    return '!';
  }
  if (view.whole) {
    return 'W';
  }
  if (view.all_free()) {
    return view.trimmed ? '_' : '.';
  }
  if (view.free == 0) {
    return movable ? '@' : '#';
  }
  // Tenths in use, none of them 0 or 10: what is neither free nor full is not drawn as if it were.
  const std::uint64_t tenths =
      std::clamp<std::uint64_t>((kPageblockFrames - view.free) * 10 / kPageblockFrames, 1, 9);
  return static_cast<char>((movable ? 'a' - 1 : '0') + static_cast<int>(tenths));
}

std::string number(std::uint64_t value, int width = 0) {
  char text[32];
  std::snprintf(text, sizeof(text), "%*llu", width, static_cast<unsigned long long>(value));
  return text;
}

void add_line(std::string& text, const char* name, std::uint64_t value) {
  char line[64];
  std::snprintf(line, sizeof(line), "        %-12s %llu\n", name,
                static_cast<unsigned long long>(value));
  text += line;
}

}  // namespace

// ---- numbers ----

unsigned FragMap::unusable_index(Order order) const noexcept {
  std::uint64_t in_blocks = 0;
  std::uint64_t usable = 0;
  for (unsigned k = 0; k < kOrderCount; ++k) {
    in_blocks += blocks_of_order[k] << k;
    usable += k >= order.value ? blocks_of_order[k] << k : 0;
  }
  return in_blocks == 0 ? 0 : static_cast<unsigned>((in_blocks - usable) * 1000 / in_blocks);
}

int FragMap::extfrag_index(Order order) const noexcept {
  std::uint64_t frames = 0;
  std::uint64_t blocks = 0;
  for (unsigned k = 0; k < kOrderCount; ++k) {
    if (k >= order.value && blocks_of_order[k] != 0) {
      return -1000;
    }
    frames += blocks_of_order[k] << k;
    blocks += blocks_of_order[k];
  }
  if (blocks == 0) {
    return 0;
  }
  const auto per_block =
      static_cast<std::int64_t>((1000 + frames * 1000 / frames_in(order)) / blocks);
  return static_cast<int>(std::int64_t{1000} - per_block);
}

std::uint64_t FragMap::whole_pageblocks() const noexcept {
  return blocks_of_order[kPageblockOrderValue] + 2 * blocks_of_order[kMaxOrderValue];
}

FragMap frag_map(const PageAllocator& pages) {
  const CachedZone& zone = pages.zone();
  FragMap map;
  map.managed = zone.zone().managed().value;
  map.free = zone.zone().free_pages();
  for (unsigned order = 0; order < kOrderCount; ++order) {
    map.blocks_of_order[order] = zone.zone().free_blocks(Order{order});
  }
  const ZoneBlocks blocks{zone};
  map.pageblocks.reserve(blocks.count());
  for (std::uint64_t i = 0; i < blocks.count(); ++i) {
    map.pageblocks.push_back({blocks.at(i), zone.zone().pageblock(blocks.at(i))});
  }
  return map;
}

// ---- text ----

std::string draw(const FragMap& map, unsigned width) {
  std::string text;
  width = std::max(width, 1U);
  for (std::size_t i = 0; i < map.pageblocks.size(); ++i) {
    const FragMap::Block& block = map.pageblocks[i];
    // A gap between two pieces of memory begins a line.
    const bool adjoins =
        i != 0 && map.pageblocks[i - 1].first.value + kPageblockFrames == block.first.value;
    const std::size_t column = text.size() - (text.rfind('\n') + 1);
    constexpr std::size_t kAddress = 16;
    if (!adjoins || column == kAddress + width) {
      char address[32];
      std::snprintf(address, sizeof(address), "%s%14llx  ", i == 0 ? "" : "\n",
                    static_cast<unsigned long long>(
                        reinterpret_cast<std::uintptr_t>(address_of(block.first))));
      text += address;
    }
    text += sign_of(block.view);
  }
  text += map.pageblocks.empty() ? "" : "\n";
  return text;
}

std::string buddyinfo_text(const FragMap& map, const char* zone_name) {
  char head[64];
  std::snprintf(head, sizeof(head), "Node 0, zone %8s", zone_name);
  std::string text = head;
  for (const std::uint64_t blocks : map.blocks_of_order) {
    text += ' ' + number(blocks, 6);
  }
  return text + '\n';
}

std::string zoneinfo_text(PageAllocator& pages, const char* zone_name) {
  const CachedZone::Census census = pages.zone().census();
  const ZoneState state = pages.zone_state();
  const FragMap map = frag_map(pages);
  std::string text =
      std::string{"Node 0, zone "} + zone_name + "\n  pages free     " + number(state.free) + '\n';
  add_line(text, "min", state.min);
  add_line(text, "low", state.low);
  add_line(text, "high", state.high);
  add_line(text, "managed", state.managed);
  add_line(text, "reserve", state.reserve);
  add_line(text, "limit", state.limit);
  add_line(text, "soft_limit", state.soft_limit);
  add_line(text, "engine", census.engine);
  add_line(text, "depot", census.depot);
  add_line(text, "lists", census.lists);
  add_line(text, "out", census.out());
  add_line(text, "blocks_2m", map.whole_pageblocks());
  text += "  pagesets\n";
  const PageLists& lists = pages.zone().lists();
  for (std::uint32_t cpu = 0; cpu < lists.count(); ++cpu) {
    if (lists.is_started(CpuId{cpu})) {
      text += "    cpu: " + number(cpu) + "\n              count: " + number(lists.cached(cpu)) +
              "\n              high:  " + number(lists.capacity(CpuId{cpu}, 0)) +
              "\n              batch: " + number(lists.cluster()) + '\n';
    }
  }
  text += "  unusable_index";
  for (unsigned order = 0; order < kOrderCount; ++order) {
    const unsigned index = map.unusable_index(Order{order});
    char part[16];
    std::snprintf(part, sizeof(part), " %u.%03u", index / 1000, index % 1000);
    text += part;
  }
  return text + '\n';
}

}  // namespace weir
