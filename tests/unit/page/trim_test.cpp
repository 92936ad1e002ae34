// SPDX-License-Identifier: MIT
// What trims and idle zones give back, as the kernel counts it.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/huge_pages.hpp"
#include "tests/support/process.hpp"
#include "tests/support/resident.hpp"
#include "weir/os/memory.hpp"
#include "weir/page/maintenance.hpp"
#include "weir/stats/snapshot.hpp"

namespace weir {
namespace {

using namespace std::chrono_literals;

constexpr Bytes kZone = 96_MiB;

struct Ground {
  EngineChoice engine;
  SourceChoice source;
  ThpChoice thp;
};

class Resident : public testing::TestWithParam<Ground> {
 protected:
  void SetUp() override {
    if (test::emulated()) {
      GTEST_SKIP() << "mincore and madvise are not the real ones here";
    }
  }
  static Options options() {
    return {.capacity = kZone,
            .source = GetParam().source,
            .thp = GetParam().thp,
            .engine = GetParam().engine};
  }
  static Bytes resident(const PageAllocator& pages) {
    const Extent& extent = pages.effective().extent;
    return test::resident_bytes(extent.base, extent.size);
  }
  // All frames out and touched, then all back but those that `kept` wants.
  static void burst(PageAllocator& pages, std::vector<PageRef>& kept, std::size_t keep) {
    std::vector<PageRef> out;
    while (PageRef page = pages.alloc()) {
      std::memset(page.data(), 0x5a, page.size().value);
      out.push_back(std::move(page));
    }
    std::mt19937 random{static_cast<unsigned>(out.size())};
    for (std::size_t i = 0; i < keep; ++i) {
      std::swap(out[random() % out.size()], out.back());
      kept.push_back(std::move(out.back()));
      out.pop_back();
    }
  }
  static std::uint64_t free_pageblocks(PageAllocator& pages) {
    const Zone& zone = pages.zone().zone();
    return zone.free_blocks(kPageblockOrder) + 2 * zone.free_blocks(kMaxOrder);
  }
};

TEST_P(Resident, ATrimReturnsTheMemoryOfFreePageblocksEveryTime) {
  PageAllocator pages{options()};
  const Extent& extent = pages.effective().extent;
  if (GetParam().thp == ThpChoice::on && !extent.transparent_huge) {
    GTEST_SKIP() << extent.note;
  }
  std::vector<PageRef> kept;
  for (int round = 0; round < 3; ++round) {
    kept.clear();
    burst(pages, kept, 7);
    ASSERT_EQ(kept.size(), 7U);
    ASSERT_FALSE(pages.drain_all().failed());
    const Bytes before = resident(pages);
    ASSERT_EQ(before, extent.size) << "all was touched";
    if (GetParam().thp == ThpChoice::on) {
      EXPECT_GT(system_memory().huge_backed(extent.base, extent.size).value, 0U);
    }
    const std::uint64_t blocks = free_pageblocks(pages);
    ASSERT_GE(blocks, kZone.value / kPageblockBytes - 7);
    TrimReport report;
    const Bytes returned = pages.trim(Bytes{UINT64_MAX}, &report);
    const Bytes after = resident(pages);
    EXPECT_EQ(returned, bytes(kPageblockOrder) * blocks);
    EXPECT_STREQ(report.note, "");
    EXPECT_GE((before - after).value * 100, returned.value * 95);
    std::printf(
        "round %d: %llu pageblocks free, %llu KiB before, %llu after, %.2f %% of what was free\n",
        round, static_cast<unsigned long long>(blocks),
        static_cast<unsigned long long>(before.value >> 10),
        static_cast<unsigned long long>(after.value >> 10),
        100.0 * static_cast<double>((before - after).value) / static_cast<double>(returned.value));
    EXPECT_EQ(collect(pages).trimmed, blocks * frames_in(kPageblockOrder));
    for (const PageRef& page : kept) {
      EXPECT_EQ(std::count(page.data(), page.data() + kFrameBytes, std::byte{0x5a}),
                static_cast<std::ptrdiff_t>(kFrameBytes))
          << "a page in use lost its contents";
    }
    // The next use costs faults, and finds zeros.
    if (PageRef page = pages.alloc(kPageblockOrder)) {
      EXPECT_EQ(std::count(page.data(), page.data() + kPageblockBytes, std::byte{0}),
                static_cast<std::ptrdiff_t>(kPageblockBytes));
    } else {
      ADD_FAILURE() << "no pageblock, though free ones were there";
    }
  }
}

TEST_P(Resident, AnIdleZoneFallsToItsFloorWithoutAnyFurtherCall) {
  Options chosen = options();
  chosen.idle_trim = 100ms;
  PageAllocator pages{chosen};
  const Extent& extent = pages.effective().extent;
  if (GetParam().thp == ThpChoice::on && !extent.transparent_huge) {
    GTEST_SKIP() << extent.note;
  }
  const Maintenance maintenance{pages, 10ms};
  // One pageblock more than the high watermark may be left, and what ends within one.
  const Bytes floor = bytes(PageCount{pages.effective().watermark_high}) + Bytes{kPageblockBytes};
  for (int round = 0; round < 2; ++round) {
    std::vector<PageRef> kept;
    burst(pages, kept, 0);
    ASSERT_GT(resident(pages).value, extent.size.value * 9 / 10);
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (resident(pages) > floor && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(5ms);
    }
    EXPECT_LE(resident(pages), floor);
  }
}

TEST_P(Resident, APinnedRangeStaysResident) {
  PageAllocator pages{options()};
  const Extent& extent = pages.effective().extent;
  std::vector<PageRef> none;
  burst(pages, none, 0);
  std::this_thread::sleep_for(2ms);
  {
    const Result<Pin> pin = pages.pin({extent.base + 5 * kPageblockBytes, 3 * kPageblockBytes});
    ASSERT_TRUE(pin);
    EXPECT_EQ(pages.trim(), extent.size - Bytes{3 * kPageblockBytes});
    EXPECT_EQ(test::resident_bytes(extent.base + 5 * kPageblockBytes, Bytes{3 * kPageblockBytes}),
              Bytes{3 * kPageblockBytes});
    EXPECT_EQ(resident(pages), Bytes{3 * kPageblockBytes});
    EXPECT_EQ(extent.base[5 * kPageblockBytes], std::byte{0x5a});
  }
  EXPECT_EQ(pages.trim(), Bytes{3 * kPageblockBytes});
  EXPECT_EQ(resident(pages), Bytes{0});
}

std::string name_of(const testing::TestParamInfo<Ground>& info) {
  return std::string(info.param.source == SourceChoice::memfd ? "Memfd" : "Anonymous") +
         (info.param.thp == ThpChoice::on ? "Huge" : "Small") +
         (info.param.engine == EngineChoice::buddy ? "Buddy" : "Bitmap");
}
INSTANTIATE_TEST_SUITE_P(
    Everywhere, Resident,
    testing::Values(Ground{EngineChoice::buddy, SourceChoice::anonymous, ThpChoice::off},
                    Ground{EngineChoice::buddy, SourceChoice::anonymous, ThpChoice::on},
                    Ground{EngineChoice::buddy, SourceChoice::memfd, ThpChoice::off},
                    Ground{EngineChoice::buddy, SourceChoice::memfd, ThpChoice::on},
                    Ground{EngineChoice::bitmap, SourceChoice::anonymous, ThpChoice::off},
                    Ground{EngineChoice::bitmap, SourceChoice::anonymous, ThpChoice::on},
                    Ground{EngineChoice::bitmap, SourceChoice::memfd, ThpChoice::off},
                    Ground{EngineChoice::bitmap, SourceChoice::memfd, ThpChoice::on}),
    name_of);

TEST(ResidentHugetlb, ExplicitHugePagesGoBackWhenTheUserSaysSo) {
  const test::HugePages huge{8};
  if (!huge.available()) {
    GTEST_SKIP() << "no explicit huge pages to be had";
  }
  PageAllocator pages{{.capacity = 16_MiB, .source = SourceChoice::hugetlb}};
  const Extent& extent = pages.effective().extent;
  ASSERT_EQ(extent.page_size, 2_MiB);
  EXPECT_EQ(pages.effective().options.idle_trim, 0ms);
  TrimReport report;
  const Bytes returned = pages.trim(Bytes{UINT64_MAX}, &report);
  if (returned.value == 0) {
    GTEST_SKIP() << report.note;  // a kernel before 5.18
  }
  EXPECT_EQ(returned, extent.size);
  EXPECT_EQ(system_memory().huge_backed(extent.base, extent.size), Bytes{0});
  const PageRef page = pages.alloc(kPageblockOrder);
  ASSERT_TRUE(page);
  EXPECT_EQ(page.data()[kPageblockBytes - 1], std::byte{0});
  EXPECT_EQ(system_memory().huge_backed(extent.base, extent.size), Bytes{kPageblockBytes});
}

TEST(TrimOptions, AnAllocatorSaysWhatItWillDoByItself) {
  EXPECT_EQ(PageAllocator({.capacity = 4_MiB}).effective().options.idle_trim, 10s);
  std::vector<std::byte> memory(64 * kFrameBytes);
  auto* base = reinterpret_cast<std::byte*>(
      (reinterpret_cast<std::uintptr_t>(memory.data()) + kFrameBytes - 1) / kFrameBytes *
      kFrameBytes);
  const std::span<std::byte> piece[] = {{base, 32 * kFrameBytes}};
  PageAllocator borrowed{piece, Options{}};
  EXPECT_EQ(borrowed.effective().options.idle_trim, 0s);
  TrimReport report;
  EXPECT_EQ(borrowed.trim(Bytes{UINT64_MAX}, &report), Bytes{0});
  EXPECT_STRNE(report.note, "");
}

}  // namespace
}  // namespace weir
