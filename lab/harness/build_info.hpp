// SPDX-License-Identifier: MIT
// lab/harness/build_info.hpp — what built this binary. Owns: the four strings. The definition is generated at build
// time by cmake/BuildInfo.cmake, so a new commit recompiles that one file only.
#pragma once

namespace weir::lab {

struct BuildInfo {
  const char* version;   // of the project, "0.1.0"
  const char* commit;    // twelve hex digits, or "unknown" outside a git checkout
  const char* compiler;  // "GNU 12.2.0"
  const char* build;     // CMake build type, with "+<sanitizers>" if any
};

const BuildInfo& build_info() noexcept;

}  // namespace weir::lab
