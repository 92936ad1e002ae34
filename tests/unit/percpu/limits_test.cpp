// SPDX-License-Identifier: MIT
// What a zone may keep outside its engine, when a shortage ends, and what a child of fork(2) forgets of
// requests that were under way in threads it does not have. Calls percpu/cached_zone.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/interrupt.hpp"
#include "tests/support/process.hpp"
#include "tests/support/zones.hpp"
#include "weir/percpu/cached_zone.hpp"

namespace weir {
namespace {

using test::free_all;
using test::OnCpu;
using test::take_all;
using test::TestZone;
using Clock = std::chrono::steady_clock;

constexpr unsigned kHangs = 60;  // seconds after which a child counts as one that hangs

// ---- how much lies outside the engine ------------------------------------------------------------

struct Cap {
  std::uint64_t cached;
  std::uint64_t depot;
};

class Caps : public testing::TestWithParam<Cap> {};

// Single frees and drains in turn on two CPUs, so that lists run over at every position: clusters that
// are not whole go to the depot as well.
TEST_P(Caps, ListsAndDepotNeverHoldMore) {
  WEIR_NEEDS_LISTS;
  WEIR_NEEDS_CPUS(2);
  Options options;
  options.cached = PageCount{GetParam().cached};
  options.depot = PageCount{GetParam().depot};
  TestZone zone(4096, 2, options);
  const std::uint64_t depot_most =
      std::uint64_t{zone->limits().depot_clusters} * zone->lists().cluster();
  std::uint64_t most = 0;
  std::uint64_t in_depot = 0;
  std::vector<Page*> pages;
  unsigned seed = 7;
  const int rounds = test::kSanitized ? 20 : 100;
  for (int round = 0; round < rounds; ++round) {
    pages.resize(3072);
    ASSERT_TRUE(zone->alloc_exactly(pages.data(), pages.size(), {}));
    const auto give_down_to = [&](std::size_t left) {
      while (pages.size() > left) {
        zone->free(index_of(pages.back()), Order{0});
        pages.pop_back();
      }
    };
    for (const std::uint32_t half : {0U, 1U}) {
      const std::uint32_t number = (static_cast<std::uint32_t>(round) + half) & 1;
      const OnCpu cpu(number);
      const std::size_t keep = half == 0 ? 1536 : 0;
      give_down_to(std::max(pages.size() - (seed % 29 + 1), keep));
      ASSERT_EQ(zone->drain(CpuId{number}).code, Errc::ok);
      give_down_to(keep);
    }
    const CachedZone::Census census = zone->census();
    most = std::max(most, census.lists + census.depot);
    in_depot = std::max(in_depot, census.depot);
    EXPECT_EQ(census.out(), 0U);
    seed = (seed * 1103515245 + 12345) >> 3;
  }
  EXPECT_LE(most, zone->limits().total);
  EXPECT_LE(most, GetParam().cached);
  EXPECT_LE(in_depot, depot_most);
}

INSTANTIATE_TEST_SUITE_P(Limits, Caps,
                         testing::Values(Cap{0, 0}, Cap{150, 0}, Cap{400, 0}, Cap{700, 128},
                                         Cap{1000, 64}, Cap{1500, 0}, Cap{kMaxFrames, 128},
                                         Cap{kMaxFrames, 0}));

// ---- when a shortage ends ------------------------------------------------------------------------

TEST(Limits, AShortageEndsBesideAReserveOfNearlyTheWholeZone) {
  for (const std::uint64_t reserve : {3000U, 3900U, 4000U, 4090U, 4095U}) {
    Options options;
    options.reserve = PageCount{reserve};
    TestZone zone(4096, 2, options);
    const std::vector<PageIndex> pages = take_all(*zone);
    ASSERT_EQ(pages.size(), 4096 - reserve);
    EXPECT_TRUE(zone->in_shortage()) << reserve;
    test::outlast_shortage();
    free_all(*zone, pages);
    EXPECT_FALSE(zone->in_shortage()) << reserve;
  }
}

// ---- children ------------------------------------------------------------------------------------

// Frees and takes until the zone's shortage is over; false when it does not end.
bool shortage_ends(CachedZone& zone) {
  free_all(zone, take_all(zone));
  for (int i = 0; i < 5; ++i) {
    test::outlast_shortage();
    zone.tick();
    const PageIndex page = zone.alloc(Order{0}, {});
    if (is_page(page)) {
      zone.free(page, Order{0});
    }
  }
  return !zone.in_shortage();
}

// A request that finds nothing was interrupted by a handler that forks. The child goes on with the
// request, which then ends: it must not be counted out of a count that it is not in.
TEST(Limits, AShortageEndsInTheChildOfAHandlerInsideARequest) {
  if (!test::kCanInterrupt || test::kSanitized) {
    GTEST_SKIP() << "no single steps here";
  }
  TestZone zone(256, 2);
  std::vector<Page*> too_many(300);
  const auto ask = [&] { static_cast<void>(zone->alloc_exactly(too_many.data(), 300, {})); };
  ask();
  const auto leave = [&] {
    test::outlast_shortage();
    zone->free(zone->alloc(Order{0}, {}), Order{0});
  };
  leave();
  // Forks where nothing is locked and the request is under way, at the n-th such place. Returns the
  // status of the child, or -1 when there are fewer places.
  int places = 0;
  const auto fork_at = [&](int n) {
    leave();
    bool under_way = false;
    int place = 0;
    pid_t child = -1;
    test::interrupt_each(ask, [&] {
      under_way = under_way || thread_is_marked();
      if (under_way && !thread_is_marked() && ++place == n) {
        child = ::fork();
      }
    });
    if (child == 0) {
      ::alarm(kHangs);
      ::_exit(shortage_ends(*zone) ? 0 : 1);
    }
    places = place;
    int status = -1;
    while (child > 0 && ::waitpid(child, &status, 0) != child) {
    }
    return status;
  };
  EXPECT_EQ(fork_at(0), -1);  // counts them
  int forks = 0;
  for (int n = 1; n <= places; n += 1 + places / 12) {
    const int status = fork_at(n);
    if (status == -1) {
      break;
    }
    ASSERT_EQ(status, 0) << "at place " << n;
    ++forks;
  }
  EXPECT_GT(forks, 5);
}

// Halts a thread after an instruction of its work for as long as this lives, but for 20 ms at most: it
// may hold what the others wait for.
class Halted {
 public:
  Halted(std::uint64_t k, const std::function<void()>& work)
      : thread_([this, k, work] {
          static_cast<void>(test::interrupt_at(k, work, [this] {
            stage_.store(1);
            const auto end = Clock::now() + std::chrono::milliseconds(20);
            while (!go_.load() && Clock::now() < end) {
              ::sched_yield();
            }
          }));
          stage_.store(2);
        }) {
    while (stage_.load() == 0) {
      std::this_thread::yield();
    }
  }
  ~Halted() {
    go_.store(true);
    thread_.join();
  }
  Halted(const Halted&) = delete;
  Halted& operator=(const Halted&) = delete;

