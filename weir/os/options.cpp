// SPDX-License-Identifier: MIT
#include "weir/os/options.hpp"

#include <charconv>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace weir {
namespace {

constexpr unsigned kOptionCount = 0
#define WEIR_OPTION(type, name, initial, least, most, help) +1
#include "weir/os/options.def"
#undef WEIR_OPTION
    ;

constexpr unsigned count_of(SourceChoice) { return 3; }
constexpr unsigned count_of(ThpChoice) { return 3; }
constexpr unsigned count_of(FreeOrder0) { return 2; }
constexpr unsigned count_of(EngineChoice) { return 2; }
constexpr unsigned count_of(Merge) { return 4; }

// The struct and the list must name the same defaults.
constexpr bool on = true;
constexpr NodeId any = kAnyNode;
#define WEIR_DEFAULT_bytes(name, initial) Options{}.name == (initial)
#define WEIR_DEFAULT_frames(name, initial) \
  Options{}.name == PageCount { initial }
#define WEIR_DEFAULT_milliseconds(name, initial) \
  Options{}.name == std::chrono::milliseconds { initial }
#define WEIR_DEFAULT_toggle(name, initial) Options{}.name == (initial)
#define WEIR_DEFAULT_node(name, initial) Options{}.name == (initial)
#define WEIR_DEFAULT_choice(name, initial) Options{}.name == decltype(Options::name)::initial
#define WEIR_OPTION(type, name, initial, least, most, help) \
  static_assert(WEIR_DEFAULT_##type(name, initial), #name);
#include "weir/os/options.def"
#undef WEIR_OPTION
#undef WEIR_DEFAULT_bytes
#undef WEIR_DEFAULT_frames
#undef WEIR_DEFAULT_milliseconds
#undef WEIR_DEFAULT_toggle
#undef WEIR_DEFAULT_node
#undef WEIR_DEFAULT_choice

// So much is shown of a name or value that a user wrote.
constexpr std::size_t kShown = 32;

// The longest line: a long name that no option has, with a long value, and all names there are.
constexpr std::size_t kLongestLine =
    sizeof "WEIR_OPTIONS: unknown option \"...\" with value \"...\"; known: " + 2 * kShown
#define WEIR_OPTION(type, name, initial, least, most, help) +sizeof(", " #name) - 1
#include "weir/os/options.def"
#undef WEIR_OPTION
    ;
static_assert(kLongestLine <= sizeof OptionProblem::line);

// A text that grows within a fixed array and is cut at its end.
class Text {
 public:
  Text(char* buffer, std::size_t size) noexcept : buffer_(buffer), size_(size) { *buffer = '\0'; }

  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) noexcept {
    std::va_list arguments;
    va_start(arguments, format);
    const int wanted = std::vsnprintf(buffer_ + used_, size_ - used_, format, arguments);
    va_end(arguments);
    used_ = std::min(used_ + static_cast<std::size_t>(std::max(wanted, 0)), size_ - 1);
  }

  // What a user wrote, in quotes: cut when long, without characters that break a line.
  void quote(std::string_view text) noexcept {
    add("\"");
    for (const char c : text.substr(0, kShown)) {
      add("%c", c >= ' ' && c <= '~' ? c : '?');
    }
    add(text.size() > kShown ? "...\"" : "\"");
  }

  void size(Bytes size) noexcept {
    constexpr const char* kSuffix[] = {"", "K", "M", "G"};
    unsigned step = 0;
    std::uint64_t value = size.value;
    while (step < 3 && value != 0 && value % 1024 == 0) {
      value /= 1024;
      ++step;
    }
    add("%llu%s", static_cast<unsigned long long>(value), kSuffix[step]);
  }

 private:
  char* buffer_;
  std::size_t size_;
  std::size_t used_ = 0;
};

// All of the text is one decimal number; nothing when it is not, or does not fit.
bool read_number(std::string_view text, std::uint64_t& number) noexcept {
  const char* end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, number);
  return problem == std::errc{} && rest == end;
}

bool read_size(std::string_view text, Bytes& size) noexcept {
  unsigned shift = 0;
  if (text.ends_with('K')) shift = 10;
  if (text.ends_with('M')) shift = 20;
  if (text.ends_with('G')) shift = 30;
  if (shift != 0) {
    text.remove_suffix(1);
  }
  std::uint64_t number = 0;
  if (!read_number(text, number) || number > (UINT64_MAX >> shift)) {
    return false;
  }
  size = Bytes{number << shift};
  return true;
}

