# halfmark_cuda.so and its tests; included if the CUDA toolkit and cuDNN are found.

halfmark_sources(cuda_sources "${CMAKE_CURRENT_LIST_DIR}")
file(GLOB cuda_device_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.cu")
# The files of dot products need architecture-specific instructions (90a instead of 90). That code runs on no other GPU, so
# PTX stays generic.
set(cuda_dot_sources "${CMAKE_CURRENT_LIST_DIR}/dot.cu" "${CMAKE_CURRENT_LIST_DIR}/dot_tcgen05.cu")
list(REMOVE_ITEM cuda_device_sources ${cuda_dot_sources})
set(cuda_dot_architectures "")
foreach(architecture IN LISTS CMAKE_CUDA_ARCHITECTURES)
  if(architecture MATCHES "^(90|100|103|110|120|121)(-real)?$")
    list(APPEND cuda_dot_architectures "${CMAKE_MATCH_1}a-real")
    if(NOT CMAKE_MATCH_2 OR CMAKE_MATCH_1 EQUAL 100) # sm_103 runs code for 100, but not for 100a
      list(APPEND cuda_dot_architectures "${CMAKE_MATCH_1}-virtual")
    endif()
  else()
    list(APPEND cuda_dot_architectures "${architecture}")
  endif()
endforeach()
list(REMOVE_DUPLICATES cuda_dot_architectures)
list(TRANSFORM cuda_dot_architectures REPLACE "^([0-9]+[af]?)(-real)?$" "sm_\\1" OUTPUT_VARIABLE cuda_dot_names)
list(TRANSFORM cuda_dot_names REPLACE "^([0-9]+[af]?)-virtual$" "compute_\\1")
list(JOIN cuda_dot_names ", " cuda_dot_names)
set_source_files_properties("${CMAKE_CURRENT_LIST_DIR}/dot.cpp" PROPERTIES
  COMPILE_DEFINITIONS "HALFMARK_DOT_ARCHITECTURES=\"${cuda_dot_names}\"")

add_library(halfmark_cuda_dot OBJECT ${cuda_dot_sources})
set_target_properties(halfmark_cuda_dot PROPERTIES CUDA_ARCHITECTURES "${cuda_dot_architectures}")
# The host code is compiled once for this plugin and for the one that runs on the software GPU.
set(cuda_hardware_source "${CMAKE_CURRENT_LIST_DIR}/hardware.cpp")
list(REMOVE_ITEM cuda_sources "${cuda_hardware_source}")
add_library(halfmark_cuda_host OBJECT ${cuda_sources})
# A test looks up from which lines the runtime and the libraries are called. Nothing of that is in the plugin that ships.
target_compile_options(halfmark_cuda_host PRIVATE $<$<CONFIG:Release>:-g1>)
halfmark_in_groups(halfmark_cuda_host)
# Each has its own Plan, Plans and choice().
foreach(source IN ITEMS blaslt_fused cublas cudnn cudnn_attention cudnn_plan)
  set_property(SOURCE "${CMAKE_CURRENT_LIST_DIR}/${source}.cpp" PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
endforeach()
add_library(halfmark_cuda MODULE ${cuda_hardware_source} ${cuda_device_sources} $<TARGET_OBJECTS:halfmark_cuda_host> $<TARGET_OBJECTS:halfmark_cuda_dot>)
set_target_properties(halfmark_cuda PROPERTIES
  PREFIX "" LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}" INSTALL_RPATH "$ORIGIN;$ORIGIN/../lib;/usr/local/cuda/lib64")
# A toolkit in another folder works in the build folder, but an archive would then contain a path of this machine.
file(REAL_PATH /usr/local/cuda/lib64 cuda_usual)
file(REAL_PATH "${CUDAToolkit_LIBRARY_DIR}" cuda_used)
if(NOT cuda_usual STREQUAL cuda_used)
  set_property(TARGET halfmark_cuda APPEND PROPERTY INSTALL_RPATH "${CUDAToolkit_LIBRARY_DIR}")
  message(STATUS "  the plugin contains the path ${CUDAToolkit_LIBRARY_DIR}; for an archive, build where the toolkit is in /usr/local/cuda")
endif()
# How host and device code of the plugin is compiled, whatever runs it.
function(halfmark_cuda_settings target)
  set_target_properties(${target} PROPERTIES
    CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF CUDA_RUNTIME_LIBRARY Static)
  target_include_directories(${target} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} "${CUDNN_INCLUDE}")
  # No contraction, as on the host: fused multiply-adds are explicit calls of fma(). No --use_fast_math.
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:--fmad=false -Xcompiler=-ffp-contract=off,-Wall,-Wextra,-Wshadow>"
    "$<$<COMPILE_LANGUAGE:CXX>:-Wswitch-enum>")
  if(HALFMARK_WERROR)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror all-warnings -Wno-deprecated-gpu-targets>")
  endif()
  target_link_libraries(${target} PRIVATE halfmark_kernels)
