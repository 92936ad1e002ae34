// SPDX-License-Identifier: MIT
#include "weir/backing/granule_map.hpp"

#include <algorithm>
#include <limits>
#include <new>

#include "weir/base/bits.hpp"
#include "weir/base/check.hpp"
#include "weir/base/failpoint.hpp"

namespace weir {
namespace {

std::uint64_t frame_number(const std::byte* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address) >> kFrameShift;
}

}  // namespace

// Visits the granules of a frame-aligned range in ascending order until a visit fails.
template <class Visit>
Error GranuleMap::for_each_piece(const std::byte* base, Bytes size, Visit visit) {
  std::uint64_t frame = frame_number(base);
  const std::uint64_t end = frame + whole_pages(size).value;
  while (frame < end) {
    Piece piece;
    piece.granule = frame / kGranuleFrames;
    piece.begin = static_cast<std::uint32_t>(frame % kGranuleFrames);
    const std::uint64_t stop = std::min(end, (piece.granule + 1) * kGranuleFrames);
    piece.end = piece.begin + static_cast<std::uint32_t>(stop - frame);
    if (const Error error = visit(piece); error.failed()) {
      return error;
    }
    frame = stop;
  }
  return kOk;
}

GranuleMap::~GranuleMap() {
  for (Atomic<Leaf*>& leaf : root_) {
    unmake(leaf.load(memory_order_relaxed));
  }
  for (Atomic<Chunk*>& chunk : chunks_) {
    unmake(chunk.load(memory_order_relaxed));
  }
}

Error GranuleMap::insert(const std::byte* base, Bytes size, PageIndex first) {
  const auto where = reinterpret_cast<std::uintptr_t>(base);
  if (size.value == 0) return {Errc::zero_size, "size of a region"};
  if (!is_aligned(where, std::uintptr_t{kFrameBytes}))
    return {Errc::misaligned, "base of a region"};
  if (!is_aligned(size.value, std::uint64_t{kFrameBytes})) {
    return {Errc::misaligned, "size of a region"};
  }
  if (add_overflows(std::uint64_t{where}, size.value) ||
      where + size.value > (std::uint64_t{1} << kAddressBits)) {
    return {Errc::too_large, "end of a region"};
  }
  // The last index must not be kNoPage nor beyond it.
  if (whole_pages(size).value > kNoPage.value - first.value) {
    return {Errc::too_large, "indexes of a region"};
  }
  // Modulo 2^32: see the picture in the header.
  const std::uint32_t delta = first.value - static_cast<std::uint32_t>(frame_number(base));
  if ((delta & kFlags) != 0) return {Errc::misaligned, "first index of a region"};

  const LockGuard guard(lock_);
  if (fails(Failpoint::map_register)) return {Errc::denied, "registering a region"};
  Error error = for_each_piece(base, size, [this](const Piece& piece) {
    return present(piece) ? Error{Errc::in_use, "address range of a region"} : kOk;
  });
  if (error.failed()) return error;
  // Everything that can fail comes before the first entry: so there is nothing to undo. Leaves and
  // tables made for an insert that then fails are empty and serve the next one.
  Picks picks;
  error = for_each_piece(base, size, [&](const Piece& piece) { return prepare(piece, picks); });
  if (error.failed()) return error;
  if (fails(Failpoint::map_register)) return {Errc::denied, "registering a region"};
  return for_each_piece(base, size, [&](const Piece& piece) {
    enter(piece, delta, picks);
    return kOk;
  });
}

void GranuleMap::erase(const std::byte* base, Bytes size) noexcept {
  const LockGuard guard(lock_);
  static_cast<void>(for_each_piece(base, size, [this](const Piece& piece) {
    remove(piece);
    return kOk;
  }));
}

PageIndex GranuleMap::find_shared(std::uint32_t entry, std::uintptr_t where) const noexcept {
  if ((entry & kShared) == 0) {
    return kNoPage;
  }
  const std::uint32_t number = entry >> kTableIdShift;
  // pairs: pick_table release. A reader that may ask for a present address came to know it after
  // insert() and so sees the chunk; any other may miss it and hear that the address is foreign.
  const Chunk* chunk = chunks_[number / kChunkTables].load(memory_order_acquire);
  if (chunk == nullptr) {
    return kNoPage;
  }
  const std::uint64_t word =
      chunk->tables[number % kChunkTables].words[(where >> kFrameShift) % kGranuleFrames].load(
          memory_order_relaxed);
  const auto low = static_cast<std::uint32_t>(word);
  if ((low & kPresent) == 0 || (word >> 32) != (where >> kGranuleShift)) {
    return kNoPage;
  }
  return {static_cast<std::uint32_t>(where >> kFrameShift) + (low & ~kFlags)};
}

