// SPDX-License-Identifier: MIT
// os/options.hpp — the allocator's options as a struct, from text and from the environment.
// Calls base only. The list of options stands in os/options.def.
#pragma once

#include <array>
#include <chrono>
#include <string_view>

#include "weir/base/config.hpp"
#include "weir/base/result.hpp"
#include "weir/base/types.hpp"

namespace weir {

enum class SourceChoice : unsigned char { anonymous, hugetlb, memfd };
enum class ThpChoice : unsigned char { system, on, off };
enum class FreeOrder0 : unsigned char { list, engine };
enum class EngineChoice : unsigned char { buddy, bitmap };
enum class Merge : unsigned char { deferred, immediate, skip, clusters };

// What a user asks for. What was obtained is read back from PageAllocator::effective().
struct Options {
  Bytes capacity = 256_MiB;
  SourceChoice source = SourceChoice::anonymous;
  ThpChoice thp = ThpChoice::system;
  NodeId node = kAnyNode;
  PageCount reserve{0};
  PageCount limit{0};
  PageCount soft_limit{0};
  bool lists = true;
  PageCount high{0};
  FreeOrder0 free_order0 = FreeOrder0::list;
  EngineChoice engine = EngineChoice::bitmap;
  Merge merge = Merge::deferred;
  PageCount depot{0};
  PageCount cached{kMaxFrames};
  std::chrono::milliseconds idle_trim{10'000};
};

// A refused option text: a code and one line that names the option, the value and the choice there
// was. Long names and values are shown in part, so that the choice always fits.
struct OptionProblem {
  Errc code = Errc::ok;
  std::array<char, 320> line{};
};

// Reads "name=value,name=value" over `options`. Sizes take K, M, G suffixes (powers of 1024);
// toggles take on/off. On a problem `options` is left as it was and the problem is returned with
// code != ok. Empty text is fine. Allocates nothing.
[[nodiscard]] OptionProblem parse_options(std::string_view text, Options& options) noexcept;

// Same, from the environment variable WEIR_OPTIONS, as the command does; a PageAllocator reads no
// environment by itself. Unset means nothing to do.
[[nodiscard]] OptionProblem options_from_environment(Options& options) noexcept;

// Every option with its value, in a form that parse_options() reads back.
using OptionText = std::array<char, 320>;
[[nodiscard]] OptionText options_text(const Options& options) noexcept;

[[nodiscard]] const char* choice_name(SourceChoice choice) noexcept;
[[nodiscard]] const char* choice_name(ThpChoice choice) noexcept;
[[nodiscard]] const char* choice_name(FreeOrder0 choice) noexcept;
[[nodiscard]] const char* choice_name(EngineChoice choice) noexcept;
[[nodiscard]] const char* choice_name(Merge choice) noexcept;
// "any", or the number; of a node beyond kMaxNode "unknown".
[[nodiscard]] const char* choice_name(NodeId node) noexcept;

}  // namespace weir
