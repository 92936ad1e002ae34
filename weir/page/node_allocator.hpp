// SPDX-License-Identifier: MIT
// page/node_allocator.hpp — a PageAllocator for each NUMA node, and a policy that says which of them serves
// a request. Calls page/page_allocator, page/node_plan, page/attempt. Construction throws; every other member
// is noexcept. Any thread.
//
//   weir::NodeAllocator pages{{.each = {.capacity = 1_GiB}}};            // 1 GiB of every node with memory
//   weir::PageRef page = pages.alloc();                                  // of this CPU's node
//
// A page is given back as any other, from anywhere: unref(), free_bulk(), free_burst(). It goes home
// to its own node: to the list that this CPU has of that node.
//
// A request first asks the nodes of its sequence (page/node_plan.hpp) for what they have at hand. Only when
// none has anything is each of them asked again, with all that happens before a refusal: lists stopped,
// reclaimers, limit watches. So a far page comes before a wait, as in the kernel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weir/base/counter.hpp"
#include "weir/base/types.hpp"
#include "weir/os/cpu_id.hpp"
#include "weir/os/options.hpp"
#include "weir/os/rseq_area.hpp"
#include "weir/page/node_plan.hpp"
#include "weir/page/page_allocator.hpp"

namespace weir {

struct NodeOptions {
  // Of every node's allocator, capacity and limits too; `node` is filled in.
  Options each{};
  NodePolicy policy = NodePolicy::local;
  // Of the policy: see NodePlan::make().
  std::vector<NodeId> set{};
  // Who gets an allocator; empty: every node with memory for this process.
  std::vector<NodeId> nodes{};
  // Not 0: nodes 0 to pretend-1 instead, in ordinary memory; CPU c is of c % pretend.
  std::uint32_t pretend = 0;
  // Of pretended nodes, row by row; empty: all the same.
  std::vector<std::uint32_t> distances{};
};

// For what stands here of PageAllocator's: pins, trims, movers, runs, limits and Maintenance belong to one node,
// at(node).
class NodeAllocator {
 public:
  // Throws as PageAllocator does, and std::invalid_argument for nodes or a policy that cannot be. That memory
  // could not be bound to its node is no failure: at(node).effective() tells, and one line on standard error.
  explicit NodeAllocator(const NodeOptions& options = {});
  ~NodeAllocator();
  NodeAllocator(const NodeAllocator&) = delete;
  NodeAllocator& operator=(const NodeAllocator&) = delete;

  // As PageAllocator::alloc(), of the node that the policy names. Refused only if each node of the sequence,
  // at a moment of its own, had no such block. Served by the first list: two to five
  // instructions more than there, one of them a load from a table that nobody writes.
  [[nodiscard]] WEIR_HOT PageRef alloc(Order order = Order{0},
                                       AllocFlags flags = AllocFlags::none) noexcept {
    return PageRef{alloc_page(order, flags)};
  }
  [[nodiscard]] WEIR_HOT Page* alloc_page(Order order = Order{0},
                                          AllocFlags flags = AllocFlags::none) noexcept {
    if constexpr (!kCheckedDrops && kHasRseq) {
      Page* page;
      // A thread that moves between the two is served by a list that is its new CPU's, of its old node.
      if (order == Order{0} && flags == AllocFlags::none &&
          PageLists::pop_fast(first_blocks_[rseq_area::current().cpu_id], page)) [[likely]] {
        return page;
      }
    }
    return alloc_page_slow(order, flags);
  }
  // Of this node first, whatever the policy, then of those nearest to it; of the set alone where the policy is
  // `bind`. For this node and no other: at(node).alloc().
  [[nodiscard]] PageRef alloc_on(NodeId node, Order order = Order{0},
                                 AllocFlags flags = AllocFlags::none) noexcept;

  // Single frames, as the forms of PageAllocator: each node of the sequence gives what it has, until there
  // are enough. With AllocFlags::exact all or none: of one node if it has all at hand, else together from
  // several, given back when they do not suffice; so of two who ask at the same time both may be refused.
  // `interleave`: of n pages each of k nodes is asked for n / k, and the first n % k in turn for one more.
  [[nodiscard]] std::size_t alloc_burst(std::span<Page*> out,
                                        AllocFlags flags = AllocFlags::none) noexcept;
  [[nodiscard]] std::size_t alloc_bulk(std::span<PageRef> slots,
                                       AllocFlags flags = AllocFlags::none) noexcept;
  [[nodiscard]] std::size_t alloc_bulk(std::span<Page*> slots,
                                       AllocFlags flags = AllocFlags::none) noexcept;
  [[nodiscard]] std::size_t alloc_bulk(PageList& list, std::size_t n,
                                       AllocFlags flags = AllocFlags::none) noexcept;

