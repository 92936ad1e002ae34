# SPDX-License-Identifier: MIT
# What stands on the library: the lab, the command, the DPDK contender and the examples.
include_guard(GLOBAL)

find_package(fmt QUIET)
find_package(nlohmann_json QUIET)
find_package(CLI11 QUIET)

# The commit is a generated source of its own, so that a commit recompiles one small file and nothing else.
function(weir_build_info target)
  set(out "${PROJECT_BINARY_DIR}/generated/build_info.cpp")
  add_custom_target(weir-build-info
    COMMAND "${CMAKE_COMMAND}" -DSOURCE=${PROJECT_SOURCE_DIR} -DOUT=${out} -DBUILD=${CMAKE_BUILD_TYPE}
            "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}" -DSANITIZE=${WEIR_SANITIZE}
            -DVERSION=${PROJECT_VERSION} -P "${PROJECT_SOURCE_DIR}/cmake/BuildInfo.cmake"
    BYPRODUCTS "${out}"
    COMMENT "Looking at the commit")
  set_source_files_properties("${out}" PROPERTIES GENERATED ON)
  target_sources(${target} PRIVATE "${out}")
  add_dependencies(${target} weir-build-info)
endfunction()

function(weir_lab)
  file(GLOB sources CONFIGURE_DEPENDS
    "${PROJECT_SOURCE_DIR}/lab/harness/*.cpp"
    "${PROJECT_SOURCE_DIR}/lab/experiments/*.cpp"
    "${PROJECT_SOURCE_DIR}/lab/contenders/*.cpp")
  if(NOT fmt_FOUND OR NOT nlohmann_json_FOUND OR NOT PCAP_FOUND)
    message(STATUS "weir: fmt, nlohmann_json or libpcap not found, lab and command are left out")
    return()
  endif()
  add_library(weir-lab STATIC ${sources})
  weir_build_info(weir-lab)
  target_link_libraries(weir-lab
    PUBLIC weir::weir weir::io fmt::fmt nlohmann_json::nlohmann_json ${CMAKE_DL_LIBS}
    PRIVATE weir-flags)
  weir_dpdk_contender()
endfunction()

# DPDK's headers need instruction-set flags and a forced include that must not leak into anything else, so its
# contender is a module the command loads at run time: beside itself first, then from WEIR_CONTENDER_DIR.
function(weir_dpdk_contender)
  target_compile_definitions(weir-lab PRIVATE WEIR_CONTENDER_DIR="${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/lab/contenders/dpdk/*.cpp")
  if(NOT sources OR NOT PkgConfig_FOUND OR WEIR_SANITIZE)
    return()
  endif()
  pkg_check_modules(DPDK IMPORTED_TARGET QUIET libdpdk)
  if(NOT DPDK_FOUND)
    message(STATUS "weir: libdpdk not found, the DPDK contender is left out")
    return()
  endif()
  add_library(weir-contender-dpdk MODULE ${sources})
  target_include_directories(weir-contender-dpdk PRIVATE "${PROJECT_SOURCE_DIR}")
  target_include_directories(weir-contender-dpdk SYSTEM PRIVATE ${DPDK_INCLUDE_DIRS})
  target_compile_options(weir-contender-dpdk PRIVATE ${DPDK_CFLAGS_OTHER})
  target_link_libraries(weir-contender-dpdk PRIVATE weir-flags
    rte_mempool rte_mbuf rte_ring rte_eal -Wl,--no-as-needed rte_mempool_ring rte_mempool_stack)
  set_target_properties(weir-contender-dpdk PROPERTIES PREFIX "" CXX_EXTENSIONS ON)
endfunction()

function(weir_command)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/apps/weir/*.cpp")
  if(NOT sources OR NOT TARGET weir-lab OR NOT CLI11_FOUND)
    message(STATUS "weir: the command is left out (no source yet, or CLI11 not found)")
    return()
  endif()
  # Everything but main() is a library of its own, so that tests/unit/apps can link it.
  set(main "${PROJECT_SOURCE_DIR}/apps/weir/main.cpp")
  list(REMOVE_ITEM sources "${main}")
  add_library(weir-apps STATIC ${sources} "${PROJECT_BINARY_DIR}/generated/anchor.cpp")
  # Experiments and contenders may register themselves from static objects, which a linker drops from an archive
  # that is not linked whole.
  target_link_libraries(weir-apps
    PUBLIC $<LINK_LIBRARY:WHOLE_ARCHIVE,weir-lab> CLI11::CLI11
    PRIVATE weir-flags)
  if(EXISTS "${main}")
    add_executable(weir-command "${main}")
    set_target_properties(weir-command PROPERTIES OUTPUT_NAME weir)
    target_link_libraries(weir-command PRIVATE weir-apps weir-flags)
    if(TARGET weir-contender-dpdk)
      add_dependencies(weir-command weir-contender-dpdk)
    endif()
  endif()
endfunction()

function(weir_examples)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/*.cpp")
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM name)
    add_executable(example-${name} "${source}")
    target_link_libraries(example-${name} PRIVATE weir::weir weir::io weir-flags)
  endforeach()
endfunction()
