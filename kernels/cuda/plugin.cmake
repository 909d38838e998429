# halfmark_cuda.so and its tests; included when toolkit and cuDNN are there.

halfmark_sources(cuda_sources "${CMAKE_CURRENT_LIST_DIR}")
file(GLOB cuda_device_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.cu")
set(cuda_rpath "$ORIGIN" "${CUDAToolkit_LIBRARY_DIR}" /usr/local/cuda/lib64)
list(REMOVE_DUPLICATES cuda_rpath)
add_library(halfmark_cuda MODULE ${cuda_sources} ${cuda_device_sources})
set_target_properties(halfmark_cuda PROPERTIES
  PREFIX "" LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}"
  CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
  CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF CUDA_RUNTIME_LIBRARY Static
  BUILD_RPATH "${cuda_rpath}" INSTALL_RPATH "${cuda_rpath}")
target_compile_definitions(halfmark_cuda PRIVATE HALFMARK_STAMP="${HALFMARK_STAMP}")
target_include_directories(halfmark_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} "${CUDNN_INCLUDE}")
target_link_libraries(halfmark_cuda PRIVATE halfmark_kernels CUDA::cudart_static CUDA::cublasLt "${CUDNN_LIBRARY}" ${CMAKE_DL_LIBS})
target_link_options(halfmark_cuda PRIVATE "LINKER:--exclude-libs,ALL")
# No contraction, as on the host: where a fused multiply-add is meant, fma() says so. No --use_fast_math.
target_compile_options(halfmark_cuda PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:--fmad=false -Xcompiler=-ffp-contract=off,-Wall,-Wextra,-Wshadow>")

# Needs gtest alone beside what the plugin needs, so that it can be packed and run where the GPU is.
halfmark_tests(cuda_tests LINK halfmark_devices ${CMAKE_DL_LIBS} DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}")
if(TARGET cuda_tests)
  add_dependencies(cuda_tests halfmark_cuda)
  target_include_directories(cuda_tests SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} "${CUDNN_INCLUDE}")
  target_compile_definitions(cuda_tests PRIVATE HALFMARK_STAMP="${HALFMARK_STAMP}")
  file(GLOB operation_tests CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/../ops/ops_test.cpp")
  target_sources(cuda_tests PRIVATE ${operation_tests})
endif()
