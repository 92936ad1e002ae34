// SPDX-License-Identifier: MIT
// tests/fuzz/input.hpp — reads typed values off the bytes of a fuzz input; zero once they are used up.
// Also what a target does when it finds something: one line, then abort.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace weir::fuzz {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}

  [[nodiscard]] bool empty() const { return at_ == end_; }
  [[nodiscard]] std::uint8_t byte() { return empty() ? 0 : *at_++; }
  [[nodiscard]] std::uint32_t number() {
    const std::uint32_t low = byte();
    return low | static_cast<std::uint32_t>(byte()) << 8;
  }
  // Below `limit`, which must not be 0. One byte where that is enough.
  [[nodiscard]] std::uint32_t below(std::size_t limit) {
    return static_cast<std::uint32_t>((limit <= 256 ? byte() : number()) % limit);
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "fuzz: %s\n", what.c_str());
  std::abort();
}
inline void require(bool condition, const char* what) {
  if (!condition) {
    fail(what);
  }
}

}  // namespace weir::fuzz
