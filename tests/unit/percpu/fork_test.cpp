// SPDX-License-Identifier: MIT
// After fork(2) parent and child both go on with private memory, whatever other threads of the parent
// were doing; a zone on shared memory stays the parent's.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/interrupt.hpp"
#include "tests/support/process.hpp"
#include "tests/support/side_table.hpp"
#include "tests/support/zones.hpp"
#include "weir/backing/memfd_source.hpp"
#include "weir/percpu/cached_zone.hpp"

namespace weir {
namespace {

using test::free_all;
using test::OnCpu;
using test::SideTable;
using test::take_all;
using test::TestZone;

// A child that hangs is killed, and seen as one.
constexpr unsigned kChildSeconds = 20;

int in_child(const std::function<int()>& body) {
  return test::run_in_child([&] {
    ::alarm(kChildSeconds);
    return body();
  });
}

// What a child does with a zone: works with it, empties it, puts everything back.
// Returns 0 or what went wrong.
int use_it_up(CachedZone& zone, std::uint64_t out) {
  for (int i = 0; i < 1000; ++i) {
    const PageIndex page = zone.alloc(Order{0}, {});
    if (is_page(page)) {
      *address_of(page) = std::byte{1};
      zone.free(page, Order{0});
    }
  }
  if (zone.drain_all().failed()) {
    return 10;
  }
  const std::vector<PageIndex> pages = take_all(zone);
  if (pages.size() != zone.zone().managed().value - out) {
    return 11;
  }
  SideTable table(zone.pieces().front().first, zone.zone().managed().value);
  for (const PageIndex page : pages) {
    if (!table.took(page, Order{0})) {
      return 12;
    }
  }
  free_all(zone, pages);
  if (zone.drain_all().failed() || zone.zone().audit() != pages.size()) {
    return 13;
  }
  return 0;
}

TEST(Fork, TheChildGoesOnWithAPrivateZone) {
  TestZone zone(1024);
  const PageIndex page = zone->alloc(Order{2}, {});
  *address_of(page) = std::byte{7};
  EXPECT_EQ(in_child([&] {
              if (*address_of(page) != std::byte{7} || zone->census().out() != 4) {
                return 1;
              }
              if (const int wrong = use_it_up(*zone, 4); wrong != 0) {
                return wrong;
              }
              *address_of(page) = std::byte{9};
              zone->free(page, Order{2});
              return use_it_up(*zone, 0);
            }),
            0);
  EXPECT_EQ(*address_of(page), std::byte{7});
  EXPECT_EQ(zone->census().out(), 4U);
  zone->free(page, Order{2});
}

TEST(Fork, AChildOfAChildToo) {
  TestZone zone(1024);
  EXPECT_EQ(in_child([&] {
              const PageIndex page = zone->alloc(Order{0}, {});
              return is_page(page) ? in_child([&] { return use_it_up(*zone, 1); }) : 1;
            }),
            0);
}

// What a thread has out at least and at most, as it counts itself around each call.
struct Account {
  std::atomic<std::uint64_t> least{0};
  std::atomic<std::uint64_t> most{0};
};

TEST(Fork, AChildOfAThreadedProcessLosesNoFrame) {
  constexpr unsigned kThreads = 3;
  TestZone zone(2048);
  SideTable table(zone.first(), 2048);
  std::vector<Account> accounts(kThreads);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Account& mine = accounts[t];
      std::mt19937 random(t);
      std::vector<std::pair<PageIndex, Order>> live;
      std::vector<PageIndex> buffer(100);
      const auto taking = [&](std::uint64_t frames, auto call) {
        mine.most.fetch_add(frames, std::memory_order_relaxed);
        const std::uint64_t got = call();
        mine.least.fetch_add(got, std::memory_order_relaxed);
        mine.most.fetch_sub(frames - got, std::memory_order_relaxed);
      };
      const auto giving = [&](std::uint64_t frames, auto call) {
        mine.least.fetch_sub(frames, std::memory_order_relaxed);
        call();
        mine.most.fetch_sub(frames, std::memory_order_relaxed);
      };
      while (!stop.load(std::memory_order_relaxed) || !live.empty()) {
        const bool ending = stop.load(std::memory_order_relaxed);
        if (!ending && live.size() < random() % 400) {
          if (random() % 8 == 0) {
            const std::size_t n = random() % 100;
            taking(n, [&] {
              const std::size_t got = zone->alloc_bulk(buffer.data(), n, {});
              for (std::size_t i = 0; i < got; ++i) {
                table.took(buffer[i], Order{0});
                live.emplace_back(buffer[i], Order{0});
              }
              return got;
            });
          } else {
            const Order order{static_cast<unsigned>(random() % 6 == 0 ? random() % 5 : 0)};
            taking(frames_in(order), [&]() -> std::uint64_t {
              const PageIndex page = zone->alloc(order, {});
              if (!is_page(page)) {
                return 0;
              }
              table.took(page, order);
              live.emplace_back(page, order);
              return frames_in(order);
            });
          }
        } else if (!live.empty()) {
          const auto [page, order] = live.back();
          live.pop_back();
          table.gave(page, order);
          giving(frames_in(order), [&, page = page, order = order] { zone->free(page, order); });
        }
      }
    });
  }
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(in_child([&] {
                // What threads that do not exist here had out, and no more: what they carried
                // between engine and list is back.
                std::uint64_t least = 0;
                std::uint64_t most = 0;
                for (const Account& account : accounts) {
                  least += account.least.load();
                  most += account.most.load();
                }
                const CachedZone::Census census = zone->census();
                if (census.out() < least || census.out() > most) {
                  return 2;
                }
                return use_it_up(*zone, census.out());
              }),
              0)
        << "fork " << i;
  }
  stop.store(true);
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(table.violations(), 0U) << table.report();
  EXPECT_EQ(zone->census().out(), 0U);
  EXPECT_EQ(zone->drain_all().code, Errc::ok);
  EXPECT_EQ(zone->zone().audit(), 2048U);
}

