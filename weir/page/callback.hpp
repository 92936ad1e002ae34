// SPDX-License-Identifier: MIT
// page/callback.hpp — registrations of what users want to be called for, by zone, and the walk that
// calls them in the order in which they came. Calls percpu for nothing but the zone's name, os/lock.
//
// A node belongs to its user. The lock of the list is held for a look and never while a callback runs;
// so callbacks may register and remove nodes, their own included. Several threads may be inside the
// callback of one node. Inside a callback no other is called: a request made there finds none.
//
// C1: a node's running_ == threads between CallbackWalk::next's two looks at the list that have not
//     removed the node themselves.
#pragma once

#include <cstdint>
#include <type_traits>

#include "weir/base/atomic.hpp"
#include "weir/base/types.hpp"
#include "weir/percpu/cached_zone.hpp"

namespace weir {

enum class CallbackKind : unsigned char { reclaim, limit, move };

class Callback;

namespace callbacks {

// Handlers around fork(2); 0 or the system's error. Before the first add().
int prepare() noexcept;
// A node that is registered already, for whatever zone, changes over. Any thread, not in a signal handler.
void add(Callback& node, const CachedZone& zone) noexcept;
// The zone's owner goes: all its nodes are removed.
void remove_all(const CachedZone& zone) noexcept;
// Nodes registered in the process; written under the lock of the list.
extern constinit Atomic<std::uint32_t> g_nodes;
[[nodiscard]] inline bool any() noexcept { return g_nodes.load(memory_order_relaxed) != 0; }
// Whether this thread may be made to call somebody: it is in no callback and, as far as can be told, in
// no signal handler.
[[nodiscard]] bool allowed() noexcept;

}  // namespace callbacks

class Callback {
 public:
  Callback(const Callback&) = delete;
  Callback& operator=(const Callback&) = delete;

  // Ends the registration, if there is one. When it returns, no thread is inside the callback and none
  // will be; the calling thread itself is excepted. Any thread, not in a signal handler. A callback that
  // waits for whoever removes it never ends.
  void remove() noexcept;
  [[nodiscard]] bool registered() const noexcept;
  // Of this registration, in the whole life of the process; 0 when it is not registered with this zone.
  [[nodiscard]] std::uint64_t id_in(const CachedZone& zone) const noexcept;

 protected:
  explicit Callback(CallbackKind kind) noexcept : kind_(kind) {}
  ~Callback() { remove(); }

 private:
  friend class CallbackWalk;
  friend struct CallbackList;

  // All under the lock of the list.
  const CachedZone* zone_ = nullptr;  // nullptr: not registered
  Callback* before_ = nullptr;
  Callback* after_ = nullptr;
  std::uint64_t ticket_ = 0;  // ascends along the list
  std::uint32_t running_ = 0;
  const CallbackKind kind_;
};

// What a thread is in the middle of: the node, or nullptr once the callback itself has removed it, for
// then it may be gone.
struct CallbackRun {
  Callback* volatile node = nullptr;
};

// One pass over the nodes of a zone that were there when it began.
class CallbackWalk {
 public:
  // allowed: false makes it an empty one.
  CallbackWalk(const CachedZone& zone, CallbackKind kind, bool allowed) noexcept;
  // The one with this id alone, if it is still there.
  [[nodiscard]] static CallbackWalk only(const CachedZone& zone, CallbackKind kind,
                                         std::uint64_t id) noexcept;

  [[nodiscard]] bool more() const noexcept;
  // Calls the next one, call(Callback&) or call(Callback&, const CallbackRun&), with no lock held; false when
  // there is none. The run's node is nullptr once the callback has removed itself.
  template <class Call>
  bool next(Call&& call) noexcept {
    CallbackRun here;
    if (!begin(here)) {
      return false;
    }
    if constexpr (std::is_invocable_v<Call, Callback&, const CallbackRun&>) {
      call(*here.node, here);
    } else {
      call(*here.node);
    }
    end(here);
    return true;
  }

 private:
  bool begin(CallbackRun& here) noexcept;
  void end(CallbackRun& here) noexcept;

  const CachedZone& zone_;
  const CallbackKind kind_;
  std::uint64_t done_ = 0;  // ticket of the last one called
  std::uint64_t last_ = 0;  // the newest when the walk began
};

}  // namespace weir
