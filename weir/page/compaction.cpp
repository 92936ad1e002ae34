// SPDX-License-Identifier: MIT
#include "weir/page/compaction.hpp"

#include <algorithm>
#include <array>

#include "weir/base/bits.hpp"
#include "weir/base/check.hpp"
#include "weir/os/thread_mark.hpp"
#include "weir/page/page_mover.hpp"
#include "weir/page/ref_count.hpp"
#include "weir/percpu/carry.hpp"
#include "weir/percpu/zone_blocks.hpp"

namespace weir::compaction {
namespace {

// A second run finds what the first one's estimate left, or others have freed meanwhile.
constexpr unsigned kMostPasses = 3;
// Pageblocks that one request tries to empty for itself: each look for the next costs a look at them all.
constexpr std::uint64_t kMostTries = 8;

// One thread at a time carries pages of a zone. A handler that interrupted it there does not wait for itself.
class Turn {
 public:
  Turn(CachedZone& zone, bool waits) noexcept : at_(zone.compaction()) {
    if (thread_is_marked() || !callbacks::allowed() || zone.detached() ||
        at_.holder.load(memory_order_relaxed) == thread_token()) {
      return;
    }
    if (waits) {
      at_.lock.lock();
    } else if (!at_.lock.try_lock()) {
      return;
    }
    at_.holder.store(thread_token(), memory_order_relaxed);
    got_ = true;
  }
  ~Turn() {
    if (got_) {
      at_.holder.store(0, memory_order_relaxed);
      at_.lock.unlock();
    }
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  [[nodiscard]] explicit operator bool() const noexcept { return got_; }

 private:
  CachedZone::Compaction& at_;
  bool got_ = false;
};

// ---- one page ------------------------------------------------------------------------------------

enum class Moved : unsigned char { yes, no, no_room };

// A reference on a movable page that has one owner and nobody else.
bool hold(Page* page) noexcept {
  std::uint32_t word = page->word.load(memory_order_relaxed);
  do {
    if ((word & kMovableFlag) == 0 || (word & kRefMask) != 1) {
      return false;
    }
    // pairs: mark_movable release: the mover's id is seen
  } while (!page->word.compare_exchange_weak(word, word + 1, memory_order_acq_rel,
                                             memory_order_relaxed));
  return true;
}

// The steps of one mover. In a step the thread bears a mark: what it asks of weir there waits for nobody, for
// others may be waiting for the end of the isolation. A mover that has removed itself is asked no more.
class Steps {
 public:
  Steps(const PageMover& mover, const CallbackRun& run) noexcept : mover_(mover), run_(run) {}
  [[nodiscard]] bool gone() const noexcept { return run_.node == nullptr; }
  [[nodiscard]] bool isolate(Page* page) const noexcept {
    const ThreadMark mark;
    return mover_.isolate(page);
  }
  [[nodiscard]] bool migrate(Page* from, Page* to) const noexcept {
    const ThreadMark mark;
    return mover_.migrate(from, to);
  }
  void put_back(Page* page) const noexcept {
    const ThreadMark mark;
    mover_.put_back(page);
  }