// A thread carries a cluster from the engine to its list and does not get on for a while: the child is
// not made before it has arrived, so that the cluster is nobody's there but the list's.
TEST(Fork, WaitsForThreadsThatCarryFrames) {
  WEIR_NEEDS_LISTS;
  if (!test::kCanInterrupt || !test::lists_can_be_stepped()) {
    GTEST_SKIP() << "no single steps here";
  }
  TestZone zone(4096, 1);
  std::atomic<int> step{0};
  PageIndex of_carrier = kNoPage;
  std::thread carrier([&] {
    const OnCpu cpu(0);
    bool stood = false;
    test::interrupt_each([&] { of_carrier = zone->alloc(Order{0}, {}); },
                         [&] {
                           if (!stood && t_marked_sections == 1 &&
                               zone->zone().free_pages() == 4096 - 64 && !test::list_held(*zone)) {
                             stood = true;
                             step.store(1);
                             std::this_thread::sleep_for(std::chrono::milliseconds(50));
                             step.store(2);
                           }
                         });
    EXPECT_TRUE(stood);
  });
  while (step.load() != 1) {
    std::this_thread::yield();
  }
  EXPECT_EQ(in_child([&] {
              if (step.load() != 2) {
                return 1;  // copied in the middle of it
              }
              const std::uint64_t out = zone->census().out();
              return out > 1 ? 2 : use_it_up(*zone, out);
            }),
            0);
  carrier.join();
  ASSERT_TRUE(is_page(of_carrier));
  zone->free(of_carrier, Order{0});
  EXPECT_EQ(zone->census().out(), 0U);
}

