// SPDX-License-Identifier: MIT
#include "weir/page/node_allocator.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <system_error>

#include "weir/base/check.hpp"
#include "weir/page/attempt.hpp"

namespace weir {
namespace {

NodeMachine machine_of(const NodeOptions& options) {
  if (options.pretend == 0) {
    return real_machine(topology(), options.nodes);
  }
  NodeMachine machine = pretended_machine(options.pretend, topology().cpu_limit);
  const std::size_t n = machine.serving.size();
  if (!options.distances.empty() && options.distances.size() != n * n) {
    throw std::invalid_argument("weir: distances: one for each pair of pretended nodes");
  }
  for (std::size_t i = 0; i < options.distances.size(); ++i) {
    machine.distances.set(machine.serving[i / n], machine.serving[i % n], options.distances[i]);
  }
  return machine;
}

NodePlan plan_of(const NodeMachine& machine, const NodeOptions& options) {
  Result<NodePlan> plan = NodePlan::make(machine, options.policy, options.set);
  if (!plan) {
    throw std::invalid_argument(std::string{"weir: "} + plan.error().what + ": " +
                                error_name(plan.error().code));
  }
  return std::move(plan).value();
}

// What a request may do while there are others to ask: neither wait, nor call, nor take the reserve.
constexpr AllocFlags at_hand(AllocFlags flags) noexcept {
  return without(flags, AllocFlags::emergency) | AllocFlags::no_wait | AllocFlags::no_reclaim;
}

}  // namespace

NodeAllocator::NodeAllocator(const NodeOptions& options)
    : policy_(options.policy), machine_(machine_of(options)), plan_(plan_of(machine_, options)) {
  node_of_zone_.fill(kAnyNode);
  Options each = options.each;
  for (const NodeId node : machine_.serving) {
    each.node = options.pretend == 0 ? node : kAnyNode;
    Part& part = *parts_.emplace_back(std::make_unique<Part>(each));
    node_of_zone_[part.pages.zone().id()] = node;
  }
  cpus_ = topology().cpu_limit;
  if (!plan_.turns().empty()) {
    turns_ = std::make_unique<Turn[]>(cpus_);
    for (std::uint32_t cpu = 0; cpu < cpus_; ++cpu) {
      turns_[cpu].word.store(first_turn(cpu), memory_order_relaxed);
    }
  }
  fill_table();
}

NodeAllocator::~NodeAllocator() { never_.close(); }

void NodeAllocator::fill_table() {
  constexpr std::uint32_t kUnknownThreads = 2;
  const std::uint32_t limit = std::max(cpus_, kernel_cpu_limit());
  table_.resize(limit + kUnknownThreads);
  if (const Error error = never_.open(1, {}, false); error.failed()) {
    throw std::system_error(std::error_code(error.os_errno, std::generic_category()), error.what);
  }
  std::fill(table_.begin(), table_.end(), never_.blocks());
  for (std::uint32_t cpu = 0; cpu < limit && turns_ == nullptr; ++cpu) {
    Part& first = *parts_[plan_.of_cpu(CpuId{cpu}).front()];
    table_[cpu + kUnknownThreads] = first.pages.zone().lists().blocks();
  }
  first_blocks_ = table_.data() + kUnknownThreads;
}

// ---- one page ----

Page* NodeAllocator::alloc_page_slow(Order order, AllocFlags flags) noexcept {
  if (order > kMaxOrder) {
    return nullptr;
  }
  return turns_ != nullptr ? alloc_in_turn(order, flags) : take_page(sequence_here(), order, flags);
}

Page* NodeAllocator::alloc_in_turn(Order order, AllocFlags flags) noexcept {
  const NodePlan::Place place = plan_.turns()[take_turns(1)];
  if constexpr (!kCheckedDrops) {
    Page* page;
    if (order == Order{0} && flags == AllocFlags::none &&
        PageLists::pop_fast(parts_[place]->pages.zone().lists().blocks(), page)) [[likely]] {
      return page;
    }
  }
  return take_page(plan_.of_place(place), order, flags);
}

PageRef NodeAllocator::alloc_on(NodeId node, Order order, AllocFlags flags) noexcept {
  return order > kMaxOrder ? PageRef{} : PageRef{take_page(plan_.of_node(node), order, flags)};
}

Page* NodeAllocator::take_page(const Sequence& sequence, Order order, AllocFlags flags) noexcept {
  for (const NodePlan::Place place : sequence) {
    if (Page* page = attempt::page_at_hand(parts_[place]->pages.zone(), order, flags)) {
      note_served(sequence, place, 1);
      return page;
    }
  }
  for (const NodePlan::Place place : sequence) {
    if (Page* page = attempt::page(parts_[place]->pages.zone(), order, flags)) {
      note_served(sequence, place, 1);
      return page;
    }
  }
  note_refused(sequence, 1);
  return nullptr;
}

void NodeAllocator::note_served(const Sequence& sequence, NodePlan::Place by,
                                std::uint64_t pages) noexcept {
  if (by != sequence.front() && pages != 0) [[unlikely]] {
    parts_[by]->counters.numa_miss.add_shared(pages);
    parts_[sequence.front()]->counters.numa_foreign.add_shared(pages);
  }
}

void NodeAllocator::note_refused(const Sequence& sequence, std::uint64_t pages) noexcept {
  parts_[sequence.front()]->counters.refused.add_shared(pages);
}

// ---- many ----

std::size_t NodeAllocator::take_singles(const Sequence& sequence, Page** out, std::size_t n,
                                        AllocFlags flags) noexcept {
  std::size_t got = 0;
  const auto ask_all = [&](auto&& ask) {
    for (const NodePlan::Place place : sequence) {
      if (got == n) {
        return;
      }
      const std::size_t more = ask(parts_[place]->pages.zone(), out + got, n - got, flags);
      note_served(sequence, place, more);
      got += more;
    }
  };
  ask_all(attempt::singles_at_hand);
  ask_all(attempt::singles);
  if (got != n) {
    note_refused(sequence, n - got);
  }
  return got;
}

std::size_t NodeAllocator::take_in_turns(Page** out, std::size_t n, AllocFlags flags) noexcept {
  const Sequence& places = plan_.turns();
  const std::size_t turn = take_turns(n);
  std::size_t got = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::size_t share = n / places.size() + (i < n % places.size() ? 1 : 0);
    got +=
        take_singles(plan_.of_place(places[(turn + i) % places.size()]), out + got, share, flags);
  }
  return got;
}

