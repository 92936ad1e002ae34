// SPDX-License-Identifier: MIT
#include "weir/page/callback.hpp"

#include <pthread.h>
#include <time.h>

#include "weir/os/lock.hpp"
#include "weir/os/thread_mark.hpp"

namespace weir {

constinit Atomic<std::uint32_t> callbacks::g_nodes{0};

struct CallbackList {
  Lock lock;
  Atomic<std::uintptr_t> holder{0};  // thread_token(); read by a fork on the same thread
  Callback* first = nullptr;         // under lock, as all that follows
  Callback* last = nullptr;
  std::uint64_t tickets = 0;

  [[nodiscard]] Callback* find(const CachedZone& zone, CallbackKind kind, std::uint64_t above,
                               std::uint64_t most) const noexcept {
    for (Callback* node = first; node != nullptr && node->ticket_ <= most; node = node->after_) {
      if (node->ticket_ > above && node->zone_ == &zone && node->kind_ == kind) {
        return node;
      }
    }
    return nullptr;
  }
  void append(Callback& node, const CachedZone& zone) noexcept {
    node.zone_ = &zone;
    node.ticket_ = ++tickets;
    node.before_ = last;
    node.after_ = nullptr;
    (last != nullptr ? last->after_ : first) = &node;
    last = &node;
    add_nodes(1);
  }
  void unlink(Callback& node) noexcept {
    if (node.zone_ == nullptr) {
      return;
    }
    (node.before_ != nullptr ? node.before_->after_ : first) = node.after_;
    (node.after_ != nullptr ? node.after_->before_ : last) = node.before_;
    node.zone_ = nullptr;
    add_nodes(-1);
  }
  void unlink_all(const CachedZone& zone) noexcept {
    for (Callback* node = first; node != nullptr;) {
      Callback* const next = node->after_;
      if (node->zone_ == &zone) {
        unlink(*node);
      }
      node = next;
    }
  }
  static void add_nodes(int n) noexcept {
    callbacks::g_nodes.store(
        callbacks::g_nodes.load(memory_order_relaxed) + static_cast<std::uint32_t>(n),
        memory_order_relaxed);
  }
  // In a forked child: nobody but this thread is inside a callback.
  void forget_others(const Callback* own) noexcept {
    for (Callback* node = first; node != nullptr; node = node->after_) {
      node->running_ = node == own ? 1 : 0;
    }
  }
};

namespace {

constinit CallbackList g_list;

// What this thread is in the middle of; initial-exec as in os/thread_mark.hpp.
constinit thread_local CallbackRun* volatile t_run [[gnu::tls_model("initial-exec")]] = nullptr;

// One hold of the list.
class Hold {
 public:
  Hold() noexcept {
    g_list.lock.lock();
    g_list.holder.store(thread_token(), memory_order_relaxed);
  }
  ~Hold() {
    g_list.holder.store(0, memory_order_relaxed);
    g_list.lock.unlock();
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  ThreadMark mark_;  // stands before the lock is taken, goes after it is free
};

// A callback may take as long as it likes: whoever waits for its end sleeps.
void wait_for_callback() noexcept {
  const timespec pause{0, 50'000};
  ::nanosleep(&pause, nullptr);
}

// A handler that interrupted a hold may fork: the thread goes on with it in the child.
bool held_by_this_thread() noexcept {
  return g_list.holder.load(memory_order_relaxed) == thread_token();
}
void before_fork() noexcept {
  if (!held_by_this_thread()) {
    g_list.lock.lock();
  }
}
void after_fork_in_parent() noexcept {
  if (!held_by_this_thread()) {
    g_list.lock.unlock();
  }
}
void after_fork_in_child() noexcept {
  if (!held_by_this_thread()) {
    CallbackRun* const run = t_run;
    g_list.forget_others(run != nullptr ? run->node : nullptr);
    g_list.lock.unlock();
  }
}

}  // namespace

void Callback::remove() noexcept {
  for (;;) {
    {
      const Hold hold;
      g_list.unlink(*this);
      CallbackRun* const run = t_run;
      if (run != nullptr && run->node == this) {
        run->node = nullptr;
        --running_;
      }
      if (running_ == 0) {
        return;
      }
    }
    wait_for_callback();
  }
}

bool Callback::registered() const noexcept {
  const Hold hold;
  return zone_ != nullptr;
}

std::uint64_t Callback::id_in(const CachedZone& zone) const noexcept {
  if (thread_is_marked()) {
    return 0;  // a handler that may have interrupted a hold of the list
  }
  const Hold hold;
  return zone_ == &zone ? ticket_ : 0;
}

int callbacks::prepare() noexcept {
  static const int result =
      ::pthread_atfork(&before_fork, &after_fork_in_parent, &after_fork_in_child);
  return result;
}

void callbacks::add(Callback& node, const CachedZone& zone) noexcept {
  const Hold hold;
  g_list.unlink(node);
  g_list.append(node, zone);
}

void callbacks::remove_all(const CachedZone& zone) noexcept {
  const Hold hold;
  g_list.unlink_all(zone);
}

bool callbacks::allowed() noexcept { return t_run == nullptr && !thread_is_marked(); }

CallbackWalk::CallbackWalk(const CachedZone& zone, CallbackKind kind, bool allowed) noexcept
    : zone_(zone), kind_(kind) {
  if (allowed && callbacks::any() && callbacks::allowed()) {
    const Hold hold;
    last_ = g_list.tickets;
  }
}

CallbackWalk CallbackWalk::only(const CachedZone& zone, CallbackKind kind,
                                std::uint64_t id) noexcept {
  CallbackWalk walk{zone, kind, false};
  if (id != 0 && callbacks::allowed()) {
    walk.done_ = id - 1;
    walk.last_ = id;
  }
  return walk;
}

bool CallbackWalk::more() const noexcept {
  if (last_ == done_) {
    return false;
  }
  const Hold hold;
  return g_list.find(zone_, kind_, done_, last_) != nullptr;
}

bool CallbackWalk::begin(CallbackRun& here) noexcept {
  if (last_ == done_) {
    return false;
  }
  const Hold hold;
  here.node = g_list.find(zone_, kind_, done_, last_);
  if (here.node == nullptr) {
    done_ = last_;
    return false;
  }
  done_ = here.node->ticket_;
  ++here.node->running_;
  t_run = &here;
  return true;
}

void CallbackWalk::end(CallbackRun& here) noexcept {
  const Hold hold;
  t_run = nullptr;
  if (here.node != nullptr) {
    --here.node->running_;
  }
}

}  // namespace weir
