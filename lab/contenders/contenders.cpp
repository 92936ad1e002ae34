// SPDX-License-Identifier: MIT
// lab/contenders/contenders.cpp — the registry of contenders.
#include "lab/contenders/contenders.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>

#include "lab/contenders/dpdk_plugin.hpp"
#include "lab/contenders/floor_buffers.hpp"
#include "lab/contenders/floor_rseq.hpp"
#include "lab/contenders/libraries.hpp"
#include "lab/contenders/list_buffers.hpp"
#include "lab/contenders/malloc_buffers.hpp"
#include "lab/contenders/page_trace.hpp"
#include "lab/contenders/weir_buffers.hpp"
#include "lab/contenders/zone_engines.hpp"
#include "lab/experiments/compaction.hpp"
#include "lab/experiments/engines.hpp"
#include "lab/experiments/fragmentation.hpp"
#include "lab/experiments/low_memory.hpp"
#include "lab/experiments/merge.hpp"
#include "lab/experiments/mixed_load.hpp"
#include "lab/experiments/trials.hpp"

namespace weir::lab {

namespace {

// The contenders of weir with equal options stand on one zone, so that all of them use the
// process's default zone, as a program with one allocator does.
class SharedAllocator {
 public:
  explicit SharedAllocator(const Options& options) : options_(options) {}
  [[nodiscard]] const Options& options() const { return options_; }
  std::shared_ptr<PageAllocator> get() {
    std::shared_ptr<Zones> zones = alive_.lock();
    if (zones == nullptr) {
      zones = std::make_shared<Zones>(options_);
      alive_ = zones;
    }
    return {zones, &zones->measured};
  }

 private:
  // What a page costs must not rest on there being one zone only: a second one is alive, and used.
  struct Zones {
    explicit Zones(const Options& options) : measured(options), second(options) {
      static_cast<void>(measured.alloc());
      used = second.alloc();
    }
    PageAllocator measured;
    PageAllocator second;
    PageRef used;
  };

