// SPDX-License-Identifier: MIT
// zone/depot.hpp — the bounded store of clusters between the per-CPU lists and the engine. Owns the
// bodies of all clusters and who holds which. Calls os/memory in open() and close() only. Never
// waits, never allocates afterwards, never looks at a frame's descriptor.
//
// Each shard has three stacks of bodies, newest on top: full, empty, partial. A stack is one word:
//
//   | tag 36 | depth 14 | top + 1 14 |     example: {7, 2, 6}: two bodies, number 5 on top
//
// and an entry for each body in `next_`, an array of its own. The word changes by compare-and-swap
// alone, and each change adds one to the tag: a thread that slept over 2^36 changes of one stack
// between its look and its swap would be fooled, none before. Because every change is a
// read-modify-write, each continues the release sequence of every push before it: whoever reads the
// word with acquire sees `next_` and the body of all that lies in the stack, not of its top alone.
//
// D1: a body is in exactly one stack, or in the hands of exactly one caller.
// D2: full clusters <= capacity with one shard; with several, capacity and one for each other
//     thread that is inside give_full() at that moment, for the sum over shards is not one look.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>

#include "weir/arch/cpu.hpp"
#include "weir/base/atomic.hpp"
#include "weir/base/bits.hpp"
#include "weir/base/check.hpp"
#include "weir/base/config.hpp"
#include "weir/base/hot.hpp"
#include "weir/base/result.hpp"
#include "weir/base/types.hpp"
#include "weir/os/memory.hpp"
#include "weir/zone/cluster.hpp"

namespace weir {

// The word of a stack: a value, changed by pure functions. All zero is an empty stack.
struct StackHead {
  static constexpr unsigned kIdBits = 14;
  static constexpr unsigned kDepthBits = 14;
  static constexpr unsigned kTagShift = kIdBits + kDepthBits;
  static constexpr std::uint64_t kIdMask = (std::uint64_t{1} << kIdBits) - 1;
  static constexpr std::uint64_t kDepthMask = (std::uint64_t{1} << kDepthBits) - 1;

  std::uint64_t word = 0;

  // A tag above 36 bits loses its highest ones: so it wraps.
  [[nodiscard]] static constexpr StackHead make(ClusterId top, std::uint64_t depth,
                                                std::uint64_t tag) noexcept {
    return {(tag << kTagShift) | (depth << kIdBits) |
            static_cast<std::uint16_t>(top.value + 1U)};  // kNoCluster becomes 0
  }
  [[nodiscard]] constexpr ClusterId top() const noexcept {
    return {static_cast<std::uint16_t>((word & kIdMask) - 1U)};
  }
  [[nodiscard]] constexpr std::uint32_t depth() const noexcept {
    return static_cast<std::uint32_t>((word >> kIdBits) & kDepthMask);
  }
  [[nodiscard]] constexpr std::uint64_t tag() const noexcept { return word >> kTagShift; }

  [[nodiscard]] constexpr StackHead pushed(ClusterId id) const noexcept {
    return make(id, depth() + 1U, tag() + 1);
  }
  // next: what lies under the top. Must not be empty.
  [[nodiscard]] constexpr StackHead popped(ClusterId next) const noexcept {
    return make(next, depth() - 1U, tag() + 1);
  }
};

// AtomicT is Atomic everywhere but in a test that runs this code step by step.
template <template <class> class AtomicT>
class BasicDepot {
 public:
  // Numbers below it, their successors and every depth fit their fields.
  static constexpr std::uint32_t kMaxBodies = 16382;
  static constexpr std::uint32_t kMaxShards = 16;
  static_assert(kMaxBodies <= StackHead::kIdMask && kMaxBodies <= StackHead::kDepthMask);

  BasicDepot() = default;
  ~BasicDepot() { close(); }
  BasicDepot(const BasicDepot&) = delete;
  BasicDepot& operator=(const BasicDepot&) = delete;

  // Not thread-safe. bodies: how many clusters can exist, more than kMaxBodies become kMaxBodies;
  // capacity: most full clusters kept, more than bodies become bodies; shards: 1 to kMaxShards;
  // cluster_frames: frames of a full cluster, 1 to kClusterFrames. All bodies start empty, shared
  // out over the shards, and their memory is not touched.
  Error open(std::uint32_t bodies, std::uint32_t capacity, std::uint32_t shards,
             std::uint32_t cluster_frames);
  // Not thread-safe. Forgets all clusters; until the next open() there is no body.
  void close() noexcept;

