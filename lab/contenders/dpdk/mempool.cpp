// SPDX-License-Identifier: MIT
// lab/contenders/dpdk/mempool.cpp — the module of the DPDK contenders: buffers of an rte_mempool and
// packet buffers, dressed for every workload. The only file that sees DPDK. Starts its environment once per process
// without huge pages, devices, telemetry or shared configuration, and leaves no file behind.

// Which lcore a thread is: looked up for every buffer. A program that is linked with DPDK reads it
// from its thread pointer, and so must this module, which would otherwise call the loader each time.
// Said before and after DPDK's own declaration: Clang heeds the first, GCC the last.
extern "C" {
[[gnu::tls_model("initial-exec")]] extern __thread unsigned per_lcore__lcore_id;
}

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
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

extern "C" {
extern __thread unsigned per_lcore__lcore_id [[gnu::tls_model("initial-exec")]];
}

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

// A thread without an lcore id has no cache.
void enter_dpdk() {
  if (rte_lcore_id() == LCORE_ID_ANY) {
    static_cast<void>(rte_thread_register());
  }
}

class MempoolBuffers {
 public:
  using Handle = void*;

  explicit MempoolBuffers(rte_mempool* pool) : pool_(pool) {}
  ~MempoolBuffers() { rte_mempool_free(pool_); }
  MempoolBuffers(const MempoolBuffers&) = delete;
  MempoolBuffers& operator=(const MempoolBuffers&) = delete;

  [[gnu::always_inline]] Handle alloc() noexcept {
    void* object = nullptr;
    return rte_mempool_get(pool_, &object) == 0 ? object : nullptr;
  }
  [[gnu::always_inline]] void free(Handle object) noexcept { rte_mempool_put(pool_, object); }
  // All or nothing, as DPDK has it.
  [[gnu::always_inline]] std::size_t alloc_bulk(std::span<Handle> many) noexcept {
    const auto n = static_cast<unsigned>(many.size());
    return rte_mempool_get_bulk(pool_, many.data(), n) == 0 ? n : 0;
  }
  [[gnu::always_inline]] void free_bulk(std::span<Handle> many) noexcept {
    rte_mempool_put_bulk(pool_, many.data(), static_cast<unsigned>(many.size()));
  }
  static std::byte* address(Handle object) noexcept { return static_cast<std::byte*>(object); }

  void enter_thread() { enter_dpdk(); }
  void begin_round() noexcept {}
  void end_round(std::vector<Reading>&) noexcept {}

 private:
  rte_mempool* pool_;
};
static_assert(Buffers<MempoolBuffers>);

// Packet buffers: a header in front of each buffer, which allocation resets and free looks at.
class MbufBuffers {
 public:
  using Handle = rte_mbuf*;

  explicit MbufBuffers(rte_mempool* pool) : pool_(pool) {}
  ~MbufBuffers() { rte_mempool_free(pool_); }
  MbufBuffers(const MbufBuffers&) = delete;
  MbufBuffers& operator=(const MbufBuffers&) = delete;

  [[gnu::always_inline]] Handle alloc() noexcept { return rte_pktmbuf_alloc(pool_); }
  [[gnu::always_inline]] void free(Handle buffer) noexcept { rte_pktmbuf_free(buffer); }
  [[gnu::always_inline]] std::size_t alloc_bulk(std::span<Handle> many) noexcept {
    const auto n = static_cast<unsigned>(many.size());
    return rte_pktmbuf_alloc_bulk(pool_, many.data(), n) == 0 ? n : 0;
  }
  [[gnu::always_inline]] void free_bulk(std::span<Handle> many) noexcept {
    rte_pktmbuf_free_bulk(many.data(), static_cast<unsigned>(many.size()));
  }
  static std::byte* address(const rte_mbuf* buffer) noexcept {
    return static_cast<std::byte*>(buffer->buf_addr) + RTE_PKTMBUF_HEADROOM;
  }

  void enter_thread() { enter_dpdk(); }
  void begin_round() noexcept {}
  void end_round(std::vector<Reading>&) noexcept {}

 private:
  rte_mempool* pool_;
};
static_assert(Buffers<MbufBuffers>);

// Names must differ while two pools are alive.
std::string pool_name() {
  static unsigned number = 0;
  return "weir" + std::to_string(number++);
}

// A mempool of this many objects, or nullptr with rte_errno set.
rte_mempool* make_pool(std::uint32_t buffers, const char* ops) {
  const std::string name = pool_name();
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

// The room of a buffer is that of the others; its header and headroom come on top.
rte_mempool* make_mbuf_pool(std::uint32_t buffers) {
  return rte_pktmbuf_pool_create(pool_name().c_str(), buffers - 1, kCache, 0,
                                 RTE_PKTMBUF_HEADROOM + kBufferBytes, SOCKET_ID_ANY);
}

TrialOrProblem make(const TrialSetup& setup, DpdkKind kind) {
  if (!environment().empty()) {
    return {nullptr, environment()};
  }
  const char* ops = kind == DpdkKind::mempool_stack ? "stack" : "ring_mp_mc";
  rte_mempool* pool =
      kind == DpdkKind::mbuf ? make_mbuf_pool(setup.buffers) : make_pool(setup.buffers, ops);
  if (pool == nullptr) {
    return {nullptr, std::string("no mempool with ") + ops + ": " + rte_strerror(rte_errno)};
  }
  if (kind == DpdkKind::mbuf) {
    return make_trial(setup, std::make_shared<MbufBuffers>(pool));
  }
  TrialSetup own = setup;
  if (kind == DpdkKind::mempool_bulk) {
    own.batch = kBurst;
  }
  return make_trial(own, std::make_shared<MempoolBuffers>(pool));
}

}  // namespace

}  // namespace weir::lab

extern "C" [[gnu::visibility("default")]] const weir::lab::DpdkPlugin* weir_contender_dpdk() {
  static constexpr weir::lab::DpdkPlugin kPlugin{weir::lab::DpdkPlugin::kVersion, rte_version,
                                                 weir::lab::make};
  return &kPlugin;
}