// Requests of the parent that wait in a shortage do not exist in the child: its shortage can end.
TEST(Fork, AShortageWithWaitersEndsInTheChild) {
  TestZone zone(1024);
  const std::vector<PageIndex> pages = take_all(*zone);
  ASSERT_EQ(pages.size(), 1024U);
  std::atomic<bool> stop{false};
  std::vector<std::thread> waiters;
  for (int t = 0; t < 2; ++t) {
    waiters.emplace_back([&] {
      while (!stop.load()) {
        EXPECT_EQ(zone->alloc(Order{0}, {}), kNoPage);
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(in_child([&] {
                test::outlast_shortage();
                free_all(*zone, pages);
                return zone->in_shortage() ? 2 : use_it_up(*zone, 0);
              }),
              0);
  }
  stop.store(true);
  for (std::thread& waiter : waiters) {
    waiter.join();
  }
  free_all(*zone, pages);
}

// While fork() holds all locks, a signal handler of the forking thread must not wait for them.
TEST(Fork, ASignalHandlerDuringAForkDoesNotWaitForIt) {
  if (!test::kCanInterrupt || test::kSanitized) {
    GTEST_SKIP() << "no single steps here";
  }
  TestZone zone(1024);
  const pid_t parent = ::getpid();
  const PageIndex stash = zone->alloc(Order{0}, {});
  std::atomic<int> handled{0};
  const auto fork_and_wait = [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      ::_exit(0);
    }
    int status = 0;
    while (::waitpid(child, &status, 0) != child) {
    }
  };
  ::alarm(200);
  test::interrupt_each(fork_and_wait, [&] {
    for (const unsigned order : {0U, 4U}) {
      const PageIndex page = zone->alloc(Order{order}, {});
      if (is_page(page)) {
        zone->free(page, Order{order});
      }
    }
    handled.fetch_add(::getpid() == parent ? 1 : 0);
  });
  ::alarm(0);
  EXPECT_GT(handled.load(), 100);
  zone->free(stash, Order{0});
  EXPECT_EQ(zone->census().out(), 0U);
}

// A thread was interrupted inside a list of one zone, and its handler uses another zone. The forking
// thread waits for that list: it must not hold what the handler needs.
TEST(Fork, AHandlerInsideOneZoneUsesAnotherDuringAFork) {
  WEIR_NEEDS_LISTS;
  if (!test::kCanInterrupt || !test::lists_can_be_stepped()) {
    GTEST_SKIP() << "no single steps here";
  }
  TestZone used(1024, 1, {.engine = EngineChoice::buddy});  // the other one serves handlers
  TestZone interrupted(1024, 1);
  std::vector<PageIndex> all = take_all(*used);
  PageIndex page = interrupted->alloc(Order{0}, {});
  ::alarm(60);
  std::atomic<int> step{0};
  std::thread thread([&] {
    const OnCpu cpu(0);
    bool stood = false;
    test::interrupt_each([&] { interrupted->free(page, Order{0}); },
                         [&] {
                           // A user inside a list bears one mark, a drainer or a slow path two.
                           if (stood || t_marked_sections != 1 || !test::list_held(*interrupted)) {
                             return;
                           }
                           stood = true;
                           step.store(1);
                           // Long enough for the other to run into this list.
                           const auto end =
                               std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
                           while (std::chrono::steady_clock::now() < end) {
                             ::sched_yield();
                           }
                           // It waits for nobody: what it gives is left for the next who may.
                           EXPECT_FALSE(is_page(used->alloc(Order{0}, {})));
                           used->free(all.back(), Order{0});
                           EXPECT_FALSE(is_page(used->alloc(Order{0}, {})));
                         });
    EXPECT_TRUE(stood);
  });
  while (step.load() != 1) {
    std::this_thread::yield();
  }
  EXPECT_EQ(in_child([&] {
              return used->census().out() == 1023 && interrupted->census().out() == 0 ? 0 : 1;
            }),
            0);
  thread.join();
  ::alarm(0);
  all.pop_back();
  free_all(*used, all);
}

// The handler of a thread that was interrupted inside a list forks. What the thread holds cannot be
// waited for: parent and child must both get on, the child perhaps without its zones.
TEST(Fork, AForkByAHandlerInsideAListComesBack) {
  WEIR_NEEDS_LISTS;
  if (!test::kCanInterrupt || !test::lists_can_be_stepped()) {
    GTEST_SKIP() << "no single steps here";
  }
  EXPECT_EQ(test::run_in_child([] {
              ::alarm(5);
              TestZone zone(1024, 1);
              const OnCpu cpu(0);
              const PageIndex page = zone->alloc(Order{0}, {});
              int status = -1;
              test::interrupt_each([&] { zone->free(page, Order{0}); },
                                   [&] {
                                     if (status != -1 || !test::list_held(*zone)) {
                                       return;
                                     }
                                     const pid_t child = ::fork();
                                     if (child == 0) {
                                       ::alarm(5);
                                       const PageIndex one = zone->alloc(Order{0}, {});
                                       if (is_page(one)) {
                                         zone->free(one, Order{0});
                                       }
                                       ::_exit(7);
                                     }
                                     while (::waitpid(child, &status, 0) != child) {
                                     }
                                   });
              if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) {
                return 1;
              }
              return zone->census().out() == 0 && !zone->drain_all().failed() ? 0 : 2;
            }),
            0);
}

// ---- shared memory -------------------------------------------------------------------------------

struct SharedZone {
  explicit SharedZone(std::uint64_t frames) {
    auto source = std::make_unique<MemfdSource>(system_memory(), ThpChoice::off);
    Result<Extent> extent = source->obtain(bytes(PageCount{frames}));
    Result<CachedZone*> opened = zone_registry::open(source.get(), {extent.value()}, {}, 2);
    static_cast<void>(source.release());
    zone = opened.value();
  }
  ~SharedZone() { EXPECT_EQ(zone->retire(), 0U); }
  CachedZone* zone = nullptr;
};

TEST(Fork, AZoneOnSharedMemoryIsNotTheChilds) {
  SharedZone shared(1024);
  CachedZone& zone = *shared.zone;
  const PageIndex page = zone.alloc(Order{0}, {});
  *address_of(page) = std::byte{7};
  const std::vector<PageIndex> more = {zone.alloc(Order{3}, {}), zone.alloc(Order{6}, {})};
  const std::uint64_t out = zone.census().out();
  EXPECT_EQ(in_child([&] {
              if (!zone.detached()) {
                return 1;
              }
              for (unsigned order = 0; order <= kMaxOrderValue; ++order) {
                if (is_page(zone.alloc(Order{order}, {.reserve = true}))) {
                  return 2;
                }
              }
              PageIndex bulk[100];
              if (zone.alloc_bulk(bulk, 100, {}) != 0) {
                return 3;
              }
              zone.free(page, Order{0});
              zone.free(more[0], Order{3});
              zone.free_bulk(&page, 1);
              zone.free_to_engine(more[1], Order{6});
              if (zone.drain_all().failed() || zone.census().out() != out) {
                return 4;
              }
              if (*address_of(page) != std::byte{7}) {
                return 5;
              }
              *address_of(page) = std::byte{8};  // the memory is one and the same
              static_cast<void>(zone.retire());
              return 0;
            }),
            0);
  EXPECT_FALSE(zone.detached());
  EXPECT_EQ(*address_of(page), std::byte{8});
  EXPECT_EQ(zone.census().out(), out);
  zone.free(page, Order{0});
  zone.free(more[0], Order{3});
  zone.free(more[1], Order{6});
  EXPECT_EQ(zone.drain_all().code, Errc::ok);
  EXPECT_EQ(zone.zone().audit(), 1024U);
}

TEST(Fork, TheChildOfSharedZonesIsToldOnce) {
  const SharedZone one(64);
  const SharedZone two(64);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  const int status = in_child([&] {
    for (int i = 0; i < 3; ++i) {
      if (is_page(one.zone->alloc(Order{0}, {})) || is_page(two.zone->alloc(Order{0}, {}))) {
        return 1;
      }
    }
    return 0;
  });
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  ::close(ends[1]);
  char text[1000] = {};
  const ssize_t length = ::read(ends[0], text, sizeof text - 1);
  ::close(ends[0]);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(std::string(text, static_cast<std::size_t>(length < 0 ? 0 : length)),
            "weir: notice: zones on shared memory are not usable in a forked child\n");
}

}  // namespace
}  // namespace weir
