# Writes OUTPUT, a C++ source with the revision of the folder SOURCE, if its text has changed. The revision is that of git ("+":
# uncommitted changes), or the one that `git archive` wrote into ARCHIVED, or "unknown".
set(revision "unknown")
file(READ "${ARCHIVED}" archived)
if(archived MATCHES "^([0-9a-f]+)")
  string(SUBSTRING "${CMAKE_MATCH_1}" 0 12 revision)
endif()

# safe.directory: in a container the checkout often belongs to another user, and git would refuse to look.
set(git git -c "safe.directory=*" -C "${SOURCE}")
set(ENV{GIT_OPTIONAL_LOCKS} 0) # reading the revision must not write to the repository
execute_process(COMMAND ${git} rev-parse --show-toplevel OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET RESULT_VARIABLE no_repository)
if(no_repository EQUAL 0)
  # If the sources were unpacked inside another repository, its revision is not theirs.
  file(REAL_PATH "${SOURCE}" source)
  file(REAL_PATH "${top}" top)
  if(top STREQUAL source)
    execute_process(COMMAND ${git} describe --always "--exclude=*" --dirty=+ --abbrev=12 OUTPUT_VARIABLE described
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE no_revision)
    if(no_revision EQUAL 0)
      set(revision "${described}")
    endif()
  endif()
endif()

set(text "// Written at every build by write_revision.cmake.\nnamespace halfmark::bench {\nconst char* built_revision();\nconst char* built_revision() { return \"${revision}\"; }\n}  // namespace halfmark::bench\n")
set(before "")
if(EXISTS "${OUTPUT}")
  file(READ "${OUTPUT}" before)
endif()
if(NOT text STREQUAL before)
  file(WRITE "${OUTPUT}" "${text}")
endif()