std::size_t NodeAllocator::take(Page** out, std::size_t n, AllocFlags flags) noexcept {
  if (turns_ != nullptr) {
    return take_in_turns(out, n, flags);
  }
  const Sequence& sequence = sequence_here();
  if (kCheckedDrops || flags != AllocFlags::none) {
    return take_singles(sequence, out, n, flags);
  }
  return parts_[sequence.front()]->pages.zone().alloc_bulk_or(
      out, n, [&](CachedZone&, Page** rest, std::size_t missing) {
        return take_singles(sequence, rest, missing, flags);
      });
}

std::size_t NodeAllocator::alloc_burst(std::span<Page*> out, AllocFlags flags) noexcept {
  if (has(flags, AllocFlags::exact)) {
    return burst_exactly(out, without(flags, AllocFlags::exact)) ? out.size() : 0;
  }
  return take(out.data(), out.size(), flags);
}

bool NodeAllocator::burst_exactly(std::span<Page*> out, AllocFlags flags) noexcept {
  if (turns_ == nullptr) {
    const Sequence& sequence = sequence_here();
    for (const NodePlan::Place place : sequence) {
      if (parts_[place]->pages.alloc_exactly(out, at_hand(flags))) {
        note_served(sequence, place, out.size());
        return true;
      }
    }
  }
  const std::size_t got = take(out.data(), out.size(), flags);
  if (got == out.size()) {
    return true;
  }
  free_bulk(std::span<Page* const>(out.data(), got));
  return false;
}

// All of n at the head of the list, or none.
bool NodeAllocator::collect(PageList& list, std::size_t n, AllocFlags flags) noexcept {
  if (turns_ == nullptr) {
    const Sequence& sequence = sequence_here();
    for (const NodePlan::Place place : sequence) {
      if (parts_[place]->pages.alloc_bulk(list, n, at_hand(flags) | AllocFlags::exact) == n) {
        note_served(sequence, place, n);
        return true;
      }
    }
  }
  const std::size_t added = alloc_bulk(list, n, flags);
  if (added == n) {
    return true;
  }
  for (std::size_t i = 0; i < added; ++i) {
    unref(list.pop());
  }
  return false;
}

