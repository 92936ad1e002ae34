// SPDX-License-Identifier: MIT
// model/interleave.hpp — runs a scenario of two or three small threads in every order there is. The
// threads are fibers of one real thread; each shared access is one step, and between two steps a
// schedule may go on with any thread that can. Explorer walks all schedules depth first, each one
// replayed from the start, and stops at the first that violates something.
//
//   start()          before each schedule: the state as it was
//   threads[i]()     every shared access through ModelAtomic or after step(); no other choices
//   finish()         after each schedule: what must be true now
//
// Orders are sequentially consistent: a missing acquire or release is not found here (that is what
// ThreadSanitizer and the pairs in the comments are for), a wrong algorithm is. What a thread does
// between two accesses belongs to the earlier one, and cannot be interrupted.
//
//   example: threads of 2 and of 3 steps have 5! / (2! 3!) = 10 schedules
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "weir/base/atomic.hpp"

#if defined(__SANITIZE_THREAD__)
  #define WEIR_MODEL_TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
  #define WEIR_MODEL_ASAN 1
#elif defined(__has_feature)
  #if __has_feature(thread_sanitizer)
    #define WEIR_MODEL_TSAN 1
  #elif __has_feature(address_sanitizer)
    #define WEIR_MODEL_ASAN 1
  #endif
#endif
#if defined(WEIR_MODEL_TSAN)
  #include <sanitizer/tsan_interface.h>
#elif defined(WEIR_MODEL_ASAN)
  #include <sanitizer/common_interface_defs.h>
#endif

namespace weir::test {

// A stack that can be left and entered again; the sanitizers are told. The default one stands for
// the stack of whoever runs the explorer.
class Fiber {
 public:
  Fiber() = default;
  explicit Fiber(std::function<void()> body)
      : body_(std::move(body)), stack_(new char[kStack]), entered_(false) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_.get();
    context_.uc_stack.ss_size = kStack;
    makecontext(&context_, &Fiber::enter, 0);
    bottom_ = stack_.get();
    size_ = kStack;
#if defined(WEIR_MODEL_TSAN)
    tsan_ = __tsan_create_fiber(0);
#endif
  }
  ~Fiber() {
#if defined(WEIR_MODEL_TSAN)
    if (stack_ != nullptr) {
      __tsan_destroy_fiber(tsan_);
    }
#endif
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Goes on with `to`; returns when somebody goes on with this one, which must be the running one.
  void leave_for(Fiber& to) {
    s_from = this;
    s_to = &to;
#if defined(WEIR_MODEL_TSAN)
    if (stack_ == nullptr) {
      tsan_ = __tsan_get_current_fiber();
    }
    __tsan_switch_to_fiber(to.tsan_, 0);
#elif defined(WEIR_MODEL_ASAN)
    __sanitizer_start_switch_fiber(&fake_stack_, to.bottom_, to.size_);
#endif
    jump(to);
    arrived();
  }

 private:
  static constexpr std::size_t kStack = std::size_t{64} << 10;

  // swapcontext() costs two system calls, so it is kept for the sanitizers, which know it.
  void jump(Fiber& to) {
#if defined(WEIR_MODEL_TSAN) || defined(WEIR_MODEL_ASAN)
    swapcontext(&context_, &to.context_);
#else
    if (_setjmp(left_at_) == 0) {
      if (std::exchange(to.entered_, true)) {
        _longjmp(to.left_at_, 1);
      }
      setcontext(&to.context_);
    }
#endif
  }
  static void enter() {
    Fiber& me = *s_to;
    me.arrived();
    me.body_();  // never returns
  }
  void arrived() {
#if defined(WEIR_MODEL_ASAN)
    // Tells the bounds of the stack that was left: so the default one learns its own.
    __sanitizer_finish_switch_fiber(fake_stack_, &s_from->bottom_, &s_from->size_);
#endif
  }

  inline static Fiber* s_from = nullptr;
  inline static Fiber* s_to = nullptr;

  std::function<void()> body_;
  std::unique_ptr<char[]> stack_;
  ucontext_t context_{};
  [[maybe_unused]] jmp_buf left_at_{};
  [[maybe_unused]] bool entered_ = true;
  const void* bottom_ = nullptr;
  std::size_t size_ = 0;
  [[maybe_unused]] void* fake_stack_ = nullptr;  // the address sanitizer's, while left
  [[maybe_unused]] void* tsan_ = nullptr;        // the thread sanitizer's name of it
};

struct Scenario {
  std::function<void()> start;
  std::vector<std::function<void()>> threads;
  std::function<void()> finish;
};

struct Limits {
  static constexpr std::uint32_t kAny = 0xffff'ffffU;
  // How often a schedule may leave a thread that could go on. With a bound not all is explored.
  std::uint32_t preemptions = kAny;
  // A longer schedule counts as one that never ends.
  std::uint32_t steps = 10'000;
};

// For cases of some 100000 schedules: every one of them, but where a schedule costs thirty times as
// much and a sanitizer has seen enough after fewer.
#if defined(WEIR_MODEL_TSAN) || defined(WEIR_MODEL_ASAN)
inline constexpr Limits kManySchedules{.preemptions = 4};
#else
inline constexpr Limits kManySchedules{};
#endif

struct Explored {
  std::uint64_t schedules = 0;
  std::uint32_t longest = 0;  // steps
  std::string failure;        // the first one; empty = every schedule is right
  std::string witness;        // the threads of the failing schedule, step by step: "0010211"
};

class Explorer {
 public:
  explicit Explorer(Scenario scenario, Limits limits = {})
      : scenario_(std::move(scenario)), limits_(limits) {
    for (std::size_t i = 0; i < scenario_.threads.size(); ++i) {
      threads_.push_back(std::make_unique<Thread>(*this, i));
    }
  }

