// SPDX-License-Identifier: MIT
// base/config.hpp — every compile-time constant of weir, with unit and reason.
// Calls nothing. Together with arch/ and os/ the only place that may test the preprocessor.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir {

// A frame is the unit of managed memory: one base page of the processor.
inline constexpr unsigned kFrameShift = 12;
inline constexpr std::size_t kFrameBytes = std::size_t{1} << kFrameShift;

// Orders 0..10, as in Linux (MAX_PAGE_ORDER); the largest page is 4 MiB.
inline constexpr unsigned kMaxOrderValue = 10;
inline constexpr unsigned kOrderCount = kMaxOrderValue + 1;
inline constexpr std::uint32_t kMaxBlockFrames = 1U << kMaxOrderValue;

// A pageblock is one x86-64 huge page (2 MiB); a granule of the address map has the same size.
inline constexpr unsigned kPageblockOrderValue = 9;
inline constexpr std::uint32_t kPageblockFrames = 1U << kPageblockOrderValue;
inline constexpr std::size_t kPageblockBytes = kFrameBytes << kPageblockOrderValue;
static_assert(kPageblockBytes == std::size_t{2} << 20);

// The unit of exchange between a per-CPU list and the zone: four cache lines of indexes.
// It is also the largest number of frames moved under one hold of the zone lock (a single larger
// block excepted).
inline constexpr std::uint32_t kClusterFrames = 64;

// Orders kept on per-CPU lists: 0..3 (PAGE_ALLOC_COSTLY_ORDER) and the pageblock order.
inline constexpr unsigned kSmallListOrders = 4;
inline constexpr unsigned kListOrders = kSmallListOrders + 1;

// A per-CPU list never holds more order-0 pages than this (1 MiB a CPU): its ring has so many places.
inline constexpr std::uint64_t kListCapacityMax = 256;

// The most full clusters a depot keeps (2 GiB); its words have 14 bits for a cluster.
inline constexpr std::uint32_t kDepotClustersMax = 8192;
// The depot keeps this part of a zone. What lies there goes back to users in the order in which it came, not to
// the fullest pageblocks first, so it keeps those that are nearly empty from becoming free
// (`weir lab fragmentation`). An engine without a lock is cheap to reach and has a smaller one before it.
inline constexpr std::uint64_t kDepotShare = 1000;
inline constexpr std::uint64_t kDepotShareLockFree = 2000;

// A shortage stops the lists for at least so long: then exhaustion costs at most one fence in it.
inline constexpr std::uint64_t kShortageNs = 1'000'000;

// A search for a large block that failed is not repeated for kShortageNs, twice as long after each further
// failure, up to 64 times as long (Linux skips as many compactions).
inline constexpr std::uint32_t kMostSearchDoublings = 6;

// How often a fork looks for slow paths that carry pages before it lets go of what it holds and tries
// again; beyond the first 64 looks each gives the CPU away.
inline constexpr std::uint32_t kForkPatience = 2000;

// The descriptor table covers this many frames (1 TiB of memory) unless the address-space limit
// of the process forces less. Address space only; committed zone by zone.
inline constexpr std::uint64_t kMaxFrames = std::uint64_t{1} << 28;

// The most pageblocks one tick gives back to the system: 128 MiB, a few milliseconds of a housekeeper's time.
inline constexpr std::uint32_t kTrimsPerTick = 64;
// What an option in milliseconds may be: a day.
inline constexpr std::uint64_t kMaxMilliseconds = 86'400'000;

// The largest number of a NUMA node; Linux can be built for 1024 of them.
inline constexpr std::int32_t kMaxNode = 1023;

inline constexpr std::size_t kCacheLine = 64;
// Two lines: adjacent-line prefetchers pull them in pairs.
inline constexpr std::size_t kNoFalseSharing = 128;

// Fragments are cut from pages of this size when large blocks can be had (PAGE_FRAG_CACHE_MAX_SIZE).
inline constexpr std::size_t kFragPageBytes = std::size_t{32} << 10;

// Page pool: private cache and refill, as page_pool in Linux.
inline constexpr std::uint32_t kPoolCachePages = 128;
inline constexpr std::uint32_t kPoolRefillPages = 64;
inline constexpr std::uint32_t kPoolRingDefault = 1024;
inline constexpr std::uint32_t kPoolRingMax = 16384;

#if defined(WEIR_TEST_HOOKS) && WEIR_TEST_HOOKS
inline constexpr bool kTestHooks = true;  // failpoints, fake CPU ids, pause points
#else
inline constexpr bool kTestHooks = false;
#endif

#if defined(WEIR_AUDIT_CHECKS) && WEIR_AUDIT_CHECKS
inline constexpr bool kAudit = true;  // WEIR_ASSERT and WEIR_AUDIT are evaluated
#else
inline constexpr bool kAudit = false;
#endif

// Checked builds verify every drop of a page with a state per frame; release builds verify what
// the slow paths meet.
inline constexpr bool kCheckedDrops = kAudit;

}  // namespace weir
