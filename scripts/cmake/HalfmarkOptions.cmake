# Options, compiler settings and the functions that every folder uses.

# Warnings are errors with g++ 12 and clang 14, which build every commit; newer compilers may warn of more.
set(built_with_every_commit OFF)
if((CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13) OR
   (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 15))
  set(built_with_every_commit ON)
endif()
option(HALFMARK_WERROR "Treat warnings as errors" ${built_with_every_commit})
option(HALFMARK_ONEDNN "Use oneDNN kernels on the CPU when the library is found" ON)
set(HALFMARK_ONEDNN_ROOT "" CACHE PATH "Where another oneDNN is than the system's: the folder that holds include/ and lib/")
option(HALFMARK_PICTURES "Read JPEG and PNG files of data sets when libjpeg-turbo and libpng are found" ON)
option(HALFMARK_CUDA "Build the CUDA plugin when the toolkit is found" ON)
option(HALFMARK_TESTS "Build the tests" ON)
option(HALFMARK_UNITY "Compile most folders in groups of files: half the time" ON)
option(HALFMARK_FUZZ "Build the fuzzers (clang, preset fuzz)" OFF)
set(HALFMARK_TEST_SHARDS 0 CACHE STRING "0: a CTest case for each test; N: N for each test program, which start far fewer processes")
set(HALFMARK_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them (address,undefined or thread)")
set(HALFMARK_DATA "${CMAKE_CURRENT_SOURCE_DIR}/../shared/data" CACHE PATH "Outputs of real GPUs, read by tests; absent is a printed skip")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_VISIBILITY_PRESET default)

# Program, libraries and plugin are in one folder in the build tree, and in bin/ and lib/ in the archive.
# One search path serves both. CMake would pad a path that it rewrites at install time with ":", and to the loader an empty
# element is the current directory (scripts/check_binaries.py).
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN;$ORIGIN/../lib")

# Optional.
if(HALFMARK_CCACHE AND NOT EXISTS "${HALFMARK_CCACHE}")
  unset(HALFMARK_CCACHE CACHE) # removed since the last configuration
endif()
find_program(HALFMARK_CCACHE ccache)
if(HALFMARK_CCACHE)
  # Paths relative to the checkout, so that a fresh clone finds what another one compiled. Not where they hold a blank:
  # ccache 4.7 then leaves the paths in dependency files absolute, so a clone would depend on the files of another one.
  set(launcher "${HALFMARK_CCACHE}")
  if(NOT CMAKE_SOURCE_DIR MATCHES " ")
    set(launcher "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" CCACHE_NOHASHDIR=1 ${launcher})
  endif()
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()

