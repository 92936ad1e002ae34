// SPDX-License-Identifier: MIT
#include "tests/support/process.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "tests/support/fake_clock.hpp"
#include "tests/support/fake_root.hpp"

namespace weir::test {
namespace {

TEST(Process, SeesAMappingComeAndGo) {
  const std::size_t before = mapping_count();
  // A file mapping, which the kernel never joins with a neighbour.
  void* base = mmap(nullptr, 8192, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(base, MAP_FAILED);
  EXPECT_EQ(permissions(base), "r--s");
  EXPECT_NE(vm_flags(base).find(" rd "), std::string::npos);
  if (!kSanitized) {
    EXPECT_EQ(mapping_count(), before + 1);
  }
  munmap(base, 8192);
  EXPECT_EQ(permissions(base), "");
  EXPECT_EQ(vm_flags(base), "");
}

TEST(Process, CountsOpenFiles) {
  const std::size_t before = file_count();
  const int fd = dup(0);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(file_count(), before + 1);
  close(fd);
  EXPECT_EQ(file_count(), before);
}

TEST(Process, AChildTellsItsValueOrItsSignal) {
  EXPECT_EQ(run_in_child([] { return 0; }), 0);
  EXPECT_EQ(run_in_child([] { return 7; }), 7);
  EXPECT_EQ(run_in_child([]() -> int {
              signal(SIGTERM, SIG_DFL);
              raise(SIGTERM);
              return 0;
            }),
            128 + SIGTERM);
}

TEST(Process, SeesAThreadFallAsleepAndUseNoCpu) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::atomic<pid_t> id{0};
  std::thread sleeper([&] {
    id = static_cast<pid_t>(syscall(SYS_gettid));
    char byte = 0;
    EXPECT_EQ(read(ends[0], &byte, 1), 1);
  });
  while (id == 0) std::this_thread::yield();
  EXPECT_TRUE(wait_until_asleep(id));
  const auto used = thread_cpu_ns(id);
  EXPECT_GT(used, 0U);
  EXPECT_EQ(thread_cpu_ns(id), used);
  EXPECT_EQ(write(ends[1], "x", 1), 1);
  sleeper.join();
  close(ends[0]);
  close(ends[1]);
}

TEST(FakeRoot, HoldsFilesAndIsGoneAfterwards) {
  std::string path;
  {
    const FakeRoot root;
    path = root.path();
    root.write("/a/b/c", "text\n");
    EXPECT_EQ(access(root.file("/a/b/c").c_str(), R_OK), 0);
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST(FakeClock, MovesOnlyWhenTold) {
  FakeClock clock(5);
  EXPECT_EQ(clock.now_ns(), 5U);
  clock.advance(10);
  EXPECT_EQ(clock.now_ns(), 15U);
}

}  // namespace
}  // namespace weir::test
