# halfmark_revision(NAME): a library NAME with `const char* halfmark::bench::built_revision()`, the revision of the sources at the time of
# the build. It is determined at every build; nothing is compiled if it has not changed.
set(HALFMARK_REVISION_SCRIPT "${CMAKE_CURRENT_LIST_DIR}/write_revision.cmake")
set(HALFMARK_REVISION_ARCHIVED "${CMAKE_CURRENT_LIST_DIR}/archived_revision.txt")
function(halfmark_revision name)
  set(source "${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp")
  add_custom_target(${name}_asked BYPRODUCTS "${source}" VERBATIM COMMENT "Asking git for the revision"
    COMMAND "${CMAKE_COMMAND}" "-DSOURCE=${CMAKE_SOURCE_DIR}" "-DARCHIVED=${HALFMARK_REVISION_ARCHIVED}" "-DOUTPUT=${source}"
      -P "${HALFMARK_REVISION_SCRIPT}")
  add_library(${name} STATIC "${source}")
  add_dependencies(${name} ${name}_asked)
endfunction()
