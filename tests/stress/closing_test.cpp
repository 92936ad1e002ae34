// SPDX-License-Identifier: MIT
// The end of a zone meets others at work: whoever gives the last pages home, and whoever forks. One
// thread is halted after the k-th instruction of its call, for many k, while another ends the zone; then it
// goes on. Each run is a child process, so that a crash or a hang is seen as one. Calls
// percpu/zone_registry.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/interrupt.hpp"
#include "tests/support/process.hpp"
#include "tests/support/zones.hpp"
#include "weir/page/page_allocator.hpp"
#include "weir/percpu/cached_zone.hpp"
#include "weir/percpu/zone_registry.hpp"

namespace weir {
namespace {

using test::free_all;
using test::OnCpu;
using test::take_all;
using test::TestZone;
using Clock = std::chrono::steady_clock;

// A thread that does one thing when a handler asks for it. The handler waits, but not for ever: what it
// has interrupted may be what the thread waits for.
class Helper {
 public:
  explicit Helper(std::function<void()> work)
      : thread_([this, work = std::move(work)] {
          while (stage_.load() == 0) {
            std::this_thread::yield();
          }
          work();
          stage_.store(2);
        }) {}
  // Whoever was never asked works now.
  ~Helper() {
    if (stage_.load() == 0) {
      stage_.store(1);
    }
    thread_.join();
  }
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  void ask() {
    stage_.store(1);
    const auto end = Clock::now() + std::chrono::milliseconds(2);
    while (stage_.load() != 2 && Clock::now() < end) {
      ::sched_yield();
    }
  }

 private:
  std::atomic<int> stage_{0};
  std::thread thread_;
};

constexpr std::uint64_t kFrames = 1024;

// A zone whose last 64 pages are out, and whose list is full: they go home through the depot.
struct NearlyHome {
  NearlyHome() : zone(std::make_unique<TestZone>(kFrames, 1)), cached(**zone), last(64) {
    std::vector<PageIndex> pages(256);
    pages.resize(cached.alloc_bulk(pages.data(), pages.size(), {}));
    for (PageIndex& page : last) {
      page = pages.back();
      pages.pop_back();
    }
    free_all(cached, pages);
    zone->abandon();  // it is ended while pages are out
  }
  void give_last() { cached.free_bulk(last.data(), last.size()); }