# Numbers are what this project measures: no implicit fused multiply-adds, never fast-math.
# Programs that use the installed library compile its inline functions too, so they get the first of these options.
add_library(halfmark_settings INTERFACE)
set_target_properties(halfmark_settings PROPERTIES EXPORT_NAME settings)
target_compile_features(halfmark_settings INTERFACE cxx_std_20)
target_compile_options(halfmark_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
function(halfmark_private_options)
  target_compile_options(halfmark_settings INTERFACE "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:${ARGN}>>")
endfunction()
halfmark_private_options(-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wno-unknown-pragmas)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC bug 105329: g++ 12 sees overlapping copies in "literal" + std::string.
  halfmark_private_options(-Wno-restrict)
endif()
if(HALFMARK_WERROR)
  halfmark_private_options(-Werror)
endif()
target_include_directories(halfmark_settings INTERFACE "$<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>")
# No path of the build machine in a binary: __FILE__ and debug information name files relative to the root of the sources.
halfmark_private_options("-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=")
target_link_options(halfmark_settings INTERFACE "$<BUILD_INTERFACE:LINKER:--no-undefined>")
if(HALFMARK_SANITIZE)
  target_compile_options(halfmark_settings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${HALFMARK_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer>)
  # Sanitizer builds need not be fast, but must compile quickly: line numbers, and -O1 where numbers are computed.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
  target_compile_definitions(halfmark_settings INTERFACE HALFMARK_SANITIZED=1)
  target_link_options(halfmark_settings INTERFACE "-fsanitize=${HALFMARK_SANITIZE}")
  # clang links its sanitizer runtime into programs only, so a shared library has undefined symbols until then.
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_link_options(halfmark_settings INTERFACE "LINKER:-z,undefs")
  endif()
endif()

# Only kernels/ computes numbers in bulk. Its callers use -O2; planning, judging, printing and tests use -O1. This halves the build
# time and changes no result. The presets that only run tests (dev, ci) do not optimise these at all.
set(HALFMARK_QUICK_LEVEL "" CACHE STRING "Optimisation level of all code outside kernels/; empty: -O2 or -O1 per folder")
function(halfmark_quick_build target level)
  if(HALFMARK_QUICK_LEVEL)
    set(level "${HALFMARK_QUICK_LEVEL}")
  elseif(NOT CMAKE_BUILD_TYPE STREQUAL "Release")
    return()
  endif()
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${level}>")
endfunction()

# Compiles the files of a target in groups of sixteen, so that a header is read once per group. A name in an unnamed namespace must
# then be unique in its target.
function(halfmark_in_groups target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${HALFMARK_UNITY} UNITY_BUILD_BATCH_SIZE 16)
endfunction()

# halfmark_fuzzers(LINK lib... DIRECTORY dir): a program for each *_fuzz.cpp of the folder, which feeds generated bytes to a reader,
# and a test that does so for some seconds. Seeds lie in dir/seeds/NAME.
# halfmark_fuzzed(target): instruments a library, so that the fuzzers see which branches an input reaches.
if(HALFMARK_FUZZ AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "HALFMARK_FUZZ: libFuzzer comes with clang; use the preset dev or fuzz")
endif()
function(halfmark_fuzzed target)
  if(HALFMARK_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()
add_custom_target(fuzzers)
function(halfmark_fuzzers)
  cmake_parse_arguments(ARG "" "DIRECTORY" "LINK" ${ARGN})
  if(NOT HALFMARK_FUZZ)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS "${ARG_DIRECTORY}/*_fuzz.cpp")
  foreach(source IN LISTS sources)
    get_filename_component(name "${source}" NAME_WE)
    add_executable(${name} "${source}")
    target_link_libraries(${name} PRIVATE ${ARG_LINK})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzzers ${name})
    # The corpus stays in the build folder; the seeds are only read.
    file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/corpus/${name}")
    add_test(NAME fuzz.${name} COMMAND ${name} -max_total_time=5 -max_len=20000 -timeout=20 -rss_limit_mb=4096 -close_fd_mask=1
      "${CMAKE_BINARY_DIR}/corpus/${name}" "${ARG_DIRECTORY}/seeds/${name}")
    set_tests_properties(fuzz.${name} PROPERTIES TIMEOUT 300)
  endforeach()
endfunction()

# halfmark_sources(VAR DIR...): every .cpp of the folders except tests. Adding a file needs no line here.
function(halfmark_sources variable)
  set(found "")
  foreach(directory IN LISTS ARGN)
    file(GLOB sources CONFIGURE_DEPENDS "${directory}/*.cpp")
    list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
    list(APPEND found ${sources})
  endforeach()
  set(${variable} ${found} PARENT_SCOPE)
endfunction()

# Where tests find their files. A library, so that objects of tests do not depend on the folder and a compiler cache finds them.
# Programs that are packed get another one, without the folders of this machine.
function(halfmark_test_folders target source binary data)
  file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/${target}.cpp" CONTENT [=[
#include <cstdlib>
#include <string>
namespace halfmark::test_folders {
std::string source() { return "@source@"; }
std::string binary() { return "@binary@"; }
std::string data() {
  const char* chosen = std::getenv("HALFMARK_DATA");
  return chosen ? chosen : "@data@";
}
}  // namespace halfmark::test_folders
]=] @ONLY)
  add_library(${target} STATIC "${CMAKE_BINARY_DIR}/${target}.cpp")
  target_link_libraries(${target} PRIVATE halfmark_settings)
