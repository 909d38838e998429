# Install rules and the archive: one folder that runs where it is unpacked, without network, root or toolchain, and that
# find_package(halfmark) finds.
#   bin/      halfmark, halfmark_micro; cuda_tests where there is a plugin, for scripts/gpu_check.sh
#   libexec/  the program itself, which bin/halfmark starts
#   lib/      our shared libraries, the CUDA plugin, and the third-party libraries that a bare machine lacks
#   include/  headers of the library libhalfmark, for programs with subjects and harnesses of their own
#   licenses/ the licence of every third-party part; CONTENTS lists which file has which licence
#   share/    halfmark/ charts, cmake/halfmark/ the CMake package
#   scripts/ gpu_check.sh, workflows      reports/ schema, gate rules      README.md, LICENSE
# The driver, cuBLASLt and cuDNN are not included: they come with the GPU machine, and their licence forbids copies.
# scripts/check_archive.py checks the archive against this list.
if(CMAKE_INSTALL_PREFIX_INITIALIZED_TO_DEFAULT)
  set(CMAKE_INSTALL_PREFIX "${CMAKE_BINARY_DIR}/halfmark-${PROJECT_VERSION}" CACHE PATH "Where to install: one folder of its own" FORCE)
endif()

set(programs "")
set(libraries "")
foreach(target IN ITEMS halfmark_micro cuda_tests)
  if(TARGET ${target})
    list(APPEND programs ${target})
  endif()
endforeach()
# Our shared libraries; static libraries are in the programs already. Others, of tests, are not installed.
foreach(target IN ITEMS halfmark_kernels halfmark_library)
  if(TARGET ${target})
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "SHARED_LIBRARY")
      list(APPEND libraries ${target})
    endif()
  endif()
endforeach()

# DT_RPATH, unlike DT_RUNPATH, also applies to the dependencies of third-party libraries (libopenblas needs libgfortran).
foreach(target IN LISTS programs libraries ITEMS halfmark)
  target_link_options(${target} PRIVATE "LINKER:--disable-new-dtags")
endforeach()

add_executable(halfmark_launcher "${CMAKE_CURRENT_LIST_DIR}/launcher.c")
set_target_properties(halfmark_launcher PROPERTIES SKIP_BUILD_RPATH ON INSTALL_RPATH "" C_STANDARD 11
  RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/launcher")
target_compile_options(halfmark_launcher PRIVATE -Wall -Wextra "-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=")

install(PROGRAMS "$<TARGET_FILE:halfmark_launcher>" DESTINATION bin RENAME halfmark)
install(TARGETS halfmark RUNTIME DESTINATION libexec)
if(programs)
  install(TARGETS ${programs} RUNTIME DESTINATION bin)
endif()
install(TARGETS ${libraries} halfmark_settings EXPORT halfmark LIBRARY DESTINATION lib)

# The CMake package. Targets: halfmark::halfmark, with what it needs.
if(TARGET halfmark_library)
  include(CMakePackageConfigHelpers)
  set(package share/cmake/halfmark)
  configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/halfmarkConfig.cmake.in" "${CMAKE_BINARY_DIR}/package/halfmarkConfig.cmake"
    INSTALL_DESTINATION ${package} NO_SET_AND_CHECK_MACRO)
  write_basic_package_version_file("${CMAKE_BINARY_DIR}/package/halfmarkConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
  install(FILES "${CMAKE_BINARY_DIR}/package/halfmarkConfig.cmake" "${CMAKE_BINARY_DIR}/package/halfmarkConfigVersion.cmake"
    DESTINATION ${package})
  install(EXPORT halfmark NAMESPACE halfmark:: DESTINATION ${package} FILE halfmarkTargets.cmake)
  target_include_directories(halfmark_library INTERFACE "$<INSTALL_INTERFACE:include>")
  install(CODE "set(HALFMARK_SOURCE \"${CMAKE_SOURCE_DIR}\")")
  install(SCRIPT "${CMAKE_CURRENT_LIST_DIR}/install_headers.cmake")
endif()

# Packages whose code is compiled into our files; their copyright files are the licences.
set(inside nlohmann-json3-dev libcli11-dev libboost-dev)
set(plugin "")
if(TARGET halfmark_cuda)
  set(plugin halfmark_cuda)
  # Here DT_RUNPATH: LD_LIBRARY_PATH must win over it, so that another cuDNN can be tried.
  target_link_options(halfmark_cuda PRIVATE "LINKER:--enable-new-dtags")
  install(TARGETS halfmark_cuda LIBRARY DESTINATION lib)
  list(APPEND inside cuda-runtime)
endif()
if(TARGET cuda_tests)
  list(APPEND inside libgtest-dev)
endif()

set(program_files "$<TARGET_FILE:halfmark>")
foreach(target IN LISTS programs)
  list(APPEND program_files "$<TARGET_FILE:${target}>")
endforeach()
set(library_files "")
foreach(target IN LISTS libraries plugin)
  list(APPEND library_files "$<TARGET_FILE:${target}>")
endforeach()
install(CODE "set(HALFMARK_PROGRAMS \"${program_files}\")\nset(HALFMARK_LIBRARIES \"${library_files}\")
set(HALFMARK_INSIDE \"${inside}\")\nset(HALFMARK_CUDA_TOOLKIT \"${CUDAToolkit_LIBRARY_ROOT}\")")
install(SCRIPT "${CMAKE_CURRENT_LIST_DIR}/bundle_libraries.cmake")

install(PROGRAMS scripts/gpu_check.sh DESTINATION scripts)
install(DIRECTORY scripts/workflows DESTINATION scripts)
install(DIRECTORY scripts/ DESTINATION share/halfmark FILES_MATCHING PATTERN "*chart*.py" PATTERN "*_test.py" EXCLUDE
  PATTERN "*_testing.py" EXCLUDE PATTERN cmake EXCLUDE PATTERN workflows EXCLUDE PATTERN __pycache__ EXCLUDE)
install(PROGRAMS scripts/export_parquet.py DESTINATION scripts)
install(DIRECTORY reports/schema DESTINATION reports)
install(DIRECTORY reports/gate/rules DESTINATION reports/gate)
install(FILES LICENSE README.md DESTINATION .)

string(TOLOWER "${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}" platform)
set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_NAME halfmark)
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_FILE_NAME "halfmark-${PROJECT_VERSION}-${platform}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_VERBATIM_VARIABLES ON)
include(CPack)
