// SPDX-License-Identifier: MIT
// os/id_set.hpp — a set of CPU or node numbers as the kernel writes it ("0-3,8,10-11"). Calls
// os/text_file for numbers. A plain value of 1 KiB; numbers may be sparse.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weir {

class IdSet {
 public:
  // The most CPUs a Linux kernel can be built for.
  static constexpr std::uint32_t kLimit = 8192;
  static constexpr std::uint32_t kNone = UINT32_MAX;

  // Nothing for a malformed list or a number beyond the limit. Empty text is the empty set.
  [[nodiscard]] static std::optional<IdSet> parse(std::string_view list) noexcept;

  // id must be below kLimit.
  void insert(std::uint32_t id) noexcept { ids_.set(id); }
  [[nodiscard]] bool contains(std::uint32_t id) const noexcept {
    return id < kLimit && ids_.test(id);
  }
  [[nodiscard]] std::uint32_t count() const noexcept {
    return static_cast<std::uint32_t>(ids_.count());
  }
  [[nodiscard]] bool empty() const noexcept { return ids_.none(); }
  // The smallest member not below `from`, or kNone: for (id = next(0); id != kNone; id = next(id + 1)).
  [[nodiscard]] std::uint32_t next(std::uint32_t from) const noexcept {
    for (std::uint32_t id = from; id < kLimit; ++id) {
      if (ids_.test(id)) {
        return id;
      }
    }
    return kNone;
  }
  // One more than the largest member; 0 for the empty set.
  [[nodiscard]] std::uint32_t end() const noexcept {
    std::uint32_t end = kLimit;
    while (end != 0 && !ids_.test(end - 1)) {
      --end;
    }
    return end;
  }

  friend bool operator==(const IdSet&, const IdSet&) = default;

 private:
  std::bitset<kLimit> ids_;
};

}  // namespace weir
