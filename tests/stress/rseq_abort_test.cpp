// SPDX-License-Identifier: MIT
// Every restartable section, interrupted at each of its instructions. A section is first run one
// instruction at a time on an area the kernel does not know, which shows where its instructions
// begin. Then, at each of these places in turn, a breakpoint stops the real thing: the signal makes
// the kernel abort it, and the handler changes the list under it in every way there is, before it
// begins again. Afterwards a book of all entries says whether one was lost or doubled, and the
// contract (support/list_steps.hpp) what the list must look like.
#include <gtest/gtest.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/list_steps.hpp"
#include "tests/support/process.hpp"
#include "tests/support/section_table.hpp"
#include "tests/support/single_step.hpp"
#include "weir/os/list_mode.hpp"
#include "weir/percpu/page_lists.hpp"

namespace weir {
namespace {

using test::ListAt;
using test::ListCopy;
using test::PrivateArea;
using test::SectionDescriptor;
using test::Step;
using test::StepKind;

// Sections of their own for the thread under test: breakpoints in them stop nobody else.
template <class Place>
struct Tested : Place {};
// For everybody else.
template <class Place>
struct Others : Place {};

constexpr unsigned kSmallList = 2;  // order 2: a ring of 32
constexpr unsigned kLists[] = {0, kSmallList};

template <template <class> class Whose>
test::Section section(unsigned list, StepKind kind) {
  return list == 0 ? test::section_of<Whose<ListPlaceOf<0>>>(kind)
                   : test::section_of<Whose<ListPlaceOf<kSmallList>>>(kind);
}
ListAt list_at(unsigned list) {
  return list == 0 ? ListAt::of<ListPlaceOf<0>>() : ListAt::of<ListPlaceOf<kSmallList>>();
}

// Where the heads of all lists are in a CPU's block.
constexpr std::size_t kHeadsAt = ListPlaceOf<0>::kHead;
constexpr std::size_t kHeadsBytes = (kListOrders + 1) * sizeof(ListHead);
static_assert(ListPlaceOf<kNoList>::kHead + sizeof(ListHead) == kHeadsAt + kHeadsBytes);

// ---- entries -------------------------------------------------------------------------------------

constexpr std::uint32_t kEntries = 1024;
constexpr std::uint64_t kFirstWord = 0x0001'0200'0000'0001;

struct alignas(32) Entry {
  std::uint64_t first = kFirstWord;
  std::uint64_t rest[3] = {};
};
static_assert(sizeof(Entry) == sizeof(Page));
Entry g_entries[kEntries];

void* entry(std::uint32_t number) { return &g_entries[number]; }
std::byte* base() { return reinterpret_cast<std::byte*>(g_entries); }
std::uint32_t number_of(std::uint64_t value) {
  return static_cast<std::uint32_t>((value - reinterpret_cast<std::uint64_t>(base())) /
                                    sizeof(Entry));
}

// The entries that are on no list, and how often entries were popped.
class Book {
 public:
  void clear() {
    outside_.clear();
    for (std::uint32_t number = kEntries - 1; number > 0; --number) outside_.push_back(number);
    pops_ = 0;
  }
  std::uint32_t lend() {
    const std::lock_guard guard(mutex_);
    const std::uint32_t number = outside_.back();
    outside_.pop_back();
    return number;
  }
  void back(std::uint32_t number) {
    const std::lock_guard guard(mutex_);
    outside_.insert(outside_.begin(), number);  // so that what comes off a list does not go on next
  }
  void popped(void* entry) {
    back(number_of(reinterpret_cast<std::uint64_t>(entry)));
    const std::lock_guard guard(mutex_);
    ++pops_;
  }
  [[nodiscard]] std::uint64_t pops() const { return pops_; }
  [[nodiscard]] const std::vector<std::uint32_t>& outside() const { return outside_; }

