// SPDX-License-Identifier: MIT
// base/result.hpp — errors as values: Errc, Error, Result<T>. Calls the C++ library only.
// Never throws, never allocates.
#pragma once

#include <optional>
#include <utility>

namespace weir {

// What went wrong. Each has one sentence in error_name().
enum class Errc : unsigned char {
  ok,
  exhausted,    // no frame of this size is free
  would_block,  // only waiting could help, and the caller may not wait
  zero_size,    // a size or count of zero where one is needed
  too_large,    // beyond a documented limit, or the arithmetic would overflow
  misaligned,   // an address, size or alignment is not a suitable multiple
  foreign,      // memory that weir does not know
  in_use,       // the range or the name is taken
  bad_option,   // unknown option, or a value outside its range
  unsupported,  // this kernel or build cannot do it
  denied,       // the system refused for want of privilege or quota
  system,       // the system failed otherwise; see Error::os_errno
  bad_file,     // a file is missing, unreadable or malformed
  closed,       // the object has been closed
};

[[nodiscard]] constexpr const char* error_name(Errc code) noexcept {
  switch (code) {
    case Errc::ok:
      return "ok";
    case Errc::exhausted:
      return "no free memory of this size";
    case Errc::would_block:
      return "would have to wait";
    case Errc::zero_size:
      return "size must not be zero";
    case Errc::too_large:
      return "too large";
    case Errc::misaligned:
      return "not suitably aligned";
    case Errc::foreign:
      return "not memory of weir";
    case Errc::in_use:
      return "already in use";
    case Errc::bad_option:
      return "bad option";
    case Errc::unsupported:
      return "not supported here";
    case Errc::denied:
      return "refused by the system";
    case Errc::system:
      return "system error";
    case Errc::bad_file:
      return "bad file";
    case Errc::closed:
      return "closed";
  }
  return "unknown error";
}

// An error with its place: `what` is a static string that names the value or call at fault.
struct [[nodiscard]] Error {
  Errc code = Errc::ok;
  const char* what = "";
  int os_errno = 0;

  [[nodiscard]] constexpr bool failed() const noexcept { return code != Errc::ok; }
};

// Success of a call without a value.
inline constexpr Error kOk{};

// A value or an Error. value() of a failed result is a programming error (noticed only where
// std::optional checks it: with _GLIBCXX_ASSERTIONS).
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Error error) : error_(error) {}         // NOLINT(google-explicit-constructor)
  Result(Errc code, const char* what) : error_{code, what, 0} {}

  [[nodiscard]] explicit operator bool() const noexcept { return value_.has_value(); }
  [[nodiscard]] bool ok() const noexcept { return value_.has_value(); }
  [[nodiscard]] T& value() & { return *value_; }
  [[nodiscard]] const T& value() const& { return *value_; }
  [[nodiscard]] T&& value() && { return std::move(*value_); }
  [[nodiscard]] T& operator*() & { return *value_; }
  [[nodiscard]] T* operator->() { return &*value_; }
  [[nodiscard]] Error error() const noexcept { return error_; }

 private:
  std::optional<T> value_;
  Error error_{};
};

}  // namespace weir