std::size_t NodeAllocator::alloc_bulk(PageList& list, std::size_t n, AllocFlags flags) noexcept {
  if (has(flags, AllocFlags::exact)) {
    return collect(list, n, without(flags, AllocFlags::exact)) ? n : 0;
  }
  Page* buffer[kClusterFrames];
  std::size_t added = 0;
  while (added < n) {
    const std::size_t want = std::min<std::size_t>(n - added, kClusterFrames);
    const std::size_t got = take(buffer, want, flags);
    for (std::size_t i = 0; i < got; ++i) {
      list.push(buffer[i]);
    }
    added += got;
    if (got < want) {
      break;
    }
  }
  return added;
}

std::size_t NodeAllocator::alloc_bulk(std::span<Page*> slots, AllocFlags flags) noexcept {
  const auto holes = static_cast<std::size_t>(std::count(slots.begin(), slots.end(), nullptr));
  PageList pages;
  static_cast<void>(alloc_bulk(pages, holes, flags));
  std::size_t filled = 0;
  for (; filled < slots.size() && (slots[filled] != nullptr || !pages.empty()); ++filled) {
    if (slots[filled] == nullptr) {
      slots[filled] = pages.pop();
    }
  }
  return filled;
}

std::size_t NodeAllocator::alloc_bulk(std::span<PageRef> slots, AllocFlags flags) noexcept {
  return alloc_bulk(std::span<Page*>(PageRef::places_of(slots), slots.size()), flags);
}

// ---- turns ----

// The number of the first of n turns. Not one atomic step: whoever loses the CPU in between sets the word back,
// and what was gone through since is gone through again. That is still one node after the other, so pages stay
// even to one for each such event.
std::size_t NodeAllocator::take_turns(std::size_t n) noexcept {
  const CpuId cpu = current_cpu();
  Atomic<std::uint64_t>& word = turns_[cpu.value < cpus_ ? cpu.value : 0].word;
  const std::uint64_t before = word.load(memory_order_relaxed);
  const std::size_t first = before & ((1U << kTurnShift) - 1);
  std::size_t next = first + n;
  if (const std::size_t all = plan_.turns().size(); next >= all) {
    next = n == 1 ? 0 : next % all;
  }
  word.store(((before >> kTurnShift) + n) << kTurnShift | next, memory_order_relaxed);
  return first;
}

std::uint64_t NodeAllocator::turns_of(NodeId node) const noexcept {
  const Sequence& places = plan_.turns();
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (machine_.serving[places[i]] != node) {
      continue;
    }
    // Of the numbers below `end`, those that leave i when divided by how many take turns.
    const auto below = [&](std::uint64_t end) {
      return end / places.size() + (i < end % places.size() ? 1 : 0);
    };
    for (std::uint32_t cpu = 0; cpu < cpus_; ++cpu) {
      const std::uint64_t first = first_turn(cpu);
      const std::uint64_t turns = turns_[cpu].word.load(memory_order_relaxed) >> kTurnShift;
      sum += below(first + turns) - below(first);
    }
  }
  return sum;
}

// CPUs do not go in step.
std::size_t NodeAllocator::first_turn(std::uint32_t cpu) const noexcept {
  return cpu % plan_.turns().size();
}

// ---- who is where ----

NodeAllocator::Part& NodeAllocator::part(NodeId node) noexcept {
  const auto found = std::lower_bound(machine_.serving.begin(), machine_.serving.end(), node);
  WEIR_CHECK(found != machine_.serving.end() && *found == node, "NodeAllocator: one of its nodes");
  return *parts_[static_cast<std::size_t>(found - machine_.serving.begin())];
}

NodeId NodeAllocator::node_of(const Page* page) const noexcept {
  return page->zone < node_of_zone_.size() ? node_of_zone_[page->zone] : kAnyNode;
}

NodeId NodeAllocator::node_of(CpuId cpu) const noexcept {
  return cpu.value < machine_.node_of_cpu.size() ? machine_.node_of_cpu[cpu.value] : kAnyNode;
}

void NodeAllocator::tick() noexcept {
  for (const auto& part : parts_) {
    part->pages.tick();
  }
}

Error NodeAllocator::drain_all() noexcept {
  Error first = kOk;
  for (const auto& part : parts_) {
    const Error error = part->pages.drain_all();
    first = first.failed() ? first : error;
  }
  return first;
}

}  // namespace weir