  // From here on: any thread, lock-free, async-signal-safe, without a system call.
  // shard: below the number of shards. A take looks there first, then at the others in turn.

  // The newest full cluster, or kNoCluster.
  [[nodiscard]] WEIR_HOT ClusterId take_full(std::uint32_t shard) noexcept {
    Shard& own = shards_[shard];
    StackHead left;
    if (const ClusterId id = pop(own.full, left); id != kNoCluster) [[likely]] {
      note_low(own, left.depth());
      return id;
    }
    return take_full_elsewhere(shard);
  }
  // The same, of this shard alone.
  [[nodiscard]] ClusterId take_full_here(std::uint32_t shard) noexcept {
    Shard& own = shards_[shard];
    StackHead left;
    const ClusterId id = pop(own.full, left);
    if (id != kNoCluster) {
      note_low(own, left.depth());
    }
    return id;
  }
  // False when `capacity` clusters are here already, partial ones counted: the caller keeps the body.
  // Of full ones there are never more; a partial one that comes at the same moment may be one too many.
  [[nodiscard]] WEIR_HOT bool give_full(ClusterId id, std::uint32_t shard) noexcept {
    WEIR_ASSERT(id.value < bodies_, "Depot D1");
    AtomicT<std::uint64_t>& stack = shards_[shard].full;
    prefetch_for_write(&stack);
    StackHead seen{stack.load(memory_order_relaxed)};
    do {
      // Looked at inside the loop: the swap proves that this shard's depth is still the one summed.
      const std::uint32_t others =
          partial_clusters() + (shard_count_ == 1 ? 0 : full_elsewhere(shard));
      if (seen.depth() + others >= capacity_.load(memory_order_relaxed)) {
        return false;
      }
    } while (!try_push(stack, seen, id));
    return true;
  }
  // A body without frames, or kNoCluster: all bodies are in use.
  [[nodiscard]] WEIR_HOT ClusterId take_empty(std::uint32_t shard) noexcept {
    StackHead left;
    const ClusterId id = pop(shards_[shard].empty, left);
    return id != kNoCluster ? id : take_empty_elsewhere(shard);
  }
  WEIR_HOT void give_empty(ClusterId id, std::uint32_t shard) noexcept {
    WEIR_ASSERT(id.value < bodies_, "Depot D1");
    push(shards_[shard].empty, id);
  }
  // A cluster of which frames[0..n) are valid, 0 < n < cluster_frames; or kNoCluster and n = 0.
  [[nodiscard]] ClusterId take_partial(std::uint32_t shard, std::uint32_t& n) noexcept;
  // Never refused.
  void give_partial(ClusterId id, std::uint32_t n, std::uint32_t shard) noexcept;

  // For the holder of `id` alone.
  [[nodiscard]] Cluster& body(ClusterId id) noexcept { return clusters_[id.value]; }

  // Exact at quiescence, an estimate otherwise.
  [[nodiscard]] std::uint32_t full_clusters() const noexcept { return depth_of(&Shard::full); }
  [[nodiscard]] std::uint32_t partial_clusters() const noexcept {
    return depth_of(&Shard::partial);
  }
  [[nodiscard]] std::uint32_t empty_bodies() const noexcept { return depth_of(&Shard::empty); }
  // Frames of all full and partial clusters here.
  [[nodiscard]] std::uint64_t frames() const noexcept;
  [[nodiscard]] bool empty() const noexcept {
    return full_clusters() == 0 && partial_clusters() == 0;
  }

  [[nodiscard]] std::uint32_t bodies() const noexcept { return bodies_; }
  [[nodiscard]] std::uint32_t shards() const noexcept { return shard_count_; }
  [[nodiscard]] std::uint32_t cluster_frames() const noexcept { return cluster_frames_; }
  // Memory of bodies and links.
  [[nodiscard]] Bytes metadata() const noexcept { return memory_size_; }
  [[nodiscard]] std::uint32_t capacity() const noexcept {
    return capacity_.load(memory_order_relaxed);
  }
  // For later gives; what is here stays. More than bodies() become bodies().
  void set_capacity(std::uint32_t capacity) noexcept {
    capacity_.store(std::min(capacity, bodies_), memory_order_relaxed);
  }
  // How many full clusters lay untouched, at the bottom of their stacks, since the last call. Not
  // more than the fewest that were here at any time between; exact when nobody takes meanwhile.
  std::uint32_t exchange_low_water() noexcept;
  std::uint32_t exchange_low_water(std::uint32_t shard) noexcept;

