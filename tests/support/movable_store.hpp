// SPDX-License-Identifier: MIT
// support/movable_store.hpp — an owner of movable pages as a storage engine is one: a table of pages, each
// with a number that is written into both ends of it. Takes, frees and lets pages be carried, from any
// thread; never waits for its lock inside a step of a move.
#pragma once

#include <cstdint>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "weir/page/page_allocator.hpp"

namespace weir::test {

class MovableStore {
 public:
  explicit MovableStore(PageAllocator& pages) : pages_(pages) { pages.add_mover(mover_); }
  ~MovableStore() {
    mover_.remove();
    clear();
  }
  MovableStore(const MovableStore&) = delete;
  MovableStore& operator=(const MovableStore&) = delete;

  // False when there is no memory.
  bool add(Order order = Order{0}) {
    Page* const page = pages_.alloc_movable(mover_, order);
    if (page == nullptr) {
      return false;
    }
    const std::lock_guard guard(mutex_);
    write(page, ++numbers_);
    page->private_word = numbers_;
    place_of_[page] = entries_.size();
    entries_.push_back({page, numbers_, false});
    return true;
  }
  // Frees entry i (modulo their number); false when there is none or it is being carried.
  bool drop(std::uint64_t i) {
    Page* page = nullptr;
    {
      const std::lock_guard guard(mutex_);
      if (entries_.empty()) {
        return false;
      }
      Entry& entry = entries_[i % entries_.size()];
      if (entry.moving) {
        return false;
      }
      page = entry.page;
      check(entry);
      place_of_.erase(page);
      entry = entries_.back();
      if (page != entries_.back().page) {
        place_of_[entry.page] = i % entries_.size();
      }
      entries_.pop_back();
    }
    unref(page);
    return true;
  }
  void clear() {
    while (drop(0)) {
    }
  }

  [[nodiscard]] std::size_t size() const {
    const std::lock_guard guard(mutex_);
    return entries_.size();
  }
  [[nodiscard]] Page* page(std::size_t i) const {
    const std::lock_guard guard(mutex_);
    return entries_[i].page;
  }
  // Pages whose contents or private word were not what was written: none, ever.
  [[nodiscard]] std::uint64_t wrong() {
    const std::lock_guard guard(mutex_);
    for (const Entry& entry : entries_) {
      check(entry);
    }
    return wrong_;
  }
  [[nodiscard]] std::uint64_t isolated() const { return isolated_; }
  [[nodiscard]] std::uint64_t migrated() const { return migrated_; }
  [[nodiscard]] std::uint64_t put_back() const { return put_back_; }
  // Every n-th question is answered with no; 0: none.
  void refuse_isolate_every(std::uint64_t n) { refuse_isolate_ = n; }
  void refuse_migrate_every(std::uint64_t n) { refuse_migrate_ = n; }
  [[nodiscard]] PageMover& mover() { return mover_; }

 private:
  struct Entry {
    Page* page;
    std::uint64_t number;
    bool moving;
  };
  static std::size_t end_of(const Page* page) {
    return bytes(order_of(page)).value - sizeof(std::uint64_t);
  }
  static void write(Page* page, std::uint64_t number) {
    std::memcpy(address_of(page), &number, sizeof(number));
    std::memcpy(address_of(page) + end_of(page), &number, sizeof(number));
  }
  void check(const Entry& entry) {
    std::uint64_t ends[2];
    std::memcpy(&ends[0], address_of(entry.page), sizeof(ends[0]));
    std::memcpy(&ends[1], address_of(entry.page) + end_of(entry.page), sizeof(ends[1]));
    wrong_ += ends[0] != entry.number || ends[1] != entry.number ||
                      entry.page->private_word != entry.number
                  ? 1
                  : 0;
  }
  bool isolate(Page* page) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    const auto found = lock ? place_of_.find(page) : place_of_.end();
    if (!lock || found == place_of_.end() || refuses(refuse_isolate_, isolate_asked_)) {
      return false;
    }
    entries_[found->second].moving = true;
    ++isolated_;
    return true;
  }
  bool migrate(Page* from, Page* to) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || refuses(refuse_migrate_, migrate_asked_)) {
      return false;
    }
    std::memcpy(address_of(to), address_of(from), bytes(order_of(from)).value);
    const std::size_t place = place_of_.at(from);
    place_of_.erase(from);
    place_of_[to] = place;
    entries_[place].page = to;
    entries_[place].moving = false;
    ++migrated_;
    return true;
  }
  void put_back(Page* page) {
    const std::lock_guard guard(mutex_);  // nobody allocates under it
    entries_[place_of_.at(page)].moving = false;
    ++put_back_;
  }
  static bool refuses(std::uint64_t every, std::uint64_t& asked) {
    return every != 0 && ++asked % every == 0;
  }
  static MovableStore& self(void* context) { return *static_cast<MovableStore*>(context); }

  PageAllocator& pages_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;  // under mutex_, as all that follows
  std::unordered_map<const Page*, std::size_t> place_of_;
  std::uint64_t numbers_ = 0;
  std::uint64_t wrong_ = 0;
  std::uint64_t isolated_ = 0;
  std::uint64_t migrated_ = 0;
  std::uint64_t put_back_ = 0;
  std::uint64_t refuse_isolate_ = 0;
  std::uint64_t refuse_migrate_ = 0;
  std::uint64_t isolate_asked_ = 0;
  std::uint64_t migrate_asked_ = 0;
  PageMover mover_{
      {[](void* context, Page* page) noexcept { return self(context).isolate(page); },
       [](void* context, Page* from, Page* to) noexcept { return self(context).migrate(from, to); },
       [](void* context, Page* page) noexcept { self(context).put_back(page); }},
      this};
};

}  // namespace weir::test
