// SPDX-License-Identifier: MIT
// lab/contenders/dpdk/mempool.cpp — the module of the DPDK contenders: buffers of an rte_mempool,
// dressed for every workload. The only file that sees DPDK. Starts its environment once per process
// without huge pages, devices, telemetry or shared configuration, and leaves no file behind.
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mempool.h>
#include <rte_version.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "lab/contenders/buffers.hpp"
#include "lab/contenders/dpdk_plugin.hpp"
#include "lab/experiments/trials.hpp"

namespace weir::lab {

namespace {

namespace fs = std::filesystem;

constexpr unsigned kCache = 256;  // objects a thread keeps: the value most programs use
// 4096-byte objects at a stride of 4160 and their caches, for every pool alive at once.
constexpr const char* kMemoryMiB = "128";

// The CPU this thread may use first: where DPDK's own main thread sits. It sleeps for ever.
std::string first_cpu() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cpu = 0;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &set)) {
      ++cpu;
    }
  }
  return std::to_string(cpu);
}

// DPDK makes a directory for files that it then does not write. Removes it, and its parent if no
// other program of DPDK has something there; only empty ones can be removed.
void remove_run_directory(const fs::path& directory) {
  std::error_code ignored;
  fs::remove(directory, ignored);
  fs::remove(directory.parent_path(), ignored);
}

// "" or why DPDK does not start. Runs in a thread of its own, which becomes DPDK's main thread: its
// affinity is changed, and nobody else's should be.
std::string start() {
  // What goes wrong is told by the return value; lines of a library have no place in our output.
  std::FILE* nowhere = std::fopen("/dev/null", "w");
  if (nowhere != nullptr) {
    rte_openlog_stream(nowhere);
  }
  const std::string lcores = "0@" + first_cpu();
  const std::string prefix = "weir-" + std::to_string(::getpid());
  std::vector<std::string> words = {"weir",     "--lcores",    lcores,        "--no-huge",
                                    "-m",       kMemoryMiB,    "--no-shconf", "--no-telemetry",
                                    "--no-pci", "--iova-mode", "va",          "--file-prefix",
                                    prefix,     "--log-level", "*:emergency"};
  std::vector<char*> arguments;
  arguments.reserve(words.size());
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  const int result = rte_eal_init(static_cast<int>(arguments.size()), arguments.data());
  const std::string why = result < 0 ? rte_strerror(rte_errno) : "";
  remove_run_directory(rte_eal_get_runtime_dir());
  return why.empty() ? "" : "rte_eal_init: " + why;
}

const std::string& environment() {
  static const std::string problem = [] {
    std::string text;
    std::thread main_thread([&text] { text = start(); });
    main_thread.join();
    return text;
  }();
  return problem;
}

class MempoolBuffers {
 public:
  using Handle = void*;

  explicit MempoolBuffers(rte_mempool* pool) : pool_(pool) {}
  ~MempoolBuffers() { rte_mempool_free(pool_); }
  MempoolBuffers(const MempoolBuffers&) = delete;
  MempoolBuffers& operator=(const MempoolBuffers&) = delete;

  Handle alloc() noexcept {
    void* object = nullptr;
    return rte_mempool_get(pool_, &object) == 0 ? object : nullptr;
  }
  void free(Handle object) noexcept { rte_mempool_put(pool_, object); }
  // All or nothing, as DPDK has it.
  std::size_t alloc_bulk(std::span<Handle> many) noexcept {
    const auto n = static_cast<unsigned>(many.size());
    return rte_mempool_get_bulk(pool_, many.data(), n) == 0 ? n : 0;
  }
  void free_bulk(std::span<Handle> many) noexcept {
    rte_mempool_put_bulk(pool_, many.data(), static_cast<unsigned>(many.size()));
  }
  static std::byte* address(Handle object) noexcept { return static_cast<std::byte*>(object); }

  // A thread without an lcore id has no cache.
  void enter_thread() {
    if (rte_lcore_id() == LCORE_ID_ANY) {
      static_cast<void>(rte_thread_register());
    }
  }
  void begin_round() noexcept {}
  void end_round(std::vector<Reading>&) noexcept {}

 private:
  rte_mempool* pool_;
};
static_assert(Buffers<MempoolBuffers>);

// A mempool of this many objects, or nullptr with rte_errno set.
rte_mempool* make_pool(std::uint32_t buffers, const char* ops) {
  static unsigned number = 0;  // names must differ while two pools are alive
  const std::string name = "weir" + std::to_string(number++);
  // One less than a power of two is what the ring stores without doubling.
  rte_mempool* pool = rte_mempool_create_empty(name.c_str(), buffers - 1, kBufferBytes, kCache, 0,
                                               SOCKET_ID_ANY, 0);
  if (pool == nullptr) {
    return nullptr;
  }
  if (rte_mempool_set_ops_byname(pool, ops, nullptr) == 0 &&
      rte_mempool_populate_default(pool) > 0) {
    return pool;
  }
  const int why = rte_errno;
  rte_mempool_free(pool);
  rte_errno = why;
  return nullptr;
}

TrialOrProblem make(const TrialSetup& setup, const char* ops) {
  if (!environment().empty()) {
    return {nullptr, environment()};
  }
  rte_mempool* pool = make_pool(setup.buffers, ops);
  if (pool == nullptr) {
    return {nullptr, std::string("no mempool with ") + ops + ": " + rte_strerror(rte_errno)};
  }
  return {make_trial(setup, std::make_shared<MempoolBuffers>(pool)), ""};
}

}  // namespace

}  // namespace weir::lab

extern "C" [[gnu::visibility("default")]] const weir::lab::DpdkPlugin* weir_contender_dpdk() {
  static constexpr weir::lab::DpdkPlugin kPlugin{weir::lab::DpdkPlugin::kVersion, rte_version,
                                                 weir::lab::make};
  return &kPlugin;
}
