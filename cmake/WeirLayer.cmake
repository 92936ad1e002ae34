# SPDX-License-Identifier: MIT
# One folder is one layer. Ranks 0-8 and 10 form the library `weir` (libc and the C++ runtime only); rank 9 is
# `weir-io`, so that nobody who only wants pages links libpcap.
include_guard(GLOBAL)

# Creates both libraries, empty. A static archive must have a source: an empty one stands in until a layer brings code.
macro(weir_library)
  set(weir_anchor "${PROJECT_BINARY_DIR}/generated/anchor.cpp")
  file(CONFIGURE OUTPUT "${weir_anchor}" CONTENT "// Keeps a library with header-only layers linkable.\n")

  add_library(weir ${weir_anchor})
  add_library(weir::weir ALIAS weir)
  target_include_directories(weir PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>")
  target_compile_features(weir PUBLIC cxx_std_20)
  target_link_libraries(weir PUBLIC Threads::Threads PRIVATE $<BUILD_INTERFACE:weir-flags>)
  set_target_properties(weir PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
  # Whatever contains a restartable section, inlined ones included, must never be unmapped: the kernel would look
  # for it at the next preemption and kill the thread.
  target_link_options(weir PUBLIC "LINKER:-z,nodelete")
  # WEIR_AUDIT is the name of a check; the definition that turns it on has another.
  target_compile_definitions(weir PUBLIC
    $<$<BOOL:${WEIR_TEST_HOOKS}>:WEIR_TEST_HOOKS=1>
    $<$<BOOL:${WEIR_AUDIT}>:WEIR_AUDIT_CHECKS=1>
    $<$<BOOL:${WEIR_LOCKED_LISTS}>:WEIR_LOCKED_LISTS=1>)

  add_library(weir-io ${weir_anchor})
  add_library(weir::io ALIAS weir-io)
  target_link_libraries(weir-io PUBLIC weir PRIVATE $<BUILD_INTERFACE:weir-flags>)
  if(PkgConfig_FOUND)
    pkg_check_modules(PCAP IMPORTED_TARGET QUIET libpcap)
  endif()
  if(PCAP_FOUND)
    target_link_libraries(weir-io PRIVATE PkgConfig::PCAP)
    target_compile_definitions(weir-io PUBLIC WEIR_HAVE_PCAP=1)
  else()
    message(STATUS "weir: libpcap not found: no captures, so no pcap port, lab or command")
  endif()
endmacro()

# weir_layer(NAME RANK [LOWER...]) adds weir/<NAME> to its library. LOWER must be declared before and have lower ranks;
# sources see only the include rule of weir/README.md, which scripts/check_layers.py enforces file by file.
function(weir_layer name rank)
  foreach(lower IN LISTS ARGN)
    get_property(lower_rank GLOBAL PROPERTY weir_rank_${lower})
    if(lower_rank STREQUAL "")
      message(FATAL_ERROR "weir_layer(${name}): layer ${lower} is not declared before it")
    elseif(NOT lower_rank LESS rank)
      message(FATAL_ERROR "weir_layer(${name}): ${lower} (rank ${lower_rank}) is not below rank ${rank}")
    endif()
  endforeach()
  set_property(GLOBAL PROPERTY weir_rank_${name} ${rank})
  set_property(GLOBAL APPEND PROPERTY weir_layers ${name})

  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/weir/${name}/*.cpp")
  file(GLOB headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/weir/${name}/*.hpp")
  if(rank EQUAL 9)
    if(NOT PCAP_FOUND)
      list(FILTER sources EXCLUDE REGEX "/(pcap_[^/]*|capture\\.cpp)$")
    endif()
    target_sources(weir-io PRIVATE ${sources} ${headers})
  else()
    target_sources(weir PRIVATE ${sources} ${headers})
  endif()
endfunction()
