# SPDX-License-Identifier: MIT
# How every file of the tree is compiled. `weir-flags` carries warnings, sanitizers and coverage and stays private
# to the tree; what users of the library must see is set on the target `weir` in WeirLayer.cmake.
include_guard(GLOBAL)

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# A shared build exports all: its inline variables (failpoints, the default zone) must be one object with the program's.
if(NOT BUILD_SHARED_LIBS)
  set(CMAKE_CXX_VISIBILITY_PRESET hidden)
  set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
endif()
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

# Release figures must be readable in a profiler and must not depend on the building machine: -g, and no -march.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g -DNDEBUG")
set(CMAKE_C_FLAGS_RELEASE "-O2 -g -DNDEBUG")

find_program(WEIR_CCACHE ccache)
mark_as_advanced(WEIR_CCACHE)
if(WEIR_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER "${WEIR_CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${WEIR_CCACHE}")
endif()

find_package(Threads REQUIRED)
find_package(PkgConfig)

add_library(weir-flags INTERFACE)
target_compile_options(weir-flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wnon-virtual-dtor>
  $<$<COMPILE_LANGUAGE:C>:-Wall;-Wextra;-Wshadow>)
if(WEIR_WERROR)
  target_compile_options(weir-flags INTERFACE -Werror)
endif()

if(WEIR_SANITIZE)
  set(weir_sanitize_flags -fsanitize=${WEIR_SANITIZE} -fno-omit-frame-pointer)
  if(WEIR_SANITIZE MATCHES "undefined")
    list(APPEND weir_sanitize_flags -fno-sanitize-recover=undefined)
  endif()
  target_compile_options(weir-flags INTERFACE ${weir_sanitize_flags})
  target_link_options(weir-flags INTERFACE ${weir_sanitize_flags})
  # GCC warns that it does not model fences for ThreadSanitizer; a fence in weir is always beside an atomic it orders.
  if(WEIR_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(weir-flags INTERFACE -Wno-tsan)
  endif()
endif()

if(WEIR_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "WEIR_FUZZ needs clang; configure with CXX=clang++ or the preset `fuzz`")
  endif()
  target_compile_options(weir-flags INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(weir-flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

if(WEIR_COVERAGE)
  target_compile_options(weir-flags INTERFACE --coverage)
  target_link_options(weir-flags INTERFACE --coverage)
endif()