// One reader and one writer for each type of option. A reader leaves the value alone and says what
// it expects when the text is not good.

bool read_bytes(std::string_view text, Bytes& value, Bytes least, Bytes most,
                Text& expected) noexcept {
  Bytes size;
  if (read_size(text, size) && size >= least && size <= most) {
    value = size;
    return true;
  }
  expected.add("a size from ");
  expected.size(least);
  expected.add(" to ");
  expected.size(most);
  return false;
}

bool read_frames(std::string_view text, PageCount& value, std::uint64_t least, std::uint64_t most,
                 Text& expected) noexcept {
  std::uint64_t number = 0;
  if (read_number(text, number) && number >= least && number <= most) {
    value = PageCount{number};
    return true;
  }
  expected.add("a number of frames from %llu to %llu", static_cast<unsigned long long>(least),
               static_cast<unsigned long long>(most));
  return false;
}

bool read_milliseconds(std::string_view text, std::chrono::milliseconds& value, std::uint64_t least,
                       std::uint64_t most, Text& expected) noexcept {
  std::uint64_t number = 0;
  if (read_number(text, number) && number >= least && number <= most) {
    value = std::chrono::milliseconds{number};
    return true;
  }
  expected.add("milliseconds from %llu to %llu", static_cast<unsigned long long>(least),
               static_cast<unsigned long long>(most));
  return false;
}

bool read_toggle(std::string_view text, bool& value, int, int, Text& expected) noexcept {
  if (text == "on" || text == "off") {
    value = text == "on";
    return true;
  }
  expected.add("on or off");
  return false;
}

bool read_node(std::string_view text, NodeId& value, std::int32_t least, std::int32_t most,
               Text& expected) noexcept {
  std::uint64_t number = 0;
  if (text == "any") {
    value = kAnyNode;
    return true;
  }
  if (read_number(text, number) && number >= static_cast<std::uint64_t>(least) &&
      number <= static_cast<std::uint64_t>(most)) {
    value = NodeId{static_cast<std::int32_t>(number)};
    return true;
  }
  expected.add("any, or the number of a node from %d to %d", least, most);
  return false;
}

template <class Choice>
bool read_choice(std::string_view text, Choice& value, int, int, Text& expected) noexcept {
  for (unsigned i = 0; i < count_of(value); ++i) {
    if (text == choice_name(static_cast<Choice>(i))) {
      value = static_cast<Choice>(i);
      return true;
    }
  }
  for (unsigned i = 0; i < count_of(value); ++i) {
    const char* between = i == 0 ? "" : i + 1 == count_of(value) ? " or " : ", ";
    expected.add("%s%s", between, choice_name(static_cast<Choice>(i)));
  }
  return false;
}

void write_bytes(Bytes value, Text& text) noexcept { text.size(value); }
void write_frames(PageCount value, Text& text) noexcept {
  text.add("%llu", static_cast<unsigned long long>(value.value));
}
void write_milliseconds(std::chrono::milliseconds value, Text& text) noexcept {
  text.add("%lld", static_cast<long long>(value.count()));
}
void write_toggle(bool value, Text& text) noexcept { text.add("%s", value ? "on" : "off"); }
void write_node(NodeId value, Text& text) noexcept { text.add("%s", choice_name(value)); }
template <class Choice>
void write_choice(Choice value, Text& text) noexcept {
  text.add("%s", choice_name(value));
}

enum class Outcome : unsigned char { taken, unknown, repeated, bad_value };

// Finds the option of this name and reads its value; `seen` has a bit for each option met before.
Outcome read_option(std::string_view given, std::string_view value, Options& options,
                    std::uint64_t& seen, Text& expected) noexcept {
  static_assert(kOptionCount <= 64);
  unsigned number = 0;
#define WEIR_OPTION(type, name, initial, least, most, help)                              \
  if (given == #name) {                                                                  \
    const std::uint64_t bit = std::uint64_t{1} << number;                                \
    if ((seen & bit) != 0) return Outcome::repeated;                                     \
    seen |= bit;                                                                         \
    return read_##type(value, options.name, least, most, expected) ? Outcome::taken      \
                                                                   : Outcome::bad_value; \
  }                                                                                      \
  ++number;
#include "weir/os/options.def"
#undef WEIR_OPTION
  return Outcome::unknown;
}