  // Ascending.
  [[nodiscard]] std::span<const NodeId> nodes() const noexcept { return machine_.serving; }
  // `node` must be one of nodes().
  [[nodiscard]] PageAllocator& at(NodeId node) noexcept { return part(node).pages; }
  [[nodiscard]] const NodeCounters& counters(NodeId node) noexcept { return part(node).counters; }
  // kAnyNode for a page of somebody else.
  [[nodiscard]] NodeId node_of(const Page* page) const noexcept;
  // kAnyNode for a CPU that no node names; it may be a node without memory.
  [[nodiscard]] NodeId node_of(CpuId cpu) const noexcept;
  [[nodiscard]] NodePolicy policy() const noexcept { return policy_; }
  [[nodiscard]] const NodePlan& plan() const noexcept { return plan_; }
  // `interleave`: pages, of whatever order, whose turn came to this node so far, whoever served them. A thread that loses its CPU
  // within a turn sets that CPU's back: what others took there meanwhile is not in it.
  [[nodiscard]] std::uint64_t turns_of(NodeId node) const noexcept;

  // As PageAllocator, for each node. drain_all: the first error there was; all nodes are tried.
  void tick() noexcept;
  Error drain_all() noexcept;

 private:
  struct Part {
    explicit Part(const Options& options) : pages(options) {}
    PageAllocator pages;
    alignas(kNoFalseSharing)
        NodeCounters counters;  // added to by whoever does not find what it wants
  };
  // Of a CPU, written by who runs there: turns so far << 8 | the number, among those who take turns, of the next.
  struct alignas(kNoFalseSharing) Turn {
    Atomic<std::uint64_t> word{0};
  };
  static constexpr unsigned kTurnShift = 8;
  static_assert(kMaxZones <= 1U << kTurnShift);
  using Sequence = NodePlan::Sequence;

  // Not marked as cold: with `interleave` every page comes this way.
  [[gnu::noinline]] Page* alloc_page_slow(Order order, AllocFlags flags) noexcept;
  Page* alloc_in_turn(Order order, AllocFlags flags) noexcept;
  Page* take_page(const Sequence& sequence, Order order, AllocFlags flags) noexcept;
  std::size_t take_singles(const Sequence& sequence, Page** out, std::size_t n,
                           AllocFlags flags) noexcept;
  std::size_t take_in_turns(Page** out, std::size_t n, AllocFlags flags) noexcept;
  std::size_t take(Page** out, std::size_t n, AllocFlags flags) noexcept;
  bool burst_exactly(std::span<Page*> out, AllocFlags flags) noexcept;
  bool collect(PageList& list, std::size_t n, AllocFlags flags) noexcept;
  void note_served(const Sequence& sequence, NodePlan::Place by, std::uint64_t pages) noexcept;
  void note_refused(const Sequence& sequence, std::uint64_t pages) noexcept;
  [[nodiscard]] const Sequence& sequence_here() const noexcept {
    return plan_.of_cpu(current_cpu());
  }
  [[nodiscard]] std::size_t take_turns(std::size_t n) noexcept;
  [[nodiscard]] std::size_t first_turn(std::uint32_t cpu) const noexcept;
  [[nodiscard]] Part& part(NodeId node) noexcept;
  void fill_table();

  // Lists of the node that a CPU's requests go to first; with `interleave`, and in the entries -1 and -2, for
  // threads that the kernel does not know, lists that never run.
  std::byte* const* first_blocks_ = nullptr;
  NodePolicy policy_;
  NodeMachine machine_;
  NodePlan plan_;
  std::vector<std::unique_ptr<Part>> parts_;  // by place
  std::vector<std::byte*> table_;             // of first_blocks_
  PageLists never_;                           // lists that never run
  std::uint32_t cpus_ = 0;
  std::unique_ptr<Turn[]> turns_;  // for each CPU, where there are turns
  std::array<NodeId, kMaxZones> node_of_zone_{};
};

}  // namespace weir