endfunction()
if(HALFMARK_TESTS)
  halfmark_test_folders(halfmark_test_folders "${CMAKE_SOURCE_DIR}" "${CMAKE_BINARY_DIR}" "${HALFMARK_DATA}")
  halfmark_test_folders(halfmark_no_test_folders "" "" "")
endif()

# halfmark_tests(NAME [PACKED] LINK lib... DIRECTORIES dir... [WITHOUT name...] [FILES file...]): one program from every *_test.cpp
# of the folders but those named, and the files. PACKED: the program goes into the archive and knows its data by HALFMARK_DATA
# alone. CTest sees every test, or HALFMARK_TEST_SHARDS parts of the program.
function(halfmark_tests name)
  cmake_parse_arguments(ARG "PACKED" "" "LINK;DIRECTORIES;WITHOUT;FILES" ${ARGN})
  if(NOT HALFMARK_TESTS)
    return()
  endif()
  set(sources ${ARG_FILES})
  foreach(directory IN LISTS ARG_DIRECTORIES)
    file(GLOB found CONFIGURE_DEPENDS "${directory}/*_test.cpp")
    list(APPEND sources ${found})
  endforeach()
  foreach(left_out IN LISTS ARG_WITHOUT)
    list(FILTER sources EXCLUDE REGEX "/${left_out}\\.cpp$")
  endforeach()
  if(NOT sources)
    return()
  endif()
  add_executable(${name} ${sources})
  set(folders halfmark_test_folders)
  if(ARG_PACKED)
    set(folders halfmark_no_test_folders)
  endif()
  target_link_libraries(${name} PRIVATE halfmark_settings ${ARG_LINK} ${folders} GTest::gtest GTest::gtest_main)
  halfmark_quick_build(${name} -O1)
  halfmark_in_groups(${name})
  # OpenMP threads that wait must sleep: where tests share the cores, spinning ones slow each other down a hundredfold.
  # Suites whose name begins with Slow take seconds; clang and sanitizer builds leave them out (ctest -LE slow).
  # The time limit is for tests that hang: a long sample (HALFMARK_LONG) takes a quarter of an hour on a busy machine.
  if(HALFMARK_TEST_SHARDS GREATER 0)
    foreach(shard RANGE 1 ${HALFMARK_TEST_SHARDS})
      math(EXPR index "${shard} - 1")
      add_test(NAME ${name}.${shard} COMMAND ${name} "--gtest_filter=-Slow*:*/Slow*")
      set_tests_properties(${name}.${shard} PROPERTIES TIMEOUT 1800
        ENVIRONMENT "OMP_WAIT_POLICY=PASSIVE;HALFMARK_DATA=${HALFMARK_DATA};GTEST_TOTAL_SHARDS=${HALFMARK_TEST_SHARDS};GTEST_SHARD_INDEX=${index}")
    endforeach()
  else()
    gtest_discover_tests(${name} TEST_FILTER "-Slow*:*/Slow*" DISCOVERY_TIMEOUT 60
      PROPERTIES TIMEOUT 1800 ENVIRONMENT "OMP_WAIT_POLICY=PASSIVE;HALFMARK_DATA=${HALFMARK_DATA}")
  endif()
  gtest_discover_tests(${name} TEST_FILTER "Slow*:*/Slow*" TEST_LIST ${name}_slow DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT 1800 COST 1000 LABELS slow ENVIRONMENT "OMP_WAIT_POLICY=PASSIVE;HALFMARK_DATA=${HALFMARK_DATA}")
endfunction()