  [[nodiscard]] Explored run() {
    s_running = this;
    do {
      run_schedule();
      ++result_.schedules;
    } while (result_.failure.empty() && next_schedule());
    s_running = nullptr;
    return result_;
  }

  // Before a shared access of the running thread. Nothing outside of a schedule's threads.
  static void step() {
    if (s_running != nullptr && s_running->current_ != kNobody) {
      s_running->park(nullptr);
    }
  }
  // The same, but the thread cannot go on while `ready` is false. `ready` must not take steps.
  static void step_when(const std::function<bool()>& ready) {
    if (s_running != nullptr && s_running->current_ != kNobody) {
      s_running->park(&ready);
    }
  }
  // What `look` does counts as no access of its own: for a test that looks into a structure.
  template <class F>
  static auto unseen(F look) {
    Explorer* const running = std::exchange(s_running, nullptr);
    const auto answer = look();
    s_running = running;
    return answer;
  }
  // The schedule is wrong; it goes on to its end, and only the first text is kept.
  static void violated(const std::string& what) {
    if (s_running != nullptr && s_running->result_.failure.empty()) {
      s_running->result_.failure = what;
    }
  }

 private:
  static constexpr std::size_t kNobody = ~std::size_t{0};

  struct Thread {
    Thread(Explorer& explorer, std::size_t number)
        : fiber([&explorer, number] { explorer.work(number); }) {}
    Fiber fiber;
    bool done = false;
    const std::function<bool()>* ready = nullptr;
  };
  // What a schedule chose at one place, of what it could choose.
  struct Choice {
    std::vector<std::uint8_t> options;
    std::size_t taken = 0;
    friend bool operator==(const Choice& a, const Choice& b) { return a.options == b.options; }
  };

  // The life of a fiber: one run of its thread a schedule.
  void work(std::size_t number) {
    for (;;) {
      scenario_.threads[number]();
      threads_[number]->done = true;
      go_on(number);
    }
  }

  void park(const std::function<bool()>* ready) {
    const std::size_t me = current_;
    threads_[me]->ready = ready;
    go_on(me);
    threads_[me]->ready = nullptr;
  }

  // `me` stands before an access or is done: who is next?
  void go_on(std::size_t me) {
    const std::size_t next = starting_ ? kNobody : choose(me);
    if (next == me) {
      return;
    }
    current_ = next;
    threads_[me]->fiber.leave_for(next == kNobody ? main_ : threads_[next]->fiber);
  }

