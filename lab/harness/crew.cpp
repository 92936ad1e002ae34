// SPDX-License-Identifier: MIT
// lab/harness/crew.cpp — choosing CPUs, pinning, and the start line.
#include "lab/harness/crew.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>

#include "weir/base/check.hpp"
#include "weir/os/topology.hpp"

namespace weir::lab {

namespace {

// sysfs writes the mask of a core's threads the same way for each of them.
std::string core_of(unsigned cpu) {
  std::ifstream file(
      fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
  std::string line;
  std::getline(file, line);
  return line;
}

bool same_core(unsigned a, unsigned b) {
  const std::string core = core_of(a);
  return !core.empty() && core == core_of(b);
}

}  // namespace

std::vector<unsigned> allowed_cpus() {
  std::vector<unsigned> cpus;
  const IdSet& allowed = topology().allowed_cpus;
  for (std::uint32_t cpu = allowed.next(0); cpu != IdSet::kNone; cpu = allowed.next(cpu + 1)) {
    cpus.push_back(cpu);
  }
  return cpus;
}

CpuPair choose_cpus(const std::vector<unsigned>& allowed,
                    const std::function<bool(unsigned, unsigned)>& siblings) {
  WEIR_CHECK(!allowed.empty(), "a thread runs somewhere");
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    for (std::size_t k = i + 1; k < allowed.size(); ++k) {
      if (!siblings(allowed[i], allowed[k])) {
        return {allowed[i], allowed[k]};
      }
    }
  }
  return {allowed.front(), allowed.size() > 1 ? allowed[1] : allowed.front()};
}

CpuPair choose_cpus() { return choose_cpus(allowed_cpus(), same_core); }

Crew::Crew(CpuPair cpus) : cpus_(cpus) {
  pending_ = 2;
  try {
    members_[0].thread = std::thread([this] { serve(members_[0], cpus_.lead); });
    members_[1].thread = std::thread([this] { serve(members_[1], cpus_.follow); });
  } catch (const std::system_error& error) {
    stop();
    throw std::runtime_error(std::string{"cannot start the two measuring threads: "} +
                             error.code().message());
  }
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return pending_ == 0; });
}

Crew::~Crew() { stop(); }

void Crew::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (Member& member : members_) {
    if (member.thread.joinable()) {
      member.thread.join();
    }
  }
}

void Crew::serve(Member& self, unsigned cpu) {
  cpu_set_t* set = CPU_ALLOC(IdSet::kLimit);
  int failed = ENOMEM;
  if (set != nullptr) {
    const std::size_t size = CPU_ALLOC_SIZE(IdSet::kLimit);
    CPU_ZERO_S(size, set);
    CPU_SET_S(cpu, size, set);
    failed = sched_setaffinity(0, size, set) == 0 ? 0 : errno;
    CPU_FREE(set);
  }
  std::unique_lock lock(mutex_);
  if (failed != 0) {
    problem_ = fmt::format("no thread could be pinned to CPU {}: {}", cpu, std::strerror(failed));
  }
  for (;;) {
    self.work = nullptr;
    if (--pending_ == 0) {
      done_.notify_all();
    }
    wake_.wait(lock, [&] { return stopping_ || self.work != nullptr; });
    if (stopping_) {
      return;
    }
    const std::function<void()>& work = *self.work;
    lock.unlock();
    // The start line: both leave it within a cache-line transfer of each other.
    missing_.fetch_sub(1, memory_order_relaxed);
    Waiter waiter(cpus_.shared());
    while (missing_.load(memory_order_relaxed) != 0) {
      waiter.wait();
    }
    work();
    lock.lock();
  }
}

void Crew::run(const std::function<void()>& lead, const std::function<void()>& follow) {
  std::unique_lock lock(mutex_);
  pending_ = follow ? 2 : 1;
  missing_.store(pending_, memory_order_relaxed);
  members_[0].work = &lead;
  if (follow) {
    members_[1].work = &follow;
  }
  wake_.notify_all();
  done_.wait(lock, [this] { return pending_ == 0; });
}

}  // namespace weir::lab