  // Sets the tag of every stack, so that a test need not wait for 2^36 changes. Not thread-safe.
  void set_tags_for_test(std::uint64_t tag) noexcept;

 private:
  // Two lines for each stack: prefetchers pull them in pairs.
  struct Shard {
    alignas(kNoFalseSharing) AtomicT<std::uint64_t> full{0};
    Atomic<std::uint32_t> low_water{0};  // written by takes of `full`, reset by its reader
    alignas(kNoFalseSharing) AtomicT<std::uint64_t> empty{0};
    alignas(kNoFalseSharing) AtomicT<std::uint64_t> partial{0};
    // Added to before a push, subtracted from after a pop: never below what lies in `partial`.
    Atomic<std::uint32_t> partial_frames{0};
  };
  using Stack = AtomicT<std::uint64_t> Shard::*;

  // The top of a stack and what is left of it, or kNoCluster.
  WEIR_HOT ClusterId pop(AtomicT<std::uint64_t>& stack, StackHead& left) noexcept {
    prefetch_for_write(&stack);
    StackHead seen{stack.load(memory_order_acquire)};  // pairs: BasicDepot::try_push release
    while (seen.top() != kNoCluster) {
      prefetch_body(seen.top());  // on its way while the stack's own lines are
      // Another thread may hold that body by now and write its entry; then the tag has changed and
      // what is read here is thrown away.
      left = seen.popped(under(seen));
      // pairs: BasicDepot::try_push release
      if (stack.compare_exchange_weak(seen.word, left.word, memory_order_acquire)) [[likely]] {
        return seen.top();
      }
    }
    return kNoCluster;
  }
  // What lies under the top. Under a single one nothing does: in a flow from CPU to CPU stacks are mostly
  // that shallow, and the entries lie in a line that all of them write.
  [[nodiscard]] WEIR_HOT ClusterId under(StackHead seen) const noexcept {
    return seen.depth() == 1 ? kNoCluster
                             : ClusterId{next_[seen.top().value].load(memory_order_relaxed)};
  }
  WEIR_HOT void prefetch_body(ClusterId id) const noexcept {
    constexpr std::size_t kLine = kCacheLine / sizeof(PageIndex);
    for (std::size_t i = 0; i < kClusterFrames; i += kLine) {
      prefetch_for_read(clusters_[id.value].frames + i);
    }
  }
  // One try upon `seen`, which becomes what is there instead when it fails.
  WEIR_HOT bool try_push(AtomicT<std::uint64_t>& stack, StackHead& seen, ClusterId id) noexcept {
    if (seen.depth() != 0) {
      next_[id.value].store(seen.top().value, memory_order_relaxed);
    }
    return stack.compare_exchange_weak(seen.word, seen.pushed(id).word,
                                       memory_order_release,  // pairs: BasicDepot::pop acquire
                                       memory_order_relaxed);
  }
  WEIR_HOT void push(AtomicT<std::uint64_t>& stack, ClusterId id) noexcept {
    prefetch_for_write(&stack);
    StackHead seen{stack.load(memory_order_relaxed)};
    while (!try_push(stack, seen, id)) {
    }
  }
  // A take left `depth` clusters in a shard. Rarely writes: ups and downs stay above the mark.
  WEIR_HOT static void note_low(Shard& shard, std::uint32_t depth) noexcept {
    std::uint32_t low = shard.low_water.load(memory_order_relaxed);
    while (depth < low &&
           !shard.low_water.compare_exchange_weak(low, depth, memory_order_relaxed)) {
    }
  }

