// SPDX-License-Identifier: MIT
// lab/contenders/dpdk_plugin.cpp — finds and loads the module of the DPDK contenders.
#include "lab/contenders/dpdk_plugin.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "lab/contenders/libraries.hpp"

namespace weir::lab {

namespace {

namespace fs = std::filesystem;

constexpr const char* kModule = "weir-contender-dpdk.so";
constexpr const char* kPackage = "libdpdk-dev";

// Beside the program first: a copied installation brings its own.
std::vector<fs::path> places() {
  std::vector<fs::path> found;
  std::error_code failed;
  const fs::path self = fs::read_symlink("/proc/self/exe", failed);
  if (!failed) {
    found.push_back(self.parent_path() / kModule);
    found.push_back(self.parent_path().parent_path() / "lib" / kModule);
  }
  found.push_back(fs::path(WEIR_CONTENDER_DIR) / kModule);
  return found;
}

struct Loaded {
  const DpdkPlugin* plugin = nullptr;
  std::string missing;
};

Loaded load() {
  if (dlopen_forbidden()) {
    return {nullptr, fmt::format("not found: package {} (WEIR_LAB_NO_DLOPEN is set)", kPackage)};
  }
  for (const fs::path& path : places()) {
    std::error_code failed;
    if (!fs::exists(path, failed)) {
      continue;
    }
    void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) {
      return {nullptr, fmt::format("could not be loaded: package {}: {}", kPackage, ::dlerror())};
    }
    const auto entry = reinterpret_cast<DpdkPluginEntry>(::dlsym(module, "weir_contender_dpdk"));
    const DpdkPlugin* plugin = entry == nullptr ? nullptr : entry();
    if (plugin == nullptr || plugin->version != DpdkPlugin::kVersion) {
      return {nullptr, fmt::format("{} is of another build: build again", path.string())};
    }
    return {plugin, ""};
  }
  return {nullptr, fmt::format("not found: package {} (when weir is built)", kPackage)};
}

}  // namespace

std::vector<Contender> dpdk_contenders() {
  static const Loaded loaded = load();
  std::vector<Contender> contenders;
  const auto add = [&](const char* name, DpdkKind kind, const char* what) {
    const char* version = loaded.plugin == nullptr ? "DPDK" : loaded.plugin->library_version();
    contenders.push_back(
        {name, fmt::format("{} of {}, cache of 256", what, version), loaded.missing, Side::other,
         [kind](const TrialSetup& setup) { return loaded.plugin->make(setup, kind); }});
  };
  add("dpdk.mempool", DpdkKind::mempool, "rte_mempool on its default ring");
  add("dpdk.mempool+bulk", DpdkKind::mempool_bulk, "the same by 64 at once in every case: mempool");
  add("dpdk.mempool-stack", DpdkKind::mempool_stack, "rte_mempool on a stack");
  add("dpdk.mbuf", DpdkKind::mbuf, "packet buffers with a reference count: rte_pktmbuf");
  return contenders;
}

}  // namespace weir::lab