 private:
  const PageMover& mover_;
  const CallbackRun& run_;
};

// find_room(order): a taken block, or kNoPage.
template <class FindRoom>
Moved carry(CachedZone& zone, const Steps& mover, Page* from, FindRoom& find_room) noexcept {
  // What a device knows by its address stays; who pins later finds the page where it is by then.
  const bool pinned = zone.is_pinned(index_of(from), frames_in(order_of(from)));
  const bool isolated = !pinned && mover.isolate(from);
  if (!isolated || mover.gone()) {
    unref(from);
    return Moved::no;
  }
  Moved answer = Moved::no;
  if (ref_count(from) == 2) {
    const PageIndex room = find_room(order_of(from));
    if (room == kNoPage) {
      answer = Moved::no_room;
    } else {
      Page* const to = page_at(room);
      if constexpr (kCheckedDrops) {
        mark_live(to);
      }
      to->private_word = from->private_word;
      mark_movable(to, from->owner);
      if (mover.migrate(from, to)) {
        zone.zone().counters().compact_moved.add_shared(frames_in(order_of(from)));
        unref_many(from, 2);
        return Moved::yes;
      }
      unref(to);
    }
  }
  if (!mover.gone()) {
    mover.put_back(from);
  }
  unref(from);
  return answer;
}

template <class FindRoom>
Moved move_page(CachedZone& zone, Page* from, FindRoom& find_room) noexcept {
  if (!hold(from)) {
    return Moved::no;
  }
  Moved answer = Moved::no;
  CallbackWalk walk = CallbackWalk::only(zone, CallbackKind::move, from->owner);
  const bool called = walk.next([&](Callback& node, const CallbackRun& run) {
    answer = carry(zone, Steps{static_cast<PageMover&>(node), run}, from, find_room);
  });
  if (!called) {
    unref(from);  // its mover has gone: it stays where it is
  }
  if (answer != Moved::yes) {
    zone.zone().counters().compact_refused.add_shared(1);
  }
  return answer;
}

// ---- one pageblock -------------------------------------------------------------------------------

// Calls use(page) for each movable page that has its head in the pageblock, until it returns false.
template <class Use>
bool for_each_movable(PageIndex block, Use use) noexcept {
  for (std::uint32_t i = 0; i < kPageblockFrames;) {
    Page* const page = page_at(advance(block, i));
    std::uint32_t step = 1;
    if ((page->word.load(memory_order_relaxed) & kMovableFlag) != 0) {
      step = frames_in(order_of(page));
      if (!use(page)) {
        return false;
      }
    }
    i += step;
  }
  return true;
}

// Whether all that is not free there can be carried, as far as can be seen.
bool can_be_emptied(const PageblockView& view, PageIndex block) noexcept {
  if (view.whole || view.isolated || (view.mobility != Mobility::movable && !view.all_free())) {
    return false;
  }
  std::uint32_t frames = view.free;
  if (!view.all_free()) {
    for_each_movable(block, [&](const Page* page) {
      frames += frames_in(order_of(page));
      return true;
    });
  }
  return frames == kPageblockFrames;
}

// Of a pageblock that this thread has isolated.
template <class FindRoom>
Moved empty(CachedZone& zone, PageIndex block, FindRoom& find_room) noexcept {
  Moved last = Moved::yes;
  for_each_movable(block, [&](Page* page) {
    last = move_page(zone, page, find_room);
    return last == Moved::yes;
  });
  if (last != Moved::yes) {
    return last;
  }
  // Somebody may be about to give what he took before it was isolated.
  return zone.zone().pageblock(block).all_free() ? Moved::yes : Moved::no;
}

void count(CachedZone& zone, Moved outcome) noexcept {
  ZoneCounters& counters = zone.zone().counters();
  (outcome == Moved::yes ? counters.compact_emptied : counters.compact_failed).add_shared(1);
}

// All that was ever done; nobody else carries pages of this zone meanwhile.
CompactionReport done_in(const CachedZone& zone) noexcept {
  const ZoneCounters& counters = zone.zone().counters();
  return {counters.compact_emptied.get(), counters.compact_failed.get(),
          counters.compact_moved.get(), counters.compact_refused.get()};
}

// ---- the whole zone ------------------------------------------------------------------------------

// Which pageblocks are emptied: those with more than `more_than` free frames, and `as_many` of those with
// exactly so many.
struct Plan {
  std::uint32_t more_than = kPageblockFrames;
  std::uint64_t as_many = 0;
};

// From the emptiest on, as long as what lives in them finds room in the rest.
Plan make_plan(const std::array<std::uint64_t, kPageblockFrames>& blocks_with_free) noexcept {
  std::uint64_t room = 0;
  for (std::uint32_t free = 1; free < kPageblockFrames; ++free) {
    room += free * blocks_with_free[free];
  }
  Plan plan;
  for (std::uint32_t free = kPageblockFrames - 1; free > 0; --free) {
    const std::uint64_t fit = std::min(blocks_with_free[free], room / kPageblockFrames);
    room -= fit *
            kPageblockFrames;  // its free frames are room no more, and what lives there needs some
    plan = {free, fit};
    if (fit < blocks_with_free[free]) {
      break;
    }
  }
  return plan;
}

class Scanners {
 public:
  explicit Scanners(CachedZone& zone) noexcept
      : zone_(zone), blocks_(zone), room_at_(blocks_.count()) {}

  // Whether anything was won.
  bool pass() noexcept {
    survey();
    const std::uint64_t before = done_in(zone_).emptied;
    for (source_ = 0; source_ < blocks_.count(); ++source_) {
      const PageIndex block = blocks_.at(source_);
      const PageblockView view = zone_.zone().pageblock(block);
      if (is_source(view) && can_be_emptied(view, block) && !empty_source(block, view.free)) {
        break;
      }
    }
    return done_in(zone_).emptied != before;
  }

