// SPDX-License-Identifier: MIT
// lab/contenders/libraries.cpp — finding and loading allocator libraries.
#include "lab/contenders/libraries.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "lab/contenders/dpdk_plugin.hpp"
#include "lab/harness/sanitizers.hpp"

namespace weir::lab {

namespace {

struct Known {
  const char* contender;
  const char* package;
  std::initializer_list<const char*> sonames;
  const char* malloc_name;
  const char* free_name;
  // Fills in the version; returns why the functions are not what they should be, or "".
  std::string (*check)(void* library, MallocLibrary& found);
};

template <class Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

// jemalloc exports plain `malloc`. That the one found is its own shows when its control interface
// knows the arena of a block from it.
std::string check_jemalloc(void* library, MallocLibrary& found) {
  using Mallctl = int (*)(const char*, void*, std::size_t*, void*, std::size_t);
  const auto mallctl = symbol<Mallctl>(library, "mallctl");
  if (mallctl == nullptr) {
    return "it has no mallctl";
  }
  const char* version = nullptr;
  std::size_t size = sizeof version;
  if (mallctl("version", static_cast<void*>(&version), &size, nullptr, 0) == 0 &&
      version != nullptr) {
    const std::string_view text = version;
    found.version = text.substr(0, text.find('-'));
  }
  void* block = found.malloc_function(kBufferBytes);
  unsigned arena = 0;
  size = sizeof arena;
  const bool own = block != nullptr && mallctl("arenas.lookup", &arena, &size,
                                               static_cast<void*>(&block), sizeof block) == 0;
  found.free_function(block);
  return own ? "" : "its malloc is not its own";
}

std::string check_mimalloc(void* library, MallocLibrary& found) {
  if (const auto version = symbol<int (*)()>(library, "mi_version"); version != nullptr) {
    const int v = version();
    found.version = fmt::format("{}.{}.{}", v / 100, v / 10 % 10, v % 10);
  }
  return "";
}

std::string check_tcmalloc(void* library, MallocLibrary& found) {
  using Version = const char* (*)(int*, int*, const char**);
  if (const auto version = symbol<Version>(library, "tc_version"); version != nullptr) {
    found.version = version(nullptr, nullptr, nullptr);
    found.version =
        found.version.substr(found.version.find_first_of("0123456789") == std::string::npos
                                 ? 0
                                 : found.version.find_first_of("0123456789"));
  }
  return "";
}

const Known kKnown[] = {
    {"jemalloc", "libjemalloc2", {"libjemalloc.so.2"}, "malloc", "free", check_jemalloc},
    {"mimalloc",
     "libmimalloc2.0",
     {"libmimalloc.so.2", "libmimalloc.so.2.0"},
     "mi_malloc",
     "mi_free",
     check_mimalloc},
    {"tcmalloc",
     "libtcmalloc-minimal4",
     {"libtcmalloc_minimal.so.4"},
     "tc_malloc",
     "tc_free",
     check_tcmalloc},
};

MallocLibrary load(const Known& known) {
  MallocLibrary found{known.contender, known.package, nullptr, nullptr, "", ""};
  if (dlopen_forbidden()) {
    found.missing = fmt::format("not found: package {} (WEIR_LAB_NO_DLOPEN is set)", known.package);
    return found;
  }
  const KeptForEver initialisers;  // a library is never unloaded
  void* library = nullptr;
  std::string why;
  for (const char* soname : known.sonames) {
    library = ::dlopen(soname, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) {
      found.version = soname;
      break;
    }
    const char* text = ::dlerror();
    // A name that is simply not there says nothing new; anything else is worth telling.
    if (text != nullptr && std::strstr(text, "No such file") == nullptr) {
      why = text;
    }
  }
  if (library == nullptr) {
    found.missing = why.empty()
                        ? fmt::format("not found: package {}", known.package)
                        : fmt::format("could not be loaded: package {}: {}", known.package, why);
    return found;
  }
  found.malloc_function = symbol<MallocFunction>(library, known.malloc_name);
  found.free_function = symbol<FreeFunction>(library, known.free_name);
  if (found.malloc_function == nullptr || found.free_function == nullptr) {
    why = "its functions were not found";
  } else {
    why = known.check(library, found);
  }
  if (!why.empty()) {
    found.missing = fmt::format("could not be used: package {}: {}", known.package, why);
  }
  return found;
}

}  // namespace

bool static_tls_exhausted() {
  const std::span<const MallocLibrary> libraries = malloc_libraries();
  const std::vector<Contender> dpdk = dpdk_contenders();
  const auto exhausted = [](const auto& found) {
    return found.missing.find("static TLS") != std::string::npos;
  };
  return std::any_of(libraries.begin(), libraries.end(), exhausted) ||
         std::any_of(dpdk.begin(), dpdk.end(), exhausted);
}

bool dlopen_forbidden() {
  const char* value = std::getenv("WEIR_LAB_NO_DLOPEN");
  return value != nullptr && *value != '\0' && std::strcmp(value, "0") != 0;
}

std::span<const MallocLibrary> malloc_libraries() {
  static const std::vector<MallocLibrary> libraries = [] {
    std::vector<MallocLibrary> all;
    for (const Known& known : kKnown) {
      all.push_back(load(known));
    }
    return all;
  }();
  return libraries;
}

}  // namespace weir::lab
