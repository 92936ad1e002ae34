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
#include "lab/contenders/libraries.hpp"
#include "lab/contenders/list_buffers.hpp"
#include "lab/contenders/malloc_buffers.hpp"
#include "lab/contenders/weir_buffers.hpp"
#include "lab/experiments/trials.hpp"

namespace weir::lab {

namespace {

// The contenders of weir with equal options stand on one zone, so that all of them use the
// process's default zone, as a program with one allocator does.
class SharedAllocator {
 public:
  explicit SharedAllocator(const Options& options) : options_(options) {}
  std::shared_ptr<PageAllocator> get() {
    std::shared_ptr<PageAllocator> pages = alive_.lock();
    if (pages == nullptr) {
      pages = std::make_shared<PageAllocator>(options_);
      alive_ = pages;
    }
    return pages;
  }

 private:
  Options options_;
  std::weak_ptr<PageAllocator> alive_;
};

template <class B>
Contender weir_contender(std::string name, std::string about,
                         std::shared_ptr<SharedAllocator> allocator) {
  return {std::move(name), std::move(about), "", Side::weir,
          [allocator = std::move(allocator)](const TrialSetup& setup) -> TrialOrProblem {
            try {
              return {make_trial(setup, std::make_shared<B>(allocator->get())), ""};
            } catch (const std::exception& error) {
              return {nullptr, error.what()};
            }
          }};
}

// Contenders over one mapping.
template <class B>
TrialOrProblem mapped_trial(const TrialSetup& setup) {
  auto buffers = std::make_shared<B>(setup.buffers);
  if (buffers->mapping().base() == nullptr) {
    return {nullptr, "no memory for its buffers"};
  }
  return {make_trial(setup, std::move(buffers)), ""};
}

template <class B>
Contender mapped_contender(std::string name, std::string about) {
  return {std::move(name), std::move(about), "", Side::other, mapped_trial<B>};
}

// A ring of 1024 and a burst in each hand, with something to spare: a buffer must not come round
// while it is still under way.
constexpr std::uint32_t kFloorBuffers = 1024 + 4 * kBurst;

Contender malloc_contender(std::string name, std::string about, std::string missing,
                           MallocFunction malloc_function, FreeFunction free_function) {
  return {std::move(name), std::move(about), std::move(missing), Side::other,
          [=](const TrialSetup& setup) -> TrialOrProblem {
            return {
                make_trial(setup, std::make_shared<MallocBuffers>(malloc_function, free_function)),
                ""};
          }};
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
  Options engine_options = weir_options;
  engine_options.free_order0 = FreeOrder0::engine;
  auto engine_allocator = std::make_shared<SharedAllocator>(engine_options);

  std::vector<Contender> all;
  all.push_back(weir_contender<PoolBuffers>(
      "weir.pool", "a page pool of the receiving CPU: PagePool", allocator));
  all.push_back(weir_contender<PageBuffers>(
      "weir.page", "pages by the per-CPU lists: alloc_page, alloc_bulk, free_bulk", allocator));
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
  all.push_back(
      {"floor.none",
       "no allocator: buffers in turn, as few as rings and bursts need; free does nothing", "",
       Side::floor, [](const TrialSetup& setup) {
         TrialSetup few = setup;
         few.buffers = kFloorBuffers;
         return mapped_trial<RoundRobinBuffers>(few);
       }});
  return all;
}

const Contender* find_contender(const std::vector<Contender>& contenders, const std::string& name) {
  const auto found = std::find_if(contenders.begin(), contenders.end(),
                                  [&](const Contender& c) { return c.name == name; });
  return found == contenders.end() ? nullptr : &*found;
}

}  // namespace weir::lab
