// SPDX-License-Identifier: MIT
#include "weir/os/rseq_area.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/rseq.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "tests/support/process.hpp"
#include "weir/os/list_mode.hpp"

namespace weir {
namespace {

std::ptrdiff_t own_offset() {
  return reinterpret_cast<std::byte*>(&t_rseq_area) -
         static_cast<std::byte*>(__builtin_thread_pointer());
}

// What a section would find that runs in a constructor of the program.
std::ptrdiff_t g_first_offset = 0;
std::int32_t g_first_cpu_id = 0;
[[gnu::constructor(102)]] void look_early() {
  g_first_offset = rseq_area::g_offset;
  g_first_cpu_id = rseq_area::current().cpu_id;
}

TEST(RseqArea, IsFoundByTheConstructorsOfTheProgramAndStaysWhereItIs) {
  if (__rseq_size != 0) {
    EXPECT_EQ(g_first_offset, __rseq_offset);
  } else {
    EXPECT_EQ(g_first_offset, own_offset());
    EXPECT_EQ(g_first_cpu_id, -1);
  }
  EXPECT_EQ(rseq_area::g_offset, g_first_offset);
}

TEST(RseqArea, LiesAtOneOffsetInEveryThread) {
  std::ptrdiff_t there = 0;
  std::thread([&] { there = own_offset(); }).join();
  EXPECT_EQ(there, own_offset());
}

TEST(RseqArea, IsKeptByTheKernelInModeRseq) {
  if (list_mode().form == ListForm::rseq) {
    EXPECT_TRUE(rseq_area::thread_registered());
  }
  EXPECT_EQ(rseq_area::thread_registered(), rseq_area::current().cpu_id >= 0);
  EXPECT_EQ(rseq_area::g_offset, g_first_offset);
}

TEST(RseqArea, OfAThreadThatIsRegisteredIsRegisteredWithoutCounting) {
  const ListMode& mode = list_mode();
  const std::uint64_t refused = rseq_area::refused_threads();
  errno = ERANGE;
  EXPECT_EQ(rseq_area::register_thread(), mode.form == ListForm::rseq);
  std::thread([&] { EXPECT_EQ(rseq_area::register_thread(), mode.form == ListForm::rseq); }).join();
  EXPECT_EQ(errno, ERANGE);
  EXPECT_EQ(rseq_area::refused_threads(), refused);
}

TEST(RseqArea, NamesTheCpuOfItsThread) {
  if (list_mode().form != ListForm::rseq) {
    GTEST_SKIP() << list_mode().reason;
  }
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &before)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(rseq_area::current().cpu_id, cpu);
  }
  sched_setaffinity(0, sizeof before, &before);
}

// Kept apart and simple, for the test below to look at.
extern "C" [[gnu::noinline, gnu::used, gnu::visibility("default")]] std::int32_t
weir_test_own_cpu_id() {
  return t_rseq_area.cpu_id;
}

TEST(RseqArea, IsReachedThroughTheThreadPointerWithoutACall) {
#if defined(__x86_64__)
  if (test::kSanitized) {
    GTEST_SKIP() << "the sanitizer adds calls of its own";
  }
  std::array<char, 4096> path{};
  ASSERT_GT(readlink("/proc/self/exe", path.data(), path.size() - 1), 0);
  const std::string command = std::string(
                                  "objdump --no-show-raw-insn "
                                  "--disassemble=weir_test_own_cpu_id '") +
                              path.data() + "' 2>/dev/null";
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string code;
  std::array<char, 512> line{};
  while (std::fgets(line.data(), line.size(), pipe) != nullptr) code += line.data();
  if (pclose(pipe) != 0) {
    GTEST_SKIP() << "no objdump";
  }
  ASSERT_NE(code.find("ret"), std::string::npos) << code;
  EXPECT_NE(code.find("%fs:"), std::string::npos) << code;
  EXPECT_EQ(code.find("call"), std::string::npos) << code;
#else
  GTEST_SKIP() << "no sections for this processor";
#endif
  EXPECT_EQ(weir_test_own_cpu_id(), t_rseq_area.cpu_id);
}

}  // namespace
}  // namespace weir
