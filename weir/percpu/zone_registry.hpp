// SPDX-License-Identifier: MIT
// percpu/zone_registry.hpp — the zones of the process, by id, and the default one. Calls
// percpu/cached_zone. Slots are type-stable: a zone that closed leaves its slot readable, so a
// thread that just gave back the last page may still look at it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "weir/base/hot.hpp"
#include "weir/percpu/cached_zone.hpp"

namespace weir {

inline constexpr std::uint16_t kMaxZones = 64;  // id 0 is no zone

namespace zone_registry {

alignas(CachedZone) extern std::byte g_storage[];  // room for kMaxZones of them
// The oldest open zone; an empty zone while there is none, so that no test for nullptr is needed.
extern Atomic<CachedZone*> g_default;

// What a release looks at, in one line: is it an ordinary page of the default zone, and where are that
// zone's lists. 0 and nullptr while there is none. Whoever holds a page of the default zone keeps it
// the default, so the two need not be read at one moment.
struct alignas(kCacheLine) DefaultLists {
  Atomic<std::uint64_t> head{0};
  Atomic<std::byte*> blocks{nullptr};
};
extern constinit DefaultLists g_default_lists;

// Opens a zone in a free slot. exhausted: no slot is free.
// lists: one for each CPU number that may appear; cpus: those that are usable, by which the sizes of
// the lists are measured; 0 = all.
Result<CachedZone*> open(Source* source, const std::vector<Extent>& extents, const Options& options,
                         std::uint32_t lists, std::uint32_t cpus = 0);
// Closes a retired zone whose pages are all home and gives its slot back; nothing happens otherwise.
// Not in a marked section. When the zone's drainer does not end, the next open() closes it.
void close_if_home(CachedZone& zone) noexcept;
// Zones open now, retired ones included.
std::uint32_t count() noexcept;

}  // namespace zone_registry

[[nodiscard]] WEIR_HOT CachedZone* zone_by_id(std::uint16_t id) noexcept {
  std::byte* where = zone_registry::g_storage + std::size_t{id} * sizeof(CachedZone);
  return std::launder(reinterpret_cast<CachedZone*>(where));
}

// The zone a page belongs to. The default zone is found by a range test, others through the page's
// descriptor.
[[nodiscard]] WEIR_HOT CachedZone& zone_of(PageIndex page) noexcept {
  // pairs: zone_registry::open release
  CachedZone* zone = zone_registry::g_default.load(memory_order_acquire);
  if (!zone->holds(page)) [[unlikely]] {
    zone = zone_by_id(page_at(page)->zone);
  }
  return *zone;
}

}  // namespace weir
