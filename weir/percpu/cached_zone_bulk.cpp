// SPDX-License-Identifier: MIT
// Many single frames at once: through the list where it can serve, whole clusters past it.
#include <algorithm>

#include "weir/percpu/carry.hpp"
#include "weir/percpu/names.hpp"

namespace weir {

std::uint32_t CachedZone::take_cluster(Page** out, TakeRights rights) noexcept {
  if (!may_list(0)) {
    return 0;
  }
  const Carry carry{*this};
  if (carry.stopped()) {
    return 0;
  }
  const std::uint32_t shard = shard_here();
  const std::uint32_t n = lists_.cluster();
  if (const ClusterId id = depot_.take_full(shard); id != kNoCluster) {
    to_pages(depot_.body(id).frames, out, n);
    depot_.give_empty(id, shard);
    lists_.counted_block_here().counters.clusters_taken.add_shared(1);
    return n;
  }
  if (carry.nested()) {
    return 0;
  }
  PageIndex pages[kClusterFrames];
  const std::uint32_t got = zone_.take_many(Order{0}, pages, n, rights.reserve);
  to_pages(pages, out, got);
  return got;
}

std::size_t CachedZone::alloc_bulk_slow(Page** out, std::size_t n, TakeRights rights) noexcept {
  const std::uint32_t cluster = lists_.cluster();
  std::size_t got = 0;
  if (may_list(0)) {
    start_here();
  }
  // The caller has just found that the list does not hold the first part.
  for (bool tried = true; got < n && !detached(); tried = false) {
    const auto want = static_cast<std::uint32_t>(std::min<std::size_t>(n - got, cluster));
    std::uint32_t taken = !tried && lists_.pop_exactly(out + got, want) ? want : 0;
    if (lists_.locked_here_and_now()) {
      taken = lists_.pop_batch(out + got, want);
    }
    if (taken == 0 && want == cluster) {
      taken = take_cluster(out + got, rights);  // a whole cluster need not pass through the list
    }
    if (taken == 0) {
      taken = lists_.pop_batch(out + got, want);
    }
    if (taken == 0) {
      const PageIndex page = alloc_slow(Order{0}, rights);
      if (!is_page(page)) {
        break;
      }
      out[got] = page_at(page);
      taken = 1;
    }
    got += taken;
  }
  if (got != 0) {  // a detached zone serves nobody and is left as it is
    watch_low();
  }
  return got;
}

std::size_t CachedZone::alloc_bulk(PageIndex* out, std::size_t n, TakeRights rights) noexcept {
  Page* pages[kClusterFrames];
  std::size_t got = 0;
  while (got < n) {
    const auto want = static_cast<std::uint32_t>(std::min<std::size_t>(n - got, kClusterFrames));
    const auto taken = static_cast<std::uint32_t>(alloc_bulk(pages, want, rights));
    to_indexes(pages, out + got, taken);
    got += taken;
    if (taken < want) {
      break;
    }
  }
  return got;
}

// Whoever holds a part of what it wants keeps it from others who could go on with it: so all at once
// from the engine, where it is set aside under the lock. place(pages, n) takes them, a cluster at a time.
template <class Place>
bool CachedZone::take_exactly(std::size_t n, TakeRights rights, Place&& place) noexcept {
  if (thread_is_marked() || detached()) {
    return false;
  }
  const auto take = [&] {
    PageIndex pages[kClusterFrames];
    for (std::size_t done = 0; done < n;) {
      const auto part = static_cast<std::uint32_t>(std::min<std::size_t>(n - done, kClusterFrames));
      zone_.take_claimed(pages, part);
      place(pages, part);
      done += part;
    }
  };
  {
    const ThreadMark mark;
    if (zone_.claim(n, rights.reserve, rights.report)) {
      take();
      return true;
    }
  }
  if (rights.no_wait) {
    return false;
  }
  bool served = false;
  ask_until_quiet([&](bool last_try, bool& quiet) {
    const ThreadMark mark;
    served = zone_.claim_or_tell(n, rights.reserve, Quiet{*this}, last_try, quiet, rights.report);
    if (served) {
      take();
    }
    return served;
  });
  return served;
}

bool CachedZone::alloc_exactly(Page** out, std::size_t n, TakeRights rights) noexcept {
  // Or all at once from the list.
  if (n == 0 || (n <= kClusterFrames && lists_.pop_all(out, static_cast<std::uint32_t>(n)))) {
    return true;
  }
  return take_exactly(n, rights, [&out](const PageIndex* pages, std::uint32_t part) {
    to_pages(pages, out, part);
    out += part;
  });
}

bool CachedZone::alloc_exactly(PageSink& sink, std::size_t n, TakeRights rights) noexcept {
  Page* some[kClusterFrames];
  if (n <= kClusterFrames) {
    const bool served = alloc_exactly(some, n, rights);
    if (served && n != 0) {
      sink.put(some, static_cast<std::uint32_t>(n));
    }
    return served;
  }
  return take_exactly(n, rights, [&](const PageIndex* pages, std::uint32_t part) {
    to_pages(pages, some, part);
    sink.put(some, part);
  });
}

bool CachedZone::give_cluster(Page* const* pages) noexcept {
  if (!may_list(0) || free_order0_ != FreeOrder0::list || depot_.capacity() == 0) {
    return false;
  }
  const Carry carry{*this};
  if (carry.stopped()) {
    return false;
  }
  const std::uint32_t shard = shard_here();
  const ClusterId id = depot_.take_empty(shard);
  if (id == kNoCluster) {
    return false;
  }
  to_indexes(pages, depot_.body(id).frames, lists_.cluster());
  put_full(id, shard, carry.nested());
  return true;
}

void CachedZone::free_bulk_slow(Page* const* pages, std::size_t n) noexcept {
  const std::uint32_t cluster = lists_.cluster();
  if (may_list(0)) {
    start_here();
  }
  // The caller has just found that the list has no room for the first part.
  for (bool tried = true; n != 0 && !detached(); tried = false) {
    const auto want = static_cast<std::uint32_t>(std::min<std::size_t>(n, cluster));
    const bool listed = may_list(0) && free_order0_ == FreeOrder0::list;
    std::uint32_t given = !tried && lists_.push_exactly(pages, want) ? want : 0;
    if (lists_.locked_here_and_now() && listed) {
      given = lists_.push_batch(pages, want);
    }
    if (given == 0 && want == cluster && give_cluster(pages)) {
      given = want;
    }
    if (given == 0 && listed) {
      given = lists_.push_batch(pages, want);
    }
    if (given == 0 && !listed && !thread_is_marked()) {
      PageIndex frames[kClusterFrames];
      to_indexes(pages, frames, want);
      zone_.give_many(frames, want, Order{0});
      maybe_leave_shortage();
      given = want;
    }
    if (given == 0) {
      free_slow(index_of(*pages), Order{0});
      given = 1;
    }
    pages += given;
    n -= given;
  }
  maybe_close();
}

void CachedZone::free_bulk(const PageIndex* pages, std::size_t n) noexcept {
  Page* some[kClusterFrames];
  while (n != 0) {
    const auto part = static_cast<std::uint32_t>(std::min<std::size_t>(n, kClusterFrames));
    to_pages(pages, some, part);
    free_bulk(some, part);
    pages += part;
    n -= part;
  }
}

}  // namespace weir