 private:
  std::mutex mutex_;
  std::vector<std::uint32_t> outside_;
  std::uint64_t pops_ = 0;
};

// ---- what is interrupted ---------------------------------------------------------------------------

constexpr std::uint32_t kNone = ~0U;

struct Scenario {
  const char* name;
  unsigned list;
  StepKind kind;
  std::uint32_t n;      // of the step
  std::uint32_t floor;  // of the list, as what follows
  std::uint32_t count;
  std::uint32_t capacity;
  std::uint32_t unlike = kNone;  // which entry (or the bounds) is not what the step expects
  bool wide = false;

  [[nodiscard]] std::string describe() const {
    return std::string(name_of(kind)) + " " + std::to_string(n) + " on list " +
           std::to_string(list) + ", " + name + (wide ? ", wide" : "");
  }
};

std::vector<Scenario> scenarios() {
  std::vector<Scenario> all;
  for (const unsigned list : kLists) {
    const std::uint32_t size = list_at(list).size;
    const std::uint32_t full = std::min(size, 128U);
    const auto add = [&](const char* name, StepKind kind, std::uint32_t n, std::uint32_t floor,
                         std::uint32_t count, std::uint32_t unlike = kNone) {
      all.push_back({name, list, kind, n, floor, count, full, unlike});
    };
    add("some there", StepKind::pop, 1, 0, 5);
    add("across the ring's end", StepKind::pop, 1, size - 2, 5);
    add("empty", StepKind::pop, 1, 0, 0);
    add("room", StepKind::push, 1, 0, 5);
    add("across the ring's end", StepKind::push, 1, size - 2, 5);
    add("full", StepKind::push, 1, 0, full);
    for (const std::uint32_t n : {1U, 8U, 13U}) {
      add("all there", StepKind::pop_many, n, 2, 15);
      add("too few", StepKind::pop_many, n, 2, n - 1);
      for (const StepKind kind : {StepKind::push_many, StepKind::push_alike, StepKind::refill}) {
        add("room", kind, n, 2, 3);
        add("no room", kind, n, 0, full - n + 1);
      }
      add("full", StepKind::spill, n, 2, full);
      add("full, positions to bring down", StepKind::spill, n, size - n, full);
      add("room", StepKind::spill, n, 2, full - 1);
      for (const std::uint32_t odd : {0U, n / 2, n - 1}) {
        add("one is unlike", StepKind::push_alike, n, 2, 3, odd);
      }
    }
    // Three before the end and ten behind it, and the other way round.
    for (const std::uint32_t before_end : {3U, 10U}) {
      add("across the ring's end", StepKind::pop_many, 13, size - before_end, 13);
      add("across the ring's end", StepKind::push_many, 13, size - before_end, 0);
      add("across the ring's end", StepKind::push_alike, 13, size - before_end, 0);
    }
    add("across the ring's end", StepKind::refill, 8, size - 4, 0);
    add("across the ring's end", StepKind::spill, 8, size - 4, full);
    if (rseq_area::g_wide && size >= 32) {
      const std::size_t first = all.size();
      for (const StepKind kind : {StepKind::pop_many, StepKind::push_many, StepKind::push_alike}) {
        const std::uint32_t there = kind == StepKind::pop_many ? 27 : 0;
        add("so many", kind, 27, 2, there);  // sixteens, eights and ones
        add("across the ring's end", kind, 27, size - 20, there);
      }
      for (const std::uint32_t odd : {0U, 7U, 8U, 26U}) {
        add("one is unlike", StepKind::push_alike, 27, 2, 0, odd);
      }
      for (std::size_t i = first; i < all.size(); ++i) all[i].wide = true;
    }
    add("as expected", StepKind::replace_bounds, 1, 0, 5);
    add("not as expected", StepKind::replace_bounds, 1, 0, 5, 0);
  }
  return all;
}

// ---- what happens meanwhile ------------------------------------------------------------------------

enum class Meanwhile {
  nothing,
  again,      // the section is aborted three times in a row
  second,     // a second signal on the way from the abort back to the begin
  here,       // the handler itself pops and pushes
  neighbour,  // another thread on this CPU does
  moved,      // the thread goes on on another CPU
  drained,    // the list is stopped, emptied and started
  draining,   // that begins now, and the handler does not wait for it
};
constexpr Meanwhile kAllMeanwhile[] = {Meanwhile::nothing, Meanwhile::again,     Meanwhile::second,
                                       Meanwhile::here,    Meanwhile::neighbour, Meanwhile::moved,
                                       Meanwhile::drained, Meanwhile::draining};
constexpr const char* name_of(Meanwhile meanwhile) {
  constexpr const char* kNames[] = {"nothing",   "again", "second",  "here",
                                    "neighbour", "moved", "drained", "draining"};
  return kNames[static_cast<int>(meanwhile)];
}

// A thread that does one thing whenever it is asked, also by a signal handler.
class Helper {
 public:
  explicit Helper(std::function<void()> work) : work_(std::move(work)) {
    ::sem_init(&go_, 0, 0);
    ::sem_init(&done_, 0, 0);
    thread_ = std::thread([this] {
      for (wait(go_); !ended_; wait(go_)) {
        work_();
        ::sem_post(&done_);
      }
    });
  }
  ~Helper() {
    ended_ = true;
    ask();
    thread_.join();
    ::sem_destroy(&go_);
    ::sem_destroy(&done_);
  }
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  void ask() { ::sem_post(&go_); }
  void wait_until_done() { wait(done_); }

