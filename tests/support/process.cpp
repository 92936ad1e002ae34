// SPDX-License-Identifier: MIT
#include "tests/support/process.hpp"

#include <dirent.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace weir::test {
namespace {

// Visits "from-to perms ..." lines of maps or smaps until `found` says so.
bool covers(const std::string& line, std::uintptr_t where) {
  unsigned long from = 0;
  unsigned long to = 0;
  return std::sscanf(line.c_str(), "%lx-%lx ", &from, &to) == 2 && where >= from && where < to;
}

std::size_t entries(const char* path) {
  std::size_t count = 0;
  if (DIR* directory = ::opendir(path)) {
    while (::readdir(directory) != nullptr) ++count;
    ::closedir(directory);
  }
  return count;
}

}  // namespace

bool emulated() {
  // The kernel shows in smaps that a mapping is not to be dumped; an emulator makes smaps up.
  static const bool shown = [] {
    void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ::madvise(page, 4096, MADV_DONTDUMP);
    const bool flag = vm_flags(page).find(" dd ") != std::string::npos;
    ::munmap(page, 4096);
    return flag;
  }();
  return !shown;
}

std::size_t mapping_count() {
  const auto count = [] {
    std::ifstream maps("/proc/self/maps");
    std::size_t lines = 0;
    for (std::string line; std::getline(maps, line);) ++lines;
    return lines;
  };
  static_cast<void>(count());
  return count();
}

std::size_t file_count() { return entries("/proc/self/fd"); }

std::string vm_flags(const void* address) {
  const auto where = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream smaps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    if (line.find('-') < line.find(' ')) {
      inside = covers(line, where);
    } else if (inside && line.rfind("VmFlags:", 0) == 0) {
      return line.substr(8) + ' ';
    }
  }
  return {};
}

std::string permissions(const void* address) {
  const auto where = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (covers(line, where)) {
      const std::size_t space = line.find(' ');
      return line.substr(space + 1, 4);
    }
  }
  return {};
}

int run_in_child(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(body());
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) {
    return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int run_in_child_or_hang(const std::function<int()>& body) {
  return run_in_child([&] {
    ::alarm(60);
    return body();
  });
}

bool wait_until_asleep(pid_t thread) {
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/stat";
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::chrono::steady_clock::now() < deadline) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    const std::size_t name_end = line.rfind(')');
    if (name_end != std::string::npos && line.compare(name_end, 3, ") S") == 0) {
      return true;
    }
    ::sched_yield();
  }
  return false;
}

unsigned long long thread_cpu_ns(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/schedstat");
  unsigned long long on_cpu = 0;
  file >> on_cpu;
  return on_cpu;
}

}  // namespace weir::test
