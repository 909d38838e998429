# Installs a build into a folder of its own, builds package_example against it, elsewhere and without the sources, and runs it.
# The folders have blanks in their names, as people's have.
cmake_minimum_required(VERSION 3.25)

set(folder "${BUILD}/package test")
file(REMOVE_RECURSE "${folder}")
file(MAKE_DIRECTORY "${folder}")

# run(WHAT COMMAND...): the command must succeed; its output in `output`.
function(run what)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY "${folder}" RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${what} ended with ${code}:\n${text}")
  endif()
  set(output "${text}" PARENT_SCOPE)
endfunction()

function(expect what text)
  string(FIND "${output}" "${text}" place)
  if(place EQUAL -1)
    message(FATAL_ERROR "${what}: '${text}' is missing in\n${output}")
  endif()
endfunction()

run("installing" "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${folder}/installed")
file(GLOB_RECURSE headers "${folder}/installed/include/*.h")
foreach(header IN LISTS headers)
  file(STRINGS "${header}" includes REGEX "#include \"")
  foreach(line IN LISTS includes)
    if(NOT line MATCHES "#include \"halfmark/")
      message(FATAL_ERROR "${header} looks for a header outside its folder: ${line}")
    endif()
  endforeach()
endforeach()

# Folders of a user's project that have names of ours must not be mistaken for them.
file(COPY "${EXAMPLE}/CMakeLists.txt" "${EXAMPLE}/main.cpp" DESTINATION "${folder}/my suite")
file(WRITE "${folder}/my suite/models/layer.h" "#error a header of the user's project was included instead of ours\n")
run("configuring the example" "${CMAKE_COMMAND}" -S "my suite" -B "my build" "-DCMAKE_PREFIX_PATH=${folder}/installed"
  "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Werror -I.")
run("building the example" "${CMAKE_COMMAND}" --build "my build")

set(program "${folder}/my build/mysuite")
run("--version" "${program}" --version)
expect("--version" "mysuite 1.0, halfmark ")
run("list subjects" "${program}" list subjects)
expect("list subjects" "residual_mlp/b32_i64_o10")
run("list harnesses" "${program}" list harnesses)
expect("list harnesses" "update_size.ratio")

# In a process of its own each, so that the program is also found again and started by itself.
run("run residual_mlp" "${program}" run residual_mlp error update_size --policy fp32,amp-bf16 --isolate -o report.json)
file(READ "${folder}/report.json" report)
string(JSON extension GET "${report}" environment extension name)
string(JSON count LENGTH "${report}" records)
if(NOT extension STREQUAL "mysuite" OR NOT count EQUAL 4)
  message(FATAL_ERROR "report.json: extension '${extension}', ${count} records instead of 4")
endif()
math(EXPR last "${count} - 1")
set(harnesses "")
foreach(i RANGE ${last})
  string(JSON status GET "${report}" records ${i} status)
  string(JSON repro GET "${report}" records ${i} repro)
  string(JSON harness GET "${report}" records ${i} harness)
  list(APPEND harnesses "${harness}")
  if(NOT status STREQUAL "ok")
    message(FATAL_ERROR "record ${i} is ${status}:\n${report}")
  endif()
  if(NOT repro MATCHES "^mysuite run --case ")
    message(FATAL_ERROR "record ${i}: the command to repeat it is '${repro}'")
  endif()
endforeach()
list(SORT harnesses)
if(NOT harnesses STREQUAL "error;error;update_size;update_size")
  message(FATAL_ERROR "harnesses of the records: ${harnesses}")
endif()

# The numbers of the new harness are seen where people look.
run("show" "${program}" show report.json --all)
expect("show --all" "update_size.ratio")

# The suite's own rows are still there, and the new harness measures them.
run("run mlp update_size" "${program}" run mlp update_size --policy fp32 -o mlp.json)
file(READ "${folder}/mlp.json" report)
string(JSON subject GET "${report}" records 0 subject)
if(NOT subject MATCHES "^mlp/")
  message(FATAL_ERROR "mlp.json: the subject is ${subject}")
endif()
file(REMOVE_RECURSE "${folder}")
