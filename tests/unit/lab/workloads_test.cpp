// SPDX-License-Identifier: MIT
// Every workload on honest buffers and on broken ones: a workload that cannot tell them apart
// measures nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lab/contenders/floor_buffers.hpp"
#include "lab/contenders/floor_rseq.hpp"
#include "lab/contenders/list_buffers.hpp"
#include "lab/contenders/malloc_buffers.hpp"
#include "lab/contenders/weir_buffers.hpp"
#include "lab/contenders/zone_engines.hpp"
#include "lab/experiments/engines.hpp"
#include "lab/experiments/experiments.hpp"
#include "lab/experiments/merge.hpp"
#include "lab/experiments/trials.hpp"
#include "lab/harness/crew.hpp"
#include "weir/io/capture.hpp"

namespace weir::lab {
namespace {

using HonestBuffers = ListBuffers<std::mutex, LockFor::burst>;

// Hands every `period`-th buffer out twice.
class DoubleBuffers : public OneByOne<DoubleBuffers>, public Plain {
 public:
  using Handle = std::byte*;
  static constexpr unsigned kPeriod = 5;

  explicit DoubleBuffers(std::size_t buffers) : honest_(buffers) {}
  Handle alloc() noexcept {
    if (++count_ % kPeriod == 0 && last_ != nullptr) {
      return last_;
    }
    last_ = honest_.alloc();
    return last_;
  }
  void free(Handle) noexcept {}  // what was handed out twice cannot come back twice
  static std::byte* address(Handle buffer) noexcept { return buffer; }

 private:
  RoundRobinBuffers honest_;
  unsigned count_ = 0;
  Handle last_ = nullptr;
};

// Has only a few buffers and loses every one that comes back.
class LeakyBuffers : public OneByOne<LeakyBuffers>, public Plain {
 public:
  using Handle = std::byte*;

  explicit LeakyBuffers(std::size_t buffers) : honest_(buffers) {}
  Handle alloc() noexcept { return honest_.alloc(); }
  void free(Handle) noexcept {}
  static std::byte* address(Handle buffer) noexcept { return buffer; }

 private:
  HonestBuffers honest_;
};

// Writes into the neighbour of what is given back, as an allocator does whose links lie in the wrong
// block. Neighbours are in flight at the same time.
class ScribblingBuffers : public OneByOne<ScribblingBuffers>, public Plain {
 public:
  using Handle = std::byte*;

  explicit ScribblingBuffers(std::size_t buffers) : honest_(buffers), count_(buffers) {}
  Handle alloc() noexcept { return honest_.alloc(); }
  void free(Handle buffer) noexcept {
    std::byte* const base = honest_.mapping().base();
    const std::size_t index = static_cast<std::size_t>(buffer - base) / kBufferBytes;
    std::fill_n(base + (index + 1) % count_ * kBufferBytes, kBufferBytes, std::byte{0xee});
  }
  static std::byte* address(Handle buffer) noexcept { return buffer; }

