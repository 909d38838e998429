# The GPU architectures that the plugin is built for where nobody says which: those of this machine's GPUs ("8.9" is
# 89-real), as CMake's `native`, which fails where there is none; without a GPU 90-real.
function(halfmark_gpu_architectures result)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE capabilities RESULT_VARIABLE failure ERROR_QUIET)
  set(architectures "")
  if("${failure}" STREQUAL "0")
    string(REGEX MATCHALL "[0-9]+[.][0-9]" architectures "${capabilities}")
    list(TRANSFORM architectures REPLACE "([0-9]+)[.]([0-9])" "\\1\\2-real")
    list(REMOVE_DUPLICATES architectures)
  endif()
  if(NOT architectures)
    set(architectures "90-real")
  endif()
  set(${result} "${architectures}" PARENT_SCOPE)
endfunction()
