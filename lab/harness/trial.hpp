// SPDX-License-Identifier: MIT
// lab/harness/trial.hpp — one contender set up for one workload, and what a round of it yields.
// Plain types and one virtual class, so that a contender may live in a module loaded at run time.
// Calls the C++ library only. Owns no thread: the runner calls lead() and follow() from its own
// two pinned threads, always the same ones for the life of the process.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weir {
class Capture;
}

namespace weir::lab {

// What a trial does between its allocations; one template each in lab/experiments.
enum class Workload : unsigned char {
  pairs,          // one buffer out and back, one CPU
  bulk,           // a batch of buffers out and back, one CPU
  cross_cpu,      // CPU A takes batches and writes 64 bytes of each buffer, CPU B gives back
  engines,        // the engine of a zone by itself, one CPU
  merge,          // thousands of pages out one by one, touched, and back; one to eight threads
  low_memory,     // a live set raised to the watermarks and lowered again, one CPU
  mixed_load,     // half the threads single pages, half pageblocks
  compaction,     // the same with movable pages, then the zone is compacted
  fragmentation,  // random frees and as many allocations, a hundred times; one CPU or two
  forward,        // CPU A receives, rewrites, transmits; CPU B completes
};

// Batches of bulk and cross_cpu are powers of two up to this.
inline constexpr std::uint32_t kMostBatch = 128;

struct TrialSetup {
  Workload workload = Workload::pairs;
  const Capture* capture = nullptr;  // forward only; outlives the trial
  std::uint32_t buffers = 0;         // how many there are, where the contender is bounded
  std::uint32_t batch = 64;          // bulk and cross_cpu: buffers taken and given at once
  std::string_view case_name{};      // experiments with zones of their own: which of its cases
};

struct RoundSetup {
  std::chrono::nanoseconds duration{0};
  bool one_cpu = false;  // both threads share a CPU: yield instead of spinning
};

// A number of one round. `metric` and `unit` are static strings of the program or of a module that
// is never unloaded.
struct Reading {
  const char* metric;
  const char* unit;
  double value;
};

struct Outcome {
  std::vector<Reading> readings;
  std::string fault;  // the contender did not do its work: what was wrong, one line
};

class Trial {
 public:
  virtual ~Trial() = default;

  // Before a round, on the runner's thread; nothing else runs.
  virtual void prepare(const RoundSetup& setup) = 0;
  // The round itself: CPU A, and CPU B at the same time if two_sided().
  virtual void lead() = 0;
  virtual void follow() {}
  [[nodiscard]] virtual bool two_sided() const = 0;
  // After a round, on the runner's thread; nothing else runs.
  virtual Outcome collect() = 0;
};

// A trial, or why there is none.
struct TrialOrProblem {
  std::unique_ptr<Trial> trial;
  std::string problem;
};

}  // namespace weir::lab
