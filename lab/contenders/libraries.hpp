// SPDX-License-Identifier: MIT
// lab/contenders/libraries.hpp — allocator libraries that may be installed: found by soname, loaded
// beside the C library without replacing it, their functions taken by name. Calls dlopen(3).
// Loaded once per process, never unloaded.
#pragma once

#include <span>
#include <string>

#include "lab/contenders/malloc_buffers.hpp"

namespace weir::lab {

struct MallocLibrary {
  const char* contender;
  const char* package;  // of Debian: what to install
  MallocFunction malloc_function = nullptr;
  FreeFunction free_function = nullptr;
  std::string version;  // as the library tells it, or the soname
  std::string missing;  // why it cannot be used; empty if it can
};

// jemalloc, mimalloc, tcmalloc. Thread-safe.
[[nodiscard]] std::span<const MallocLibrary> malloc_libraries();

// True if a library is there but found too little thread-local memory reserved by the C library.
[[nodiscard]] bool static_tls_exhausted();

// True if the environment asks (WEIR_LAB_NO_DLOPEN=1) that nothing be loaded: the lab then behaves
// as on a machine where no contender is installed.
[[nodiscard]] bool dlopen_forbidden();

}  // namespace weir::lab