 private:
  void survey() noexcept {
    std::array<std::uint64_t, kPageblockFrames> blocks_with_free{};
    for (std::uint64_t i = 0; i < blocks_.count(); ++i) {
      const PageblockView view = zone_.zone().pageblock(blocks_.at(i));
      if (is_partial(view)) {
        ++blocks_with_free[view.free];
      }
    }
    plan_ = make_plan(blocks_with_free);
    room_at_ = blocks_.count();
    room_ = kNoPage;
  }
  static bool is_partial(const PageblockView& view) noexcept {
    return view.mobility == Mobility::movable && !view.whole && !view.isolated && view.free != 0 &&
           !view.all_free();
  }
  [[nodiscard]] bool is_source(const PageblockView& view) const noexcept {
    return is_partial(view) &&
           (view.free > plan_.more_than || (view.free == plan_.more_than && plan_.as_many != 0));
  }
  // False when there is no room left.
  bool empty_source(PageIndex block, std::uint32_t free) noexcept {
    const CachedZone::Withholding withholding{zone_};
    if (!zone_.zone().isolate(block)) {
      return true;
    }
    plan_.as_many -= free == plan_.more_than ? 1 : 0;
    auto find_room = [this](Order order) { return this->find_room(order); };
    const Moved outcome = empty(zone_, block, find_room);
    zone_.zone().end_isolation(block);
    count(zone_, outcome);
    return outcome != Moved::no_room;
  }
  // Comes down from the end, over pageblocks that are not to be emptied.
  PageIndex find_room(Order order) noexcept {
    for (;;) {
      if (room_ != kNoPage) {
        const PageIndex page = zone_.zone().take_in(room_, order, Mobility::movable);
        if (page != kNoPage) {
          return page;
        }
      }
      do {
        if (room_at_ == 0) {
          return kNoPage;
        }
        room_ = blocks_.at(--room_at_);
      } while (!has_room(zone_.zone().pageblock(room_)));
    }
  }
  [[nodiscard]] bool has_room(const PageblockView& view) const noexcept {
    return is_partial(view) &&
           (view.free < plan_.more_than ||
            (view.free == plan_.more_than && (plan_.as_many == 0 || room_at_ > source_)));
  }

  CachedZone& zone_;
  ZoneBlocks blocks_;
  Plan plan_;
  std::uint64_t source_ = 0;   // pageblocks, by number: where the one scanner is
  std::uint64_t room_at_ = 0;  // and the other
  PageIndex room_ = kNoPage;   // the pageblock there
};

// ---- a range -------------------------------------------------------------------------------------

struct Window {
  std::uint64_t first = 0;                 // pageblocks, by number
  std::uint64_t live = ~std::uint64_t{0};  // frames to be carried out of it