 private:
  std::atomic<int> stage_{0};
  std::atomic<bool> go_{false};
  std::thread thread_;
};

// Another thread has frames set aside for it and has not fetched them all: in the child nobody will.
TEST(Limits, AChildHasWhatWasSetAsideForThreadsItDoesNotHave) {
  if (!test::kCanInterrupt || test::kSanitized) {
    GTEST_SKIP() << "no single steps here";
  }
  TestZone zone(128, 2);
  std::vector<Page*> pages(100);
  const auto work = [&] {
    if (zone->alloc_exactly(pages.data(), pages.size(), {})) {
      zone->free_bulk(pages.data(), pages.size());
    }
    static_cast<void>(zone->drain_all());
  };
  const auto take = [&] { static_cast<void>(zone->alloc_exactly(pages.data(), pages.size(), {})); };
  work();
  const std::uint64_t steps = test::interrupt_each(take, [] {});
  zone->free_bulk(pages.data(), pages.size());
  static_cast<void>(zone->drain_all());
  for (std::uint64_t k = 1; k < steps; k += 1 + steps / 8) {
    int status = -1;
    {
      const Halted other(k, take);
      status = test::run_in_child_or_hang([&] {
        const std::vector<PageIndex> all = take_all(*zone);
        return zone->census().engine == 0 ? 0 : 1;
      });
    }
    zone->free_bulk(pages.data(), pages.size());
    static_cast<void>(zone->drain_all());
    ASSERT_EQ(status, 0) << "after " << k << " of " << steps << " instructions";
  }
}

// As a handler does that interrupted weir: what is locked stays so in the child.
TEST(Limits, AChildForkedInsideWeirIsRefusedANewZone) {
  const TestZone zone(256, 2);
  const pid_t child = [] {
    const ThreadMark mark;
    return ::fork();
  }();
  if (child == 0) {
    ::alarm(kHangs);
    AnonSource source(system_memory(), ThpChoice::off);
    Result<Extent> extent = source.obtain(bytes(PageCount{256}));
    if (!extent) {
      ::_exit(1);
    }
    Result<CachedZone*> opened = zone_registry::open(&source, {*extent}, {}, 2);
    ::_exit(!opened && opened.error().code == Errc::would_block ? 0 : 2);
  }
  int status = -1;
  while (::waitpid(child, &status, 0) != child) {
  }
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace weir