void list_names(Text& text) noexcept {
  const char* between = "";
#define WEIR_OPTION(type, name, initial, least, most, help) \
  text.add("%s%s", between, #name);                         \
  between = ", ";
#include "weir/os/options.def"
#undef WEIR_OPTION
}

OptionProblem parse(std::string_view text, Options& options, const char* prefix) noexcept {
  OptionProblem problem;
  Options result = options;
  std::uint64_t seen = 0;
  bool more = !text.empty();
  while (more) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    more = comma != std::string_view::npos;
    text.remove_prefix(more ? comma + 1 : text.size());

    const std::size_t equals = item.find('=');
    const std::string_view name = item.substr(0, equals);
    std::array<char, 100> buffer{};
    Text expected(buffer.data(), buffer.size());
    Text line(problem.line.data(), problem.line.size());
    line.add("%s", prefix);
    if (equals == std::string_view::npos) {
      line.add("option ");
      line.quote(item);
      line.add(" has no value; write name=value, names: ");
      list_names(line);
    } else {
      const std::string_view value = item.substr(equals + 1);
      const Outcome outcome = read_option(name, value, result, seen, expected);
      if (outcome == Outcome::taken) {
        continue;
      }
      line.add(outcome == Outcome::unknown ? "unknown option " : "option ");
      line.quote(name);
      line.add(" with value ");
      line.quote(value);
      if (outcome == Outcome::unknown) {
        line.add("; known: ");
        list_names(line);
      } else if (outcome == Outcome::repeated) {
        line.add("; it was given before, once is enough");
      } else {
        line.add("; expected %s", buffer.data());
      }
    }
    problem.code = Errc::bad_option;
    return problem;
  }
  options = result;
  problem.line.fill('\0');
  return problem;
}

}  // namespace

OptionProblem parse_options(std::string_view text, Options& options) noexcept {
  return parse(text, options, "");
}

OptionProblem options_from_environment(Options& options) noexcept {
  // A program that runs with more rights than its user does not take the user's word for it.
  const char* text = ::secure_getenv("WEIR_OPTIONS");
  return text == nullptr ? OptionProblem{} : parse(text, options, "WEIR_OPTIONS: ");
}

OptionText options_text(const Options& options) noexcept {
  OptionText result{};
  Text text(result.data(), result.size());
  const char* between = "";
#define WEIR_OPTION(type, name, initial, least, most, help) \
  text.add("%s%s=", between, #name);                        \
  write_##type(options.name, text);                         \
  between = ",";
#include "weir/os/options.def"
#undef WEIR_OPTION
  return result;
}

const char* choice_name(SourceChoice choice) noexcept {
  switch (choice) {
    case SourceChoice::anonymous:
      return "anonymous";
    case SourceChoice::hugetlb:
      return "hugetlb";
    case SourceChoice::memfd:
      return "memfd";
  }
  return "unknown";
}

const char* choice_name(ThpChoice choice) noexcept {
  switch (choice) {
    case ThpChoice::system:
      return "system";
    case ThpChoice::on:
      return "on";
    case ThpChoice::off:
      return "off";
  }
  return "unknown";
}

const char* choice_name(FreeOrder0 choice) noexcept {
  switch (choice) {
    case FreeOrder0::list:
      return "list";
    case FreeOrder0::engine:
      return "engine";
  }
  return "unknown";
}

const char* choice_name(EngineChoice choice) noexcept {
  switch (choice) {
    case EngineChoice::buddy:
      return "buddy";
    case EngineChoice::bitmap:
      return "bitmap";
  }
  return "unknown";
}

const char* choice_name(Merge choice) noexcept {
  switch (choice) {
    case Merge::deferred:
      return "deferred";
    case Merge::immediate:
      return "immediate";
    case Merge::skip:
      return "skip";
    case Merge::clusters:
      return "clusters";
  }
  return "unknown";
}

const char* choice_name(NodeId node) noexcept {
  // All names there are, so that none needs memory.
  using Name = std::array<char, 5>;
  static constexpr auto kNames = [] {
    std::array<Name, kMaxNode + 1> names{};
    for (std::int32_t number = 0; number <= kMaxNode; ++number) {
      std::size_t digits = number > 999 ? 4 : number > 99 ? 3 : number > 9 ? 2 : 1;
      for (std::int32_t rest = number; digits != 0; rest /= 10) {
        names[static_cast<std::size_t>(number)][--digits] = static_cast<char>('0' + rest % 10);
      }
    }
    return names;
  }();
  if (node == kAnyNode) {
    return "any";
  }
  return node.value >= 0 && node.value <= kMaxNode
             ? kNames[static_cast<std::size_t>(node.value)].data()
             : "unknown";
}

}  // namespace weir
