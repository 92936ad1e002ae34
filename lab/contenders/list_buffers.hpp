// SPDX-License-Identifier: MIT
// lab/contenders/list_buffers.hpp — the frame stack under a lock that programs of this kind write
// for themselves: one mapping cut into buffers, a vector of free ones, one lock, taken for each
// buffer; and the better form of it, which takes the lock once for a burst. Calls
// lab/contenders/mapping.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "lab/contenders/buffers.hpp"
#include "lab/contenders/mapping.hpp"
#include "weir/arch/cpu.hpp"

namespace weir::lab {

// Test-and-set, reading while it waits; no queue, no sleep.
class SpinLock {
 public:
  void lock() noexcept {
    // pairs: unlock release
    while (held_.exchange(true, std::memory_order_acquire)) {
      while (held_.load(std::memory_order_relaxed)) {
        cpu_pause();
        if (++spins_ % 1024 == 0) {  // the holder may be off its CPU
          std::this_thread::yield();
        }
      }
    }
  }
  void unlock() noexcept {
    held_.store(false, std::memory_order_release);  // pairs: lock acquire
  }

 private:
  std::atomic<bool> held_{false};
  static inline thread_local unsigned spins_ = 0;
};

enum class LockFor : unsigned char { each_buffer, burst };

template <class Lock, LockFor kLockFor>
class ListBuffers : public Plain {
 public:
  using Handle = std::byte*;

  // Check mapping().base() before use.
  explicit ListBuffers(std::size_t buffers) : mapping_(buffers * kBufferBytes) {
    if (mapping_.base() != nullptr) {
      free_.reserve(buffers);
      for (std::size_t i = 0; i < buffers; ++i) {
        free_.push_back(mapping_.base() + i * kBufferBytes);
      }
    }
  }
  [[nodiscard]] const Mapping& mapping() const { return mapping_; }

  [[gnu::always_inline]] Handle alloc() noexcept {
    const std::lock_guard guard(lock_);
    if (free_.empty()) {
      return nullptr;
    }
    Handle buffer = free_.back();
    free_.pop_back();
    return buffer;
  }
  [[gnu::always_inline]] void free(Handle buffer) noexcept {
    const std::lock_guard guard(lock_);
    free_.push_back(buffer);
  }
  std::size_t alloc_bulk(std::span<Handle> many) noexcept {
    if constexpr (kLockFor == LockFor::each_buffer) {
      for (std::size_t i = 0; i < many.size(); ++i) {
        many[i] = alloc();
        if (many[i] == nullptr) {
          return i;
        }
      }
      return many.size();
    }
    const std::lock_guard guard(lock_);
    const std::size_t n = std::min(many.size(), free_.size());
    std::copy(free_.end() - static_cast<std::ptrdiff_t>(n), free_.end(), many.begin());
    free_.resize(free_.size() - n);
    return n;
  }
  void free_bulk(std::span<Handle> many) noexcept {
    if constexpr (kLockFor == LockFor::each_buffer) {
      for (const Handle buffer : many) {
        free(buffer);
      }
      return;
    }
    const std::lock_guard guard(lock_);
    free_.insert(free_.end(), many.begin(), many.end());
  }
  static std::byte* address(Handle buffer) noexcept { return buffer; }

 private:
  Mapping mapping_;
  alignas(64) Lock lock_;
  std::vector<Handle> free_;  // under lock_; never grows beyond what it was made with
};

}  // namespace weir::lab