 private:
  static void wait(sem_t& semaphore) {
    while (::sem_wait(&semaphore) != 0) {
    }
  }
  std::function<void()> work_;
  sem_t go_{}, done_{};
  bool ended_ = false;  // handed over by go_
  std::thread thread_;
};

void pin(std::uint32_t cpu) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(cpu, &only);
  if (::sched_setaffinity(0, sizeof only, &only) != 0) {
    throw std::runtime_error("a CPU that was allowed is not to be had");
  }
}

std::vector<std::uint32_t> allowed_cpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ::sched_getaffinity(0, sizeof allowed, &allowed);
  std::vector<std::uint32_t> cpus;
  for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  }
  return cpus;
}

#if defined(__x86_64__)

// ---- the breakpoint --------------------------------------------------------------------------------

class Breakpoint {
 public:
  void set(std::uint64_t at) {
    at_ = reinterpret_cast<volatile std::uint8_t*>(at);
    kept_ = *at_;
    *at_ = 0xcc;
  }
  void take_away() {
    if (at_ != nullptr) *at_ = kept_;
    at_ = nullptr;
  }
  [[nodiscard]] bool is_set() const { return at_ != nullptr; }
  [[nodiscard]] std::uint64_t at() const { return reinterpret_cast<std::uint64_t>(at_); }

 private:
  volatile std::uint8_t* at_ = nullptr;
  std::uint8_t kept_ = 0;
};

// What the signal handler needs to know; one thread at a time is under test.
struct Trap {
  Breakpoint breakpoint;
  SectionDescriptor section;
  Meanwhile meanwhile = Meanwhile::nothing;
  std::function<void()> act;
  int hits = 0;     // of the place under test
  int aborted = 0;  // of those, how many the kernel answered by an abort
  int in_place = 0;
  int on_the_way = 0;  // hits in the abort handler
  std::uint64_t strange = 0;

  void on_signal(greg_t* registers) {
    const auto now = static_cast<std::uint64_t>(registers[REG_RIP]);
    if (!breakpoint.is_set()) {
      strange = now;
      return;
    }
    if (now == breakpoint.at() + 1) {
      registers[REG_RIP] = static_cast<greg_t>(breakpoint.at());
      if (breakpoint.at() == section.abort) {
        breakpoint.take_away();
        ++on_the_way;
        act();
        return;
      }
      ++in_place;
    } else if (now == section.abort) {
      ++aborted;
    } else {
      strange = now;
    }
    ++hits;
    if (meanwhile == Meanwhile::again && hits < 3) return;
    breakpoint.take_away();
    if (meanwhile == Meanwhile::second && now == section.abort) {
      breakpoint.set(section.abort);
      return;
    }
    act();
  }
};
Trap* g_trap = nullptr;

