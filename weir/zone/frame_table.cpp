// SPDX-License-Identifier: MIT
#include "weir/zone/frame_table.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <new>

#include "weir/base/failpoint.hpp"
#include "weir/os/lock.hpp"

namespace weir::frame_table {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{kMaxBlockFrames} * kFrameBytes;
constexpr std::size_t kChunkDescriptors = std::size_t{kMaxBlockFrames} * sizeof(Page);
static_assert(kChunkDescriptors % kFrameBytes == 0);

Lock g_lock;  // guards what stands here and in the header, and which chunks are taken
std::uint64_t g_linear = 0;   // frames of the linear part; written once under g_lock, like g_room
std::uint64_t g_room = 0;     // frames of the table
std::uintptr_t g_window = 0;  // address of linear frame 0, a multiple of the chunk

// What of the window lies above the first memory; the kernel goes downward.
constexpr std::uint64_t kWindowAbove = std::uint64_t{64} << 30;

GranuleMap& granules() noexcept {
  // Never destroyed: pages may be released while static destructors run.
  alignas(GranuleMap) static std::byte storage[sizeof(GranuleMap)];
  static GranuleMap* map = new (storage) GranuleMap(system_memory());
  return *map;
}

// The largest table that leaves a process with an address-space limit room to live.
std::uint64_t wanted_frames() noexcept {
  rlimit limit{};
  std::uint64_t frames = kMaxFrames;
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    frames = std::min<std::uint64_t>(frames,
                                     pow2_floor<std::uint64_t>(limit.rlim_cur / 16 / sizeof(Page)));
  }
  return std::max<std::uint64_t>(frames, kMaxBlockFrames);
}

// g_lock held. first, size: the memory that asks for it.
Error ensure_table(std::uintptr_t first, std::uint64_t size) {
  if (g_pages != nullptr) {
    return kOk;
  }
  Memory& memory = system_memory();
  for (std::uint64_t linear = wanted_frames(); linear >= kMaxBlockFrames; linear /= 2) {
    const std::uint64_t frames = linear + align_up<std::uint64_t>(linear / 4, kMaxBlockFrames);
    Result<std::byte*> table = memory.reserve(Bytes{frames * sizeof(Page)}, Bytes{kFrameBytes});
    if (!table) {
      continue;
    }
    const Bytes chunk_bytes{
        align_up<std::uint64_t>(frames / kMaxBlockFrames * sizeof(std::byte*), kFrameBytes)};
    Result<std::byte*> chunks = memory.reserve(chunk_bytes, Bytes{kFrameBytes});
    if (!chunks || memory.commit(*chunks, chunk_bytes).failed()) {
      if (chunks) {
        memory.release(*chunks, chunk_bytes);
      }
      memory.release(*table, Bytes{frames * sizeof(Page)});
      return {Errc::system, "reserving the descriptor table", 0};
    }
    g_pages = reinterpret_cast<Page*>(*table);
    g_chunks = reinterpret_cast<std::byte**>(*chunks);
    g_room = frames;
    g_linear = linear;
    const std::uint64_t window = linear << kFrameShift;
    const std::uintptr_t end = align_up<std::uint64_t>(
        first + std::min(std::max(size, kWindowAbove), window), kChunkBytes);
    g_window = end > window ? end - window : 0;
    g_linear_end = g_pages + linear;
    g_linear_bias = g_window - reinterpret_cast<std::uintptr_t>(g_pages) * kAddressScale;
    return kOk;
  }
  return {Errc::system, "reserving the descriptor table (address-space limit?)", 0};
}

// n free chunks for memory whose first chunk begins at `address`: those that its address says, or
// a run outside the linear part; g_room / kMaxBlockFrames when there is none. g_lock held.
std::uint64_t find_chunks(std::uintptr_t address, std::uint64_t n) noexcept {
  const std::uint64_t total = g_room / kMaxBlockFrames;
  const std::uint64_t linear = g_linear / kMaxBlockFrames;
  if (address >= g_window) {
    const std::uint64_t at = (address - g_window) / kChunkBytes;
    if (at < linear && n <= linear - at &&
        std::all_of(g_chunks + at, g_chunks + at + n,
                    [](const std::byte* chunk) { return chunk == nullptr; })) {
      return at;
    }
  }
  std::uint64_t run = 0;
  for (std::uint64_t chunk = linear; chunk < total; ++chunk) {
    run = g_chunks[chunk] == nullptr ? run + 1 : 0;
    if (run == n) {
      return chunk + 1 - n;
    }
  }
  return total;
}

}  // namespace

