# Runs at install time: copies the third-party libraries of our programs into lib/, each under the name the loader asks for.
# (install(RUNTIME_DEPENDENCY_SET) follows the links of /etc/alternatives into a loop, so the copying is done here.)
file(GET_RUNTIME_DEPENDENCIES
  EXECUTABLES ${HALFMARK_PROGRAMS}
  LIBRARIES ${HALFMARK_LIBRARIES}
  RESOLVED_DEPENDENCIES_VAR found
  UNRESOLVED_DEPENDENCIES_VAR lost
  CONFLICTING_DEPENDENCIES_PREFIX conflict
  PRE_EXCLUDE_REGEXES
    # our own libraries
    "^libhalfmark"
    # on every machine: the C and C++ run time
    "^ld-linux" "^linux-vdso" "^libc\\.so" "^libm\\.so" "^libmvec\\.so" "^libpthread\\.so" "^libdl\\.so" "^librt\\.so" "^libresolv\\.so"
    "^libstdc\\+\\+\\.so" "^libgcc_s\\.so"
    # on the machine with the GPU
    "^libcuda" "^libcublas" "^libcudnn" "^libnv" "^libnccl" "^libcu(fft|rand|solver|sparse)"
    # sanitizers, in a build that is not released
    "^lib(a|t|ub|l)san\\.so")

if(lost)
  message(FATAL_ERROR "libraries that the programs need and that were not found: ${lost}")
endif()
foreach(name IN LISTS conflict_FILENAMES)
  # The same library was found twice: the loader would take the first.
  list(GET conflict_${name} 0 first)
  list(APPEND found "${first}")
endforeach()

set(root "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
file(MAKE_DIRECTORY "${root}/lib" "${root}/licenses")
find_program(dpkg_query dpkg-query)
set(contents "what\tof\tlicence\n")

# bundle_licence(WHAT NAME FILE): copies FILE to licenses/NAME, together with the common licence texts that it refers to.
function(bundle_licence what name file)
  file(REAL_PATH "${file}" real)
  file(COPY_FILE "${real}" "${root}/licenses/${name}" ONLY_IF_DIFFERENT)
  file(STRINGS "${real}" lines REGEX "/usr/share/common-licenses/")
  string(REGEX MATCHALL "/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]" others "${lines}")
  list(REMOVE_DUPLICATES others)
  foreach(other IN LISTS others)
    if(EXISTS "${other}")
      get_filename_component(other_name "${other}" NAME)
      file(REAL_PATH "${other}" other)
      file(COPY_FILE "${other}" "${root}/licenses/common-${other_name}" ONLY_IF_DIFFERENT)
    endif()
  endforeach()
  set(contents "${contents}${what}\t${name}\tlicenses/${name}\n" PARENT_SCOPE)
endfunction()

foreach(library IN LISTS found)
  get_filename_component(name "${library}" NAME)
  file(REAL_PATH "${library}" real)
  file(COPY_FILE "${real}" "${root}/lib/${name}" ONLY_IF_DIFFERENT)
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES "${CMAKE_INSTALL_PREFIX}/lib/${name}")
  set(package "")
  if(dpkg_query)
    # Each library is copied with its licence. dpkg may list the file under /lib or /usr/lib, which are the same folder.
    string(REGEX REPLACE "^/usr/lib/" "/lib/" short "${real}")
    foreach(path IN ITEMS "${real}" "${short}")
      execute_process(COMMAND "${dpkg_query}" --search "${path}" OUTPUT_VARIABLE owner ERROR_QUIET)
      if(owner MATCHES "^([^:, ]+)")
        set(package "${CMAKE_MATCH_1}")
        break()
      endif()
    endforeach()
  endif()
  # Not from a package: a separate installation has its licence texts in share/.
  get_filename_component(folder "${real}" DIRECTORY)
  file(GLOB texts "${folder}/../share/doc/*/LICENSE" "${folder}/../share/doc/*/LICENSE.txt")
  if(package AND EXISTS "/usr/share/doc/${package}/copyright")
    bundle_licence("lib/${name}" "${package}" "/usr/share/doc/${package}/copyright")
  elseif(NOT package AND texts)
    list(GET texts 0 text)
    string(REGEX REPLACE "\\.so.*" "" short "${name}")
    bundle_licence("lib/${name}" "${short}" "${text}")
  else()
    message(WARNING "no licence found for lib/${name} (${real}): do not distribute this archive")
  endif()
  message(STATUS "Bundled: lib/${name} (${real})")
endforeach()

# Third-party code that is compiled into our files.
foreach(package IN LISTS HALFMARK_INSIDE)
  set(text "/usr/share/doc/${package}/copyright")
  if(package STREQUAL "cuda-runtime")
    set(text "")
    foreach(toolkit IN ITEMS "${HALFMARK_CUDA_TOOLKIT}" /usr/local/cuda)
      # The places where an installer, the distribution's packages and Python wheels put it.
      file(GLOB texts "${toolkit}/EULA.txt" "${toolkit}/dist-info/nvidia_cuda_runtime*/licenses/License.txt" "/usr/share/doc/cuda-cudart-[0-9]*/copyright")
      if(texts AND NOT text)
        list(GET texts 0 text)
      endif()
    endforeach()
    if(NOT text)
      # Some toolkits come without the licence text; then a file says where it is published.
      set(text "${root}/licenses/.cuda-runtime")
      file(WRITE "${text}" "lib/halfmark_cuda.so holds the CUDA runtime (cudart_static), which NVIDIA lets be distributed under\nAttachment A of the CUDA Toolkit End User License Agreement: docs.nvidia.com/cuda/eula\n")
    endif()
  endif()
  if(EXISTS "${text}")
    bundle_licence("compiled in" "${package}" "${text}")
  else()
    message(WARNING "no licence found for ${package} (${text}): do not distribute this archive")
  endif()
endforeach()
file(REMOVE "${root}/licenses/.cuda-runtime")
file(WRITE "${root}/licenses/CONTENTS" "${contents}")