void on_breakpoint(int, siginfo_t*, void* context) {
  g_trap->on_signal(static_cast<ucontext_t*>(context)->uc_mcontext.gregs);
}

// ---- the test --------------------------------------------------------------------------------------

class RseqAbort : public testing::Test {
 protected:
  static constexpr std::uint64_t kPopsBefore = 1000;

  void SetUp() override {
    if (!kHasRseq) GTEST_SKIP() << "no sections in this build";
    if (test::kSanitized) GTEST_SKIP() << "sanitizers keep their own books in a signal handler";
    if (list_mode().form != ListForm::rseq) GTEST_SKIP() << list_mode().reason;
    cpus_ = allowed_cpus();
    first_ = cpus_.front();
    cpus_.resize(std::min<std::size_t>(cpus_.size(), 2));
    frame_table::g_pages = reinterpret_cast<Page*>(g_entries);
    const std::uint32_t lists = cpus_.back() + 1;
    ASSERT_FALSE(lists_.open(lists, list_sizes(PageCount{1 << 18}, lists, 128), true).failed());
    for (const std::uint32_t cpu : cpus_) lists_.start(CpuId{cpu});
    pin(first_);
  }
  void TearDown() override { lists_.close(); }

  std::byte* block(std::uint32_t cpu) {
    return lists_.blocks() + std::size_t{cpu} * arch::kBlockBytes;
  }
  std::uint32_t cpu_now() const { return static_cast<std::uint32_t>(rseq_area::current().cpu_id); }

  // The list of each CPU as the scenario wants it, and every other entry in the book.
  void prepare(const Scenario& scenario) {
    book_.clear();
    for (Entry& one : g_entries) one.first = kFirstWord;
    for (const std::uint32_t cpu : cpus_) {
      for (unsigned list = 0; list < kListOrders; ++list) {
        lists_.set_capacity(CpuId{cpu}, list, list == scenario.list ? scenario.capacity : 0);
        ListCopy copy;
        copy.ring.resize(kRingPlaces[list]);
        copy.word = kPopsBefore << 16;
        const ListAt at{kHeadsAt + list * sizeof(ListHead), kRingAt[list], kRingPlaces[list]};
        if (list == scenario.list) {
          copy.word |= scenario.floor + scenario.count;
          copy.bounds = test::make_bounds(scenario.floor, scenario.floor + scenario.capacity,
                                          scenario.floor + scenario.capacity);
          for (std::uint32_t i = 0; i < scenario.count; ++i) {
            copy.at(scenario.floor + i) = reinterpret_cast<std::uint64_t>(entry(book_.lend()));
          }
        }
        copy.write(block(cpu), at);
      }
    }
  }
  Step step_of(const Scenario& scenario) {
    Step step;
    step.n = scenario.n;
    step.wide = scenario.wide;
    step.base = base();
    step.head = kFirstWord;
    if (test::puts(scenario.kind)) {
      for (std::uint32_t i = 0; i < scenario.n; ++i) {
        step.in_index[i] = book_.lend();
        step.in[i] = entry(step.in_index[i]);
      }
    }
    const ListCopy list = ListCopy::read(block(first_), list_at(scenario.list));
    step.expected = list.bounds;
    step.next = test::make_bounds(list.floor(), list.ceil() - 1, list.limit() - 1);
    if (scenario.unlike != kNone) {
      step.expected ^= 1;
      g_entries[step.in_index[scenario.unlike]].first = kFirstWord ^ 1;
    }
    return step;
  }
  void enter_in_book(const Scenario& scenario, const Step& step) {
    for (std::uint32_t i = 0; i < step.n; ++i) {
      if (test::puts(scenario.kind)) {
        if (!step.done) book_.back(step.in_index[i]);
      } else if (step.done && scenario.kind == StepKind::spill) {
        book_.back(step.out_index[i]);
      } else if (step.done && scenario.kind != StepKind::replace_bounds) {
        book_.popped(step.out[i]);
      }
    }
  }

