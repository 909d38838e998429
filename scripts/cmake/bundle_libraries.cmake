# Runs at install time: copies the third-party libraries of our programs into lib/, each under the name the loader asks for.
# (install(RUNTIME_DEPENDENCY_SET) follows the links of /etc/alternatives into a loop, so the copying is done here.)
if(NOT HALFMARK_PROGRAMS AND NOT HALFMARK_LIBRARIES)
  return()
endif()

file(GET_RUNTIME_DEPENDENCIES
  EXECUTABLES ${HALFMARK_PROGRAMS}
  LIBRARIES ${HALFMARK_LIBRARIES}
  RESOLVED_DEPENDENCIES_VAR found
  UNRESOLVED_DEPENDENCIES_VAR lost
  CONFLICTING_DEPENDENCIES_PREFIX conflict
  PRE_EXCLUDE_REGEXES
    # our own
    "^libhalfmark"
    # of every machine: the C and C++ run time
    "^ld-linux" "^linux-vdso" "^libc\\.so" "^libm\\.so" "^libmvec\\.so" "^libpthread\\.so" "^libdl\\.so" "^librt\\.so" "^libresolv\\.so"
    "^libstdc\\+\\+\\.so" "^libgcc_s\\.so"
    # of the machine with the GPU
    "^libcuda" "^libcublas" "^libcudnn" "^libnv" "^libnccl" "^libcu(fft|rand|solver|sparse)"
    # sanitizers, in a build that is not for shipping
    "^lib(a|t|ub|l)san\\.so")

if(lost)
  message(FATAL_ERROR "libraries that the programs need and that were not found: ${lost}")
endif()
foreach(name IN LISTS conflict_FILENAMES)
  # The same library found in two places: the first is the one the loader would take.
  list(GET conflict_${name} 0 first)
  list(APPEND found "${first}")
endforeach()

set(folder "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib")
file(MAKE_DIRECTORY "${folder}/licenses")
find_program(dpkg_query dpkg-query)
foreach(library IN LISTS found)
  get_filename_component(name "${library}" NAME)
  file(REAL_PATH "${library}" real)
  file(COPY_FILE "${real}" "${folder}/${name}" ONLY_IF_DIFFERENT)
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES "${CMAKE_INSTALL_PREFIX}/lib/${name}")
  set(package "")
  if(dpkg_query)
    # A library and its licence travel together. The file may be listed under /lib or /usr/lib, which are one folder.
    string(REGEX REPLACE "^/usr/lib/" "/lib/" short "${real}")
    foreach(path IN ITEMS "${real}" "${short}")
      execute_process(COMMAND "${dpkg_query}" --search "${path}" OUTPUT_VARIABLE owner ERROR_QUIET)
      if(owner MATCHES "^([^:, ]+)")
        set(package "${CMAKE_MATCH_1}")
        break()
      endif()
    endforeach()
  endif()
  if(package AND EXISTS "/usr/share/doc/${package}/copyright")
    file(REAL_PATH "/usr/share/doc/${package}/copyright" licence)
    file(COPY_FILE "${licence}" "${folder}/licenses/${package}" ONLY_IF_DIFFERENT)
    list(APPEND CMAKE_INSTALL_MANIFEST_FILES "${CMAKE_INSTALL_PREFIX}/lib/licenses/${package}")
  endif()
  message(STATUS "Bundled: lib/${name} (${real})")
endforeach()
