// SPDX-License-Identifier: MIT
// A kernel that stops granting fences after the lists have begun to run, as a sandbox that is put up
// late. The drainer visits the CPUs instead; where that is refused as well, nothing can be taken from
// another CPU's list any more: drains say so, everything else goes on, and no page is lost. Each case is
// a child process: the filter cannot be taken away again.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/process.hpp"
#include "tests/support/seccomp.hpp"
#include "tests/support/side_table.hpp"
#include "tests/support/zones.hpp"
#include "weir/os/fence.hpp"
#include "weir/percpu/cached_zone.hpp"

namespace weir {
namespace {

using test::free_all;
using test::Pinned;
using test::SideTable;
using test::take_all;
using test::TestZone;

constexpr std::uint64_t kFrames = 4096;

struct RefusedFence : testing::Test {
  void SetUp() override {
    if (list_mode().form != ListForm::rseq) {
      GTEST_SKIP() << "no list needs a fence: " << list_mode().reason;
    }
    WEIR_NEEDS_REAL_CPUS(2);
  }
};

// 100 pages on the list of each of two CPUs, then no fence any more, and visits or none. Returns what
// `body` returns, or 1 when there can be no filter.
int without_fences(TestZone& zone, const std::function<int(CachedZone&)>& body,
                   bool visits = false) {
  return test::run_in_child([&] {
    ::alarm(60);
    std::vector<PageIndex> pages(100);
    for (const std::uint32_t number : {0U, 1U}) {
      const Pinned cpu(number);
      pages.resize(zone->alloc_bulk(pages.data(), 100, {}));
      free_all(*zone, pages);
    }
    if (zone->lists().cached(0) < 64 || zone->lists().cached(1) < 64) {
      return 2;
    }
    if (!test::refuse_syscall(SYS_membarrier, EPERM)) {
      return 1;
    }
    fence::visits_for_test(visits);
    return body(*zone);
  });
}

bool says_eperm(const Error& error) {
  return error.code == Errc::system && error.os_errno == EPERM;
}

TEST_F(RefusedFence, ADrainSaysSoAndTakesNothing) {
  TestZone zone(kFrames);
  EXPECT_EQ(without_fences(zone,
                           [](CachedZone& cached) {
                             const std::uint64_t one = cached.lists().cached(1);
                             if (!says_eperm(cached.drain(CpuId{1}))) {
                               return 3;
                             }
                             if (!says_eperm(cached.drain_all())) {
                               return 4;
                             }
                             cached.tick();
                             cached.tick();
                             if (cached.lists().cached(1) != one || cached.in_shortage()) {
                               return 5;
                             }
                             return cached.census().out() == 0 ? 0 : 6;
                           }),
            0);
}

TEST_F(RefusedFence, TheListsGoOn) {
  TestZone zone(kFrames);
  EXPECT_EQ(without_fences(zone,
                           [](CachedZone& cached) {
                             static_cast<void>(cached.drain_all());
                             const Pinned cpu(1);
                             const std::uint64_t pops = cached.percpu_counters().pops;
                             const std::uint64_t holds =
                                 cached.zone().counters().lock_acquisitions.get();
                             for (int i = 0; i < 1000; ++i) {
                               const PageIndex page = cached.alloc(Order{0}, {});
                               if (!is_page(page)) {
                                 return 3;
                               }
                               cached.free(page, Order{0});
                             }
                             if (cached.percpu_counters().pops != pops + 1000 ||
                                 cached.zone().counters().lock_acquisitions.get() != holds) {
                               return 4;
                             }
                             // Other threads, other CPUs, spills and refills.
                             std::vector<std::thread> threads;
                             for (int t = 0; t < 3; ++t) {
                               threads.emplace_back([&cached] {
                                 std::vector<PageIndex> pages(700);
                                 for (int round = 0; round < 50; ++round) {
                                   const std::size_t n = cached.alloc_bulk(pages.data(), 700, {});
                                   for (std::size_t i = 0; i < n; ++i) {
                                     cached.free(pages[i], Order{0});
                                   }
                                 }
                               });
                             }
                             for (std::thread& thread : threads) {
                               thread.join();
                             }
                             return cached.census().out() == 0 ? 0 : 5;
                           }),
            0);
}

TEST_F(RefusedFence, AtExhaustionOneGetsAllButWhatOtherCpusListsHave) {
  TestZone zone(kFrames);
  EXPECT_EQ(without_fences(zone,
                           [&zone](CachedZone& cached) {
                             SideTable table(zone.first(), kFrames);
                             const Pinned cpu(0);
                             const std::uint64_t other = cached.lists().cached(1);
                             const std::vector<PageIndex> pages = take_all(cached);
                             for (const PageIndex page : pages) {
                               if (!table.took(page, Order{0})) {
                                 return 3;
                               }
                             }
                             if (pages.size() + other != kFrames ||
                                 cached.census().out() != pages.size()) {
                               return 4;
                             }
                             Page* some[2];
                             if (cached.alloc_exactly(some, 2, {})) {
                               return 5;
                             }
                             std::size_t rest = 0;
                             {
                               const Pinned there(1);
                               const std::vector<PageIndex> last = take_all(cached);
                               rest = last.size();
                               free_all(cached, last);
                             }
                             free_all(cached, pages);
                             return rest == other && cached.census().out() == 0 ? 0 : 6;
                           }),
            0);
}

TEST_F(RefusedFence, AZoneThatStoodInShortageServesFromTheEngineAfterwards) {
  TestZone zone(kFrames);
  EXPECT_EQ(test::run_in_child([&] {
              ::alarm(60);
              const std::vector<PageIndex> pages = take_all(*zone);
              if (!zone->in_shortage() || !test::refuse_syscall(SYS_membarrier, EPERM)) {
                return 1;
              }
              fence::visits_for_test(false);
              test::outlast_shortage();
              free_all(*zone, pages);
              for (int round = 0; round < 5; ++round) {
                const std::vector<PageIndex> some = take_all(*zone);
                std::set<PageIndex> distinct(some.begin(), some.end());
                if (distinct.size() != some.size() || some.size() < kFrames - 2 * 128) {
                  return 2;
                }
                test::outlast_shortage();
                free_all(*zone, some);
                if (zone->census().out() != 0) {
                  return 3;
                }
              }
              return 0;
            }),
            0);
}

TEST_F(RefusedFence, ARefusedStopUndoesNothingThatASpillDidMeanwhile) {
  TestZone zone(kFrames);
  EXPECT_EQ(without_fences(
                zone,
                [&zone](CachedZone& cached) {
                  SideTable table(zone.first(), kFrames);
                  std::atomic<bool> stop{false};
                  std::thread user([&] {
                    const Pinned cpu(0);
                    std::vector<PageIndex> held;
                    while (!stop.load()) {
                      for (int i = 0; i < 300; ++i) {
                        held.push_back(cached.alloc(Order{0}, {}));
                        table.took(held.back(), Order{0});
                      }
                      for (const PageIndex page : held) {
                        table.gave(page, Order{0});
                        cached.free(page, Order{0});
                      }
                      held.clear();
                    }
                  });
                  const Pinned cpu(1);
                  bool refused = true;
                  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
                  while (std::chrono::steady_clock::now() < end) {
                    refused = refused && says_eperm(cached.drain(CpuId{0}));
                  }
                  stop.store(true);
                  user.join();
                  return refused && table.violations() == 0 && cached.census().out() == 0 ? 0 : 3;
                }),
            0);
}

// A list whose word was written while it stood, and whose fence was refused then, stays stopped: also
// when a later stop is undone, and until a fence has come.
TEST_F(RefusedFence, AListThatWaitsForAFenceIsStartedByNothingElse) {
  if (!kTestHooks) {
    GTEST_SKIP() << "needs failpoints";
  }
  TestZone zone(kFrames);
  const Pinned cpu(0);
  const auto stopped = [&] {
    return zone->lists().block(0).lists[0].bounds.load(memory_order_relaxed) == kStopped.word;
  };
  // Spills move the floor on; beyond the ring's end a start brings it back, and needs a fence for it.
  std::vector<PageIndex> pages(300);
  for (int round = 0; round < 100 && !stopped(); ++round) {
    pages.resize(300);
    pages.resize(zone->alloc_bulk(pages.data(), pages.size(), {}));
    free_all(*zone, pages);
    failpoints::arm(Failpoint::fence, 2);
    EXPECT_EQ(zone->drain(CpuId{0}).code, Errc::ok);
    failpoints::reset();
  }
  ASSERT_TRUE(stopped());
  failpoints::arm(Failpoint::fence, 1);
  EXPECT_TRUE(says_eperm(zone->drain(CpuId{0})));
  failpoints::reset();
  EXPECT_TRUE(stopped());
  EXPECT_EQ(zone->drain(CpuId{0}).code, Errc::ok);
  EXPECT_FALSE(stopped());
  EXPECT_EQ(zone->census().out(), 0U);
}

// ---- visits ----

TEST_F(RefusedFence, VisitsFindEveryFrameAtExhaustion) {
  TestZone zone(kFrames);
  EXPECT_EQ(without_fences(
                zone,
                [](CachedZone& cached) {
                  const Pinned cpu(0);
                  const std::vector<PageIndex> pages = take_all(cached);
                  if (pages.size() != kFrames) {
                    return 3;
                  }
                  test::outlast_shortage();
                  free_all(cached, pages);
                  Page* all[256];
                  if (!cached.alloc_exactly(all, 256, {})) {
                    return 4;
                  }
                  cached.free_bulk(all, 256);
                  return cached.census().out() == 0 && cached.drain_all().code == Errc::ok ? 0 : 5;
                },
                true),
            0);
}

TEST_F(RefusedFence, AVisitEndsTheSectionsOfThreadsThatSpin) {
  TestZone zone(kFrames);
  EXPECT_EQ(without_fences(
                zone,
                [&zone](CachedZone& cached) {
                  SideTable table(zone.first(), kFrames);
                  std::atomic<bool> stop{false};
                  std::vector<std::thread> users;
                  for (const std::uint32_t number : {0U, 1U}) {
                    users.emplace_back([&, number] {
                      const Pinned cpu(number);
                      // Memory that is not there: a section stays inside for as long as it takes to
                      // fault in, long after it has read what a drainer then changes.
                      void* const memory = ::mmap(nullptr, kFrameBytes, PROT_READ | PROT_WRITE,
                                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                      auto** const out = static_cast<Page**>(memory);
                      while (!stop.load()) {
                        ::madvise(memory, kFrameBytes, MADV_DONTNEED);
                        const std::size_t n = cached.alloc_bulk(out, kClusterFrames, {});
                        for (std::size_t i = 0; i < n; ++i) {
                          table.took(index_of(out[i]), Order{0});
                        }
                        for (std::size_t i = 0; i < n; ++i) {
                          table.gave(index_of(out[i]), Order{0});
                        }
                        cached.free_bulk(out, n);
                      }
                      ::munmap(memory, kFrameBytes);
                    });
                  }
                  cpu_set_t before;
                  ::sched_getaffinity(0, sizeof(before), &before);
                  bool drained = true;
                  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
                  while (std::chrono::steady_clock::now() < end) {
                    drained = drained && cached.drain_all().code == Errc::ok;
                  }
                  stop.store(true);
                  for (std::thread& user : users) {
                    user.join();
                  }
                  cpu_set_t after;
                  ::sched_getaffinity(0, sizeof(after), &after);
                  return drained && table.violations() == 0 && cached.census().out() == 0 &&
                                 CPU_EQUAL(&before, &after)
                             ? 0
                             : 3;
                },
                true),
            0);
}

TEST_F(RefusedFence, AllocatorsEndAndForksGoOn) {
  TestZone zone(kFrames);
  for (const bool visits : {true, false}) {
    EXPECT_EQ(without_fences(
                  zone,
                  [visits](CachedZone& cached) {
                    const auto fork_once = [&] {
                      return test::run_in_child([&] {
                        const PageIndex page = cached.alloc(Order{0}, {});
                        if (is_page(page)) {
                          cached.free(page, Order{0});
                        }
                        return is_page(page) ? 7 : 8;
                      });
                    };
                    // Where nothing can be brought to rest, the child's zones refuse.
                    if (fork_once() != (visits ? 7 : 8)) {
                      return 3;
                    }
                    const std::uint32_t before = zone_registry::count();
                    for (int i = 0; visits && i < 100; ++i) {
                      TestZone one(256);
                      const PageIndex page = one->alloc(Order{0}, {});
                      one->free(page, Order{0});
                    }
                    return zone_registry::count() == before ? 0 : 4;
                  },
                  visits),
              0);
  }
}

// ---- how many fences exhaustion costs ------------------------------------------------------------

TEST_F(RefusedFence, ExhaustionCostsAtMostAFenceEachMillisecond) {
  TestZone zone(kFrames);
  std::vector<std::vector<PageIndex>> held(2);
  const std::uint64_t shortages = zone->zone().counters().shortages.get();
  const auto start = std::chrono::steady_clock::now();
  const auto end = start + std::chrono::milliseconds(300);
  const std::uint64_t before = fence::count();
  std::vector<std::thread> threads;
  for (std::vector<PageIndex>& mine : held) {
    threads.emplace_back([&] {
      // To the end of all there is, and back far enough for lists to run again.
      while (std::chrono::steady_clock::now() < end) {
        mine = take_all(*zone);
        free_all(*zone, mine);
      }
      mine.clear();
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const std::uint64_t fences = fence::count() - before;
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - start);
  EXPECT_GT(zone->zone().counters().shortages.get(), shortages + 3);
  EXPECT_LE(fences, static_cast<std::uint64_t>(took.count()) + 2);
  EXPECT_EQ(zone->census().out(), 0U);
}

}  // namespace
}  // namespace weir