  // ---- meanwhile ----

  bool others(unsigned list, StepKind kind, Step& step) {
    section<Others>(list, kind)(lists_.blocks(), rseq_area::g_offset, step);
    return step.done;
  }
  void pop_one(unsigned list) {
    Step step;
    if (others(list, StepKind::pop, step)) book_.popped(step.out[0]);
  }
  void push_one(unsigned list) {
    const std::uint32_t number = book_.lend();
    Step step;
    step.in[0] = entry(number);
    if (!others(list, StepKind::push, step)) book_.back(number);
  }
  // Leaves as many as there were, but other ones, if there was one and no more than room for them.
  void change(unsigned list) {
    pop_one(list);
    push_one(list);
    pop_one(list);
    pop_one(list);
    push_one(list);
    push_one(list);
  }
  void drain(std::uint32_t cpu) {
    if (lists_.stop(CpuId{cpu}).failed()) {
      ++refused_stops_;
      return;
    }
    PageIndex pages[kClusterFrames];
    Order order;
    while (const std::uint32_t n = lists_.harvest(CpuId{cpu}, pages, kClusterFrames, order)) {
      for (std::uint32_t i = 0; i < n; ++i) book_.back(pages[i].value);
    }
    lists_.start(CpuId{cpu});
  }

  // ---- afterwards ----

  // Every entry is in one place, and every pop was counted.
  std::string audit(unsigned list) {
    std::vector<int> seen(kEntries);
    for (const std::uint32_t number : book_.outside()) ++seen[number];
    std::uint64_t pops = 0;
    for (const std::uint32_t cpu : cpus_) {
      ListCopy copy = ListCopy::read(block(cpu), list_at(list));
      if (copy.bounds == arch::kStoppedBounds) return "a list stayed stopped";
      for (const std::uint64_t value : copy.content()) {
        if (number_of(value) >= kEntries) return "a list has what is no entry";
        ++seen[number_of(value)];
      }
      pops += copy.pops() - kPopsBefore;
    }
    for (std::uint32_t number = 1; number < kEntries; ++number) {
      if (seen[number] != 1) {
        return "entry " + std::to_string(number) + " is in " + std::to_string(seen[number]) +
               " places";
      }
    }
    if (pops != book_.pops()) {
      return std::to_string(pops) + " pops counted of " + std::to_string(book_.pops());
    }
    return refused_stops_ != 0 ? "a list could not be stopped" : "";
  }

  // ---- where a section's instructions begin ----

  struct Trace {
    const SectionDescriptor* section = nullptr;
    std::vector<std::uint64_t>
        places;  // in the order they are first reached; two before the section
                 // and the one behind it included
    std::vector<std::uint64_t> writers;  // instructions that changed a list's head
  };
  Trace trace(const Scenario& scenario) {
    prepare(scenario);
    Step step = step_of(scenario);
    PrivateArea area(static_cast<std::int32_t>(first_));
    std::vector<std::uint64_t> path;
    Trace result;
    const std::byte* heads_now = block(first_) + kHeadsAt;
    std::vector<std::byte> heads(heads_now, heads_now + kHeadsBytes);
    test::step_through(
        [&] {
          section<Tested>(scenario.list, scenario.kind)(lists_.blocks(), area.offset(), step);
        },
        [&](std::uintptr_t next) {
          if (std::memcmp(heads.data(), heads_now, kHeadsBytes) != 0) {
            std::memcpy(heads.data(), heads_now, kHeadsBytes);
            result.writers.push_back(path.empty() ? 0 : path.back());
          }
          path.push_back(next);
        });
    result.section = reinterpret_cast<const SectionDescriptor*>(area.descriptor());
    if (result.section == nullptr) return result;
    const auto begin = std::find(path.begin(), path.end(), result.section->start);
    const auto end = std::find(begin, path.end(), result.section->end());
    if (begin - path.begin() < 2 || end == path.end()) return result;
    std::set<std::uint64_t> known;
    for (auto at = begin - 2; at <= end; ++at) {
      if (known.insert(*at).second) result.places.push_back(*at);
    }
    return result;
  }

