// SPDX-License-Identifier: MIT
// What a signal handler may do that interrupts weir at any instruction: take, give back, drain. It
// may be refused, it never waits for what it has interrupted, and nothing is lost or handed out twice.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/interrupt.hpp"
#include "tests/support/side_table.hpp"
#include "tests/support/zones.hpp"
#include "weir/percpu/cached_zone.hpp"

namespace weir {
namespace {

using test::free_all;
using test::interrupt_at;
using test::OnCpu;
using test::SideTable;
using test::take_all;
using test::TestZone;

// The process ends, with a name for it, when a handler waits for what it has interrupted.
class Deadline {
 public:
  explicit Deadline(unsigned seconds) { ::alarm(seconds); }
  ~Deadline() { ::alarm(0); }
};

// Interrupts `body` once a run: a short one after every instruction, a long one at as many places as
// time allows. `before` makes the same state for each run, `after` judges it.
void everywhere(const std::function<void()>& before, const std::function<void()>& body,
                const std::function<void()>& handler, const std::function<void()>& after) {
  const Deadline deadline(200);
  before();
  const std::uint64_t length = test::interrupt_each(body, [] {});
  after();
  constexpr std::uint64_t kBudget = 60'000;  // instructions stepped in all
  const std::uint64_t stride = 1 + length * length / 2 / kBudget;
  for (std::uint64_t k = 1; !testing::Test::HasFailure(); k += stride) {
    before();
    const bool reached = interrupt_at(k, body, handler);
    after();
    if (!reached) {
      break;
    }
  }
}

struct Signals : testing::Test {
  void SetUp() override {
    WEIR_NEEDS_LISTS;
    WEIR_NEEDS_CPUS(2);
    if (!test::kCanInterrupt || !test::lists_can_be_stepped()) {
      GTEST_SKIP() << "no single steps here";
    }
  }
};

// ---- with plenty of memory -----------------------------------------------------------------------

// The handler takes a page, gives it back and gives back one that was taken before.
TEST_F(Signals, TakeAndGiveInsideEveryCall) {
  const OnCpu cpu(0);
  TestZone zone(4096);
  SideTable table(zone.first(), 4096);
  std::vector<std::pair<PageIndex, Order>> live;
  const auto took = [&](PageIndex page, Order order) {
    if (is_page(page)) {
      table.took(page, order);
      live.emplace_back(page, order);
    }
  };
  const auto give_back = [&] {
    for (const auto& [page, order] : live) {
      table.gave(page, order);
      zone->free(page, order);
    }
    live.clear();
  };
  std::vector<PageIndex> pages(400);
  // In the handler: pages taken now, and one that was taken by the handler before.
  PageIndex stash = kNoPage;
  const auto handler = [&] {
    for (const unsigned order : {0U, 2U}) {
      const PageIndex page = zone->alloc(Order{order}, {});
      if (is_page(page)) {
        table.took(page, Order{order});
        table.gave(page, Order{order});
        zone->free(page, Order{order});
      }
    }
    if (is_page(stash)) {
      table.gave(stash, Order{0});
      zone->free(stash, Order{0});
    }
    stash = zone->alloc(Order{0}, {});
    if (is_page(stash)) {
      table.took(stash, Order{0});
    }
  };
  const auto after = [&] {
    if (is_page(stash)) {
      table.gave(stash, Order{0});
      zone->free(std::exchange(stash, kNoPage), Order{0});
    }
    ASSERT_EQ(table.violations(), 0U) << table.report();
    ASSERT_EQ(zone->census().out(), table.live_frames());
    give_back();
  };
  const auto drained = [&] { ASSERT_EQ(zone->drain_all().code, Errc::ok); };
  // A list that is as full as it can be.
  const auto full = [&] {
    ASSERT_EQ(zone->alloc_bulk(pages.data(), 400, {}), 400U);
    zone->free_bulk(pages.data(), 200);
    for (std::size_t i = 200; i < 400; ++i) {
      took(pages[i], Order{0});
    }
    while (zone->lists().cached(0) < zone->lists().capacity(0)) {
      table.gave(live.back().first, Order{0});
      zone->free(live.back().first, Order{0});
      live.pop_back();
    }
  };

  struct Case {
    const char* name;
    std::function<void()> before;
    std::function<void()> body;
  };
  const auto give_last = [&] {
    table.gave(live.back().first, live.back().second);
    zone->free(live.back().first, live.back().second);
    live.pop_back();
  };
  const Case cases[] = {
      {"pop", [&] { zone->free(zone->alloc(Order{0}, {}), Order{0}); },
       [&] { took(zone->alloc(Order{0}, {}), Order{0}); }},
      {"push", [&] { took(zone->alloc(Order{0}, {}), Order{0}); }, give_last},
      {"refill", drained, [&] { took(zone->alloc(Order{0}, {}), Order{0}); }},
      {"spill", full, give_last},
      {"order 3", drained, [&] { took(zone->alloc(Order{3}, {}), Order{3}); }},
      {"order 6", drained, [&] { took(zone->alloc(Order{6}, {}), Order{6}); }},
      {"give of order 6", [&] { took(zone->alloc(Order{6}, {}), Order{6}); }, give_last},
      {"bulk of 100", drained,
       [&] {
         const std::size_t n = zone->alloc_bulk(pages.data(), 100, {});
         for (std::size_t i = 0; i < n; ++i) {
           took(pages[i], Order{0});
         }
       }},
      {"give of a bulk into a full list", full,
       [&] {
         std::size_t n = 0;
         while (n < 90) {
           table.gave(live.back().first, Order{0});
           pages[n++] = live.back().first;
           live.pop_back();
         }
         zone->free_bulk(pages.data(), n);
       }},
      {"drain", full, [&] { static_cast<void>(zone->drain_all()); }},
  };
  const Deadline deadline(200);
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    one.before();
    EXPECT_GT(test::interrupt_each(one.body, handler), 20U);
    after();
    if (HasFailure()) {
      break;
    }
  }
  EXPECT_EQ(zone->drain_all().code, Errc::ok);
  EXPECT_EQ(zone->zone().audit(), 4096U);
}

TEST_F(Signals, ADrainInAHandlerDrainsOrSaysThatItCannot) {
  const OnCpu cpu(0);
  TestZone zone(4096);
  PageIndex page = kNoPage;
  Errc answer = Errc::ok;
  bool ran = false;
  everywhere(
      [&] {
        ran = false;
        PageIndex pages[128];
        ASSERT_EQ(zone->alloc_bulk(pages, 128, {}), 128U);
        for (const PageIndex one : pages) {
          zone->free(one, Order{0});
        }
        ASSERT_EQ(zone->lists().cached(0), 128U);
      },
      [&] { page = zone->alloc(Order{0}, {}); },
      [&] {
        answer = zone->drain(CpuId{0}).code;
        ran = true;
      },
      [&] {
        ASSERT_TRUE(is_page(page));
        if (ran && answer == Errc::ok) {
          // After it there may have been a refill, of 63; what was there is gone.
          ASSERT_LT(zone->lists().cached(0), 64U);
        } else if (ran) {
          ASSERT_EQ(answer, Errc::would_block);
        }
        zone->free(page, Order{0});
        ASSERT_EQ(zone->drain_all().code, Errc::ok);
        ASSERT_EQ(zone->zone().free_pages(), 4096U);
      });
  // Where the list itself is interrupted, at every such instruction: strides may miss all of them.
  page = kNoPage;
  int inside = 0;
  int told = 0;
  test::interrupt_each([&] { page = zone->alloc(Order{0}, {}); },
                       [&] {
                         if (t_marked_sections == 1 && test::list_held(*zone)) {
                           ++inside;
                           told += zone->drain(CpuId{0}).code == Errc::would_block ? 1 : 0;
                         }
                       });
  zone->free(page, Order{0});
  EXPECT_GT(inside, 0);
  EXPECT_EQ(told, inside);
}

// ---- at exhaustion -------------------------------------------------------------------------------

// A zone where nothing is free but some frames on the running list of CPU 0.
struct NearlyExhausted {
  static constexpr std::uint64_t kAll = 1024;

