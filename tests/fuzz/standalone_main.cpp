// SPDX-License-Identifier: MIT
// tests/fuzz/standalone_main.cpp — runs a fuzz target without libFuzzer. Owns: seeded pseudo-random inputs and the
// line that names the failing one. Calls: LLVMFuzzerTestOneInput. Never steers by coverage; the preset `fuzz` does.
//
//   fuzz_x [--runs N] [--seed S] [--first K] [--max-len L]     N inputs, numbers K, K+1, ... of seed S
//   fuzz_x FILE...                                             these inputs instead, e.g. a libFuzzer crash file
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// Sanitizers end a process without a signal that can be caught; their own callback is there only in such builds.
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace {

std::uint64_t g_seed = 0;
std::uint64_t g_index = 0;
bool g_seeded = false;

void append_number(char*& out, std::uint64_t value) {
  char digits[20];
  int count = 0;
  do {
    digits[count++] = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value != 0);
  while (count > 0) *out++ = digits[--count];
}

void append_text(char*& out, const char* text) {
  while (*text != '\0') *out++ = *text++;
}

// Runs inside a signal handler: only write(2) and arithmetic.
void print_replay() {
  if (!g_seeded) return;
  char line[128];
  char* out = line;
  append_text(out, "failed; replay with: --seed ");
  append_number(out, g_seed);
  append_text(out, " --first ");
  append_number(out, g_index);
  append_text(out, " --runs 1\n");
  if (write(STDERR_FILENO, line, static_cast<std::size_t>(out - line)) < 0) return;
}

void on_signal(int number) {
  print_replay();
  std::signal(number, SIG_DFL);
  std::raise(number);
}

// SplitMix64: every input is a function of (seed, number) alone, so one of them replays without those before it.
struct Random {
  std::uint64_t state;
  std::uint64_t next() {
    state += 0x9e3779b97f4a7c15ull;
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
};

std::vector<std::uint8_t> make_input(std::uint64_t seed, std::uint64_t index, std::size_t max_len) {
  Random random{seed ^ (index * 0xd1342543de82ef95ull)};
  // Lengths spread over the magnitudes: short inputs reach the edges, long ones the depths.
  const std::uint64_t limit = (std::uint64_t{max_len} >> (random.next() % 8)) + 1;
  std::vector<std::uint8_t> input(random.next() % limit);
  // Small values are likelier than uniform bytes give, because interpreters read them as counts and orders.
  const std::uint8_t mask = random.next() % 4 == 0 ? 0x0f : 0xff;
  for (std::uint8_t& byte : input) byte = static_cast<std::uint8_t>(random.next()) & mask;
  return input;
}

int run_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "%s: cannot be read\n", path);
    return 1;
  }
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  std::printf("%s: %zu bytes, passed\n", path, bytes.size());
  return 0;
}

bool parse(std::string_view text, std::uint64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t runs = 2000;
  std::uint64_t first = 0;
  std::uint64_t max_len = 4096;
  g_seed = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());

  std::vector<const char*> files;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    std::uint64_t* value = word == "--runs"      ? &runs
                           : word == "--seed"    ? &g_seed
                           : word == "--first"   ? &first
                           : word == "--max-len" ? &max_len
                                                 : nullptr;
    if (value == nullptr && !word.starts_with("--")) {
      files.push_back(argv[i]);
    } else if (value == nullptr || i + 1 == argc || !parse(argv[++i], *value)) {
      std::fprintf(stderr, "usage: %s [--runs N] [--seed S] [--first K] [--max-len L] | FILE...\n",
                   argv[0]);
      return 2;
    }
  }

  if (!files.empty()) {
    int failed = 0;
    for (const char* path : files) failed |= run_file(path);
    return failed;
  }

  std::printf("seed %llu, %llu inputs\n", static_cast<unsigned long long>(g_seed),
              static_cast<unsigned long long>(runs));
  std::fflush(stdout);
  g_seeded = true;
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(print_replay);
  for (const int number : {SIGABRT, SIGTRAP, SIGILL}) std::signal(number, on_signal);
  if (__sanitizer_set_death_callback == nullptr) {
    for (const int number : {SIGSEGV, SIGBUS, SIGFPE}) std::signal(number, on_signal);
  }

  std::uint64_t bytes = 0;
  for (g_index = first; g_index != first + runs; ++g_index) {
    const std::vector<std::uint8_t> input = make_input(g_seed, g_index, max_len);
    bytes += input.size();
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("passed, %llu bytes\n", static_cast<unsigned long long>(bytes));
  return 0;
}