  PageLists lists_;
  Book book_;
  std::vector<std::uint32_t> cpus_;
  std::uint32_t first_ = 0;
  Atomic<std::uint64_t> refused_stops_{0};
};

TEST_F(RseqAbort, EveryInstructionOfEverySectionMayBeTheLastBeforeAnAbort) {
  if (!test::make_code_writable()) GTEST_SKIP() << "code cannot be made writable here";
  struct sigaction action {};
  struct sigaction before {};
  action.sa_sigaction = &on_breakpoint;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);

  unsigned list = 0;
  Helper neighbour([this, &list] {
    pin(first_);
    change(list);
  });
  Helper drainer([this] {
    if (cpus_.size() > 1) pin(cpus_[1]);
    drain(first_);
  });

  std::set<std::uint64_t> places;
  std::uint64_t trials = 0, aborts = 0, done = 0;
  for (const Scenario& scenario : scenarios()) {
    const Trace traced = trace(scenario);
    ASSERT_GE(traced.places.size(), 8U) << scenario.describe();
    list = scenario.list;
    ::sigaction(SIGTRAP, &action, &before);
    for (std::size_t k = 0; k < traced.places.size(); ++k) {
      const std::uint64_t place = traced.places[k];
      const bool inside = traced.section->holds(place);
      const bool behind = place == traced.section->end();
      for (const Meanwhile meanwhile : kAllMeanwhile) {
        if (meanwhile == Meanwhile::moved && cpus_.size() < 2) continue;
        pin(first_);
        prepare(scenario);
        Step step = step_of(scenario);
        Step wanted = step;
        ListCopy list_before = ListCopy::read(block(first_), list_at(list));
        ListCopy list_wanted;
        std::uint32_t cpu_wanted = first_;
        const auto predict = [&] {
          cpu_wanted = cpu_now();
          list_wanted = ListCopy::read(block(cpu_wanted), list_at(list));
          test::run_contract(scenario.kind, list_wanted, wanted);
        };

        Trap trap;
        trap.section = *traced.section;
        trap.meanwhile = meanwhile;
        trap.act = [&] {
          // What the section does is decided by the list as it is when it begins for the last time.
          if (behind) test::run_contract(scenario.kind, list_before, wanted);
          switch (meanwhile) {
            case Meanwhile::nothing:
            case Meanwhile::again:
              break;
            case Meanwhile::second:
            case Meanwhile::here:
              change(list);
              break;
            case Meanwhile::neighbour:
              neighbour.ask();
              neighbour.wait_until_done();
              break;
            case Meanwhile::moved:
              pin(cpus_[1]);
              break;
            case Meanwhile::drained:
              drainer.ask();
              drainer.wait_until_done();
              break;
            case Meanwhile::draining:
              drainer.ask();
              break;
          }
          if (!behind) predict();
        };
        g_trap = &trap;
        trap.breakpoint.set(place);
        section<Tested>(list, scenario.kind)(lists_.blocks(), rseq_area::g_offset, step);
        trap.breakpoint.take_away();
        if (meanwhile == Meanwhile::draining && trap.hits != 0) drainer.wait_until_done();
        enter_in_book(scenario, step);

        const auto where = [&] {
          return scenario.describe() + ", instruction " + std::to_string(k) + " of " +
                 std::to_string(traced.places.size()) + ", meanwhile " + name_of(meanwhile);
        };
        ASSERT_EQ(trap.strange, 0U) << where();
        ASSERT_EQ(trap.hits, meanwhile == Meanwhile::again ? 3 : 1) << where();
        ASSERT_EQ(trap.aborted, inside ? trap.hits : 0) << where();
        ASSERT_EQ(trap.on_the_way, inside && meanwhile == Meanwhile::second ? 1 : 0) << where();
        ASSERT_EQ(audit(list), "") << where();
        if (meanwhile != Meanwhile::draining) {
          ASSERT_TRUE(test::same_result(scenario.kind, step, wanted)) << where();
          if (!behind) {
            ASSERT_EQ(ListCopy::read(block(cpu_wanted), list_at(list)), list_wanted) << where();
          }
        }
        ++trials;
        aborts += static_cast<std::uint64_t>(trap.aborted);
        done += step.done ? 1 : 0;
      }
      places.insert(place);
    }
    ::sigaction(SIGTRAP, &before, nullptr);
  }
  std::printf("%zu places in %zu scenarios, %llu interruptions, %llu aborts, %llu steps done\n",
              places.size(), scenarios().size(), static_cast<unsigned long long>(trials),
              static_cast<unsigned long long>(aborts), static_cast<unsigned long long>(done));
}

