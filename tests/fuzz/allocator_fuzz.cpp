// SPDX-License-Identifier: MIT
// tests/fuzz/allocator_fuzz.cpp — every entry point of a PageAllocator in any order, from one thread
// that hops between CPUs, with failures where a build has failpoints. A side table of the test's own
// checks uniqueness, the census checks conservation after each step, refusals must be legal.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "tests/fuzz/input.hpp"
#include "tests/support/side_table.hpp"
#include "weir/base/failpoint.hpp"
#include "weir/os/cpu_id.hpp"
#include "weir/page/page_allocator.hpp"

namespace weir {
namespace {

using fuzz::fail;
using fuzz::Input;
using fuzz::require;

constexpr std::size_t kMaxLive = 600;

Options options_from(Input& input) {
  Options options;
  const std::uint8_t bits = input.byte();
  const std::uint32_t frames = 1 + input.number() % ((bits & 1) != 0 ? 5000 : 200);
  options.capacity = bytes(PageCount{frames});
  options.lists = (bits & 6) != 6;
  options.free_order0 = (bits & 24) == 24 ? FreeOrder0::engine : FreeOrder0::list;
  options.high = PageCount{(bits & 32) != 0 ? input.number() % 300 : 0U};
  options.reserve = PageCount{(bits & 64) != 0 ? input.number() % frames : 0U};
  if ((bits & 128) != 0) {
    options.merge = input.byte() % 4 == 0 ? Merge::immediate : Merge::deferred;
    options.depot = PageCount{input.number() % 700};
    options.cached = PageCount{input.number() % 2000};
  }
  return options;
}

class Run {
 public:
  explicit Run(Input& input)
      : options_(options_from(input)),
        pages_(options_),
        table_(pages_.zone().pieces().front().first, pages_.effective().managed.value) {}
  ~Run() {
    t_fake_cpu = -1;
    failpoints::reset();
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void step(Input& input) {
    const std::uint8_t what = input.byte();
    switch (what % 16) {
      case 0:
      case 1:
      case 2:
        take_single(input, Order{0});
        break;
      case 3:
        take_single(input, Order{input.below(kOrderCount + 1)});
        break;
      case 4:
      case 5:
      case 6:
        drop(input);
        break;
      case 7:
        share(input);
        break;
      case 8:
        if (what >> 4 < 6) {
          take_exactly(input);
        } else if (what >> 4 < 12) {
          take_burst(input);
        } else {
          bulk_array(input);
        }
        break;
      case 9:
        bulk_list(input);
        break;
      case 10:
        free_in_bulk(input);
        break;
      case 11:
        look_up(input);
        break;
      case 12:
        if (what >> 4 == 0) {
          require(!pages_.drain_all().failed(), "a drain fails");
        } else if (what >> 4 == 1) {
          pages_.tick();
        } else {
          // May name a CPU that does not exist.
          const std::uint32_t cpu = input.below(4);
          require(pages_.drain(CpuId{cpu}).failed() == (cpu >= pages_.effective().lists),
                  "drain answers wrongly");
        }
        break;
      case 13:
        t_fake_cpu = static_cast<std::int32_t>(input.below(4)) - 1;
        break;
      case 14:
        interfere(input);
        break;
      default:
        burst(input, what >> 4);
        break;
    }
    if (table_.violations() != 0) {
      fail(table_.report());
    }
    const CachedZone::Census census = pages_.zone().census();
    const Depot& depot = pages_.zone().depot();
    require(
        depot.full_clusters() + depot.partial_clusters() + depot.empty_bodies() == depot.bodies(),
        "a cluster's body is lost");
    require(depot.full_clusters() <= depot.capacity(), "the depot holds too much");
    require(census.out() == table_.live_frames(), "frames are lost or invented");
    for (std::uint32_t cpu = 0; cpu < pages_.effective().lists; ++cpu) {
      require(pages_.zone().lists().cached(cpu) <= most_cached(), "a list holds too much");
    }
  }

  void finish() {
    failpoints::reset();
    while (!live_.empty()) {
      drop_at(live_.size() - 1);
    }
    require(!pages_.drain_all().failed(), "a drain fails");
    require(pages_.zone().zone().audit() == pages_.effective().managed.value, "frames are lost");
    require(pages_.zone().census().lists == 0, "a drain leaves something");
  }

 private:
  struct Live {
    Page* page;
    std::uint32_t refs;
    std::uint64_t stamp;
  };

  [[nodiscard]] std::uint64_t most_cached() const {
    // Misses may earn single frames more than the list starts with.
    std::uint64_t frames = pages_.zone().limits().high_max;
    for (unsigned list = 1; list < kListOrders; ++list) {
      frames += std::uint64_t{pages_.zone().lists().capacity(list)} << order_of_list(list).value;
    }
    return frames;
  }

  static AllocFlags flags_from(Input& input) { return static_cast<AllocFlags>(input.byte() % 16); }

  void took(Page* page, Order order, AllocFlags flags) {
    const PageIndex index = index_of(page);
    if (!table_.took(index, order)) {
      fail(table_.report());
    }
    require(order_of(page) == order, "a page has another order than was asked for");
    require(ref_count(page) == 1, "a new page has other than one owner");
    if (has(flags, AllocFlags::zero)) {
      const std::byte* memory = address_of(page);
      const std::size_t length = bytes(order).value;
      require(memory[0] == std::byte{0} && std::equal(memory, memory + length - 1, memory + 1),
              "a page that should be zero is not");
    }
    live_.push_back({page, 1, ++stamps_});
    test::SideTable::stamp(index, order, stamps_);
  }

  // A refusal of one frame: nothing was free but, perhaps, the reserve.
  void refused(Order order, AllocFlags flags) {
    if (interfered_ || order != Order{0} || has(flags, AllocFlags::no_wait)) {
      return;  // larger blocks may be cut up; who may not wait does not look on other lists
    }
    const std::uint64_t managed = pages_.effective().managed.value;
    const std::uint64_t kept =
        has(flags, AllocFlags::emergency) ? 0 : pages_.zone().zone().reserve().value;
    require(managed - table_.live_frames() <= kept, "refused while a frame was free");
  }

  void take_single(Input& input, Order order) {
    const AllocFlags flags = flags_from(input);
    Page* page = live_.size() < kMaxLive ? pages_.alloc_page(order, flags) : nullptr;
    if (page != nullptr) {
      took(page, order, flags);
    } else if (live_.size() < kMaxLive) {
      refused(order, flags);
    }
  }

  void drop_at(std::size_t which) {
    std::swap(live_[which], live_.back());
    Live& last = live_.back();
    Page* const page = last.page;
    require(ref_count(page) == last.refs, "references are miscounted");
    if (--last.refs == 0) {
      forget(last);
      live_.pop_back();
    }
    unref(page);
  }
  // The page is about to go.
  void forget(const Live& live) {
    const PageIndex index = index_of(live.page);
    const Order order = order_of(live.page);
    require(test::SideTable::intact(index, order, live.stamp), "somebody wrote to a live page");
    if (!table_.gave(index, order)) {
      fail(table_.report());
    }
  }

  void drop(Input& input) {
    if (!live_.empty()) {
      drop_at(input.below(live_.size()));
    }
  }

  void share(Input& input) {
    if (live_.empty()) {
      return;
    }
    Live& one = live_[input.below(live_.size())];
    const std::uint32_t n = 1 + input.below(5);
    require(ref(one.page, n), "a reference is refused");
    one.refs += n;
    if (n == 5) {
      // Settled at once.
      unref_many(one.page, 5);
      one.refs -= 5;
    }
  }

  void bulk_array(Input& input) {
    const AllocFlags flags = flags_from(input);
    const std::uint32_t n = input.below(200);
    std::vector<Page*> slots(n, nullptr);
    // Some are populated before: with pages that are live anyway, which must stay.
    for (std::uint32_t i = 0; i < n && !live_.empty(); i += 1 + input.below(40)) {
      slots[i] = live_[i % live_.size()].page;
    }
    const std::vector<Page*> before = slots;
    const std::size_t leading = pages_.alloc_bulk(std::span<Page*>(slots), flags);
    std::size_t expected = 0;
    while (expected < n && slots[expected] != nullptr) {
      ++expected;
    }
    require(leading == expected, "the leading count is wrong");
    bool hole = false;
    for (std::uint32_t i = 0; i < n; ++i) {
      require(before[i] == nullptr || slots[i] == before[i], "a populated slot was changed");
      require(!hole || before[i] != nullptr || slots[i] == nullptr, "filled out of order");
      hole = hole || slots[i] == nullptr;
      if (before[i] == nullptr && slots[i] != nullptr) {
        took(slots[i], Order{0}, flags);
      }
    }
    if (hole) {
      refused(Order{0}, flags);
    }
  }

  void take_burst(Input& input) {
    const AllocFlags flags = flags_from(input);
    const std::size_t n = burst_size(input);
    std::vector<Page*> out(n);
    if (live_.size() >= kMaxLive) {
      return;
    }
    const std::size_t got = pages_.alloc_burst(out, flags);
    for (std::size_t i = 0; i < got; ++i) {
      took(out[i], Order{0}, flags);
    }
    if (got < n) {
      refused(Order{0}, flags);
    }
  }

  void take_exactly(Input& input) {
    const AllocFlags flags = flags_from(input);
    const std::size_t n = burst_size(input);
    std::vector<Page*> out(n);
    if (live_.size() >= kMaxLive) {
      return;
    }
    if (pages_.alloc_exactly(out, flags)) {
      for (Page* page : out) {
        took(page, Order{0}, flags);
      }
      return;
    }
    const std::uint64_t kept =
        has(flags, AllocFlags::emergency) ? 0 : pages_.zone().zone().reserve().value;
    require(meddled_ || has(flags, AllocFlags::no_wait) ||
                pages_.effective().managed.value - table_.live_frames() < kept + n,
            "refused while all of it was free");
  }

  static std::size_t burst_size(Input& input) {
    const std::uint32_t n = input.below(160);
    return n >= 128 ? kClusterFrames : n;
  }

  void bulk_list(Input& input) {
    const AllocFlags flags = flags_from(input);
    const std::uint32_t n = input.below(200);
    PageList list;
    Page* const first = pages_.alloc_page();
    if (first != nullptr) {
      took(first, Order{0}, AllocFlags::none);
      list.push(first);
    }
    const std::size_t added = pages_.alloc_bulk(list, n, flags);
    require(added <= n && list.size() == added + (first != nullptr ? 1 : 0), "a list miscounts");
    for (std::size_t i = 0; i < added; ++i) {
      took(list.pop(), Order{0}, flags);
    }
    require(list.pop() == first, "not added at the head");
    if (added < n) {
      refused(Order{0}, flags);
    }
  }

  void free_in_bulk(Input& input) {
    std::vector<Page*> going;
    for (std::uint32_t n = input.below(200); n != 0 && !live_.empty(); --n) {
      Live& last = live_.back();
      if (last.refs != 1) {
        break;
      }
      forget(last);
      going.push_back(last.page);
      live_.pop_back();
    }
    if (input.byte() % 4 == 0) {
      going.push_back(nullptr);
    }
    free_bulk(going);
  }

  void look_up(Input& input) {
    const CachedZone::Piece& piece = pages_.zone().pieces().front();
    const std::uint64_t frame = input.number() % (whole_pages(piece.extent.size).value + 2);
    std::byte* address = piece.extent.base + (frame * kFrameBytes) + input.number() % kFrameBytes;
    const Page* page = page_of(address - kFrameBytes);  // from one below to one past
    const bool inside = frame >= 1 && frame <= whole_pages(piece.extent.size).value;
    require(inside || page == nullptr, "a foreign address has a page");
    for (const Live& live : live_) {
      std::byte* begin = address_of(live.page);
      if (address - kFrameBytes >= begin &&
          address - kFrameBytes < begin + bytes(order_of(live.page)).value) {
        require(page == live.page, "an address of a live page leads elsewhere");
      }
    }
  }

  void interfere(Input& input) {
    if constexpr (kTestHooks) {
      constexpr Failpoint kPoints[] = {Failpoint::list_busy, Failpoint::list_push,
                                       Failpoint::zone_take_cluster, Failpoint::zone_take,
                                       Failpoint::zone_take_high};
      const std::uint32_t which = input.below(std::size(kPoints) + 1);
      failpoints::reset();
      if (which < std::size(kPoints)) {
        failpoints::arm(kPoints[which], 1 + input.below(8), 1 + input.below(16));
      }
      // Told to fail: then a refusal says nothing. Busy lists are no excuse.
      interfered_ = which == 3;
      meddled_ = which < std::size(kPoints);
    }
  }

  void burst(Input& input, unsigned kind) {
    for (std::uint32_t n = input.below(256); n != 0; --n) {
      if (kind % 2 == 0 && live_.size() < kMaxLive) {
        Page* page = pages_.alloc_page();
        if (page == nullptr) {
          refused(Order{0}, AllocFlags::none);
          break;
        }
        took(page, Order{0}, AllocFlags::none);
      } else if (!live_.empty()) {
        drop_at(kind % 4 == 1 ? 0 : live_.size() - 1);
      }
    }
  }

  Options options_;
  PageAllocator pages_;
  test::SideTable table_;
  std::vector<Live> live_;
  std::uint64_t stamps_ = 0;
  bool interfered_ = false;  // a single frame may be refused
  bool meddled_ = false;     // any failpoint is armed
};

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  weir::fuzz::Input input(data, size);
  weir::Run run(input);
  while (!input.empty()) {
    run.step(input);
  }
  run.finish();
  return 0;
}