  std::unique_ptr<TestZone> zone;
  CachedZone& cached;
  std::vector<PageIndex> last;
};

TEST(Closing, AnOwnerMayEndAZoneAtAnyPointOfABulkThatGivesItsLastPages) {
  WEIR_NEEDS_LISTS;
  if (!test::kCanInterrupt || !test::lists_can_be_stepped()) {
    GTEST_SKIP() << "no single steps here";
  }
  EXPECT_EQ(test::run_in_child_or_hang([] {
              const OnCpu cpu(0);
              const std::uint32_t before = zone_registry::count();
              bool within = true;
              for (std::uint64_t k = 1; within; k += test::kSanitized ? 59 : 7) {
                NearlyHome home;
                Helper owner([&] { home.zone.reset(); });
                within = test::interrupt_at(
                    k, [&] { home.give_last(); }, [&] { owner.ask(); });
              }
              return zone_registry::count() == before ? 0 : 1;
            }),
            0);
}

// Whoever looks for the page of an address, and is late: the zone ends at each instruction of it.
TEST(Closing, AnAddressMayBeLookedUpWhileItsZoneEnds) {
  if (!test::kCanInterrupt) {
    GTEST_SKIP() << "no single steps here";
  }
  EXPECT_EQ(test::run_in_child_or_hang([] {
              bool within = true;
              for (std::uint64_t k = 1; within; k += test::kSanitized ? 7 : 1) {
                auto zone = std::make_unique<PageAllocator>(Options{
                    .capacity = Bytes{kFrames * kFrameBytes}, .engine = test::engine_under_test()});
                const std::byte* const address = zone->effective().extent.base + 77;
                Helper owner([&] { zone.reset(); });
                within = test::interrupt_at(
                    k, [&] { static_cast<void>(page_of(address)); }, [&] { owner.ask(); });
              }
              return 0;
            }),
            0);
}

// Ended first, while the bulk is under way, then found whole by a passer-by: the carrier whose pages
// these were must not look after them in a depot that is gone.
TEST(Closing, ACarrierDoesNotLookIntoTheDepotOfAZoneThatHasClosed) {
  WEIR_NEEDS_LISTS;
  if (!test::kCanInterrupt || !test::lists_can_be_stepped()) {
    GTEST_SKIP() << "no single steps here";
  }
  EXPECT_EQ(test::run_in_child_or_hang([] {
              const OnCpu cpu(0);
              const std::uint32_t count = zone_registry::count();
              // Where the carrier is marked first, where its cluster is in the depot, and the end.
              std::uint64_t marked = 0;
              std::uint64_t given = 0;
              std::uint64_t all = 0;
              {
                NearlyHome home;
                const std::uint32_t clusters = home.cached.depot().full_clusters();
                all = test::interrupt_each(
                    [&] { home.give_last(); },
                    [&] {
                      const std::uint64_t k = test::interrupt_detail::g_steps;
                      if (marked == 0 && t_marked_sections == 1 && !test::list_held(home.cached)) {
                        marked = k;
                      }
                      if (given == 0 && home.cached.depot().full_clusters() > clusters) {
                        given = k;
                      }
                    });
                home.zone.reset();
              }
              if (marked == 0 || given <= marked || zone_registry::count() != count) {
                return 2;
              }
              const std::uint64_t ended = marked + (given - marked) / 2;
              // Two hundred more: in a shortage the carrier has more to do.
              for (std::uint64_t k = given; k < all + 200; k += test::kSanitized ? 61 : 9) {
                NearlyHome home;
                Helper owner([&] { home.zone.reset(); });
                Helper passer([&] { zone_registry::close_if_home(home.cached); });
                test::interrupt_each([&] { home.give_last(); },
                                     [&] {
                                       const std::uint64_t now = test::interrupt_detail::g_steps;
                                       if (now == ended) {
                                         owner.ask();
                                       } else if (now == k) {
                                         passer.ask();
                                       }
                                     });
              }
              return zone_registry::count() == count ? 0 : 3;
            }),
            0);
}

// The page that would end a shortage is the last one of its zone, and the zone ends.
TEST(Closing, AnOwnerMayEndAZoneAtAnyPointOfAFreeInShortage) {
  WEIR_NEEDS_LISTS;
  if (!test::kCanInterrupt) {
    GTEST_SKIP() << "no single steps here";
  }
  EXPECT_EQ(test::run_in_child_or_hang([] {
              const OnCpu cpu(0);
              const std::uint32_t before = zone_registry::count();
              bool within = true;
              for (std::uint64_t k = 1; within; k += test::kSanitized ? 127 : 11) {
                auto zone = std::make_unique<TestZone>(256, 1);
                CachedZone& cached = **zone;
                zone->abandon();
                std::vector<PageIndex> pages = take_all(cached);
                const PageIndex last = pages.back();
                pages.pop_back();
                free_all(cached, pages);
                test::outlast_shortage();
                Helper owner([&] { zone.reset(); });
                within = test::interrupt_at(
                    k, [&] { cached.free_to_engine(last, Order{0}); }, [&] { owner.ask(); });
              }
              return zone_registry::count() == before ? 0 : 1;
            }),
            0);
}

// What fork() does before it holds the registry: no zone may be looked at there.
TEST(Closing, AZoneMayEndAtEachInstructionOfAForkUpToItsLocks) {
  WEIR_NEEDS_LISTS;
  if (!test::kCanInterrupt || test::kSanitized) {
    GTEST_SKIP() << "no single steps here";
  }
  EXPECT_EQ(test::run_in_child_or_hang([] {
              const OnCpu cpu(0);
              const pid_t parent = ::getpid();
              const auto fork_and_wait = [] {
                const pid_t child = ::fork();
                if (child == 0) {
                  ::_exit(0);
                }
                int status = -1;
                while (::waitpid(child, &status, 0) != child) {
                }
              };
              std::uint64_t locked = 0;
              for (int i = 0; i < 2; ++i) {  // the first time it is linked on the way
                locked = 0;
                const TestZone zone(256, 1);
                test::interrupt_each(fork_and_wait, [&] {
                  if (locked == 0 && thread_is_marked()) {
                    locked = test::interrupt_detail::g_steps;
                  }
                });
              }
              if (locked == 0) {
                return 2;
              }
              const std::uint32_t before = zone_registry::count();
              for (std::uint64_t k = 1; k < locked + 20; ++k) {
                auto zone = std::make_unique<TestZone>(256, 1);
                (*zone)->free((*zone)->alloc(Order{0}, {}), Order{0});
                Helper owner([&] { zone.reset(); });
                static_cast<void>(test::interrupt_at(k, fork_and_wait, [&] {
                  if (::getpid() == parent) {
                    owner.ask();
                  }
                }));
              }
              return zone_registry::count() == before ? 0 : 1;
            }),
            0);
}

// ---- by chance, in every form and with several zones ---------------------------------------------

// Two threads make and end zones, give pages of zones that have ended, and drain; a third forks. Each
// child uses what there is and makes a zone of its own.
TEST(Closing, ForksWhileZonesComeAndGo) {
  if (test::kSanitized) {
    GTEST_SKIP() << "the allocator of a sanitizer does not outlive such forks";
  }
  EXPECT_EQ(test::run_in_child_or_hang([] {
              TestZone base(2048);
              std::atomic<bool> stop{false};
              std::vector<std::thread> threads;
              for (unsigned t = 0; t < 2; ++t) {
                threads.emplace_back([&, t] {
                  std::vector<PageIndex> pages(64);
                  for (unsigned round = t; !stop.load(); ++round) {
                    auto zone = std::make_unique<TestZone>(256 + 512 * (round % 3));
                    CachedZone& cached = **zone;
                    zone->abandon();
                    pages.resize(64);
                    pages.resize(cached.alloc_bulk(pages.data(), pages.size(), {}));
                    zone.reset();
                    free_all(cached, pages);
                    const PageIndex page = base->alloc(Order{0}, {});
                    base->free(page, Order{0});
                    if (round % 16 == 0) {
                      static_cast<void>(base->drain_all());
                    }
                  }
                });
              }
              int wrong = 0;
              const auto end = Clock::now() + std::chrono::milliseconds(1500);
              for (int i = 0; wrong == 0 && i < 300 && Clock::now() < end; ++i) {
                wrong = test::run_in_child_or_hang([&] {
                  const PageIndex page = base->alloc(Order{0}, {});
                  if (!is_page(page)) {
                    return 3;
                  }
                  base->free(page, Order{0});
                  if (base->drain_all().failed()) {
                    return 4;
                  }
                  TestZone own(512);
                  const std::vector<PageIndex> all = take_all(*own);
                  free_all(*own, all);
                  return all.size() == 512 ? 0 : 5;
                });
              }
              stop.store(true);
              for (std::thread& thread : threads) {
                thread.join();
              }
              return wrong != 0 ? wrong : zone_registry::count() == 1 ? 0 : 6;
            }),
            0);
}

// Two threads meet at no place in particular: one gives the last pages, the other ends the zone.
TEST(Closing, TheLastPagesInBulkRaceWithTheEnd) {
  EXPECT_EQ(test::run_in_child_or_hang([] {
              const std::uint32_t before = zone_registry::count();
              const auto end = Clock::now() + std::chrono::milliseconds(700);
              for (unsigned round = 0; Clock::now() < end; ++round) {
                auto zone = std::make_unique<TestZone>(kFrames);
                CachedZone& cached = **zone;
                zone->abandon();
                std::vector<PageIndex> last(64);
                std::vector<PageIndex> rest(320);
                last.resize(cached.alloc_bulk(last.data(), last.size(), {}));
                rest.resize(cached.alloc_bulk(rest.data(), rest.size(), {}));
                std::atomic<int> ready{0};
                const auto meet = [&ready](unsigned delay) {
                  ready.fetch_add(1);
                  while (ready.load() != 2) {
                    std::this_thread::yield();
                  }
                  for (std::atomic<unsigned> i{0}; i.load() < delay;) {
                    i.fetch_add(1);
                  }
                };
                std::thread giver([&] {
                  free_all(cached, rest);  // its CPU's list is full then
                  meet(round * 7 % 100);
                  cached.free_bulk(last.data(), last.size());
                });
                meet(round * 13 % 100);
                zone.reset();
                giver.join();
              }
              return zone_registry::count() == before ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace weir