 private:
  RoundRobinBuffers honest_;
  std::size_t count_;
};

const Capture& frames() {
  static const Capture capture = [] {
    static std::vector<std::vector<std::byte>> bytes;
    std::vector<Capture::Frame> views;
    for (std::size_t size : {60U, 61U, 200U, 1514U, 590U}) {
      std::vector<std::byte> frame(size);
      for (std::size_t i = 0; i < size; ++i) {
        frame[i] = static_cast<std::byte>(i * 31 + size);
      }
      frame[12] = std::byte{0x88};  // an experimental type: addresses are all that is rewritten
      frame[13] = std::byte{0xb5};
      bytes.push_back(std::move(frame));
    }
    for (const auto& frame : bytes) {
      views.emplace_back(frame);
    }
    return Capture::of(views);
  }();
  return capture;
}

// Rounds on the crew; the last outcome, or the first with a fault.
Outcome run(Trial& trial, Crew& crew, int rounds = 3) {
  Outcome outcome;
  for (int round = 0; round < rounds && outcome.fault.empty(); ++round) {
    trial.prepare({std::chrono::milliseconds{5}, crew.cpus().shared()});
    if (trial.two_sided()) {
      crew.run([&] { trial.lead(); }, [&] { trial.follow(); });
    } else {
      crew.run([&] { trial.lead(); }, {});
    }
    outcome = trial.collect();
  }
  return outcome;
}

double reading(const Outcome& outcome, const std::string& metric) {
  for (const Reading& r : outcome.readings) {
    if (r.metric == metric) {
      return r.value;
    }
  }
  return -1;
}

constexpr std::uint32_t kBuffers = 4096;
constexpr int kUntilFault = 100;  // far more rounds than even a slow build needs to meet it
constexpr std::array kAll = {Workload::pairs, Workload::bulk, Workload::cross_cpu,
                             Workload::forward};

template <class B>
std::unique_ptr<Trial> trial_of(Workload workload, std::shared_ptr<B> buffers,
                                std::uint32_t batch = 64) {
  return make_trial(TrialSetup{workload, &frames(), kBuffers, batch}, std::move(buffers)).trial;
}

struct WorkloadTest : testing::TestWithParam<Workload> {
  Crew two_cpus{choose_cpus()};
};

TEST_P(WorkloadTest, HonestBuffersGiveATimeAndNoFault) {
  const auto trial = trial_of(GetParam(), std::make_shared<HonestBuffers>(kBuffers));
  const Outcome outcome = run(*trial, two_cpus);
  EXPECT_EQ(outcome.fault, "");
  EXPECT_GT(reading(outcome, "time"), 0);
}

TEST_P(WorkloadTest, OneCpuIsEnough) {
  const unsigned cpu = allowed_cpus().front();
  Crew one_cpu({cpu, cpu});
  const auto trial = trial_of(GetParam(), std::make_shared<HonestBuffers>(kBuffers));
  const Outcome outcome = run(*trial, one_cpu);
  EXPECT_EQ(outcome.fault, "");
  EXPECT_GT(reading(outcome, "time"), 0);
}

TEST_P(WorkloadTest, ABufferHandedOutTwiceIsFound) {
  const auto trial = trial_of(GetParam(), std::make_shared<DoubleBuffers>(kBuffers));
  EXPECT_NE(run(*trial, two_cpus, kUntilFault).fault, "");
}

TEST_P(WorkloadTest, AnAllocatorThatLosesItsBuffersIsFound) {
  const auto trial = trial_of(GetParam(), std::make_shared<LeakyBuffers>(512));
  EXPECT_NE(run(*trial, two_cpus, kUntilFault).fault, "");
}

TEST_P(WorkloadTest, MallocTakesPart) {
  const auto trial = trial_of(
      GetParam(), std::make_shared<MallocBuffers>([](std::size_t n) { return std::malloc(n); },
                                                  [](void* p) { std::free(p); }));
  EXPECT_EQ(run(*trial, two_cpus).fault, "");
}

template <class B>
void weir_takes_part(Workload workload, Crew& crew) {
  Options options;
  options.capacity = bytes(PageCount{kBuffers});
  const auto pages = std::make_shared<PageAllocator>(options);
  {
    const auto trial = trial_of(workload, std::make_shared<B>(pages));
    const Outcome outcome = run(*trial, crew);
    EXPECT_EQ(outcome.fault, "");
    EXPECT_GE(reading(outcome, "zone_lock_acquisitions"), 0);
    EXPECT_GE(reading(outcome, "zone_lock_bound"), 0);
  }
  EXPECT_FALSE(pages->drain_all().failed());
  EXPECT_EQ(pages->zone().census().out(), 0U) << "frames left outside after the trial";
}

TEST_P(WorkloadTest, WeirsPagesTakePart) { weir_takes_part<PageBuffers>(GetParam(), two_cpus); }
TEST_P(WorkloadTest, WeirsFragmentsTakePart) { weir_takes_part<FragBuffers>(GetParam(), two_cpus); }
TEST_P(WorkloadTest, WeirsPoolTakesPart) { weir_takes_part<PoolBuffers>(GetParam(), two_cpus); }

std::string name_of(const testing::TestParamInfo<Workload>& one) {
  switch (one.param) {
    case Workload::pairs:
      return "Pairs";
    case Workload::bulk:
      return "Bulk";
    case Workload::cross_cpu:
      return "CrossCpu";
    case Workload::engines:
      return "Engines";
    case Workload::merge:
      return "Merge";
    case Workload::low_memory:
    case Workload::mixed_load:
    case Workload::fragmentation:
    case Workload::compaction:
      return "OwnZone";
    case Workload::forward:
      break;
  }
  return "Forward";
}
INSTANTIATE_TEST_SUITE_P(All, WorkloadTest, testing::ValuesIn(kAll), name_of);

// Owners and bare indexes are what pages are taken as, not what a forwarder carries.
struct PagesTest : testing::TestWithParam<Workload> {
  Crew crew{choose_cpus()};
};
TEST_P(PagesTest, WeirsOwnersTakePart) { weir_takes_part<PageRefBuffers>(GetParam(), crew); }
TEST_P(PagesTest, WeirsIndexesTakePart) { weir_takes_part<IndexBuffers>(GetParam(), crew); }
INSTANTIATE_TEST_SUITE_P(All, PagesTest,
                         testing::Values(Workload::pairs, Workload::bulk, Workload::cross_cpu),
                         name_of);

TEST(Merge, EveryCaseYieldsWhatItCounts) {
  Crew crew{choose_cpus()};
  for (const MergeCase& one : kMergeCases) {
    for (const EngineChoice engine : {EngineChoice::buddy, EngineChoice::bitmap}) {
      SCOPED_TRACE(testing::Message() << one.name << " " << choice_name(engine));
      Options options;
      options.engine = engine;
      MergeTrial trial{one, options};
      const Outcome outcome = run(trial, crew);
      EXPECT_EQ(outcome.fault, "");
      EXPECT_GE(reading(outcome, "pages"), static_cast<double>(MergeTrial::kPages * one.threads));
      EXPECT_GT(reading(outcome, "time_with_touch"), 0);
      EXPECT_GT(reading(outcome, "touch"), 0);
      EXPECT_EQ(reading(outcome, "zone_lock_acquisitions_per_million") == 0,
                engine == EngineChoice::bitmap);
      EXPECT_EQ(reading(outcome, "descriptors_giving_per_million") == 0,
                engine == EngineChoice::bitmap);
    }
  }
}

TEST(Pages, OwnersTakeNoPartInForwarding) {
  Options options;
  options.capacity = bytes(PageCount{kBuffers});
  const auto pages = std::make_shared<PageAllocator>(options);
  const auto made = make_trial(TrialSetup{Workload::forward, &frames(), kBuffers},
                               std::make_shared<PageRefBuffers>(pages));
  EXPECT_EQ(made.trial, nullptr);
  EXPECT_NE(made.problem, "");
}

// Counts how many buffers each call moves.
class CountingBuffers : public Plain {
 public:
  using Handle = std::byte*;