bool GranuleMap::present(const Piece& piece) const noexcept {
  const Atomic<std::uint32_t>* entry = entry_of(piece.granule);
  const std::uint32_t value = entry == nullptr ? 0 : entry->load(memory_order_relaxed);
  if ((value & kShared) == 0) {
    return value != 0;
  }
  const Table& words = table(value >> kTableIdShift);
  return std::any_of(words.words + piece.begin, words.words + piece.end,
                     [](const auto& word) { return word.load(memory_order_relaxed) != 0; });
}

Error GranuleMap::prepare(const Piece& piece, Picks& picks) {
  const Result<Leaf*> leaf = leaf_for(piece.granule);
  if (!leaf) return leaf.error();
  if (piece.whole() || entry_of(piece.granule)->load(memory_order_relaxed) != 0) {
    return kOk;
  }
  const Result<std::uint32_t> number = pick_table(picks);
  if (!number) return number.error();
  picks.tables[picks.count++] = number.value();
  return kOk;
}

void GranuleMap::enter(const Piece& piece, std::uint32_t delta, Picks& picks) noexcept {
  Atomic<std::uint32_t>& entry = *entry_of(piece.granule);
  if (piece.whole()) {
    entry.store(delta | kPresent, memory_order_relaxed);
    return;
  }
  std::uint32_t value = entry.load(memory_order_relaxed);
  if (value == 0) {
    value = picks.tables[picks.entered++] << kTableIdShift | kShared;
    entry.store(value, memory_order_relaxed);
  }
  const std::uint32_t number = value >> kTableIdShift;
  const std::uint64_t word = piece.granule << 32 | delta | kPresent;
  for (std::uint32_t frame = piece.begin; frame < piece.end; ++frame) {
    table(number).words[frame].store(word, memory_order_relaxed);
  }
  used_words_[number] = static_cast<std::uint16_t>(used_words_[number] + piece.end - piece.begin);
}

void GranuleMap::remove(const Piece& piece) noexcept {
  WEIR_ASSERT(present(piece), "a region that is erased was inserted");
  Atomic<std::uint32_t>& entry = *entry_of(piece.granule);
  if (piece.whole()) {
    entry.store(0, memory_order_relaxed);
    return;
  }
  const std::uint32_t number = entry.load(memory_order_relaxed) >> kTableIdShift;
  for (std::uint32_t frame = piece.begin; frame < piece.end; ++frame) {
    table(number).words[frame].store(0, memory_order_relaxed);
  }
  used_words_[number] = static_cast<std::uint16_t>(used_words_[number] - (piece.end - piece.begin));
  if (used_words_[number] == 0) {
    entry.store(0, memory_order_relaxed);  // and the table is free
  }
}

Result<GranuleMap::Leaf*> GranuleMap::leaf_for(std::uint64_t granule) {
  Atomic<Leaf*>& slot = root_[granule >> kLeafBits];
  if (Leaf* leaf = slot.load(memory_order_relaxed)) {
    return leaf;
  }
  const Result<Leaf*> made = make<Leaf>();
  if (made) {
    slot.store(made.value(), memory_order_release);  // pairs: find acquire
  }
  return made;
}

// The lowest free number, so that few chunks are made.
Result<std::uint32_t> GranuleMap::pick_table(const Picks& picks) {
  std::uint32_t number = picks.count == 0 ? 0 : picks.tables[picks.count - 1] + 1;
  while (number < kMaxTables && used_words_[number] != 0) {
    ++number;
  }
  if (number == kMaxTables) {
    return {Errc::too_large, "number of regions that do not begin or end at 2 MiB"};
  }
  Atomic<Chunk*>& slot = chunks_[number / kChunkTables];
  if (slot.load(memory_order_relaxed) == nullptr) {
    const Result<Chunk*> made = make<Chunk>();
    if (!made) return made.error();
    slot.store(made.value(), memory_order_release);  // pairs: find_shared acquire
  }
  return number;
}

template <class T>
Result<T*> GranuleMap::make() {
  static_assert(sizeof(T) % kFrameBytes == 0);
  const Result<std::byte*> base = memory_.reserve(Bytes{sizeof(T)}, Bytes{kFrameBytes});
  if (!base) return base.error();
  if (const Error error = memory_.commit(base.value(), Bytes{sizeof(T)}); error.failed()) {
    memory_.release(base.value(), Bytes{sizeof(T)});
    return error;
  }
  return ::new (base.value()) T;
}

template <class T>
void GranuleMap::unmake(T* object) noexcept {
  if (object != nullptr) {
    memory_.release(reinterpret_cast<std::byte*>(object), Bytes{sizeof(T)});
  }
}

Atomic<std::uint32_t>* GranuleMap::entry_of(std::uint64_t granule) const noexcept {
  Leaf* leaf = root_[granule >> kLeafBits].load(memory_order_relaxed);
  return leaf == nullptr ? nullptr : &leaf->entries[granule % kLeafEntries];
}

GranuleMap::Table& GranuleMap::table(std::uint32_t number) const noexcept {
  Chunk* chunk = chunks_[number / kChunkTables].load(memory_order_relaxed);
  return chunk->tables[number % kChunkTables];
}

}  // namespace weir