  [[nodiscard]] bool found() const noexcept { return live != ~std::uint64_t{0}; }
};

// Of the windows of n pageblocks from `from` on that can be emptied, one with least to carry.
Window find_window(CachedZone& zone, const ZoneBlocks& blocks, std::uint64_t from, std::uint64_t n,
                   std::uint32_t align) noexcept {
  const auto live_in = [&](std::uint64_t i) {
    return kPageblockFrames - zone.zone().pageblock(blocks.at(i)).free;
  };
  Window best;
  std::uint64_t run = 0;  // pageblocks that can be emptied, up to here, one after the other
  std::uint64_t live = 0;
  for (std::uint64_t i = from; i < blocks.count() && best.live != 0; ++i) {
    const PageIndex block = blocks.at(i);
    if (!can_be_emptied(zone.zone().pageblock(block), block)) {
      run = 0;
      live = 0;
      continue;
    }
    // Indexes of two pieces may adjoin where their addresses do not.
    if (run != 0 && address_of(blocks.at(i - 1)) + kPageblockBytes != address_of(block)) {
      run = 0;
      live = 0;
    }
    live += live_in(i);
    if (++run > n) {
      live -= std::min<std::uint64_t>(live, live_in(i - n));
      run = n;
    }
    const std::uint64_t first = i + 1 - n;
    if (run == n && live < best.live && is_aligned<std::uint64_t>(blocks.at(first).value, align)) {
      best = {first, live};
    }
  }
  return best;
}

// Isolates and empties n pageblocks; they stay isolated when it returns n, else how far it came.
std::uint64_t empty_window(CachedZone& zone, const ZoneBlocks& blocks, std::uint64_t first,
                           std::uint64_t n) noexcept {
  std::uint64_t isolated = 0;
  while (isolated < n && zone.zone().isolate(blocks.at(first + isolated))) {
    ++isolated;
  }
  auto find_room = [&zone](Order order) { return zone.zone().take_room(order); };
  std::uint64_t done = 0;
  for (; isolated == n && done < n; ++done) {
    const Moved outcome = empty(zone, blocks.at(first + done), find_room);
    count(zone, outcome);
    if (outcome != Moved::yes) {
      break;
    }
  }
  if (done == n) {
    return n;
  }
  for (std::uint64_t i = 0; i < isolated; ++i) {
    zone.zone().end_isolation(blocks.at(first + i));
  }
  return isolated < n ? isolated : done;
}

// use(first): with the window isolated and empty.
template <class Use>
bool with_window(CachedZone& zone, std::uint64_t n, std::uint32_t align, std::uint64_t tries,
                 Use use) noexcept {
  const ZoneBlocks blocks{zone};
  zone.zone().counters().compactions.add_shared(1);
  for (std::uint64_t from = 0; from < blocks.count() && tries != 0; --tries) {
    const Window window = find_window(zone, blocks, from, n, align);
    if (!window.found()) {
      return false;
    }
    const CachedZone::Withholding withholding{zone};
    const std::uint64_t came = empty_window(zone, blocks, window.first, n);
    if (came == n) {
      use(blocks, window.first);
      return true;
    }
    from = window.first + came + 1;  // beyond what could not be emptied
  }
  return false;
}

}  // namespace

void mark_movable(Page* page, std::uint64_t mover) noexcept {
  page->owner = mover;
  page->word.fetch_or(kMovableFlag, memory_order_release);  // pairs: hold acquire
}

CompactionReport compact(CachedZone& zone) noexcept {
  const Turn turn{zone, true};
  if (!turn) {
    return {};
  }
  zone.zone().counters().compactions.add_shared(1);
  const CompactionReport before = done_in(zone);
  static_cast<void>(zone.drain_all());
  Scanners scanners{zone};
  for (unsigned pass = 0; pass < kMostPasses && scanners.pass(); ++pass) {
  }
  const CompactionReport now = done_in(zone);
  return {now.emptied - before.emptied, now.failed - before.failed, now.moved - before.moved,
          now.refused - before.refused};
}

bool make_room(CachedZone& zone, Order order) noexcept {
  const Turn turn{zone, false};
  if (!turn) {
    return false;
  }
  CompactionDeferral& deferral = zone.compaction().deferral;
  if (deferral.leaves_out(order)) {
    zone.zone().counters().compactions_deferred.add_shared(1);
    return false;
  }
  const std::uint64_t n = order == kMaxOrder ? 2 : 1;
  const auto end_isolation = [&](const ZoneBlocks& blocks, std::uint64_t first) {
    for (std::uint64_t i = 0; i < n; ++i) {
      zone.zone().end_isolation(blocks.at(first + i));
    }
  };
  const bool made = with_window(zone, n, static_cast<std::uint32_t>(n) * kPageblockFrames,
                                kMostTries, end_isolation);
  if (made) {
    deferral.succeeded(order);
  } else {
    deferral.failed(order);
  }
  return made;
}

PageIndex take_range(CachedZone& zone, std::uint64_t frames) noexcept {
  const std::uint64_t blocks = div_round_up<std::uint64_t>(frames, kPageblockFrames);
  const std::uint64_t tail = blocks * kPageblockFrames - frames;
  PageIndex taken = kNoPage;
  const Turn turn{zone, true};
  if (!turn || zone.drain_all().failed() || zone.zone().exceeds_limit(frames)) {
    return kNoPage;
  }
  // Withheld, they count as out; the tail will not be.
  const auto take = [&](const ZoneBlocks& in, std::uint64_t first) {
    const bool allowed = !zone.zone().exceeds_limit(0, tail);
    for (std::uint64_t i = 0; i < blocks; ++i) {
      if (allowed) {
        WEIR_CHECK(zone.zone().take_isolated(in.at(first + i)), "a range that is empty");
      } else {
        zone.zone().end_isolation(in.at(first + i));
      }
    }
    taken = allowed ? in.at(first) : kNoPage;
  };
  static_cast<void>(with_window(zone, blocks, kPageblockFrames, ~std::uint64_t{0}, take));
  return taken;
}

}  // namespace weir::compaction
