# The tests of the stand-ins of cublasLt and cuDNN, which software_gpu.cmake links into the plugin for tests instead of
# NVIDIA's libraries. They define functions of the same names: nothing that is installed may contain them.
if(NOT HALFMARK_TESTS)
  return()
endif()
halfmark_sources(software_library_sources "${CMAKE_CURRENT_LIST_DIR}")
add_library(halfmark_software_libraries OBJECT ${software_library_sources})
halfmark_cuda_settings(halfmark_software_libraries)
target_link_libraries(halfmark_software_libraries PUBLIC halfmark_software_gpu)
halfmark_tests(software_library_tests LINK halfmark_software_libraries halfmark_software_gpu ${CMAKE_DL_LIBS}
  DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}")
if(TARGET software_library_tests)
  target_include_directories(software_library_tests SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} "${CUDNN_INCLUDE}")
  target_compile_definitions(software_library_tests PRIVATE
    HALFMARK_NCCL="${CUDAToolkit_LIBRARY_DIR}/libnccl.so.2"
    HALFMARK_CUBLASLT="$<TARGET_FILE:CUDA::cublasLt>" HALFMARK_CUBLAS="$<TARGET_FILE:CUDA::cublas>" HALFMARK_CUDNN="${CUDNN_LIBRARY}")
  set_target_properties(software_library_tests PROPERTIES UNITY_BUILD OFF)  # helpers of several files have equal names
endif()

# Programs load NVML at run time, so it is a file, beside the plugin for tests, which looks there first.
add_library(halfmark_software_nvml SHARED "${CMAKE_CURRENT_LIST_DIR}/nvml/nvml.cpp" "${CMAKE_CURRENT_LIST_DIR}/../calls.cpp")
target_link_libraries(halfmark_software_nvml PRIVATE halfmark_settings)
target_include_directories(halfmark_software_nvml SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
set_target_properties(halfmark_software_nvml PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${software_gpu_folder}"
  PREFIX "" OUTPUT_NAME libnvidia-ml SUFFIX ".so.1")
if(TARGET software_library_tests)
  add_dependencies(software_library_tests halfmark_software_nvml)
  target_compile_definitions(software_library_tests PRIVATE HALFMARK_SOFTWARE_NVML_FILE="$<TARGET_FILE:halfmark_software_nvml>")
endif()
if(TARGET cuda_tests)
  add_dependencies(cuda_tests halfmark_software_nvml)
endif()