// ---- what the tables and the code say -------------------------------------------------------------

TEST_F(RseqAbort, OnlyTheLastInstructionOfASectionChangesAListsHead) {
  for (const Scenario& scenario : scenarios()) {
    const Trace traced = trace(scenario);
    ASSERT_GE(traced.places.size(), 8U) << scenario.describe();
    ASSERT_LE(traced.writers.size(), 1U) << scenario.describe();
    if (traced.writers.empty()) continue;
    // It is what is left of the section before its end: nothing that was run lies behind it.
    const std::uint64_t writer = traced.writers.front();
    ASSERT_TRUE(traced.section->holds(writer)) << scenario.describe();
    EXPECT_EQ(traced.places[traced.places.size() - 2], writer) << scenario.describe();
    EXPECT_EQ(traced.places.back(), traced.section->end()) << scenario.describe();
    EXPECT_EQ(*std::max_element(traced.places.begin(), traced.places.end() - 1), writer);
  }
}

struct Operand {
  bool memory = false, indexed = false;
  std::string base;
  long displacement = 0;
};

// Of the last operand of an instruction in AT&T form, which is the one that is written.
Operand last_operand(const std::string& instruction) {
  Operand operand;
  if (instruction.empty() || instruction.back() != ')') return operand;
  const std::size_t open = instruction.rfind('(');
  const std::size_t begin = instruction.find_last_of(" ,", open) + 1;
  operand.memory = true;
  operand.displacement = std::strtol(instruction.substr(begin, open - begin).c_str(), nullptr, 16);
  const std::string inside = instruction.substr(open + 1, instruction.size() - open - 2);
  operand.base = inside.substr(0, inside.find(','));
  operand.indexed = inside.find(',') != std::string::npos;
  return operand;
}
// Of an operand whose base is the CPU's block.
bool names_a_head(const Operand& operand) {
  return !operand.indexed && operand.displacement >= long{kHeadsAt} &&
         operand.displacement < long{kHeadsAt} + long{kHeadsBytes};
}
bool is_store(const std::string& instruction) {
  return last_operand(instruction).memory && instruction.rfind("cmp", 0) != 0 &&
         instruction.rfind("test", 0) != 0 && instruction.rfind("nop", 0) != 0;
}

TEST(RseqAbortOperands, AreReadAsTheyArePrinted) {
  EXPECT_TRUE(is_store("mov    %r8,(%rsi)"));
  EXPECT_TRUE(is_store("movaps %xmm0,0x80(%r10)"));
  EXPECT_TRUE(is_store("mov    %rdi,0x400(%rcx,%r8,8)"));
  EXPECT_FALSE(is_store("mov    (%rsi),%r8"));
  EXPECT_FALSE(is_store("cmpw   $0x1,0x8(%rsi)"));
  EXPECT_FALSE(is_store("lea    (%rbx,%rax,1),%r12d"));
  const Operand operand = last_operand("mov    %rdi,0x400(%rcx,%r8,8)");
  EXPECT_EQ(operand.base, "%rcx");
  EXPECT_EQ(operand.displacement, 0x400);
  EXPECT_TRUE(operand.indexed);
  EXPECT_FALSE(last_operand("mov    %rax,-0x8(%rbp)").indexed);
  EXPECT_EQ(last_operand("mov    %rax,-0x8(%rbp)").displacement, -8);
}

