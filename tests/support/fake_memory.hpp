// SPDX-License-Identifier: MIT
// support/fake_memory.hpp — os/memory for tests: passes every call on to another Memory (the real
// one by default), makes the k-th call fail on request, and keeps a book of what is outstanding.
// Thread-safe. Huge pages can be played with ordinary ones where the machine has none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "weir/os/memory.hpp"

namespace weir::test {

class FakeMemory : public Memory {
 public:
  enum class Call : unsigned char {
    reserve,
    commit,
    decommit,
    discard,
    punch_hole,
    release,
    advise_huge,
    populate,
    bind,
    map_huge,
    create_file,
    map_file,
    close_file,
    huge_backed,
    count_
  };
  static constexpr std::size_t kCalls = static_cast<std::size_t>(Call::count_);

  struct Record {
    Call call;
    const std::byte* base;  // given or returned; nullptr when there is none
    Bytes size;
  };

  explicit FakeMemory(Memory& real = system_memory()) : real_(real) {}

  // The k-th call of this kind from now (1-based) fails, and `count` in all. Calls without a result
  // (release, close_file, huge_backed) cannot fail.
  void fail(Call call, std::uint64_t k, std::uint64_t count = 1, Error error = kDenied);
  // The k-th call from now that can fail, of whatever kind.
  void fail_any(std::uint64_t k, Error error = kDenied);
  void fail_nothing();

  // From now on map_huge() and create_file() with huge pages are served with ordinary memory, until
  // this many bytes are outstanding; beyond that they are denied.
  void play_huge_pages(Bytes budget);
  // From now on advise_huge() answers this without asking the kernel.
  void answer_advice(Error answer);
  // From now on memory can be bound to nodes 0 to n-1 and to no others, whatever this machine has. The kernel
  // is not asked: bound_to() tells what was.
  void play_nodes(std::uint32_t n);
  // The node that the mapping with this base was bound to last, or kAnyNode.
  [[nodiscard]] NodeId bound_to(const std::byte* base) const;

  [[nodiscard]] std::uint64_t calls(Call call) const;
  // Calls that could have failed: fail_any() from 1 to this number walks every step of an operation.
  [[nodiscard]] std::uint64_t fallible_calls() const;
  [[nodiscard]] std::vector<Record> records() const;

  [[nodiscard]] std::size_t outstanding_mappings() const;
  [[nodiscard]] Bytes outstanding_bytes() const;
  [[nodiscard]] std::size_t open_files() const;
  // Releases of what is not outstanding (wrong base or size, twice) and closes of unknown files.
  [[nodiscard]] std::size_t misuses() const;
  // Everything has been given back, and nothing more than that.
  [[nodiscard]] bool clean() const;

  Result<std::byte*> reserve(Bytes size, Bytes align) override;
  Error commit(std::byte* base, Bytes size) override;
  Error decommit(std::byte* base, Bytes size) override;
  void discard(std::byte* base, Bytes size) noexcept override { real_.discard(base, size); }
  Error try_discard(std::byte* base, Bytes size) noexcept override;
  Error punch_hole(int fd, Bytes offset, Bytes size) noexcept override;
  void release(std::byte* base, Bytes size) noexcept override;
  Error advise_huge(std::byte* base, Bytes size, bool on) override;
  Error populate(std::byte* base, Bytes size) override;
  Error bind(std::byte* base, Bytes size, NodeId node, bool strict) override;
  Result<std::byte*> map_huge(Bytes size, Bytes page_size) override;
  Result<int> create_file(const char* name, Bytes size, Bytes huge_page) override;
  Result<std::byte*> map_file(int fd, Bytes size, Bytes align) override;
  void close_file(int fd) noexcept override;
  Bytes huge_backed(const std::byte* base, Bytes size) override;

 private:
  static constexpr Error kDenied{Errc::denied, "a test made this call fail", 0};

  struct Trap {
    std::uint64_t from = 0;  // 0 = none
    std::uint64_t count = 0;
    Error error;
    std::uint64_t hits = 0;

    Error hit();
  };

  Error enter(Call call, const std::byte* base, Bytes size);
  void note(Call call, const std::byte* base, Bytes size);
  void mapped(const std::byte* base, Bytes size);
  [[nodiscard]] bool huge_fits(Bytes size) const;

  Memory& real_;
  mutable std::mutex mutex_;  // guards all below
  std::array<Trap, kCalls> traps_;
  Trap any_;
  std::array<std::uint64_t, kCalls> calls_{};
  std::uint64_t fallible_ = 0;
  std::vector<Record> records_;
  std::map<const std::byte*, std::uint64_t> mappings_;
  std::set<int> files_;
  std::map<const std::byte*, std::uint64_t> played_mappings_;
  std::map<int, std::uint64_t> played_files_;
  std::optional<std::uint64_t> huge_budget_;
  std::optional<Error> advice_;
  std::optional<std::uint32_t> nodes_;
  std::map<const std::byte*, NodeId> bound_;
  std::size_t misuses_ = 0;
};

}  // namespace weir::test
