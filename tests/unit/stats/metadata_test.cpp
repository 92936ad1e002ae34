// SPDX-License-Identifier: MIT
#include "weir/stats/metadata.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <span>
#include <string>

namespace weir {
namespace {

double share_of(const PageAllocator& pages) {
  return static_cast<double>(metadata_of(pages).total().value) /
         static_cast<double>(bytes(pages.effective().managed).value);
}

TEST(Metadata, IsAtMostNineThousandthsOfTheMemory) {
  for (const EngineChoice engine : {EngineChoice::buddy, EngineChoice::bitmap}) {
    for (const Bytes capacity : {64_MiB, 256_MiB, 1_GiB, 8_GiB}) {
      Options options;
      options.capacity = capacity;
      options.engine = engine;
      PageAllocator pages(options);
      for (int i = 0; i < 1000; ++i) {
        static_cast<void>(pages.alloc());  // the list of this CPU, and its depot, are in use
      }
      EXPECT_LE(share_of(pages), 0.009) << capacity.value;
      EXPECT_GE(share_of(pages), 0.0078) << "descriptors alone are 32 bytes of 4096";
    }
  }
}

// Each part by itself: none of the small ones shows in the sum.
TEST(Metadata, EveryPartIsThere) {
  Options options;
  options.capacity = 1_GiB;
  PageAllocator pages(options);
  static_cast<void>(pages.alloc());
  const Metadata metadata = metadata_of(pages);
  EXPECT_EQ(metadata.descriptors, Bytes{(std::uint64_t{1} << 18) * 32});
  EXPECT_GE(metadata.engine.value, 512 * (64 + 2));
  EXPECT_LE(metadata.engine.value, 512 * (64 + 2 + 4) + (32U << 10));
  const Depot& depot = pages.zone().depot();
  EXPECT_GE(metadata.depot.value, depot.bodies() * 256);
  EXPECT_LE(metadata.depot.value, depot.bodies() * 264 + 4096);
  if (pages.effective().high != 0) {
    EXPECT_EQ(metadata.lists, Bytes{4096});
  }
  EXPECT_EQ(metadata.maps, Bytes{2 * 4096});  // 256 pointers and 512 entries, in a page each
  EXPECT_GE(metadata.zone.value, sizeof(CachedZone) + 512 * 4);
}

// What the process grows by, when all descriptors are written, is what was told.
TEST(Metadata, AgreesWithWhatTheProcessGrowsBy) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has memory of its own for every byte";
#endif
  const auto resident = [] {
    std::ifstream file("/proc/self/statm");
    std::uint64_t size = 0;
    std::uint64_t pages = 0;
    file >> size >> pages;
    return pages * 4096;
  };
  const std::uint64_t before = resident();
  Options options;
  options.capacity = 8_GiB;
  PageAllocator pages(options);
  static_cast<void>(pages.alloc());
  const std::uint64_t grown = resident() - before;
  const std::uint64_t told = metadata_of(pages).total().value;
  EXPECT_LT(grown, told + (2U << 20)) << told;
  EXPECT_GT(grown + (2U << 20), told);
}

TEST(Metadata, CountsEveryPieceAndItsShareOfALargestBlock) {
  constexpr std::size_t kBlock = 4U << 20;
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(kBlock, 2 * kBlock),
                                                           &std::free);
  auto* const base = static_cast<std::byte*>(memory.get());
  const std::span<std::byte> pieces[] = {{base + 4096, 4096}, {base + kBlock, 4096}};
  const PageAllocator pages(pieces, {});
  EXPECT_EQ(metadata_of(pages).descriptors, Bytes{2 * 1024 * 32});
}

}  // namespace
}  // namespace weir