TEST_F(RseqAbort, EveryDescriptorIsWhatTheKernelAsksForAndEndsInItsOnlyCommit) {
  const auto descriptors = test::section_descriptors();
  const auto pointers = test::section_pointers();
  // Two lists, eight sections, for the tested thread and for others; and those of the library.
  ASSERT_GT(descriptors.size(), 2U * 8 * 2);
  EXPECT_EQ(pointers.size(), descriptors.size());
  std::set<const SectionDescriptor*> named(pointers.begin(), pointers.end());
  const auto code = test::disassemble_program();
  for (const SectionDescriptor& one : descriptors) {
    EXPECT_EQ(named.count(&one), 1U);
    EXPECT_EQ(one.version, 0U);
    EXPECT_EQ(one.flags, 0U);
    ASSERT_GT(one.length, 0U);
    EXPECT_FALSE(one.holds(one.abort));
    std::uint32_t signature = 0;
    std::memcpy(&signature, reinterpret_cast<const void*>(one.abort - sizeof signature),
                sizeof signature);
    EXPECT_EQ(signature, kRseqSignature);
    if (code.empty()) continue;

    // Instructions fill it exactly.
    ASSERT_EQ(code.count(one.start), 1U);
    ASSERT_EQ(code.count(one.end()), 1U);
    const auto end = code.find(one.end());
    const auto commit = std::prev(end);
    const Operand target = last_operand(commit->second);
    EXPECT_TRUE(is_store(commit->second)) << commit->second;
    EXPECT_FALSE(target.indexed) << commit->second;
    EXPECT_TRUE(names_a_head(target)) << commit->second;
    for (auto at = code.find(one.start); at != commit; ++at) {
      const std::string& instruction = at->second;
      EXPECT_NE(instruction.rfind("call", 0), 0U) << instruction;
      EXPECT_NE(instruction.rfind("ret", 0), 0U) << instruction;
      EXPECT_NE(instruction.rfind("syscall", 0), 0U) << instruction;
      EXPECT_EQ(instruction.find("lock"), std::string::npos) << instruction;
      const Operand operand = last_operand(instruction);
      const bool may_be_a_head =
          is_store(instruction) && operand.base == target.base && names_a_head(operand);
      EXPECT_FALSE(may_be_a_head) << instruction << " before " << commit->second;
    }
  }
  if (code.empty()) GTEST_SKIP() << "without objdump the code itself was not looked at";
  std::printf("%zu descriptors\n", descriptors.size());
}

TEST_F(RseqAbort, TheScenariosReachEveryInstruction) {
  const auto code = test::disassemble_program();
  if (code.empty()) GTEST_SKIP() << "needs objdump";
  std::map<const SectionDescriptor*, std::set<std::uint64_t>> reached;
  std::map<const SectionDescriptor*, std::string> name;
  for (const Scenario& scenario : scenarios()) {
    const Trace traced = trace(scenario);
    ASSERT_NE(traced.section, nullptr) << scenario.describe();
    for (const std::uint64_t place : traced.places) {
      if (traced.section->holds(place)) reached[traced.section].insert(place);
    }
    name[traced.section] = scenario.describe();
  }
  EXPECT_GE(reached.size(), 2U * std::size(test::kAllSteps));
  for (const auto& [section, places] : reached) {
    std::set<std::uint64_t> all;
    for (auto at = code.find(section->start); at != code.end() && at->first < section->end();
         ++at) {
      all.insert(at->first);
    }
    EXPECT_EQ(places, all) << name[section];
  }
}

#endif  // x86-64

}  // namespace
}  // namespace weir