  Options options_;
  std::weak_ptr<Zones> alive_;
};

// Experiments that make a zone of their own from the options of the contender; nullptr for the others.
// Throws what a PageAllocator throws.
std::unique_ptr<Trial> own_zone_trial(const TrialSetup& setup, const Options& options) {
  switch (setup.workload) {
    case Workload::merge:
      return std::make_unique<MergeTrial>(merge_case(setup.case_name), options);
    case Workload::low_memory:
      return std::make_unique<LowMemoryTrial>(low_memory_case(setup.case_name), options);
    case Workload::mixed_load:
      return std::make_unique<MixedLoadTrial>(mixed_load_case(setup.case_name), options);
    case Workload::compaction:
      return std::make_unique<CompactionTrial>(compaction_case(setup.case_name), options);
    case Workload::fragmentation:
      return std::make_unique<FragmentationTrial>(fragmentation_case(setup.case_name), options);
    default:
      return nullptr;
  }
}

template <class B, class... More>
Contender weir_contender(std::string name, std::string about,
                         std::shared_ptr<SharedAllocator> allocator, More... more) {
  return {std::move(name), std::move(about), "", Side::weir,
          [allocator = std::move(allocator), more...](const TrialSetup& setup) -> TrialOrProblem {
            try {
              if (auto trial = own_zone_trial(setup, allocator->options()); trial != nullptr) {
                return {std::move(trial), ""};
              }
              return make_trial(setup, std::make_shared<B>(allocator->get(), more...));
            } catch (const std::exception& error) {
              return {nullptr, error.what()};
            }
          }};
}

// Contenders over one mapping.
template <class B, class... More>
TrialOrProblem mapped_trial(const TrialSetup& setup, const More&... more) {
  auto buffers = std::make_shared<B>(setup.buffers, more...);
  if (buffers->mapping().base() == nullptr) {
    return {nullptr, "no memory for its buffers"};
  }
  return make_trial(setup, std::move(buffers));
}

template <class B>
Contender mapped_contender(std::string name, std::string about) {
  return {std::move(name), std::move(about), "", Side::other,
          [](const TrialSetup& setup) { return mapped_trial<B>(setup); }};
}

// A ring of 1024 and a burst in each hand, with something to spare: a buffer must not come round
// while it is still under way.
constexpr std::uint32_t kFloorBuffers = kUnderWay + 4 * kBurst;

Contender malloc_contender(std::string name, std::string about, std::string missing,
                           MallocFunction malloc_function, FreeFunction free_function) {
  return {std::move(name), std::move(about), std::move(missing), Side::other,
          [=](const TrialSetup& setup) -> TrialOrProblem {
            return make_trial(setup,
                              std::make_shared<MallocBuffers>(malloc_function, free_function));
          }};
}

// Pages without an allocator: across CPUs those of weir.page again, forwarding as few as can be.
template <Colour kColour>
Contender floor_contender(std::string name, std::string about, std::shared_ptr<PageTrace> trace) {
  return {std::move(name), std::move(about), "", Side::floor,
          [trace = std::move(trace)](const TrialSetup& setup) {
            TrialSetup few = setup;
            few.buffers = kFloorBuffers;
            if (setup.workload == Workload::forward) {
              return mapped_trial<RoundRobinBuffers>(few);
            }
            // Of an earlier case; that of this one comes with its warm-up. Without weir.page in the
            // case the few buffers go round.
            trace->clear();
            return mapped_trial<ReplayBuffers<kColour>>(setup, few.buffers, trace);
          }};
}

// Engines know frames by their numbers, no buffers; outside their experiment they move single ones.
template <class E>
Contender engine_contender(std::string name, std::string about) {
  return {std::move(name), std::move(about), "", Side::weir,
          [](const TrialSetup& setup) -> TrialOrProblem {
            try {
              return {std::make_unique<EngineTrial<E>>(engine_case(setup.case_name)), ""};
            } catch (const std::exception& error) {
              return {nullptr, error.what()};
            }
          }};
}

void add_engines(std::vector<Contender>& all) {
  all.push_back(engine_contender<BitmapFrames>(
      "weir.bitmap", "the engine without a lock: bits and counts by compare-and-swap"));
  all.push_back(engine_contender<LockedBuddyFrames>(
      "weir.buddy", "the buddy engine under a lock that nobody else takes"));
  all.push_back({"floor.cmpxchg", "one compare-and-swap on a line of this CPU", "", Side::floor,
                 [](const TrialSetup&) -> TrialOrProblem {
                   return {std::make_unique<CompareAndSwapTrial>(), ""};
                 }});
}

void in_buddy(Options& options, Merge merge) {
  options.engine = EngineChoice::buddy;
  options.merge = merge;
}

void add_policies(std::vector<Contender>& all, const Options& weir_options) {
  const auto add = [&](const char* name, const char* about, auto choose) {
    Options options = weir_options;
    choose(options);
    all.push_back(
        weir_contender<PageBuffers>(name, about, std::make_shared<SharedAllocator>(options)));
  };
  add("weir.page+merge=immediate", "every frame that lists give up is merged under the lock",
      [](Options& o) { in_buddy(o, Merge::immediate); });
  add("weir.page+merge=skip", "such frames wait in the engine, unmerged, one by one",
      [](Options& o) { in_buddy(o, Merge::skip); });
  add("weir.page+merge=clusters", "they wait in the engine as whole clusters",
      [](Options& o) { in_buddy(o, Merge::clusters); });
  add("weir.page+engine=buddy", "the depot before the engine with a lock",
      [](Options& o) { in_buddy(o, Merge::deferred); });
  add("weir.page+engine=buddy+depot=131072", "the same with a depot as large as what swings",
      [](Options& o) {
        in_buddy(o, Merge::deferred);
        o.depot = PageCount{131072};
      });
  add("weir.page+engine=bitmap", "the depot before the engine without a lock",
      [](Options& o) { o.engine = EngineChoice::bitmap; });
  add("weir.page+engine=bitmap+merge=immediate",
      "the engine without a lock, without a depot before it", [](Options& o) {
        o.engine = EngineChoice::bitmap;
        o.merge = Merge::immediate;
      });
}

void add_floors(std::vector<Contender>& all, const std::shared_ptr<PageTrace>& trace) {
  Contender rseq{
      "floor.rseq", "a bare array for each CPU, by restartable sequences", "", Side::floor, {}};
  rseq.missing = rseq_problem();
#if defined(WEIR_LAB_RSEQ)
  rseq.make = mapped_trial<RseqBuffers>;
#endif
  all.push_back(std::move(rseq));
  all.push_back({"floor.array", "a bare array in thread-local memory", "", Side::floor,
                 [](const TrialSetup& setup) { return mapped_trial<ArrayBuffers>(setup); }});
  all.push_back(floor_contender<Colour::none>(
      "floor.none",
      "no allocator; across CPUs the pages of weir.page in its order; free does nothing", trace));
  all.push_back(floor_contender<Colour::by_page>(
      "floor.none+coloured", "the same, writing another line of the page by its number", trace));
}

}  // namespace

Options lab_options() {
  Options options;
  options.capacity = bytes(PageCount{kLabBuffers});
  options.thp = ThpChoice::off;
  return options;
}

std::vector<Contender> find_contenders(const Options& weir_options) {
  auto allocator = std::make_shared<SharedAllocator>(weir_options);
  auto trace = std::make_shared<PageTrace>();
  Options engine_options = weir_options;
  engine_options.free_order0 = FreeOrder0::engine;
  auto engine_allocator = std::make_shared<SharedAllocator>(engine_options);

  std::vector<Contender> all;
  all.push_back(weir_contender<PoolBuffers>(
      "weir.pool", "a page pool of the receiving CPU: PagePool", allocator));
  all.push_back(weir_contender<PageBuffers>(
      "weir.page", "pages by the per-CPU lists: alloc_page, alloc_bulk, free_bulk", allocator,
      trace));
  all.push_back(weir_contender<PageRefBuffers>(
      "weir.ref", "the same pages with owners that count references: PageRef", allocator));
  all.push_back(weir_contender<IndexBuffers>(
      "weir.index", "indexes of pages alone, from the zone behind the facade: CachedZone",
      allocator));
  all.push_back(weir_contender<FragBuffers>(
      "weir.frag", "fragments of 4096 bytes cut from 32 KiB pages: FragCache", allocator));
  all.push_back(weir_contender<PoolBuffers>(
      "weir.pool+free_order0=engine",
      "the pool over a zone whose single frames skip the per-CPU lists when freed",
      engine_allocator));
  using enum LockFor;
  all.push_back(mapped_contender<ListBuffers<std::mutex, each_buffer>>(
      "mutex-list", "a vector of free buffers under std::mutex, taken for each buffer"));
  all.push_back(mapped_contender<ListBuffers<std::mutex, burst>>(
      "mutex-list+bulk", "the same, the mutex taken once for a burst"));
  all.push_back(mapped_contender<ListBuffers<SpinLock, each_buffer>>(
      "spin-list", "the same under a test-and-set spin lock, taken for each buffer"));
  all.push_back(mapped_contender<ListBuffers<SpinLock, burst>>(
      "spin-list+bulk", "the spin lock taken once for a burst"));
  all.push_back(malloc_contender(
      "glibc", "malloc and free of the C library", "",
      [](std::size_t size) { return std::malloc(size); }, [](void* buffer) { std::free(buffer); }));
  for (const MallocLibrary& library : malloc_libraries()) {
    all.push_back(malloc_contender(
        library.contender,
        library.missing.empty() ? fmt::format("malloc and free of {}", library.version)
                                : fmt::format("malloc and free of package {}", library.package),
        library.missing, library.malloc_function, library.free_function));
  }
  for (Contender& contender : dpdk_contenders()) {
    all.push_back(std::move(contender));
  }
  add_floors(all, trace);
  add_engines(all);
  add_policies(all, weir_options);
  return all;
}

const Contender* find_contender(const std::vector<Contender>& contenders, const std::string& name) {
  const auto found = std::find_if(contenders.begin(), contenders.end(),
                                  [&](const Contender& c) { return c.name == name; });
  return found == contenders.end() ? nullptr : &*found;
}

}  // namespace weir::lab