  explicit CountingBuffers(std::size_t buffers) : honest_(buffers) {}
  Handle alloc() noexcept {
    ++singles_;
    return honest_.alloc();
  }
  void free(Handle buffer) noexcept { honest_.free(buffer); }
  std::size_t alloc_bulk(std::span<Handle> many) noexcept {
    taken_.see(many.size());
    return honest_.alloc_bulk(many);
  }
  void free_bulk(std::span<Handle> many) noexcept {
    given_.see(many.size());
    honest_.free_bulk(many);
  }
  static std::byte* address(Handle buffer) noexcept { return buffer; }

  struct Sizes {
    std::size_t least = kBuffers, most = 0;
    void see(std::size_t n) {
      least = std::min(least, n);
      most = std::max(most, n);
    }
    bool operator==(const Sizes&) const = default;
  };
  std::size_t singles_ = 0;
  Sizes taken_;
  Sizes given_;

 private:
  HonestBuffers honest_;
};

struct BatchTest : testing::TestWithParam<std::uint32_t> {
  Crew crew{choose_cpus()};
};

TEST_P(BatchTest, BulkTakesAndGivesThatManyAtOnce) {
  const auto buffers = std::make_shared<CountingBuffers>(kBuffers);
  const auto trial = trial_of(Workload::bulk, buffers, GetParam());
  EXPECT_EQ(run(*trial, crew).fault, "");
  const CountingBuffers::Sizes expected{GetParam(), GetParam()};
  EXPECT_EQ(buffers->taken_, expected);
  EXPECT_EQ(buffers->given_, expected);
}

TEST_P(BatchTest, AcrossCpusThatManyAreTakenAndGivenAtOnce) {
  const auto buffers = std::make_shared<CountingBuffers>(kBuffers);
  const auto trial = trial_of(Workload::cross_cpu, buffers, GetParam());
  const Outcome outcome = run(*trial, crew);
  EXPECT_EQ(outcome.fault, "");
  EXPECT_GT(reading(outcome, "time"), 0);
  if (GetParam() == 1) {
    EXPECT_EQ(buffers->taken_.most, 0U);
    EXPECT_EQ(buffers->given_.most, 0U);
    EXPECT_GT(buffers->singles_, 0U);
    return;
  }
  EXPECT_EQ(buffers->singles_, 0U);
  const CountingBuffers::Sizes expected{GetParam(), GetParam()};
  EXPECT_EQ(buffers->taken_, expected);
  EXPECT_EQ(buffers->given_, expected);
}

TEST_P(BatchTest, AcrossCpusAsManyBuffersAsAreUnderWayAreEnough) {
  const auto trial = trial_of(Workload::cross_cpu,
                              std::make_shared<HonestBuffers>(kUnderWay + kMostBatch), GetParam());
  EXPECT_EQ(run(*trial, crew).fault, "");
}

INSTANTIATE_TEST_SUITE_P(All, BatchTest, testing::Values(1, 4, 8, 16, 32, 64, 128),
                         testing::PrintToStringParamName());

TEST(Counters, StandInRelationToAMillionPages) {
  std::vector<Reading> readings = {{"zone_lock_acquisitions", "count", 3},
                                   {"zone_frames_crossing", "frames", 640},
                                   {"something_else", "count", 7}};
  add_per_million(readings, 2e6);
  ASSERT_EQ(readings.size(), 5U);
  EXPECT_STREQ(readings[3].metric, "zone_lock_acquisitions_per_million");
  EXPECT_DOUBLE_EQ(readings[3].value, 1.5);
  EXPECT_STREQ(readings[4].metric, "engine_frames_per_million");
  EXPECT_DOUBLE_EQ(readings[4].value, 320);
}

TEST(Counters, OfPagesAcrossCpusAreReported) {
  Crew crew{choose_cpus()};
  Options options;
  options.capacity = bytes(PageCount{kBuffers});
  const auto pages = std::make_shared<PageAllocator>(options);
  const auto trial = trial_of(Workload::cross_cpu, std::make_shared<PageBuffers>(pages), 1);
  const Outcome outcome = run(*trial, crew);
  EXPECT_EQ(outcome.fault, "");
  for (const char* metric : {"zone_lock_acquisitions_per_million", "engine_frames_per_million",
                             "refills_per_million", "spills_per_million"}) {
    EXPECT_GE(reading(outcome, metric), 0) << metric;
  }
}

struct FloorTest : testing::Test {
  Crew crew{choose_cpus()};
};

TEST_F(FloorTest, FollowsThePagesOfWeirInTheirOrder) {
  Options options;
  options.capacity = bytes(PageCount{kBuffers});
  const auto pages = std::make_shared<PageAllocator>(options);
  const auto trace = std::make_shared<PageTrace>();
  const auto weirs = trial_of(Workload::cross_cpu, std::make_shared<PageBuffers>(pages, trace), 64);
  const auto floors = trial_of(
      Workload::cross_cpu, std::make_shared<ReplayBuffers<Colour::none>>(kBuffers, 100, trace), 64);
  const Outcome weir = run(*weirs, crew, 1);
  const Outcome floor = run(*floors, crew, 1);
  EXPECT_EQ(weir.fault, "");
  EXPECT_EQ(floor.fault, "");
  EXPECT_GT(reading(weir, "distinct_pages"), 0);
  EXPECT_EQ(reading(weir, "distinct_pages"), reading(floor, "distinct_pages"));
  const std::vector<std::uint32_t> order = trace->pages();
  EXPECT_EQ(order.size(), PageTrace::kLength);
  run(*weirs, crew, 1);
  EXPECT_EQ(trace->pages(), order) << "only the warm-up is traced";
}

TEST_F(FloorTest, WithoutATraceAFewPagesGoRound) {
  const auto trial = trial_of(Workload::cross_cpu,
                              std::make_shared<ReplayBuffers<Colour::by_page>>(
                                  kBuffers, 100, std::make_shared<PageTrace>()),
                              64);
  EXPECT_EQ(reading(run(*trial, crew), "distinct_pages"), 100);
}

TEST_F(FloorTest, AnArrayOfTheThreadTakesPart) {
  for (const Workload workload : {Workload::pairs, Workload::bulk}) {
    const auto trial = trial_of(workload, std::make_shared<ArrayBuffers>(kBuffers), 64);
    const Outcome outcome = run(*trial, crew);
    EXPECT_EQ(outcome.fault, "");
    EXPECT_GT(reading(outcome, "time"), 0);
  }
}

#if defined(WEIR_LAB_RSEQ)
TEST_F(FloorTest, ArraysOfCpusTakePart) {
  if (!rseq_problem().empty()) {
    GTEST_SKIP() << rseq_problem();
  }
  const auto trial = trial_of(Workload::pairs, std::make_shared<RseqBuffers>(kBuffers));
  const Outcome outcome = run(*trial, crew);
  EXPECT_EQ(outcome.fault, "");
  EXPECT_GT(reading(outcome, "time"), 0);
}

TEST_F(FloorTest, AnArrayOfACpuHandsOutEachBufferOnceAndThenNone) {
  if (!rseq_problem().empty()) {
    GTEST_SKIP() << rseq_problem();
  }
  RseqBuffers buffers(kBuffers);
  std::vector<std::byte*> all;
  crew.run(
      [&] {
        buffers.enter_thread();
        for (std::byte* one = buffers.alloc(); one != nullptr; one = buffers.alloc()) {
          all.push_back(one);
        }
        for (std::byte* one : all) {
          buffers.free(one);
        }
      },
      {});
  const std::size_t count = all.size();
  EXPECT_EQ(count, 512U);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
}
#endif

struct ForwardTest : testing::Test {
  Crew crew{choose_cpus()};
};

TEST_F(ForwardTest, ChangedBytesAreFound) {
  const auto trial = trial_of(Workload::forward, std::make_shared<ScribblingBuffers>(kBuffers));
  EXPECT_NE(run(*trial, crew, kUntilFault).fault, "");
}

TEST_F(ForwardTest, FramesThatAreDroppedDoNotConfuseTheCheck) {
  std::vector<std::byte> expired(60);
  expired[12] = std::byte{0x08};  // IPv4 with a time to live of 1
  expired[14] = std::byte{0x45};
  expired[17] = std::byte{46};
  expired[22] = std::byte{1};
  std::vector<std::byte> too_long(4000);
  std::vector<std::byte> good(80, std::byte{0x11});
  const std::vector<Capture::Frame> views{expired, good, too_long, good};
  const Capture capture = Capture::of(views);
  const auto trial = make_trial(TrialSetup{Workload::forward, &capture, kBuffers},
                                std::make_shared<HonestBuffers>(kBuffers))
                         .trial;
  const Outcome outcome = run(*trial, crew);
  EXPECT_EQ(outcome.fault, "");
  EXPECT_GT(reading(outcome, "packets"), 0);
}

TEST_F(ForwardTest, ACaptureOfWhichNothingCanBeForwardedIsAFault) {
  std::vector<std::byte> runt(10);
  const std::vector<Capture::Frame> views{runt};
  const Capture capture = Capture::of(views);
  const auto trial = make_trial(TrialSetup{Workload::forward, &capture, kBuffers},
                                std::make_shared<HonestBuffers>(kBuffers))
                         .trial;
  EXPECT_NE(run(*trial, crew).fault.find("nothing"), std::string::npos);
}

TEST_F(ForwardTest, ACaptureOfGiantsIsAFault) {
  std::vector<std::byte> giant(9000);
  const std::vector<Capture::Frame> views{giant};
  const Capture capture = Capture::of(views);
  const auto trial = make_trial(TrialSetup{Workload::forward, &capture, kBuffers},
                                std::make_shared<HonestBuffers>(kBuffers))
                         .trial;
  EXPECT_NE(run(*trial, crew).fault.find("no frame"), std::string::npos);
}

TEST_F(ForwardTest, TheRateIsPacketsOverTime) {
  const auto trial = trial_of(Workload::forward, std::make_shared<HonestBuffers>(kBuffers));
  const Outcome outcome = run(*trial, crew);
  EXPECT_NEAR(reading(outcome, "rate") * reading(outcome, "time"), 1e9, 1);
}

// From several threads at once nothing is lost or doubled.
TEST(ListBuffers, UnderASpinLockBuffersStayDistinct) {
  ListBuffers<SpinLock, LockFor::each_buffer> buffers(512);
  Crew crew(choose_cpus());
  const auto churn = [&] {
    std::array<std::byte*, 64> many{};
    for (int i = 0; i < 2000; ++i) {
      const std::size_t n = buffers.alloc_bulk(std::span<std::byte*>(many));
      buffers.free_bulk(std::span<std::byte*>(many).first(n));
    }
  };
  crew.run(churn, churn);
  std::array<std::byte*, 600> all{};
  ASSERT_EQ(buffers.alloc_bulk(std::span<std::byte*>(all)), 512U);
  std::sort(all.begin(), all.begin() + 512);
  EXPECT_EQ(std::adjacent_find(all.begin(), all.begin() + 512), all.begin() + 512);
}

// ---- engines -------------------------------------------------------------------------------------

// Loses each thousandth frame, or hands it out twice.
template <bool kTwice>
class FaultyFrames {
 public:
  explicit FaultyFrames(std::uint64_t frames) : honest_(frames) {}
  PageIndex take(Order order) noexcept {
    if (kTwice && ++count_ % kPeriod == 0) {
      return last_;
    }
    last_ = honest_.take(order);
    return last_;
  }
  void give(PageIndex page, Order order) noexcept {
    if (!kTwice && ++count_ % kPeriod != 0) {
      honest_.give(page, order);
    }
  }
  std::uint32_t take_many(PageIndex* out, std::uint32_t n) noexcept {
    return honest_.take_many(out, n);
  }
  void give_many(const PageIndex* pages, std::uint32_t n) noexcept {
    honest_.give_many(pages, n - (!kTwice && ++count_ % kPeriod == 0 ? 1 : 0));
  }