  // The shard `i` places after `shard`, going round.
  [[nodiscard]] std::uint32_t after(std::uint32_t shard, std::uint32_t i) const noexcept {
    const std::uint32_t at = shard + i;
    return at < shard_count_ ? at : at - shard_count_;
  }
  ClusterId take_full_elsewhere(std::uint32_t shard) noexcept;
  ClusterId take_empty_elsewhere(std::uint32_t shard) noexcept;
  [[nodiscard]] std::uint32_t full_elsewhere(std::uint32_t shard) const noexcept;
  [[nodiscard]] std::uint32_t depth_of(Stack stack) const noexcept;

  // Written by open(), close() alone, but for what the entries of the arrays hold.
  Cluster* clusters_ = nullptr;
  AtomicT<std::uint16_t>* next_ = nullptr;  // [id] what lies under it; any value while it is held
  std::uint8_t* partial_counts_ = nullptr;  // [id] frames of a partial one; its holder's, as a body
  Bytes memory_size_;
  std::uint32_t bodies_ = 0;
  std::uint32_t shard_count_ = 0;
  std::uint32_t cluster_frames_ = 0;
  Atomic<std::uint32_t> capacity_{0};  // written by set_capacity()
  Shard shards_[kMaxShards];
};

template <template <class> class AtomicT>
Error BasicDepot<AtomicT>::open(std::uint32_t bodies, std::uint32_t capacity, std::uint32_t shards,
                                std::uint32_t cluster_frames) {
  if (clusters_ != nullptr) {
    return {Errc::in_use, "depot: open already"};
  }
  if (bodies == 0 || shards == 0 || cluster_frames == 0) {
    return {Errc::zero_size, "depot: bodies, shards and cluster_frames"};
  }
  if (shards > kMaxShards || cluster_frames > kClusterFrames) {
    return {Errc::too_large, "depot: shards or cluster_frames"};
  }
  bodies = std::min(bodies, kMaxBodies);
  const std::uint64_t next_at = sizeof(Cluster) * std::uint64_t{bodies};
  const std::uint64_t counts_at = next_at + sizeof(AtomicT<std::uint16_t>) * std::uint64_t{bodies};
  const Bytes size{align_up<std::uint64_t>(counts_at + bodies, kFrameBytes)};
  Memory& memory = system_memory();
  Result<std::byte*> base = memory.reserve(size, Bytes{kFrameBytes});
  if (!base) {
    return base.error();
  }
  if (const Error error = memory.commit(*base, size); error.failed()) {
    memory.release(*base, size);
    return error;
  }
  memory_size_ = size;
  clusters_ = reinterpret_cast<Cluster*>(*base);
  next_ = reinterpret_cast<AtomicT<std::uint16_t>*>(*base + next_at);
  partial_counts_ = reinterpret_cast<std::uint8_t*>(*base + counts_at);
  bodies_ = bodies;
  shard_count_ = shards;
  cluster_frames_ = cluster_frames;
  set_capacity(capacity);
  // The lowest number of each part on top: a depot that needs few bodies touches few pages.
  for (std::uint32_t i = bodies; i-- != 0;) {
    new (next_ + i) AtomicT<std::uint16_t>{0};
    push(shards_[std::uint64_t{i} * shards / bodies].empty, {static_cast<std::uint16_t>(i)});
  }
  return kOk;
}

template <template <class> class AtomicT>
void BasicDepot<AtomicT>::close() noexcept {
  if (clusters_ == nullptr) {
    return;
  }
  system_memory().release(reinterpret_cast<std::byte*>(clusters_), memory_size_);
  clusters_ = nullptr;
  next_ = nullptr;
  partial_counts_ = nullptr;
  bodies_ = 0;
  shard_count_ = 0;
  cluster_frames_ = 0;
  capacity_.store(0, memory_order_relaxed);
  for (Shard& shard : shards_) {
    for (const Stack stack : {&Shard::full, &Shard::empty, &Shard::partial}) {
      (shard.*stack).store(0, memory_order_relaxed);
    }
    shard.low_water.store(0, memory_order_relaxed);
    shard.partial_frames.store(0, memory_order_relaxed);
  }
}

template <template <class> class AtomicT>
WEIR_COLD ClusterId BasicDepot<AtomicT>::take_full_elsewhere(std::uint32_t shard) noexcept {
  for (std::uint32_t i = 1; i < shard_count_; ++i) {
    Shard& other = shards_[after(shard, i)];
    StackHead left;
    if (const ClusterId id = pop(other.full, left); id != kNoCluster) {
      note_low(other, left.depth());
      return id;
    }
  }
  return kNoCluster;
}

template <template <class> class AtomicT>
WEIR_COLD ClusterId BasicDepot<AtomicT>::take_empty_elsewhere(std::uint32_t shard) noexcept {
  for (std::uint32_t i = 1; i < shard_count_; ++i) {
    StackHead left;
    if (const ClusterId id = pop(shards_[after(shard, i)].empty, left); id != kNoCluster) {
      return id;
    }
  }
  return kNoCluster;
}

template <template <class> class AtomicT>
ClusterId BasicDepot<AtomicT>::take_partial(std::uint32_t shard, std::uint32_t& n) noexcept {
  for (std::uint32_t i = 0; i < shard_count_; ++i) {
    Shard& at = shards_[after(shard, i)];
    StackHead left;
    if (const ClusterId id = pop(at.partial, left); id != kNoCluster) {
      n = partial_counts_[id.value];
      at.partial_frames.fetch_sub(n, memory_order_relaxed);
      return id;
    }
  }
  n = 0;
  return kNoCluster;
}

template <template <class> class AtomicT>
void BasicDepot<AtomicT>::give_partial(ClusterId id, std::uint32_t n,
                                       std::uint32_t shard) noexcept {
  WEIR_ASSERT(id.value < bodies_, "Depot D1");
  WEIR_ASSERT(n != 0 && n < cluster_frames_, "Depot: a partial cluster has some frames, not all");
  partial_counts_[id.value] = static_cast<std::uint8_t>(n);
  shards_[shard].partial_frames.fetch_add(n, memory_order_relaxed);
  push(shards_[shard].partial, id);
}

template <template <class> class AtomicT>
std::uint32_t BasicDepot<AtomicT>::full_elsewhere(std::uint32_t shard) const noexcept {
  std::uint32_t sum = 0;
  for (std::uint32_t i = 1; i < shard_count_; ++i) {
    sum += StackHead{shards_[after(shard, i)].full.load(memory_order_relaxed)}.depth();
  }
  return sum;
}

template <template <class> class AtomicT>
std::uint32_t BasicDepot<AtomicT>::depth_of(Stack stack) const noexcept {
  std::uint32_t sum = 0;
  for (std::uint32_t i = 0; i < shard_count_; ++i) {
    sum += StackHead{(shards_[i].*stack).load(memory_order_relaxed)}.depth();
  }
  return sum;
}

template <template <class> class AtomicT>
std::uint64_t BasicDepot<AtomicT>::frames() const noexcept {
  std::uint64_t sum = std::uint64_t{full_clusters()} * cluster_frames_;
  for (std::uint32_t i = 0; i < shard_count_; ++i) {
    sum += shards_[i].partial_frames.load(memory_order_relaxed);
  }
  return sum;
}

template <template <class> class AtomicT>
std::uint32_t BasicDepot<AtomicT>::exchange_low_water(std::uint32_t shard) noexcept {
  const auto depth_here = [](const Shard& at) {
    return StackHead{at.full.load(memory_order_relaxed)}.depth();
  };
  Shard& at = shards_[shard];
  const std::uint32_t low = at.low_water.exchange(depth_here(at), memory_order_relaxed);
  note_low(at, depth_here(at));  // for a take between the look and the exchange
  return low;
}

template <template <class> class AtomicT>
std::uint32_t BasicDepot<AtomicT>::exchange_low_water() noexcept {
  std::uint32_t sum = 0;
  for (std::uint32_t i = 0; i < shard_count_; ++i) {
    sum += exchange_low_water(i);
  }
  return sum;
}

template <template <class> class AtomicT>
void BasicDepot<AtomicT>::set_tags_for_test(std::uint64_t tag) noexcept {
  for (Shard& shard : shards_) {
    for (const Stack stack : {&Shard::full, &Shard::empty, &Shard::partial}) {
      const StackHead head{(shard.*stack).load(memory_order_relaxed)};
      (shard.*stack)
          .store(StackHead::make(head.top(), head.depth(), tag).word, memory_order_relaxed);
    }
  }
}

using Depot = BasicDepot<Atomic>;
extern template class BasicDepot<Atomic>;

}  // namespace weir
