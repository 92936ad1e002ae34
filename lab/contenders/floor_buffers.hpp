// SPDX-License-Identifier: MIT
// lab/contenders/floor_buffers.hpp — what no allocator can go below: buffers that nobody manages,
// and the plainest array of one thread. Calls lab/contenders/mapping, page_trace.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lab/contenders/buffers.hpp"
#include "lab/contenders/mapping.hpp"
#include "lab/contenders/page_trace.hpp"

namespace weir::lab {

// No allocator at all: buffers go round in the order they lie in, free does nothing. The floor of
// what moving buffers between CPUs costs; right because fewer are under way than there are.
class RoundRobinBuffers : public OneByOne<RoundRobinBuffers>, public Plain {
 public:
  using Handle = std::byte*;

  explicit RoundRobinBuffers(std::size_t buffers)
      : mapping_(buffers * kBufferBytes), count_(buffers) {}
  [[nodiscard]] const Mapping& mapping() const { return mapping_; }

  [[gnu::always_inline]] Handle alloc() noexcept {
    next_ = next_ + 1 == count_ ? 0 : next_ + 1;
    return mapping_.base() + next_ * kBufferBytes;
  }
  [[gnu::always_inline]] void free(Handle) noexcept {}
  static std::byte* address(Handle buffer) noexcept { return buffer; }

 private:
  Mapping mapping_;
  std::size_t count_;
  std::size_t next_ = 0;
};

// Where in a page the first line lies: at its head, or at one of eight lines by the page's number,
// which spreads heads over more sets of a cache.
enum class Colour : unsigned char { none, by_page };

// No allocator, but the pages in the very order in which weir.page handed them out, over memory of
// its own; without a trace, a few pages in turn. Free does nothing, so a page may come round while it
// is still under way: stamps prove nothing here and nobody looks at them.
template <Colour kColour>
class ReplayBuffers : public Plain {
 public:
  using Handle = std::byte*;
  static constexpr bool kPagesOnly = true;
  static constexpr bool kComesRoundEarly = true;

  // `few`: pages that go round without a trace, of `buffers` there are.
  ReplayBuffers(std::size_t buffers, std::size_t few, std::shared_ptr<const PageTrace> trace)
      : mapping_(buffers * kBufferBytes),
        buffers_(buffers),
        few_(std::min(few, buffers)),
        trace_(std::move(trace)) {}
  [[nodiscard]] const Mapping& mapping() const { return mapping_; }

  [[gnu::always_inline]] Handle alloc() noexcept {
    const std::uint32_t page = order_[next_];
    next_ = next_ + 1 == order_.size() ? 0 : next_ + 1;
    const std::size_t line = kColour == Colour::by_page ? page % kColours : 0;
    return mapping_.base() + page * kBufferBytes + line * kLine;
  }
  [[gnu::always_inline]] void free(Handle) noexcept {}
  std::size_t alloc_bulk(std::span<Handle> many) noexcept {
    for (Handle& handle : many) {
      handle = alloc();
    }
    return many.size();
  }
  void free_bulk(std::span<Handle>) noexcept {}
  static std::byte* address(Handle buffer) noexcept { return buffer; }

  // The trace grows in the warm-up alone; later rounds find it unchanged.
  void begin_round() {
    if (!order_.empty() && version_ == trace_->version()) {
      return;
    }
    version_ = trace_->version();
    order_ = trace_->pages();
    std::erase_if(order_, [this](std::uint32_t page) { return page >= buffers_; });
    if (order_.empty()) {
      for (std::uint32_t page = 0; page < few_; ++page) {
        order_.push_back(page);
      }
    }
    distinct_ = distinct(order_);
    next_ = 0;
  }
  void end_round(std::vector<Reading>& readings) const {
    readings.push_back({"distinct_pages", "pages", static_cast<double>(distinct_)});
  }

 private:
  static constexpr std::size_t kColours = 8;
  static constexpr std::size_t kLine = 64;

  Mapping mapping_;
  std::size_t buffers_;
  std::size_t few_;
  std::shared_ptr<const PageTrace> trace_;
  std::uint64_t version_ = 0;
  std::vector<std::uint32_t> order_;
  std::size_t next_ = 0;
  std::size_t distinct_ = 0;
};

// An array of pointers in thread-local memory: what taking and giving cost when no other thread and
// no interruption need be thought of. Taken and given by one thread, the first that enters.
class ArrayBuffers : public Plain {
 public:
  using Handle = std::byte*;
  static constexpr bool kPagesOnly = true;
  static constexpr std::size_t kMost = 512;

  explicit ArrayBuffers(std::size_t buffers)
      : mapping_(std::min(buffers, kMost) * kBufferBytes), count_(std::min(buffers, kMost)) {}
  [[nodiscard]] const Mapping& mapping() const { return mapping_; }

  [[gnu::always_inline]] Handle alloc() noexcept {
    return free_.count == 0 ? nullptr : free_.slots[--free_.count];
  }
  [[gnu::always_inline]] void free(Handle buffer) noexcept { free_.slots[free_.count++] = buffer; }
  std::size_t alloc_bulk(std::span<Handle> many) noexcept {
    const std::size_t n = std::min(many.size(), free_.count);
    free_.count -= n;
    std::memcpy(many.data(), free_.slots.data() + free_.count, n * sizeof(Handle));
    return n;
  }
  void free_bulk(std::span<Handle> many) noexcept {
    std::memcpy(free_.slots.data() + free_.count, many.data(), many.size() * sizeof(Handle));
    free_.count += many.size();
  }
  static std::byte* address(Handle buffer) noexcept { return buffer; }

  void enter_thread() noexcept {
    if (free_.owner == this) {
      return;
    }
    free_.owner = this;
    free_.count = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      free(mapping_.base() + i * kBufferBytes);
    }
  }

 private:
  struct Free {
    const ArrayBuffers* owner;
    std::size_t count;
    std::array<Handle, kMost> slots;
  };
  static inline thread_local Free free_{};

  Mapping mapping_;
  std::size_t count_;
};

}  // namespace weir::lab
