// SPDX-License-Identifier: MIT
// lab/harness/crew.hpp — the two pinned threads that do all measuring. They live as long as the
// crew, because some contenders keep state per thread. Calls os/topology,
// sched_setaffinity(2).
//
// The lead runs on one CPU and the follower on another of the allowed set: not two threads of one
// core if that can be avoided. With a single allowed CPU both share it and must yield.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "weir/arch/cpu.hpp"
#include "weir/base/atomic.hpp"

namespace weir::lab {

struct CpuPair {
  unsigned lead = 0;
  unsigned follow = 0;

  [[nodiscard]] bool shared() const { return lead == follow; }
};

// CPUs this process was allowed at its start, ascending; never empty.
[[nodiscard]] std::vector<unsigned> allowed_cpus();

// Two different ones if there are two; `siblings(a, b)` says whether two CPUs are one core.
[[nodiscard]] CpuPair choose_cpus(const std::vector<unsigned>& allowed,
                                  const std::function<bool(unsigned, unsigned)>& siblings);
[[nodiscard]] CpuPair choose_cpus();

// Waiting for the other thread: pauses, and lets others run now and then; at once on a shared CPU.
class Waiter {
 public:
  explicit Waiter(bool one_cpu) : patience_(one_cpu ? 0 : kPatience) {}
  void wait() noexcept {
    if (++waits_ > patience_) [[unlikely]] {
      waits_ = 0;
      std::this_thread::yield();
      return;
    }
    cpu_pause();
  }

 private:
  static constexpr unsigned kPatience = 4096;  // pauses, some 50 us: beyond any healthy wait
  unsigned patience_;
  unsigned waits_ = 0;
};

class Crew {
 public:
  explicit Crew(CpuPair cpus);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  [[nodiscard]] CpuPair cpus() const { return cpus_; }
  // Why the threads are not where they should be, or empty.
  [[nodiscard]] const std::string& problem() const { return problem_; }

  // Runs both at the same time and returns when both are done. An empty `follow` leaves the second
  // CPU asleep.
  void run(const std::function<void()>& lead, const std::function<void()>& follow);

 private:
  struct Member {
    std::thread thread;
    const std::function<void()>* work = nullptr;  // under mutex_
  };

  void serve(Member& self, unsigned cpu);
  void stop();

  CpuPair cpus_;
  std::string problem_;  // under mutex_ while the threads start, constant afterwards
  std::mutex mutex_;
  std::condition_variable wake_;  // work or stopping_ changed
  std::condition_variable done_;  // pending_ reached 0
  unsigned pending_ = 0;          // members that still work; under mutex_
  bool stopping_ = false;         // under mutex_
  Atomic<unsigned> missing_{0};   // members not yet at the start line
  Member members_[2];
};

}  // namespace weir::lab