  // The thread that takes the next step, or nobody when the schedule is over.
  std::size_t choose(std::size_t last) {
    Choice choice;
    const auto can = [this](std::size_t i) {
      const Thread& thread = *threads_[i];
      return !thread.done && (thread.ready == nullptr || (*thread.ready)());
    };
    const bool last_can = last != kNobody && can(last);
    if (last_can) {
      choice.options.push_back(static_cast<std::uint8_t>(last));
    }
    if (!last_can || preemptions_ < limits_.preemptions) {
      for (std::size_t i = 0; i < threads_.size(); ++i) {
        if (i != last && can(i)) {
          choice.options.push_back(static_cast<std::uint8_t>(i));
        }
      }
    }
    if (choice.options.empty()) {
      for (const auto& thread : threads_) {
        if (!thread->done) {
          violated("every thread waits");
        }
      }
      return kNobody;
    }
    if (depth_ == limits_.steps) {
      violated("a schedule does not end");
      return kNobody;
    }
    if (depth_ == path_.size()) {
      path_.push_back(std::move(choice));
    } else if (!(path_[depth_] == choice)) {
      violated("the scenario is not the same each time");
      return kNobody;
    }
    const Choice& here = path_[depth_++];
    const std::size_t next = here.options[here.taken];
    preemptions_ += last_can && next != last ? 1 : 0;
    return next;
  }

  void run_schedule() {
    depth_ = 0;
    preemptions_ = 0;
    scenario_.start();
    // Each thread comes to stand before its first access, in turn: that is no choice.
    starting_ = true;
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      threads_[i]->done = false;
      current_ = i;
      main_.leave_for(threads_[i]->fiber);
    }
    starting_ = false;
    current_ = choose(kNobody);
    if (current_ != kNobody) {
      main_.leave_for(threads_[current_]->fiber);
    }
    result_.longest = std::max(result_.longest, static_cast<std::uint32_t>(depth_));
    if (result_.failure.empty()) {
      scenario_.finish();
    }
    if (!result_.failure.empty()) {
      for (std::size_t i = 0; i < depth_; ++i) {
        result_.witness += static_cast<char>('0' + path_[i].options[path_[i].taken]);
      }
    }
  }

  // Turns the last choice that has an untried option; false when none has.
  bool next_schedule() {
    while (!path_.empty()) {
      if (++path_.back().taken < path_.back().options.size()) {
        return true;
      }
      path_.pop_back();
    }
    return false;
  }

  inline static Explorer* s_running = nullptr;

  Scenario scenario_;
  Limits limits_;
  Fiber main_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Choice> path_;
  std::size_t depth_ = 0;
  std::uint32_t preemptions_ = 0;
  std::size_t current_ = kNobody;  // the thread that runs; nobody: start, finish
  bool starting_ = false;
  Explored result_;
};

inline Explored explore(Scenario scenario, Limits limits = {}) {
  return Explorer{std::move(scenario), limits}.run();
}

// Stands in for Atomic<T>: every call is one step. Orders are accepted and ignored.
template <class T>
class ModelAtomic {
 public:
  constexpr ModelAtomic(T value = T{}) noexcept : value_(value) {}  // NOLINT
  ModelAtomic(const ModelAtomic&) = delete;
  ModelAtomic& operator=(const ModelAtomic&) = delete;

  T load(std::memory_order = memory_order_seq_cst) const {
    Explorer::step();
    return value_;
  }
  void store(T value, std::memory_order = memory_order_seq_cst) {
    Explorer::step();
    value_ = value;
  }
  T exchange(T value, std::memory_order = memory_order_seq_cst) {
    Explorer::step();
    return std::exchange(value_, value);
  }
  T fetch_add(T value, std::memory_order = memory_order_seq_cst) {
    Explorer::step();
    return std::exchange(value_, static_cast<T>(value_ + value));
  }
  T fetch_sub(T value, std::memory_order = memory_order_seq_cst) {
    Explorer::step();
    return std::exchange(value_, static_cast<T>(value_ - value));
  }
  T fetch_or(T value, std::memory_order = memory_order_seq_cst) {
    Explorer::step();
    return std::exchange(value_, static_cast<T>(value_ | value));
  }
  T fetch_and(T value, std::memory_order = memory_order_seq_cst) {
    Explorer::step();
    return std::exchange(value_, static_cast<T>(value_ & value));
  }
  // Never fails without a reason: that would only take one more round.
  bool compare_exchange_weak(T& expected, T desired, std::memory_order = memory_order_seq_cst,
                             std::memory_order = memory_order_seq_cst) {
    Explorer::step();
    if (value_ != expected) {
      expected = value_;
      return false;
    }
    value_ = desired;
    return true;
  }
  bool compare_exchange_strong(T& expected, T desired,
                               std::memory_order success = memory_order_seq_cst,
                               std::memory_order failure = memory_order_seq_cst) {
    return compare_exchange_weak(expected, desired, success, failure);
  }

 private:
  T value_;
};

}  // namespace weir::test
