// SPDX-License-Identifier: MIT
// backing/granule_map.hpp — address -> PageIndex in constant time, for own and borrowed memory;
// a foreign address is recognised, never dereferenced. Owns: its leaves and tables, taken from
// os/memory. Calls os/memory, os/lock. Never looks at what stands at an address.
//
//   address  | 47 ... 34 | 33 ... 21 | 20 ... 12 | 11 ... 0 |
//               root 2^14   leaf 2^13   frame       byte
//
// A leaf entry is one word: the number that, added to address >> 12, gives the index (modulo 2^32).
// Regions keep index and address congruent modulo the largest block (1024 frames), so the low ten
// bits of that number are free and hold flags:
//   kPresent  one region covers the whole granule
//   kShared   regions cover parts of it: the upper 22 bits name a table with a word for each frame
// Two dependent loads; four in a shared granule. Example: a region at 0x7f00'0020'0000 with first
// index 0x200 has entries 0x1000'0000 | kPresent: address 0x7f00'0020'5123 -> 0xf000'0205 (its frame
// number modulo 2^32) + 0x1000'0000 = index 0x205.
// The map says which index an address *would* have; whether that frame is managed stands in its
// descriptor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weir/base/atomic.hpp"
#include "weir/base/hot.hpp"
#include "weir/base/result.hpp"
#include "weir/base/types.hpp"
#include "weir/os/lock.hpp"
#include "weir/os/memory.hpp"

namespace weir {

class GranuleMap {
 public:
  explicit GranuleMap(Memory& memory) noexcept : memory_(memory) {}
  GranuleMap(const GranuleMap&) = delete;
  GranuleMap& operator=(const GranuleMap&) = delete;
  ~GranuleMap();

  // Enters [base, base + size): frame-aligned, below 2^48, first ≡ base >> 12 (mod 1024).
  // in_use when any frame of it is present already; nothing is kept on failure. Any thread.
  Error insert(const std::byte* base, Bytes size, PageIndex first);
  // Takes out exactly what insert put in. Any thread.
  void erase(const std::byte* base, Bytes size) noexcept;

  // The index of the frame that holds this address, or kNoPage. Any thread, no lock.
  [[nodiscard]] WEIR_HOT PageIndex find(const void* address) const noexcept {
    const auto where = reinterpret_cast<std::uintptr_t>(address);
    if ((where >> kAddressBits) != 0) [[unlikely]] {
      return kNoPage;
    }
    // pairs: leaf_for release
    const Leaf* leaf = root_[where >> kRootShift].load(memory_order_acquire);
    if (leaf == nullptr) [[unlikely]] {
      return kNoPage;
    }
    const std::uint32_t entry =
        leaf->entries[(where >> kGranuleShift) & (kLeafEntries - 1)].load(memory_order_relaxed);
    if ((entry & kPresent) == 0) [[unlikely]] {
      return find_shared(entry, where);
    }
    return {static_cast<std::uint32_t>(where >> kFrameShift) + (entry & ~kFlags)};
  }

 private:
  static constexpr unsigned kAddressBits = 48;
  static constexpr unsigned kGranuleShift = kFrameShift + kPageblockOrderValue;  // 21
  static constexpr unsigned kLeafBits = 13;
  static constexpr unsigned kRootShift = kGranuleShift + kLeafBits;  // 34
  static constexpr std::size_t kLeafEntries = std::size_t{1} << kLeafBits;
  static constexpr std::size_t kRootEntries = std::size_t{1} << (kAddressBits - kRootShift);
  static constexpr std::uint32_t kFlags = kMaxBlockFrames - 1;
  static constexpr std::uint32_t kPresent = 1;
  static constexpr std::uint32_t kShared = 2;
  static constexpr unsigned kTableIdShift = kMaxOrderValue;  // a table's number, above the flags

  static constexpr std::uint32_t kGranuleFrames = 1U << kPageblockOrderValue;
  // Granules that are covered in part, at most, at one time: a region has at most two.
  static constexpr std::uint32_t kMaxTables = 4096;
  static constexpr std::uint32_t kChunkTables = 16;
  static constexpr std::uint32_t kMaxChunks = kMaxTables / kChunkTables;

  struct Leaf {
    Atomic<std::uint32_t> entries[kLeafEntries];
  };
  // A word is the granule's number above the same 32 bits that a leaf entry has, 0 for a frame that
  // is not present. Tables are used again for other granules: the number in the word shows a reader
  // that came with an old entry that this table is no longer about its address.
  struct Table {
    Atomic<std::uint64_t> words[kGranuleFrames];
  };
  // Tables are made sixteen at a time.
  struct Chunk {
    Table tables[kChunkTables];
  };
  // What a region covers of one granule.
  struct Piece {
    std::uint64_t granule = 0;
    std::uint32_t begin = 0;  // frames within the granule, [begin, end)
    std::uint32_t end = 0;

    [[nodiscard]] bool whole() const noexcept { return end - begin == kGranuleFrames; }
  };

  [[nodiscard]] WEIR_COLD PageIndex find_shared(std::uint32_t entry,
                                                std::uintptr_t where) const noexcept;

  // Numbers of the free tables that an insert is going to use: for its first and its last granule.
  struct Picks {
    std::uint32_t tables[2] = {};
    std::uint32_t count = 0;
    std::uint32_t entered = 0;
  };

  template <class Visit>
  static Error for_each_piece(const std::byte* base, Bytes size, Visit visit);

  // All below are called under lock_.
  [[nodiscard]] bool present(const Piece& piece) const noexcept;
  Error prepare(const Piece& piece, Picks& picks);
  void enter(const Piece& piece, std::uint32_t delta, Picks& picks) noexcept;
  void remove(const Piece& piece) noexcept;
  Result<Leaf*> leaf_for(std::uint64_t granule);
  Result<std::uint32_t> pick_table(const Picks& picks);
  template <class T>
  Result<T*> make();
  template <class T>
  void unmake(T* object) noexcept;
  // nullptr where no leaf is.
  [[nodiscard]] Atomic<std::uint32_t>* entry_of(std::uint64_t granule) const noexcept;
  [[nodiscard]] Table& table(std::uint32_t number) const noexcept;

  Memory& memory_;
  Atomic<Leaf*> root_[kRootEntries] = {};      // written under lock_, set once
  Atomic<Chunk*> chunks_[kMaxChunks] = {};     // written under lock_, set once
  std::uint16_t used_words_[kMaxTables] = {};  // under lock_: frames present; 0 = table is free
  Lock lock_;
};

}  // namespace weir