endfunction()
foreach(target IN ITEMS halfmark_cuda halfmark_cuda_host halfmark_cuda_dot)
  halfmark_cuda_settings(${target})
endforeach()
set_property(SOURCE "${CMAKE_CURRENT_LIST_DIR}/plugin.cpp" "${CMAKE_CURRENT_LIST_DIR}/plugin_test.cpp"
  APPEND PROPERTY COMPILE_DEFINITIONS HALFMARK_STAMP="${HALFMARK_STAMP}")
target_link_libraries(halfmark_cuda PRIVATE CUDA::cudart_static CUDA::cublasLt "${CUDNN_LIBRARY}" ${CMAKE_DL_LIBS})
target_link_options(halfmark_cuda PRIVATE "LINKER:--exclude-libs,ALL" $<$<CONFIG:Release>:LINKER:--strip-debug>)

# Needs only gtest and what the plugin needs, so that it can be copied to a machine with a GPU and run there.
halfmark_tests(cuda_tests PACKED LINK halfmark_cases halfmark_devices ${CMAKE_DL_LIBS}
  DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}" "${CMAKE_CURRENT_LIST_DIR}/dot_tests" WITHOUT dot_code_test)
# Needs nvcc and the path of the sources: not packed.
halfmark_tests(cuda_code_tests FILES "${CMAKE_CURRENT_LIST_DIR}/dot_code_test.cpp")
if(TARGET cuda_code_tests)
  target_compile_definitions(cuda_code_tests PRIVATE HALFMARK_NVCC="${CMAKE_CUDA_COMPILER}")
endif()
# Asks NVIDIA's cuDNN about GPUs that are only described, with the plugin's own graphs.
halfmark_tests(cudnn_engine_tests LINK halfmark_devices CUDA::cudart_static CUDA::cublasLt "${CUDNN_LIBRARY}" ${CMAKE_DL_LIBS}
  DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}/described_gpus")
if(TARGET cudnn_engine_tests)
  foreach(source IN ITEMS cudnn_attention_graph cudnn_convolution_graph cudnn_engines cudnn_norm_graph cudnn_notes cudnn_pool_graph)
    target_sources(cudnn_engine_tests PRIVATE "${CMAKE_CURRENT_LIST_DIR}/${source}.cpp")
  endforeach()
  target_include_directories(cudnn_engine_tests SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} "${CUDNN_INCLUDE}")
  set(cuda_stub "")
  if(TARGET CUDA::cuda_driver)
    set(cuda_stub "$<TARGET_FILE:CUDA::cuda_driver>")
  endif()
  target_compile_definitions(cudnn_engine_tests PRIVATE HALFMARK_CUDA_STUB="${cuda_stub}")
  set_target_properties(cudnn_engine_tests PROPERTIES UNITY_BUILD OFF BUILD_RPATH "${CUDAToolkit_LIBRARY_DIR}")
endif()
if(TARGET cuda_tests)
  set_target_properties(cuda_tests PROPERTIES UNITY_BUILD OFF) # files of two folders with equal names
  add_dependencies(cuda_tests halfmark_cuda)
  target_include_directories(cuda_tests SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} "${CUDNN_INCLUDE}")
  # Host files of the plugin that call no library. The plugin exports none of its symbols, so the tests compile them again.
  target_sources(cuda_tests PRIVATE "${CMAKE_CURRENT_LIST_DIR}/dot_choice.cpp" "${CMAKE_CURRENT_LIST_DIR}/blaslt_arithmetic.cpp"
    "${CMAKE_CURRENT_LIST_DIR}/cudnn_notes.cpp" "${CMAKE_CURRENT_LIST_DIR}/nccl_library.cpp" "${CMAKE_CURRENT_LIST_DIR}/nvml.cpp"
    "${CMAKE_CURRENT_LIST_DIR}/random_bytes.cpp")
  # The rows of CUDA devices by the tests of every row; kernels_tests has those of the other devices.
  file(GLOB operation_tests CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/../ops/ops_test.cpp")
  target_sources(cuda_tests PRIVATE ${operation_tests})
  target_compile_definitions(cuda_tests PRIVATE HALFMARK_ROWS_OF="cuda")
endif()

include("${CMAKE_CURRENT_LIST_DIR}/software_gpu/software_gpu.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/software_gpu/libraries/libraries.cmake")