Result<PageIndex> reserve_range(std::byte* base, Bytes size, std::uint16_t zone) {
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  if (size.value == 0) {
    return Error{Errc::zero_size, "memory of a zone", 0};
  }
  if (!is_aligned<std::uint64_t>(address, kFrameBytes) ||
      !is_aligned<std::uint64_t>(size.value, kFrameBytes)) {
    return Error{Errc::misaligned, "memory of a zone must start and end at a multiple of 4096", 0};
  }
  if (add_overflows<std::uint64_t>(address, size.value) ||
      size.value > (kMaxFrames << kFrameShift)) {
    return Error{Errc::too_large, "memory of a zone", 0};
  }
  if (address < kChunkBytes) {
    // Its chunk would seem to begin at no address at all.
    return Error{Errc::foreign, "memory of a zone below 4 MiB", 0};
  }
  if (fails(Failpoint::frame_range)) {
    return Error{Errc::exhausted, "descriptors for a zone", 0};
  }
  const LockGuard guard{g_lock};
  if (const Error error = ensure_table(address, size.value); error.failed()) {
    return error;
  }
  const std::uint64_t frames = whole_pages(size).value;
  const std::uint64_t offset = (address >> kFrameShift) % kMaxBlockFrames;
  const std::uint64_t chunks = div_round_up<std::uint64_t>(offset + frames, kMaxBlockFrames);
  const std::uint64_t first_chunk = find_chunks(address - offset * kFrameBytes, chunks);
  if (first_chunk == g_room / kMaxBlockFrames) {
    return Error{Errc::exhausted, "descriptors for a zone (address-space limit?)", 0};
  }
  Page* const descriptors = g_pages + first_chunk * kMaxBlockFrames;
  const Bytes descriptor_bytes{chunks * kChunkDescriptors};
  Memory& memory = system_memory();
  if (const Error error =
          memory.commit(reinterpret_cast<std::byte*>(descriptors), descriptor_bytes);
      error.failed()) {
    return error;
  }
  for (std::uint64_t i = 0; i < chunks * kMaxBlockFrames; ++i) {
    Page* page = new (descriptors + i) Page;
    if (i >= offset && i < offset + frames) {
      page->zone = zone;
      page->state.store(FrameState::kInner, memory_order_relaxed);
    }
  }
  for (std::uint64_t i = 0; i < chunks; ++i) {
    g_chunks[first_chunk + i] = base - offset * kFrameBytes + i * kChunkBytes;
  }
  const PageIndex first{static_cast<std::uint32_t>(first_chunk * kMaxBlockFrames + offset)};
  if (const Error error = granules().insert(base, size, first); error.failed()) {
    std::fill_n(g_chunks + first_chunk, chunks, nullptr);
    static_cast<void>(memory.decommit(reinterpret_cast<std::byte*>(descriptors), descriptor_bytes));
    return error;
  }
  return first;
}

void release_range(PageIndex first, std::byte* base, Bytes size) noexcept {
  const LockGuard guard{g_lock};
  granules().erase(base, size);
  const std::uint64_t offset = first.value % kMaxBlockFrames;
  const std::uint64_t first_chunk = first.value / kMaxBlockFrames;
  const std::uint64_t chunks =
      div_round_up<std::uint64_t>(offset + whole_pages(size).value, kMaxBlockFrames);
  std::fill_n(g_chunks + first_chunk, chunks, nullptr);
  // Somebody may be asking page_of() about an address of it: the descriptors stay readable, and all
  // zero is kAbsent.
  static_assert(FrameState{} == FrameState::kAbsent);
  system_memory().discard(reinterpret_cast<std::byte*>(g_pages + first_chunk * kMaxBlockFrames),
                          Bytes{chunks * kChunkDescriptors});
}

PageIndex find(const void* address) noexcept { return granules().find(address); }

std::uint64_t room() noexcept {
  const LockGuard guard{g_lock};
  return g_pages != nullptr ? g_room : wanted_frames() / 4 * 5;
}

void lock_for_fork() noexcept { g_lock.lock(); }
void unlock_after_fork() noexcept { g_lock.unlock(); }

}  // namespace weir::frame_table
