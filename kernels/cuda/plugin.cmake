# halfmark_cuda.so and its tests; included if the CUDA toolkit and cuDNN are found.

halfmark_sources(cuda_sources "${CMAKE_CURRENT_LIST_DIR}")
file(GLOB cuda_device_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.cu")
set(cuda_rpath "$ORIGIN" "${CUDAToolkit_LIBRARY_DIR}" /usr/local/cuda/lib64)
list(REMOVE_DUPLICATES cuda_rpath)
# dot.cu needs architecture-specific instructions (90a instead of 90). Their code runs on no other GPU; PTX stays generic.
set(cuda_dot_source "${CMAKE_CURRENT_LIST_DIR}/dot.cu")
list(REMOVE_ITEM cuda_device_sources "${cuda_dot_source}")
set(cuda_dot_architectures "")
foreach(architecture IN LISTS CMAKE_CUDA_ARCHITECTURES)
  if(architecture MATCHES "^(90|120|121)(-real)?$")
    list(APPEND cuda_dot_architectures "${CMAKE_MATCH_1}a-real")
    if(NOT CMAKE_MATCH_2)
      list(APPEND cuda_dot_architectures "${CMAKE_MATCH_1}-virtual")
    endif()
  else()
    list(APPEND cuda_dot_architectures "${architecture}")
  endif()
endforeach()
list(TRANSFORM cuda_dot_architectures REPLACE "^([0-9]+[af]?)(-real)?$" "sm_\\1" OUTPUT_VARIABLE cuda_dot_names)
list(TRANSFORM cuda_dot_names REPLACE "^([0-9]+[af]?)-virtual$" "compute_\\1")
list(JOIN cuda_dot_names ", " cuda_dot_names)
set_source_files_properties("${CMAKE_CURRENT_LIST_DIR}/dot.cpp" PROPERTIES
  COMPILE_DEFINITIONS "HALFMARK_DOT_ARCHITECTURES=\"${cuda_dot_names}\"")

add_library(halfmark_cuda_dot OBJECT "${cuda_dot_source}")
set_target_properties(halfmark_cuda_dot PROPERTIES CUDA_ARCHITECTURES "${cuda_dot_architectures}")
add_library(halfmark_cuda MODULE ${cuda_sources} ${cuda_device_sources} $<TARGET_OBJECTS:halfmark_cuda_dot>)
set_target_properties(halfmark_cuda PROPERTIES
  PREFIX "" LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}" BUILD_RPATH "${cuda_rpath}" INSTALL_RPATH "${cuda_rpath}")
foreach(target IN ITEMS halfmark_cuda halfmark_cuda_dot)
  set_target_properties(${target} PROPERTIES
    CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF CUDA_RUNTIME_LIBRARY Static)
  target_include_directories(${target} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} "${CUDNN_INCLUDE}")
  # No contraction, as on the host: fused multiply-adds are explicit calls of fma(). No --use_fast_math.
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:--fmad=false -Xcompiler=-ffp-contract=off,-Wall,-Wextra,-Wshadow>"
    "$<$<COMPILE_LANGUAGE:CXX>:-Wswitch-enum>")
  target_link_libraries(${target} PRIVATE halfmark_kernels)
endforeach()
target_compile_definitions(halfmark_cuda PRIVATE HALFMARK_STAMP="${HALFMARK_STAMP}")
target_link_libraries(halfmark_cuda PRIVATE CUDA::cudart_static CUDA::cublasLt "${CUDNN_LIBRARY}" ${CMAKE_DL_LIBS})
target_link_options(halfmark_cuda PRIVATE "LINKER:--exclude-libs,ALL")

# Needs only gtest and what the plugin needs, so that it can be copied to a machine with a GPU and run there.
halfmark_tests(cuda_tests LINK halfmark_devices ${CMAKE_DL_LIBS} DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}")
if(TARGET cuda_tests)
  set_target_properties(cuda_tests PROPERTIES UNITY_BUILD OFF) # files of two folders with equal names
  add_dependencies(cuda_tests halfmark_cuda)
  target_include_directories(cuda_tests SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} "${CUDNN_INCLUDE}")
  target_compile_definitions(cuda_tests PRIVATE HALFMARK_STAMP="${HALFMARK_STAMP}" HALFMARK_NVCC="${CMAKE_CUDA_COMPILER}")
  # The only host file without CUDA. The plugin exports none of its symbols, so the tests compile it again.
  target_sources(cuda_tests PRIVATE "${CMAKE_CURRENT_LIST_DIR}/dot_choice.cpp")
  file(GLOB operation_tests CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/../ops/ops_test.cpp")
  target_sources(cuda_tests PRIVATE ${operation_tests})
endif()
