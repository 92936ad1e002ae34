// SPDX-License-Identifier: MIT
// fork(2) while weir is at work: by two threads at once, by signal handlers that interrupted weir,
// beside handlers that use weir, and what a child can do that was forked in such a place. Each case runs
// in a child process that ends itself when it hangs. Calls page/page_allocator, percpu/zone_registry.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <exception>
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
using test::TestZone;
using Clock = std::chrono::steady_clock;

// How a child ended: its exit status, or 128 + signal.
int status_of(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A fork as by a signal handler that interrupted a marked section.
pid_t marked_fork() {
  const ThreadMark mark;
  return ::fork();
}

int fork_and_wait(pid_t (*forks)()) {
  const pid_t child = forks();
  if (child == 0) {
    ::_exit(0);
  }
  return child < 0 ? -1 : status_of(child);
}

// Waits without blocking signals; false after two seconds.
bool wait_for(const std::atomic<int>& step, int value) {
  const auto end = Clock::now() + std::chrono::seconds(2);
  while (step.load() < value) {
    if (Clock::now() > end) {
      return false;
    }
    ::sched_yield();
  }
  return true;
}

// ---- two at once ---------------------------------------------------------------------------------

// What a thread does between weir's preparations for its fork and the fork. Registered before main(), so
// before weir's own handlers, and called after them.
thread_local const std::function<void()>* t_prepared = nullptr;
void on_prepared() {
  if (t_prepared != nullptr) {
    (*t_prepared)();
  }
}
const int g_registered = ::pthread_atfork(&on_prepared, nullptr, nullptr);

// Both threads are inside fork(), one of them as from a handler inside weir; that one prepared first or
// second, and ends second or first.
int two_forks(bool marked_begins) {
  TestZone zone(1024);
  zone->free(zone->alloc(Order{0}, {}), Order{0});
  std::atomic<int> step{0};
  std::atomic<int> bad{0};
  const auto fork_with = [&](pid_t (*forks)(), const std::function<void()>& prepared) {
    t_prepared = &prepared;
    if (fork_and_wait(forks) != 0) {
      bad.fetch_add(1);
    }
    t_prepared = nullptr;
  };
  const std::function<void()> first_prepared = [&] {
    step.store(1);
    if (!wait_for(step, 2)) {
      bad.fetch_add(1);
    }
  };
  const std::function<void()> second_prepared = [&] {
    step.store(2);
    if (!wait_for(step, 3)) {
      bad.fetch_add(1);
    }
  };
  const auto first = [&](pid_t (*forks)()) {
    fork_with(forks, first_prepared);
    step.store(3);
  };
  const auto second = [&](pid_t (*forks)()) {
    if (!wait_for(step, 1)) {
      bad.fetch_add(1);
    }
    fork_with(forks, second_prepared);
  };
  std::thread other([&] {
    if (marked_begins) {
      first(&marked_fork);
    } else {
      second(&marked_fork);
    }
  });
  if (marked_begins) {
    second(&::fork);
  } else {
    first(&::fork);
  }
  other.join();
  // Neither left a lock behind, nor took away one.
  const PageIndex page = zone->alloc(Order{4}, {});
  zone->free(page, Order{4});
  const bool drained = !zone->drain_all().failed();
  return bad.load() == 0 && drained && zone_registry::count() == 1 && fork_and_wait(&::fork) == 0
             ? 0
             : 2;
}

TEST(Forks, OfTwoThreadsAtOnceOneInsideWeirThatCameFirst) {
  ASSERT_EQ(g_registered, 0);
  if (test::kSanitized) {
    GTEST_SKIP() << "the sanitizer's own preparations do not let two threads in";
  }
  EXPECT_EQ(test::run_in_child_or_hang([] { return two_forks(true); }), 0);
}

TEST(Forks, OfTwoThreadsAtOnceOneInsideWeirThatCameSecond) {
  ASSERT_EQ(g_registered, 0);
  if (test::kSanitized) {
    GTEST_SKIP() << "the sanitizer's own preparations do not let two threads in";
  }
  EXPECT_EQ(test::run_in_child_or_hang([] { return two_forks(false); }), 0);
}

// The same by chance, the handler being a real one.
void fork_in_handler(int) {
  const int saved = errno;
  static_cast<void>(fork_and_wait(&::fork));
  errno = saved;
}

TEST(Forks, OfAThreadAndOfAHandlerOfAnother) {
  if (test::kSanitized) {
    GTEST_SKIP() << "a sanitizer's allocator cannot be forked from a handler";
  }
  EXPECT_EQ(test::run_in_child_or_hang([] {
              TestZone zone(4096);
              sigset_t usr1;
              sigemptyset(&usr1);
              sigaddset(&usr1, SIGUSR1);
              ::pthread_sigmask(SIG_BLOCK, &usr1, nullptr);
              struct sigaction action {};
              action.sa_handler = &fork_in_handler;
              ::sigaction(SIGUSR1, &action, nullptr);
              std::atomic<bool> stop{false};
              std::thread user([&] {
                ::pthread_sigmask(SIG_UNBLOCK, &usr1, nullptr);
                while (!stop.load()) {
                  const PageIndex page = zone->alloc(Order{4}, {});
                  if (is_page(page)) {
                    zone->free(page, Order{4});
                  }
                }
                ::pthread_sigmask(SIG_BLOCK, &usr1, nullptr);
              });
              std::thread sender([&] {
                while (!stop.load()) {
                  ::pthread_kill(user.native_handle(), SIGUSR1);
                  std::this_thread::sleep_for(std::chrono::microseconds(500));
                }
              });
              int bad = 0;
              const auto end = Clock::now() + std::chrono::milliseconds(1200);
              while (Clock::now() < end) {
                bad += fork_and_wait(&::fork) == 0 ? 0 : 1;
              }
              stop.store(true);
              sender.join();
              user.join();
              return bad == 0 && zone->census().out() == 0 ? 0 : 2;
            }),
            0);
}

// ---- handlers that use weir ----------------------------------------------------------------------

// A thread is interrupted inside a list of one zone and its handler works with another, while a third
// party forks: it holds what it has locked of the one zone while it waits for the other's list.
int handler_beside_a_fork(CachedZone& interrupted, CachedZone& used) {
  const PageIndex page = interrupted.alloc(Order{0}, {});
  std::atomic<int> step{0};
  bool stood = false;
  std::thread user([&] {
    const OnCpu cpu(0);
    test::interrupt_each([&] { interrupted.free(page, Order{0}); },
                         [&] {
                           if (stood || !test::list_held(interrupted)) {
                             return;
                           }
                           stood = true;
                           step.store(1);
                           // Meanwhile the other runs into this list.
                           const auto end = Clock::now() + std::chrono::milliseconds(15);
                           while (Clock::now() < end) {
                             for (const unsigned order : {0U, 4U}) {
                               const PageIndex one = used.alloc(Order{order}, {});
                               if (is_page(one)) {
                                 used.free(one, Order{order});
                               }
                             }
                           }
                         });
    step.store(2);
  });
  const bool came = wait_for(step, 1);
  const int status = fork_and_wait(&::fork);
  user.join();
  return came && stood && status == 0 && used.census().out() == 0 && interrupted.census().out() == 0
             ? 0
             : 2;
}

TEST(Forks, BesideAHandlerInsideAListOfOneZoneThatUsesAnother) {
  WEIR_NEEDS_LISTS;
  if (!test::kCanInterrupt || !test::lists_can_be_stepped() || test::kSanitized) {
    GTEST_SKIP() << "no single steps here";
  }
  EXPECT_EQ(test::run_in_child_or_hang([] {
              TestZone one(1024, 1);
              TestZone two(1024, 1);
              for (int round = 0; round < 10; ++round) {
                const int first = handler_beside_a_fork(*one, *two);
                const int second = handler_beside_a_fork(*two, *one);
                if (first != 0 || second != 0) {
                  return 2;
                }
              }
              return 0;
            }),
            0);
}

// A thread is interrupted inside a list; its handler gives and takes whole clusters through the depot
// while another thread empties lists and depot, and waits for that list.
int handler_beside_a_drainer() {
  constexpr std::uint64_t kFrames = 2048;
  TestZone zone(kFrames, 2);
  CachedZone& cached = *zone;
  std::atomic<int> step{0};
  bool stood = false;
  std::thread user([&] {
    const OnCpu cpu(0);
    std::vector<PageIndex> pages(256);
    pages.resize(cached.alloc_bulk(pages.data(), pages.size(), {}));
    const PageIndex page = pages.back();
    pages.pop_back();
    free_all(cached, pages);  // some are in the depot now
    test::interrupt_each([&] { cached.free(page, Order{0}); },
                         [&] {
                           if (stood || !test::list_held(cached)) {
                             return;
                           }
                           stood = true;
                           step.store(1);
                           Page* cluster[kClusterFrames];
                           auto end = Clock::now() + std::chrono::seconds(1);
                           while (Clock::now() < end) {
                             const std::size_t n = cached.alloc_bulk(cluster, kClusterFrames, {});
                             cached.free_bulk(cluster, n);
                             if (step.load() == 2) {
                               step.store(3);
                               end = Clock::now() + std::chrono::milliseconds(3);
                             }
                           }
                         });
  });
  const bool came = wait_for(step, 1);
  step.store(2);
  std::vector<Page*> too_many(kFrames + 1);
  const bool served = cached.alloc_exactly(too_many.data(), too_many.size(), {});
  user.join();
  return came && stood && !served && cached.census().out() == 0 ? 0 : 2;
}

TEST(Forks, AHandlerInsideAListMayUseTheDepotBesideADrainer) {
  WEIR_NEEDS_LISTS;
  WEIR_NEEDS_CPUS(2);
  if (!test::kCanInterrupt || !test::lists_can_be_stepped()) {
    GTEST_SKIP() << "no single steps here";
  }
  EXPECT_EQ(test::run_in_child_or_hang([] {
              const OnCpu cpu(1);
              for (int round = 0; round < 30; ++round) {
                if (handler_beside_a_drainer() != 0) {
                  return 2;
                }
              }
              return 0;
            }),
            0);
}

// ---- children of handlers inside weir ------------------------------------------------------------

// Everything a child without usable zones may try. Returns 0, or what went wrong.
int go_on_without_zones(std::unique_ptr<PageAllocator>& pages, PageIndex held) {
  CachedZone& zone = pages->zone();
  for (unsigned order = 0; order <= kMaxOrderValue; ++order) {
    if (is_page(zone.alloc(Order{order}, {}))) {
      return 10;
    }
  }
  Page* some[8];
  if (pages->alloc_exactly(some) || pages->alloc_burst(some) != 0) {
    return 11;
  }
  zone.free(held, Order{4});
  pages->tick();
  static_cast<void>(pages->drain_all());
  static_cast<void>(pages->drain(CpuId{0}));
  if (zone_registry::count() == 0) {
    return 12;
  }
  pages.reset();  // ends the allocator
  try {
    const PageAllocator fresh{Options{.capacity = 1_MiB}};
    return 13;
  } catch (const std::exception&) {
    return 0;
  }
}

struct Inside {
  const char* what;
  std::function<void(PageAllocator&)> work;
};

std::vector<Inside> places_inside() {
  std::vector<Inside> places = {
      {"a drain", [](PageAllocator& pages) { static_cast<void>(pages.drain_all()); }},
      {"a tick", [](PageAllocator& pages) { pages.tick(); }},
      {"the engine",
       [](PageAllocator& pages) {
         const PageIndex page = pages.zone().alloc_slow(Order{5}, {});
         if (is_page(page)) {
           pages.zone().free_to_engine(page, Order{5});
         }
       }},
      {"a request for too much",
       [](PageAllocator& pages) {
         std::vector<Page*> many(pages.effective().managed.value + 1);
         static_cast<void>(pages.alloc_exactly(many));
       }},
  };
  return places;
}

// The handler's own thread: the child goes on with what was interrupted, then with all the rest.
TEST(Forks, TheChildOfAHandlerInsideWeirGoesOn) {
  if (!test::kCanInterrupt || test::kSanitized) {
    GTEST_SKIP() << "no single steps here";
  }
  for (const Inside& place : places_inside()) {
    EXPECT_EQ(test::run_in_child_or_hang([&] {
                auto pages = std::make_unique<PageAllocator>(Options{.capacity = 4_MiB});
                const PageIndex held = pages->zone().alloc(Order{4}, {});
                place.work(*pages);
                const std::uint64_t steps =
                    test::interrupt_each([&] { place.work(*pages); }, [] {});
                for (std::uint64_t k = 1; k < steps; k += 1 + steps / 6) {
                  pid_t child = -1;
                  static_cast<void>(test::interrupt_at(
                      k, [&] { place.work(*pages); },
                      [&] {
                        if (thread_is_marked()) {
                          child = ::fork();
                        }
                      }));
                  if (child == 0) {
                    ::alarm(15);
                    ::_exit(go_on_without_zones(pages, held));
                  }
                  if (const int status = child < 0 ? 0 : status_of(child); status != 0) {
                    return status;
                  }
                }
                pages->zone().free(held, Order{4});
                return 0;
              }),
              0)
        << place.what;
  }
}

// Another thread was in the middle of something and does not exist in the child.
TEST(Forks, TheChildOfAHandlerInsideWeirDoesNotWaitForOtherThreads) {
  if (!test::kCanInterrupt || test::kSanitized) {
    GTEST_SKIP() << "no single steps here";
  }
  std::vector<Inside> places = places_inside();
  places.push_back({"the making of a zone", [](PageAllocator&) { const TestZone zone(64, 1); }});
  for (const Inside& place : places) {
    EXPECT_EQ(test::run_in_child_or_hang([&] {
                auto pages = std::make_unique<PageAllocator>(Options{.capacity = 4_MiB});
                const PageIndex held = pages->zone().alloc(Order{4}, {});
                place.work(*pages);
                const std::uint64_t steps =
                    test::interrupt_each([&] { place.work(*pages); }, [] {});
                for (std::uint64_t k = 1; k < steps; k += 1 + steps / 6) {
                  std::atomic<int> step{0};
                  std::thread other([&] {
                    static_cast<void>(test::interrupt_at(
                        k, [&] { place.work(*pages); },
                        [&] {
                          step.store(1);
                          // It may hold the C library's locks too.
                          const auto end = Clock::now() + std::chrono::milliseconds(100);
                          while (step.load() == 1 && Clock::now() < end) {
                            ::sched_yield();
                          }
                        }));
                    step.store(2);
                  });
                  static_cast<void>(wait_for(step, 1));
                  const pid_t child = marked_fork();
                  if (child == 0) {
                    ::alarm(15);
                    ::_exit(go_on_without_zones(pages, held));
                  }
                  step.store(2);
                  other.join();
                  if (const int status = status_of(child); status != 0) {
                    return status;
                  }
                }
                pages->zone().free(held, Order{4});
                return 0;
              }),
              0)
        << place.what;
  }
}

}  // namespace
}  // namespace weir
