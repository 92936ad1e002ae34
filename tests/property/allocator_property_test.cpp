// SPDX-License-Identifier: MIT
// A random program over every entry point of the library, on each memory source, against a side
// table that knows nothing of weir's own books. After every step the frames add up (conservation)
// and no frame has two owners (uniqueness); every thousand steps all descriptors are recounted.
//
// A failure prints the seed; WEIR_SEED=<seed> repeats the run, WEIR_STEPS=<n> changes its length.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/support/huge_pages.hpp"
#include "weir/base/failpoint.hpp"
#include "weir/weir.hpp"

namespace weir {
namespace {

constexpr std::size_t kZoneBytes = std::size_t{24} << 20;
constexpr std::size_t kMostItems = 3000;

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 0) : otherwise;
}

enum class From { anonymous, transparent_huge, hugetlb, memfd, borrowed };

// Memory a user brings: two pieces with a gap, at an odd place.
class Borrowed {
 public:
  Borrowed() {
    base_ = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  ~Borrowed() { ::munmap(base_, kSize); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

  [[nodiscard]] std::array<std::span<std::byte>, 2> pieces() const {
    auto* bytes = static_cast<std::byte*>(base_);
    return {std::span{bytes + 3 * kFrameBytes, kZoneBytes / 2},
            std::span{bytes + 9 * kFrameBytes + kZoneBytes / 2, kZoneBytes / 2}};
  }

 private:
  static constexpr std::size_t kSize = kZoneBytes + (std::size_t{1} << 20);
  void* base_ = nullptr;
};

class World {
 public:
  World(From memory, EngineChoice engine, std::uint64_t seed) : random_(seed) {
    Options options{.capacity = Bytes{kZoneBytes}, .engine = engine};
    if (memory == From::borrowed) {
      borrowed_ = std::make_unique<Borrowed>();
      const auto pieces = borrowed_->pieces();
      pages_ = std::make_unique<PageAllocator>(pieces, options);
    } else {
      options.source = memory == From::hugetlb ? SourceChoice::hugetlb
                       : memory == From::memfd ? SourceChoice::memfd
                                               : SourceChoice::anonymous;
      options.thp = memory == From::transparent_huge ? ThpChoice::on : ThpChoice::system;
      pages_ = std::make_unique<PageAllocator>(options);
    }
    for (auto& cache : frags_) {
      cache = std::make_unique<FragCache>(*pages_);
    }
    pages_->add_mover(mover_);
  }

  ~World() {
    mover_.remove();
    t_fake_cpu = -1;
    failpoints::reset();
    items_.clear();
    pins_.clear();
    for (auto& cache : frags_) {
      cache.reset();
    }
    for (auto& pool : pools_) {
      pool.reset();
    }
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void step() {
    if constexpr (kTestHooks) {
      if (one_in(4)) {
        // Sometimes the CPU this is, sometimes a number beyond every list.
        t_fake_cpu = static_cast<std::int32_t>(below(pages_->zone().lists().count() + 3)) - 1;
      }
      if (one_in(500)) {
        constexpr Failpoint kPoints[] = {Failpoint::zone_take,         Failpoint::zone_take_high,
                                         Failpoint::zone_take_cluster, Failpoint::list_busy,
                                         Failpoint::list_push,         Failpoint::pool_ring};
        failpoints::arm(kPoints[below(std::size(kPoints))], 1 + below(20), 1 + below(5));
      }
    }
    const std::uint64_t what = below(100);
    // Growth is favoured until there is a lot, then release, in waves that reach exhaustion.
    if (one_in(20000)) {
      growing_ = !growing_;
    }
    if (items_.size() >= kMostItems) {
      growing_ = false;
    } else if (items_.size() < 50) {
      growing_ = true;
    }
    if (what < (growing_ ? 30U : 45U)) {
      drop_one();
    } else if (what < 60) {
      alloc_page();
    } else if (what < 74) {
      alloc_fragment();
    } else if (what < 84) {
      pool_get();
    } else if (what < 88) {
      share_one();
    } else if (what < 92) {
      bulk();
    } else if (what < 96) {
      packet_burst();
    } else {
      rare();
    }
  }

  // Conservation, from sums that cost little.
  void expect_sums_agree() {
    std::uint64_t home = 0;
    for (const auto& pool : pools_) {
      if (pool) {
        const PoolInfo info = pool->info();
        home += info.cached + info.ring;
      }
    }
    for (const auto& cache : frags_) {
      const Page* page = cache->page();
      if (page != nullptr && refs_[frame_number(index_of(page))] == 0) {
        home += whole_pages(cache->held()).value;
      }
    }
    const CachedZone::Census census = pages_->zone().census();
    ASSERT_LE(census.engine + census.depot + census.lists, census.managed);
    ASSERT_EQ(census.out(), live_frames_ + home)
        << "engine " << census.engine << " depot " << census.depot << " lists " << census.lists;
  }

  // Every descriptor: blocks tile the zone, and references are what the side table says.
  void expect_recount_agrees() {
    std::uint64_t in_engine = 0;
    std::uint64_t outside = 0;
    for (const CachedZone::Piece& piece : pages_->zone().pieces()) {
      const std::uint64_t end = piece.first.value + whole_pages(piece.extent.size).value;
      for (std::uint64_t at = piece.first.value; at < end;) {
        const PageIndex index{static_cast<std::uint32_t>(at)};
        const Page* page = page_at(index);
        const bool is_free = !pages_->zone().zone().is_taken(index);
        const Order order = order_of(page);
        ASSERT_NE(page->state.load(), FrameState::kInner) << "frame " << at << " has no head";
        ASSERT_NE(page->state.load(), FrameState::kAbsent);
        ASSERT_LE(at + frames_in(order), end);
        for (std::uint64_t inner = at + 1; inner < at + frames_in(order); ++inner) {
          const PageIndex inside{static_cast<std::uint32_t>(inner)};
          if (pages_->zone().zone().lock_free()) {  // touches no descriptor but the head's
            ASSERT_NE(pages_->zone().zone().is_taken(inside), is_free);
          } else {
            ASSERT_EQ(page_at(inside)->state.load(), FrameState::kInner);
          }
        }
        (is_free ? in_engine : outside) += frames_in(order);
        const std::uint32_t refs = refs_[frame_number(index_of(page))];
        if (is_free) {
          ASSERT_EQ(refs, 0U);
          ASSERT_EQ(page->word.load(), kSoleOwner);
        } else if (!is_cut_from(page)) {
          // Free on a list it keeps the word of a sole owner.
          ASSERT_EQ(ref_count(page), std::max<std::uint32_t>(refs, 1)) << "page " << at;
        } else {
          ASSERT_GE(ref_count(page), refs);
        }
        at += frames_in(order);
      }
    }
    ASSERT_EQ(in_engine, pages_->zone().zone().audit());
    const CachedZone::Census census = pages_->zone().census();
    ASSERT_EQ(outside, census.out() + census.depot + census.lists);
    // Every cluster's body is somewhere, and what the zone caches is within its cap.
    const Depot& depot = pages_->zone().depot();
    ASSERT_EQ(depot.full_clusters() + depot.partial_clusters() + depot.empty_bodies(),
              depot.bodies());
    ASSERT_LE(depot.full_clusters(), depot.capacity());
    std::uint64_t owned = 0;
    for (const bool taken : owned_) {
      owned += taken ? 1 : 0;
    }
    ASSERT_EQ(owned, live_frames_);
  }

  // Everything let go: the zone is whole again, one block per largest order where the ends allow it.
  void expect_whole_after_release() {
    t_fake_cpu = -1;
    failpoints::reset();
    pins_.clear();
    while (!items_.empty()) {
      drop(items_.size() - 1);
    }
    for (auto& cache : frags_) {
      cache->drain();
    }
    for (auto& pool : pools_) {
      pool.reset();
    }
    ASSERT_FALSE(pages_->drain_all().failed());
    const CachedZone::Census census = pages_->zone().census();
    ASSERT_EQ(census.engine, census.managed);
    std::uint64_t largest = 0;
    for (const CachedZone::Piece& piece : pages_->zone().pieces()) {
      const std::uint64_t first = align_up<std::uint64_t>(piece.first.value, kMaxBlockFrames);
      const std::uint64_t last = align_down<std::uint64_t>(
          piece.first.value + whole_pages(piece.extent.size).value, kMaxBlockFrames);
      largest += last > first ? (last - first) / kMaxBlockFrames : 0;
    }
    ASSERT_EQ(pages_->zone().zone().free_blocks(kMaxOrder), largest);
  }

  [[nodiscard]] std::uint64_t carried() const { return carried_; }
  [[nodiscard]] std::uint64_t long_runs() const { return long_runs_; }

  [[nodiscard]] std::uint64_t refusals() const { return refused_; }
  [[nodiscard]] std::uint64_t trims() const { return trims_; }
  [[nodiscard]] const Extent& extent() const { return pages_->effective().extent; }

 private:
  struct Item {
    PageRef page;
    FragRef frag;
    PoolRef pooled;
    Packet packet;
    Page* head = nullptr;
    std::uint64_t stamp = 0;  // written into whole pages, checked when they go
  };

  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

  // Position in the side table; pieces follow each other there.
  std::size_t frame_number(PageIndex index) const {
    std::size_t before = 0;
    for (const CachedZone::Piece& piece : pages_->zone().pieces()) {
      const std::uint64_t frames = whole_pages(piece.extent.size).value;
      if (index.value >= piece.first.value && index.value - piece.first.value < frames) {
        return before + (index.value - piece.first.value);
      }
      before += frames;
    }
    ADD_FAILURE() << "page " << index.value << " is of no piece";
    std::abort();
  }

  bool is_cut_from(const Page* page) const {
    return std::any_of(frags_.begin(), frags_.end(),
                       [page](const auto& cache) { return cache->page() == page; });
  }

  // A reference more on a block; the first one must find its frames without owner.
  void note_taken(Page* head) {
    const std::size_t at = frame_number(index_of(head));
    const std::uint32_t frames = frames_in(order_of(head));
    if (refs_[at]++ == 0) {
      for (std::uint32_t i = 0; i < frames; ++i) {
        ASSERT_FALSE(owned_[at + i]) << "frame handed out twice: " << at + i;
        owned_[at + i] = true;
      }
      live_frames_ += frames;
    }
  }
  void note_dropped(Page* head, std::uint32_t frames) {
    const std::size_t at = frame_number(index_of(head));
    ASSERT_GT(refs_[at], 0U);
    if (--refs_[at] == 0) {
      for (std::uint32_t i = 0; i < frames; ++i) {
        owned_[at + i] = false;
      }
      live_frames_ -= frames;
    }
  }

  void keep(Item item) {
    note_taken(item.head);
    items_.push_back(std::move(item));
  }
  void keep_page(PageRef ref) {
    Item item;
    item.head = ref.get();
    item.stamp = random_() | 1;
    if (ref_count(item.head) == 1) {
      std::memcpy(ref.data(), &item.stamp, sizeof item.stamp);
    } else {
      item.stamp = 0;
    }
    ASSERT_TRUE(
        is_aligned<std::uint64_t>(reinterpret_cast<std::uintptr_t>(ref.data()), ref.size().value));
    ASSERT_EQ(page_of(ref.data() + below(ref.size().value)), item.head);
    item.page = std::move(ref);
    keep(std::move(item));
  }

  void drop(std::size_t at) {
    std::swap(items_[at], items_.back());
    Item item = std::move(items_.back());
    items_.pop_back();
    const std::uint32_t frames = frames_in(order_of(item.head));
    if (item.stamp != 0 && !shared(item.head)) {
      std::uint64_t stamp = 0;
      std::memcpy(&stamp, item.page.data(), sizeof stamp);
      ASSERT_EQ(stamp, item.stamp) << "somebody wrote into a page that is not his";
    }
    if (item.frag) {
      ranges_.erase(reinterpret_cast<std::uintptr_t>(item.frag.data()));
    }
    note_dropped(item.head, frames);
    if (item.page && one_in(4)) {
      unref(item.page.detach());
    } else if (item.page && one_in(4)) {
      std::byte* inside = item.page.data() + below(item.page.size().value);
      static_cast<void>(item.page.detach());
      free_at(inside);
    } else if (item.frag && one_in(3)) {
      std::byte* inside = item.frag.data() + below(item.frag.size());
      static_cast<void>(item.frag.detach());
      free_at(inside);
    } else if (item.pooled && one_in(3)) {
      unref(item.pooled.detach());
    }
  }
  [[nodiscard]] bool shared(Page* head) const { return refs_[frame_number(index_of(head))] > 1; }

  void drop_one() {
    if (!items_.empty()) {
      drop(below(items_.size()));
    }
  }

  void alloc_page() {
    const auto order = static_cast<unsigned>(one_in(3) ? below(kOrderCount) : below(4));
    AllocFlags flags = one_in(8) ? AllocFlags::zero : AllocFlags::none;
    if (one_in(16)) {
      flags = flags | AllocFlags::no_wait;
    }
    PageRef ref = pages_->alloc(Order{order}, flags);
    if (ref.empty()) {
      ++refused_;
      return;
    }
    ASSERT_EQ(ref.order(), Order{order});
    if (has(flags, AllocFlags::zero)) {
      const auto* bytes = ref.data();
      ASSERT_TRUE(std::all_of(bytes, bytes + ref.size().value,
                              [](std::byte b) { return b == std::byte{0}; }));
    }
    std::memset(ref.data(), 0xa5, std::min<std::size_t>(ref.size().value, 64));
    keep_page(std::move(ref));
  }

  void alloc_fragment() {
    FragCache& cache = *frags_[below(frags_.size())];
    const std::size_t size = one_in(10) ? 1 + below(kFragPageBytes) : 1 + below(2000);
    const std::size_t align = std::size_t{1} << below(one_in(4) ? 13 : 7);
    FragRef frag = cache.alloc(size, Align{align});
    if (frag.empty()) {
      ++refused_;
      return;
    }
    ASSERT_EQ(frag.size(), size);
    const auto begin = reinterpret_cast<std::uintptr_t>(frag.data());
    ASSERT_TRUE(is_aligned<std::uintptr_t>(begin, align));
    ASSERT_EQ(page_of(frag.data()), frag.page());
    ASSERT_EQ(page_of(frag.data() + size - 1), frag.page());
    const auto after = ranges_.lower_bound(begin);
    ASSERT_TRUE(after == ranges_.end() || begin + size <= after->first);
    ASSERT_TRUE(after == ranges_.begin() || std::prev(after)->second <= begin);
    ranges_.emplace(begin, begin + size);
    std::memset(frag.data(), 0x5a, size);
    Item item;
    item.head = frag.page();
    item.frag = std::move(frag);
    keep(std::move(item));
  }

  PagePool* some_pool() {
    auto& pool = pools_[below(pools_.size())];
    if (!pool) {
      pool = std::make_unique<PagePool>(
          *pages_, PoolOptions{.ring = static_cast<std::uint32_t>(below(200))});
    }
    return pool.get();
  }

  void pool_get() {
    PagePool* pool = some_pool();
    if (one_in(5)) {
      std::array<Page*, 100> out{};
      const std::size_t n = pool->get_bulk(std::span{out}.first(below(out.size())));
      for (std::size_t i = 0; i < n; ++i) {
        Item item;
        item.head = out[i];
        item.pooled = PoolRef{out[i]};
        keep(std::move(item));
      }
      return;
    }
    PoolRef ref = pool->get();
    if (ref.empty()) {
      ++refused_;
      return;
    }
    Item item;
    item.head = ref.get();
    item.pooled = std::move(ref);
    keep(std::move(item));
  }

  void share_one() {
    if (items_.empty()) {
      return;
    }
    Item& from = items_[below(items_.size())];
    if (from.page) {
      PageRef other = from.page.share();
      ASSERT_FALSE(other.empty());
      keep_page(std::move(other));
    } else if (from.pooled) {
      // The same page under another kind of owner: whoever is last takes it home.
      Item item;
      item.head = from.head;
      ASSERT_TRUE(ref(from.head));
      item.page = PageRef{from.head};
      keep(std::move(item));
    }
  }

  void bulk() {
    switch (below(6)) {
      case 0:
        bulk_array_of_refs();
        break;
      case 1:
        bulk_array_of_pages();
        break;
      case 3:
        burst();
        break;
      case 4:
        exactly();
        break;
      case 2:
        bulk_list();
        break;
      default:
        bulk_free();
        break;
    }
  }

  void bulk_array_of_refs() {
    std::array<PageRef, 150> slots;
    std::array<Page*, 150> before{};
    const std::size_t n = below(slots.size() + 1);
    for (std::size_t i = 0; i < n; ++i) {
      if (one_in(5) && (slots[i] = pages_->alloc())) {
        before[i] = slots[i].get();
      }
    }
    const std::size_t leading = pages_->alloc_bulk(std::span{slots}.first(n));
    ASSERT_LE(leading, n);
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_TRUE(before[i] == nullptr || before[i] == slots[i].get()) << "slot was not empty";
      ASSERT_TRUE(i >= leading || slots[i]) << "a hole before the leading count";
      ASSERT_TRUE(i != leading || !slots[i]) << "the leading count stops at a populated slot";
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (slots[i]) {
        keep_page(std::move(slots[i]));
      }
    }
  }

  void bulk_array_of_pages() {
    std::array<Page*, 130> slots{};
    const std::size_t n = below(slots.size() + 1);
    const std::size_t leading = pages_->alloc_bulk(std::span{slots}.first(n));
    for (std::size_t i = 0; i < leading; ++i) {
      keep_page(PageRef{slots[i]});
    }
    ASSERT_TRUE(std::all_of(slots.begin() + static_cast<std::ptrdiff_t>(leading), slots.end(),
                            [](Page* page) { return page == nullptr; }));
  }

  // A whole cluster now and then: it goes past the list.
  std::size_t burst_size() { return one_in(2) ? kClusterFrames : below(140); }

  void burst() {
    std::array<Page*, 140> out{};
    const std::size_t n = burst_size();
    const std::size_t got = pages_->alloc_burst(std::span{out}.first(n));
    ASSERT_LE(got, n);
    refused_ += got < n ? 1 : 0;
    for (std::size_t i = 0; i < got; ++i) {
      ASSERT_NE(out[i], nullptr);
    }
    if (one_in(2)) {
      free_bulk(std::span<Page* const>{out}.first(got));
      return;
    }
    for (std::size_t i = 0; i < got; ++i) {
      keep_page(PageRef{out[i]});
    }
  }

  void exactly() {
    std::array<Page*, 140> out{};
    const std::size_t n = burst_size();
    if (!pages_->alloc_exactly(std::span{out}.first(n))) {
      ++refused_;
      return;
    }
    for (std::size_t i = 0; i < n; ++i) {
      keep_page(PageRef{out[i]});
    }
  }

  void bulk_list() {
    PageList list;
    const std::size_t before = below(3);
    ASSERT_LE(pages_->alloc_bulk(list, before), before);
    const std::size_t held = list.size();
    const std::size_t n = below(140);
    const std::size_t added = pages_->alloc_bulk(list, n);
    ASSERT_EQ(list.size(), held + added);
    if (one_in(4)) {
      return;  // the list drops them
    }
    while (Page* page = list.pop()) {
      keep_page(PageRef{page});
    }
  }

  void bulk_free() {
    // Whole-page items of any kind in one call, shared ones among them.
    std::array<Page*, 100> out{};
    std::size_t n = 0;
    const std::size_t wanted = below(out.size());
    while (n < wanted && !items_.empty()) {
      const std::size_t at = below(items_.size());
      if (!items_[at].page && !items_[at].pooled) {
        break;
      }
      std::swap(items_[at], items_.back());
      Item item = std::move(items_.back());
      items_.pop_back();
      note_dropped(item.head, frames_in(order_of(item.head)));
      static_cast<void>(item.page.detach());
      static_cast<void>(item.pooled.detach());
      out[n++] = item.head;
    }
    if (one_in(2)) {
      free_bulk(std::span<Page* const>{out});  // with empty slots at the end
    } else {
      PagePool::put_bulk(std::span<Page* const>{out}.first(n));
    }
  }

  void packet_burst() {
    PoolPacketSource source{*some_pool()};
    std::array<Packet, 64> burst;
    const std::size_t n = source.alloc_burst(std::span{burst}.first(below(burst.size() + 1)));
    const bool keep_them = one_in(2);
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_NE(burst[i].data(), nullptr);
      std::memset(burst[i].data(), 0x3c, 60);
      if (keep_them) {
        Item item;
        item.head = page_of(burst[i].data());
        item.packet = std::move(burst[i]);
        keep(std::move(item));
      }
    }
    if (!keep_them) {
      source.free_burst(std::span{burst}.first(n));
    }
  }

  // Pages that may be carried elsewhere at any later request for a large block.
  void alloc_movables() {
    for (std::uint64_t n = below(60); n != 0; --n) {
      const auto order = static_cast<unsigned>(one_in(8) ? below(5) : 0);
      Page* const page = pages_->alloc_movable(mover_, Order{order});
      if (page == nullptr) {
        ++refused_;
        return;
      }
      ASSERT_EQ(order_of(page), Order{order});
      page->private_word = index_of(page).value;
      keep_page(PageRef{page});
    }
  }
  // The mover's steps. Now and then it refuses one.
  bool migrate(Page* from, Page* to) {
    if (one_in(2000)) {
      return false;
    }
    const auto item = std::find_if(items_.begin(), items_.end(),
                                   [from](const Item& some) { return some.head == from; });
    if (item == items_.end() || to->private_word != index_of(from).value ||
        order_of(to) != order_of(from)) {
      ADD_FAILURE() << "carried what is not this owner's, or not as it was";
      return false;
    }
    std::memcpy(address_of(to), address_of(from), bytes(order_of(from)).value);
    to->private_word = index_of(to).value;
    note_taken(to);
    note_dropped(from, frames_in(order_of(from)));
    static_cast<void>(item->page.detach());
    item->page = PageRef{to};
    item->head = to;
    carried_ += frames_in(order_of(to));
    return true;
  }

  // Frames one after the other, each block of them an owner of its own in the side table.
  void take_run() {
    const std::uint64_t n = one_in(2) ? 1 + below(1024) : 1025 + below(1500);
    PageRun run = pages_->alloc_contiguous({n});
    if (run.empty()) {
      ++refused_;
      return;
    }
    long_runs_ += n > 1024 ? 1 : 0;
    ASSERT_EQ(run.frames(), PageCount{n});
    std::vector<Page*> blocks;
    for (std::uint64_t i = 0; i < n;) {
      Page* const block = page_of(run.data() + i * kFrameBytes);
      ASSERT_EQ(block, run.get() + i);
      blocks.push_back(block);
      note_taken(block);
      i += frames_in(order_of(block));
    }
    expect_sums_agree();
    for (Page* const block : blocks) {
      note_dropped(block, frames_in(order_of(block)));
    }
  }

  // Everything is of the movable, and half of it goes at random: large blocks come about by carrying.
  void among_movables() {
    pins_.clear();  // nothing is carried out of what is pinned
    while (!items_.empty()) {
      drop(items_.size() - 1);
    }
    for (auto& cache : frags_) {
      cache->drain();
    }
    for (auto& pool : pools_) {
      pool.reset();
    }
    for (std::uint64_t before = refused_; refused_ == before;) {
      alloc_movables();
    }
    for (std::uint64_t n = items_.size() / 2; n != 0; --n) {
      drop_one();
    }
    if (one_in(2)) {
      pages_->compact();
    }
    for (int i = 0; i < 5; ++i) {
      take_run();
      alloc_page();
    }
    expect_recount_agrees();
  }

  void rare() {
    switch (below(15)) {
      case 0:
        ASSERT_FALSE(pages_->drain_all().failed());
        break;
      case 12:
        pages_->tick();
        break;
      case 13:
        trim();
        break;
      case 14:
        pin_or_unpin();
        break;
      case 1:
        static_cast<void>(
            pages_->drain(CpuId{static_cast<std::uint32_t>(below(4))}));  // may not exist
        break;
      case 2:
        frags_[below(frags_.size())]->drain();
        break;
      case 3:
        pools_[below(pools_.size())].reset();
        break;  // with pages out
      case 4:
        if (auto& pool = pools_[below(pools_.size())]) {
          pool->drain();
        }
        break;
      case 5:
        refuse_nonsense();
        break;
      case 6:
        drop_many();
        break;
      case 7:
      case 8:
        alloc_movables();
        break;
      case 9:
        take_run();
        break;
      case 10:
        if (one_in(20)) {
          among_movables();
        }
        break;
      default:
        drop_one();
        break;
    }
  }

  // Stamps in pages that are in use tell whether one of them was hit.
  void trim() {
    const Bytes target{below(4) * kPageblockBytes + below(2)};
    TrimReport report;
    const Bytes returned = pages_->trim(one_in(4) ? Bytes{UINT64_MAX} : target, &report);
    ASSERT_EQ(returned, report.returned);
    ASSERT_TRUE(returned.value == 0 || !borrowed_) << "borrowed memory is its owner's";
    const CachedZone& zone = pages_->zone();
    std::uint64_t trimmed = 0;
    for (const CachedZone::Piece& piece : zone.pieces()) {
      const std::uint64_t end = piece.first.value + whole_pages(piece.extent.size).value;
      for (std::uint64_t at = align_up<std::uint64_t>(piece.first.value, kPageblockFrames);
           at + kPageblockFrames <= end; at += kPageblockFrames) {
        const PageIndex first{static_cast<std::uint32_t>(at)};
        if (!zone.zone().is_trimmed(first)) {
          continue;
        }
        trimmed += kPageblockFrames;
        ASSERT_FALSE(zone.is_pinned(first, kPageblockFrames))
            << "a pinned pageblock was given back";
        for (std::uint32_t i = 0; i < kPageblockFrames; ++i) {
          ASSERT_FALSE(owned_[frame_number(advance(first, i))]) << "a page in use was given back";
        }
      }
    }
    ASSERT_EQ(trimmed, zone.trimmed_pages());
    trims_ += returned.value / kPageblockBytes;
  }

  void pin_or_unpin() {
    if (pins_.size() > 2 || (!pins_.empty() && one_in(2))) {
      pins_.erase(pins_.begin() + static_cast<std::ptrdiff_t>(below(pins_.size())));
      return;
    }
    const auto& pieces = pages_->zone().pieces();
    const Extent& extent = pieces[below(pieces.size())].extent;
    const std::uint64_t frames = whole_pages(extent.size).value;
    const std::uint64_t at = below(frames);
    Result<Pin> pin =
        pages_->pin({extent.base + at * kFrameBytes,
                     (1 + below(std::min<std::uint64_t>(frames - at, 1500))) * kFrameBytes});
    ASSERT_TRUE(pin);
    pins_.push_back(std::move(pin).value());
  }

  void refuse_nonsense() {
    ASSERT_TRUE(pages_->alloc(Order{kMaxOrderValue + 1}).empty());
    ASSERT_TRUE(pages_->alloc(Order{~0U}).empty());
    ASSERT_TRUE(frags_[0]->alloc(0).empty());
    ASSERT_TRUE(frags_[0]->alloc(SIZE_MAX).empty());
    ASSERT_TRUE(frags_[0]->alloc(kFragPageBytes + 1).empty());
    ASSERT_TRUE(frags_[0]->alloc(100, Align{3}).empty());
    ASSERT_TRUE(frags_[0]->alloc(100, Align{0}).empty());
    ASSERT_EQ(pages_->alloc_bulk(std::span<PageRef>{}), 0U);
    ASSERT_EQ(page_of(this), nullptr);
    ASSERT_EQ(page_of(nullptr), nullptr);
  }

  void drop_many() {
    for (std::uint64_t n = below(items_.size() + 1); n != 0; --n) {
      drop_one();
    }
  }

  std::mt19937_64 random_;
  std::unique_ptr<Borrowed> borrowed_;
  std::unique_ptr<PageAllocator> pages_;
  std::array<std::unique_ptr<FragCache>, 2> frags_;
  std::array<std::unique_ptr<PagePool>, 3> pools_;
  std::vector<Item> items_;

  // The side table.
  std::vector<std::uint32_t> refs_ = std::vector<std::uint32_t>(kZoneBytes / kFrameBytes);
  std::vector<bool> owned_ = std::vector<bool>(kZoneBytes / kFrameBytes);
  std::uint64_t live_frames_ = 0;
  std::map<std::uintptr_t, std::uintptr_t> ranges_;  // live fragments
  bool growing_ = true;
  std::uint64_t refused_ = 0;
  std::uint64_t carried_ = 0;
  std::uint64_t long_runs_ = 0;
  PageMover mover_{
      {[](void* self, Page*) noexcept { return !static_cast<World*>(self)->one_in(2000); },
       [](void* self, Page* from, Page* to) noexcept {
         return static_cast<World*>(self)->migrate(from, to);
       },
       [](void*, Page*) noexcept {}},
      this};
  std::uint64_t trims_ = 0;
  std::vector<Pin> pins_;
};

using Ground = std::pair<From, EngineChoice>;
class AllocatorProperty : public testing::TestWithParam<Ground> {};

TEST_P(AllocatorProperty, FramesAreConservedAndUniqueOverRandomOperations) {
  const std::uint64_t seed = from_environment("WEIR_SEED", std::random_device{}());
  const std::uint64_t steps = from_environment("WEIR_STEPS", 1'000'000);
  std::printf("seed: WEIR_SEED=%llu, %llu steps\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(steps));
  std::optional<test::HugePages> huge;
  const auto [memory, engine] = GetParam();
  if (memory == From::hugetlb) {
    huge.emplace(kZoneBytes / kPageblockBytes);
  }
  World world{memory, engine, seed};
  if (huge && huge->available()) {
    EXPECT_EQ(world.extent().page_size, Bytes{kPageblockBytes});
  }
  for (std::uint64_t step = 1; step <= steps; ++step) {
    world.step();
    world.expect_sums_agree();
    if (step % 1000 == 0) {
      world.expect_recount_agrees();
    }
    if (HasFatalFailure()) {
      FAIL() << "at step " << step << "; repeat with WEIR_SEED=" << seed;
    }
  }
  world.expect_whole_after_release();
  // A run that never met exhaustion has shown less than it claims.
  EXPECT_GT(world.refusals(), 0U);
  EXPECT_GT(world.carried(), 0U);
  EXPECT_GT(world.long_runs(), 0U);
  EXPECT_EQ(world.trims() > 0, memory != From::borrowed) << world.trims() << " pageblocks";
}

const char* memory_name(From memory) {
  switch (memory) {
    case From::anonymous:
      return "Anonymous";
    case From::transparent_huge:
      return "TransparentHuge";
    case From::hugetlb:
      return "Hugetlb";
    case From::memfd:
      return "Memfd";
    case From::borrowed:
      return "Borrowed";
  }
  return "Unknown";
}

INSTANTIATE_TEST_SUITE_P(EverySource, AllocatorProperty,
                         testing::Values(Ground{From::anonymous, EngineChoice::buddy},
                                         Ground{From::transparent_huge, EngineChoice::buddy},
                                         Ground{From::hugetlb, EngineChoice::buddy},
                                         Ground{From::memfd, EngineChoice::buddy},
                                         Ground{From::borrowed, EngineChoice::buddy},
                                         Ground{From::anonymous, EngineChoice::bitmap},
                                         Ground{From::borrowed, EngineChoice::bitmap}),
                         [](const auto& ground) {
                           return std::string(memory_name(ground.param.first)) +
                                  (ground.param.second == EngineChoice::buddy
                                       ? ""
                                       : "OverTheBitmapEngine");
                         });

}  // namespace
}  // namespace weir