  TestZone zone{kAll};
  std::vector<PageIndex> live;

  void prepare() {
    const OnCpu cpu(0);
    PageIndex listed[40];
    ASSERT_EQ(zone->drain_all().code, Errc::ok);
    ASSERT_EQ(zone->zone().free_pages(), kAll);
    ASSERT_FALSE(zone->in_shortage());
    ASSERT_EQ(zone->alloc_bulk(listed, 40, {}), 40U);
    ASSERT_EQ(zone->drain_all().code, Errc::ok);
    for (PageIndex page = zone->zone().take(Order{0}, false); page != kNoPage;
         page = zone->zone().take(Order{0}, false)) {
      live.push_back(page);
    }
    for (const PageIndex page : listed) {
      zone->free(page, Order{0});
    }
    ASSERT_EQ(zone->lists().cached(0), 40U);
    ASSERT_FALSE(zone->in_shortage());
  }
  // Everything that is not live must be there for whoever asks on another CPU.
  void judge() {
    const std::uint64_t out = live.size();
    ASSERT_EQ(zone->census().out(), out);
    {
      const OnCpu cpu(1);
      const std::vector<PageIndex> rest = take_all(*zone);
      EXPECT_EQ(rest.size() + out, kAll);
      free_all(*zone, rest);
    }
    test::outlast_shortage();
    free_all(*zone, std::exchange(live, {}));
  }
  void give_one() {
    const PageIndex page = live.back();
    live.pop_back();
    zone->free(page, Order{0});
  }
  void take_one() {
    const PageIndex page = zone->alloc(Order{0}, {});
    if (is_page(page)) {
      live.push_back(page);
    }
  }
};

TEST_F(Signals, NoFrameIsOutOfReachAfterARefusalInAHandler) {
  NearlyExhausted state;
  PageIndex in_handler = kNoPage;
  struct Case {
    const char* name;
    std::uint32_t cpu;
    std::function<void()> body;
  };
  const Case cases[] = {
      {"give", 0, [&] { state.give_one(); }},
      {"take", 0, [&] { state.take_one(); }},
      {"take that enters shortage", 1, [&] { state.take_one(); }},
  };
  for (const Case& one : cases) {
    for (const unsigned order : {0U, 1U, 6U}) {
      SCOPED_TRACE(testing::Message() << one.name << ", handler takes order " << order);
      everywhere(
          [&] {
            in_handler = kNoPage;
            state.prepare();
          },
          [&] {
            const OnCpu cpu(one.cpu);
            one.body();
          },
          [&] { in_handler = state.zone->alloc(Order{order}, {}); },
          [&] {
            if (is_page(in_handler)) {
              state.zone->free(in_handler, Order{order});
            }
            state.judge();
          });
    }
  }
}

// The handler frees enough to end a shortage while the thread is inside a list.
TEST_F(Signals, AShortageThatAHandlerWantsToEndEndsWholeOrNotAtAll) {
  TestZone zone(1024);
  std::vector<PageIndex> of_thread;
  std::vector<PageIndex> of_handler;
  std::vector<PageIndex> bulk(256);
  std::size_t taken = 0;
  everywhere(
      [&] {
        const OnCpu cpu(0);
        of_thread = take_all(*zone);
        ASSERT_EQ(of_thread.size(), 1024U);
        ASSERT_TRUE(zone->in_shortage());
        of_handler.assign(of_thread.end() - 300, of_thread.end());
        of_thread.resize(1024 - 300);
        test::outlast_shortage();
      },
      [&] {
        const OnCpu cpu(0);
        taken = zone->alloc_bulk(bulk.data(), 256, {});
      },
      [&] {
        const OnCpu cpu(0);
        free_all(*zone, std::exchange(of_handler, {}));
      },
      [&] {
        // Some of it comes back on the other CPU: wherever it goes there, it must be found from here.
        {
          const OnCpu cpu(1);
          const std::size_t back = std::min<std::size_t>(taken, 10);
          free_all(*zone, {bulk.begin(), bulk.begin() + static_cast<std::ptrdiff_t>(back)});
          of_thread.insert(of_thread.end(), bulk.begin() + static_cast<std::ptrdiff_t>(back),
                           bulk.begin() + static_cast<std::ptrdiff_t>(taken));
        }
        const OnCpu cpu(0);
        const std::uint64_t out = of_thread.size() + of_handler.size();
        ASSERT_EQ(zone->census().out(), out);
        const std::vector<PageIndex> rest = take_all(*zone);
        EXPECT_EQ(rest.size() + out, 1024U);
        free_all(*zone, rest);
        free_all(*zone, std::exchange(of_handler, {}));
        free_all(*zone, std::exchange(of_thread, {}));
        ASSERT_EQ(zone->drain_all().code, Errc::ok);
        ASSERT_EQ(zone->zone().free_pages(), 1024U);
      });
}

// Another thread drains: it waits for the list that this thread was interrupted in. The handler
// must not wait for that other thread.
TEST_F(Signals, AHandlerInsideAListDoesNotWaitForADrainer) {
  const Deadline deadline(100);
  NearlyExhausted state;
  std::atomic<int> round{0};
  std::atomic<int> done{0};
  std::atomic<bool> stop{false};
  std::thread drainer([&] {
    for (int seen = 0; !stop.load();) {
      if (const int now = round.load(); now != seen) {
        seen = now;
        static_cast<void>(state.zone->drain_all());
        done.store(seen);
      }
      std::this_thread::yield();
    }
  });
  // Every instruction inside the list, and some of the others: each costs a drain.
  std::vector<std::uint64_t> places;
  state.prepare();
  {
    const OnCpu cpu(0);
    std::uint64_t k = 0;
    std::vector<std::uint64_t> inside;
    inside.reserve(10'000);  // a handler allocates nothing
    const std::uint64_t length = test::interrupt_each(
        [&] { state.give_one(); },
        [&] {
          ++k;
          if (test::list_held(*state.zone) && inside.size() < inside.capacity()) {
            inside.push_back(k);
          }
        });
    constexpr std::uint64_t kPlaces = 300;
    for (std::uint64_t at = 1; at <= length; at += 1 + length / kPlaces) {
      places.push_back(at);
    }
    for (std::size_t i = 0; i < inside.size(); i += 1 + inside.size() / kPlaces) {
      places.push_back(inside[i]);
    }
  }
  state.judge();
  int late = 0;
  for (const std::uint64_t k : places) {
    state.prepare();
    const OnCpu cpu(0);
    static_cast<void>(interrupt_at(
        k, [&] { state.give_one(); },
        [&] {
          const int now = round.fetch_add(1) + 1;
          // As long as a drain takes that waits for nobody.
          const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(3);
          while (done.load() != now && std::chrono::steady_clock::now() < end) {
            std::this_thread::yield();
          }
          late += done.load() != now ? 1 : 0;
          EXPECT_FALSE(is_page(state.zone->alloc(Order{9}, {})));
          static_cast<void>(state.zone->drain(CpuId{1}));
        }));
    while (done.load() != round.load()) {
      std::this_thread::yield();
    }
    state.judge();
  }
  stop.store(true);
  drainer.join();
  EXPECT_GT(late, 0);  // some instructions are inside the list
}

// ---- at random moments ---------------------------------------------------------------------------

struct Hammer {
  TestZone zone{2048};
  SideTable table{zone.first(), 2048};
  std::atomic<std::uint64_t> handled{0};
  std::atomic<std::uint64_t> refused{0};
};
Hammer* g_hammer = nullptr;

void on_timer(int) {
  Hammer& hammer = *g_hammer;
  for (const unsigned order : {0U, 0U, 1U, 4U}) {
    const PageIndex page = hammer.zone->alloc(Order{order}, {});
    if (!is_page(page)) {
      hammer.refused.fetch_add(1);
      continue;
    }
    hammer.table.took(page, Order{order});
    hammer.table.gave(page, Order{order});
    hammer.zone->free(page, Order{order});
  }
  hammer.handled.fetch_add(1);
}

void hammer_under_a_timer() {
  const Deadline deadline(100);
  Hammer hammer;
  g_hammer = &hammer;
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = &on_timer;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR1, &action, &before);
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGUSR1;
  timer_t timer{};
  ASSERT_EQ(::timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
  // An odd period, so that it does not fall in step with the loop.
  itimerspec every{};
  every.it_interval.tv_nsec = 37'003;
  every.it_value.tv_nsec = 37'003;

  std::mt19937 random(11);
  std::vector<std::pair<PageIndex, Order>> live;
  std::vector<PageIndex> buffer(200);
  ASSERT_EQ(::timer_settime(timer, 0, &every, nullptr), 0);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (std::uint64_t step = 0; std::chrono::steady_clock::now() < end; ++step) {
    switch (random() % 16) {
      case 0:
        static_cast<void>(hammer.zone->drain_all());
        break;
      case 1: {
        const std::size_t n = hammer.zone->alloc_bulk(buffer.data(), random() % 200, {});
        for (std::size_t i = 0; i < n; ++i) {
          hammer.table.took(buffer[i], Order{0});
          live.emplace_back(buffer[i], Order{0});
        }
        break;
      }
      case 2: {
        std::size_t n = 0;
        while (!live.empty() && live.back().second == Order{0} && n < 200) {
          hammer.table.gave(live.back().first, Order{0});
          buffer[n++] = live.back().first;
          live.pop_back();
        }
        hammer.zone->free_bulk(buffer.data(), n);
        break;
      }
      default: {
        const bool take = random() % 100 < (step / 3000 % 2 == 0 ? 65U : 35U);
        if (take || live.empty()) {
          const Order order{static_cast<unsigned>(random() % 8 == 0 ? random() % 11 : 0)};
          const PageIndex page = hammer.zone->alloc(order, {});
          if (is_page(page)) {
            hammer.table.took(page, order);
            live.emplace_back(page, order);
          }
        } else {
          std::swap(live[random() % live.size()], live.back());
          hammer.table.gave(live.back().first, live.back().second);
          hammer.zone->free(live.back().first, live.back().second);
          live.pop_back();
        }
      }
    }
  }
  ::timer_delete(timer);
  ::sigaction(SIGUSR1, &before, nullptr);
  EXPECT_GT(hammer.handled.load(), 100U);
  EXPECT_EQ(hammer.table.violations(), 0U) << hammer.table.report();
  EXPECT_EQ(hammer.zone->census().out(), hammer.table.live_frames());
  for (const auto& [page, order] : live) {
    hammer.table.gave(page, order);
    hammer.zone->free(page, order);
  }
  EXPECT_EQ(hammer.zone->drain_all().code, Errc::ok);
  EXPECT_EQ(hammer.zone->zone().audit(), 2048U);
  EXPECT_EQ(hammer.zone->zone().free_blocks(kMaxOrder), 2U);
  g_hammer = nullptr;
}

TEST(SignalsAtRandom, ATimerHandlerTakesAndGivesWhileTheThreadDoesEverything) {
  hammer_under_a_timer();
}

TEST(SignalsAtRandom, TheSameWithOneCpuInTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(::sched_getcpu(), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  hammer_under_a_timer();
  ::sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace weir