 private:
  static constexpr std::uint64_t kPeriod = 1000;
  BitmapFrames honest_;
  std::uint64_t count_ = 0;
  PageIndex last_ = kNoPage;
};

struct EnginesTest : testing::TestWithParam<const char*> {
  template <class E>
  Outcome run_engine() {
    EngineTrial<E> trial(engine_case(GetParam()));
    Crew crew(choose_cpus());
    return run(trial, crew);
  }
};

TEST_P(EnginesTest, BothGiveATimeAndNoFault) {
  for (const Outcome& outcome : {run_engine<BitmapFrames>(), run_engine<LockedBuddyFrames>()}) {
    EXPECT_EQ(outcome.fault, "");
    EXPECT_GT(reading(outcome, "time"), 0);
  }
}
TEST_P(EnginesTest, AnEngineThatLosesFramesIsFound) {
  EXPECT_NE(run_engine<FaultyFrames<false>>().fault, "");
}
INSTANTIATE_TEST_SUITE_P(Cases, EnginesTest,
                         testing::Values("single", "cluster", "scattered", "order9"));

TEST(Engines, AFrameHandedOutTwiceIsFound) {
  EngineTrial<FaultyFrames<true>> trial(engine_case("cluster"));
  Crew crew(choose_cpus());
  EXPECT_NE(run(trial, crew).fault, "");
}

TEST(Engines, EveryCaseOfTheExperimentIsKnown) {
  for (const Case& one : find_experiment("engines")->cases) {
    EXPECT_EQ(engine_case(one.name).name, one.name);
  }
}

}  // namespace
}  // namespace weir::lab
