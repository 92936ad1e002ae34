// SPDX-License-Identifier: MIT
#include "tests/support/fake_memory.hpp"

#include <algorithm>

#include "weir/base/config.hpp"

namespace weir::test {

using Guard = std::lock_guard<std::mutex>;

Error FakeMemory::Trap::hit() {
  ++hits;
  return from != 0 && hits >= from && hits - from < count ? error : kOk;
}

void FakeMemory::fail(Call call, std::uint64_t k, std::uint64_t count, Error error) {
  const Guard guard(mutex_);
  traps_[static_cast<std::size_t>(call)] = {k, count, error, 0};
}

void FakeMemory::fail_any(std::uint64_t k, Error error) {
  const Guard guard(mutex_);
  any_ = {k, 1, error, 0};
}

void FakeMemory::fail_nothing() {
  const Guard guard(mutex_);
  traps_ = {};
  any_ = {};
}

void FakeMemory::play_huge_pages(Bytes budget) {
  const Guard guard(mutex_);
  huge_budget_ = budget.value;
}

void FakeMemory::answer_advice(Error answer) {
  const Guard guard(mutex_);
  advice_ = answer;
}

void FakeMemory::play_nodes(std::uint32_t n) {
  const Guard guard(mutex_);
  nodes_ = n;
}

NodeId FakeMemory::bound_to(const std::byte* base) const {
  const Guard guard(mutex_);
  const auto found = bound_.find(base);
  return found != bound_.end() ? found->second : kAnyNode;
}

std::uint64_t FakeMemory::calls(Call call) const {
  const Guard guard(mutex_);
  return calls_[static_cast<std::size_t>(call)];
}

std::uint64_t FakeMemory::fallible_calls() const {
  const Guard guard(mutex_);
  return fallible_;
}

std::vector<FakeMemory::Record> FakeMemory::records() const {
  const Guard guard(mutex_);
  return records_;
}

std::size_t FakeMemory::outstanding_mappings() const {
  const Guard guard(mutex_);
  return mappings_.size();
}

Bytes FakeMemory::outstanding_bytes() const {
  const Guard guard(mutex_);
  Bytes total;
  for (const auto& [base, size] : mappings_) {
    total = total + Bytes{size};
  }
  return total;
}

std::size_t FakeMemory::open_files() const {
  const Guard guard(mutex_);
  return files_.size();
}

std::size_t FakeMemory::misuses() const {
  const Guard guard(mutex_);
  return misuses_;
}

bool FakeMemory::clean() const {
  const Guard guard(mutex_);
  return mappings_.empty() && files_.empty() && misuses_ == 0;
}

// mutex_ is held by the callers of the five below.

void FakeMemory::note(Call call, const std::byte* base, Bytes size) {
  ++calls_[static_cast<std::size_t>(call)];
  records_.push_back({call, base, size});
}

Error FakeMemory::enter(Call call, const std::byte* base, Bytes size) {
  note(call, base, size);
  ++fallible_;
  const Error of_kind = traps_[static_cast<std::size_t>(call)].hit();
  const Error of_any = any_.hit();
  return of_kind.failed() ? of_kind : of_any;
}

void FakeMemory::mapped(const std::byte* base, Bytes size) {
  mappings_.emplace(base, size.value);
  records_.back().base = base;
}

bool FakeMemory::huge_fits(Bytes size) const {
  std::uint64_t used = size.value;
  for (const auto& [base, bytes] : played_mappings_) used += bytes;
  for (const auto& [fd, bytes] : played_files_) used += bytes;
  return used <= *huge_budget_;
}

Result<std::byte*> FakeMemory::reserve(Bytes size, Bytes align) {
  const Guard guard(mutex_);
  if (const Error error = enter(Call::reserve, nullptr, size); error.failed()) return error;
  Result<std::byte*> base = real_.reserve(size, align);
  if (base) mapped(base.value(), size);
  return base;
}

Error FakeMemory::commit(std::byte* base, Bytes size) {
  const Guard guard(mutex_);
  if (const Error error = enter(Call::commit, base, size); error.failed()) return error;
  return real_.commit(base, size);
}

Error FakeMemory::decommit(std::byte* base, Bytes size) {
  const Guard guard(mutex_);
  if (const Error error = enter(Call::decommit, base, size); error.failed()) return error;
  return real_.decommit(base, size);
}

Error FakeMemory::try_discard(std::byte* base, Bytes size) noexcept {
  const Guard guard(mutex_);
  if (const Error error = enter(Call::discard, base, size); error.failed()) return error;
  return real_.try_discard(base, size);
}

// The record has the offset as an address: a file has none.
Error FakeMemory::punch_hole(int fd, Bytes offset, Bytes size) noexcept {
  const Guard guard(mutex_);
  if (const Error error =
          enter(Call::punch_hole, reinterpret_cast<const std::byte*>(offset.value), size);
      error.failed()) {
    return error;
  }
  return real_.punch_hole(fd, offset, size);
}

void FakeMemory::release(std::byte* base, Bytes size) noexcept {
  const Guard guard(mutex_);
  note(Call::release, base, size);
  const auto found = mappings_.find(base);
  if (found == mappings_.end() || found->second != size.value) {
    ++misuses_;  // not passed on: it could unmap what belongs to somebody else
    return;
  }
  mappings_.erase(found);
  played_mappings_.erase(base);
  bound_.erase(base);
  real_.release(base, size);
}

Error FakeMemory::advise_huge(std::byte* base, Bytes size, bool on) {
  const Guard guard(mutex_);
  if (const Error error = enter(Call::advise_huge, base, size); error.failed()) return error;
  return advice_ ? *advice_ : real_.advise_huge(base, size, on);
}

Error FakeMemory::populate(std::byte* base, Bytes size) {
  const Guard guard(mutex_);
  if (const Error error = enter(Call::populate, base, size); error.failed()) return error;
  return real_.populate(base, size);
}

Error FakeMemory::bind(std::byte* base, Bytes size, NodeId node, bool strict) {
  const Guard guard(mutex_);
  if (const Error error = enter(Call::bind, base, size); error.failed()) return error;
  if (!nodes_) {
    if (const Error error = real_.bind(base, size, node, strict); error.failed()) return error;
  } else if (node.value < 0 || static_cast<std::uint32_t>(node.value) >= *nodes_) {
    return {Errc::unsupported, "a played machine has no such node"};
  }
  bound_[base] = node;
  return kOk;
}

Result<std::byte*> FakeMemory::map_huge(Bytes size, Bytes page_size) {
  const Guard guard(mutex_);
  if (const Error error = enter(Call::map_huge, nullptr, size); error.failed()) return error;
  if (!huge_budget_) {
    Result<std::byte*> base = real_.map_huge(size, page_size);
    if (base) mapped(base.value(), size);
    return base;
  }
  if (!huge_fits(size)) return {Errc::denied, "played huge pages are used up"};
  Result<std::byte*> base = real_.reserve(size, std::max(page_size, bytes(kMaxOrder)));
  if (!base) return base;
  if (const Error error = real_.commit(base.value(), size); error.failed()) {
    real_.release(base.value(), size);
    return error;
  }
  mapped(base.value(), size);
  played_mappings_.emplace(base.value(), size.value);
  return base;
}

Result<int> FakeMemory::create_file(const char* name, Bytes size, Bytes huge_page) {
  const Guard guard(mutex_);
  if (const Error error = enter(Call::create_file, nullptr, size); error.failed()) return error;
  const bool play = huge_budget_.has_value() && huge_page.value != 0;
  if (play && !huge_fits(size)) return {Errc::denied, "played huge pages are used up"};
  Result<int> fd = real_.create_file(name, size, play ? Bytes{0} : huge_page);
  if (fd) {
    files_.insert(fd.value());
    if (play) played_files_.emplace(fd.value(), size.value);
  }
  return fd;
}

Result<std::byte*> FakeMemory::map_file(int fd, Bytes size, Bytes align) {
  const Guard guard(mutex_);
  if (const Error error = enter(Call::map_file, nullptr, size); error.failed()) return error;
  Result<std::byte*> base = real_.map_file(fd, size, align);
  if (base) mapped(base.value(), size);
  return base;
}

void FakeMemory::close_file(int fd) noexcept {
  const Guard guard(mutex_);
  note(Call::close_file, nullptr, Bytes{0});
  played_files_.erase(fd);
  if (files_.erase(fd) == 0) {
    ++misuses_;
    return;
  }
  real_.close_file(fd);
}

Bytes FakeMemory::huge_backed(const std::byte* base, Bytes size) {
  const Guard guard(mutex_);
  note(Call::huge_backed, base, size);
  const auto played = played_mappings_.find(base);
  return played != played_mappings_.end() ? size : real_.huge_backed(base, size);
}

}  // namespace weir::test
