# The stand-ins of cublasLt and cuDNN, and their tests. They are linked into test programs instead of NVIDIA's libraries
# and define functions of the same names: nothing that is installed may contain them.
halfmark_sources(software_library_sources "${CMAKE_CURRENT_LIST_DIR}")
if(HALFMARK_TESTS)
  add_library(halfmark_software_libraries OBJECT EXCLUDE_FROM_ALL ${software_library_sources})
  target_link_libraries(halfmark_software_libraries PUBLIC halfmark_devices)
  target_include_directories(halfmark_software_libraries SYSTEM PUBLIC ${CUDAToolkit_INCLUDE_DIRS} "${CUDNN_INCLUDE}")
  halfmark_quick_build(halfmark_software_libraries -O1)
endif()
halfmark_tests(software_library_tests LINK halfmark_software_libraries halfmark_devices ${CMAKE_DL_LIBS}
  DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}")
if(TARGET software_library_tests)
  target_compile_definitions(software_library_tests PRIVATE
    HALFMARK_CUBLASLT="$<TARGET_FILE:CUDA::cublasLt>" HALFMARK_CUDNN="${CUDNN_LIBRARY}")
  set_target_properties(software_library_tests PROPERTIES UNITY_BUILD OFF)  # helpers of several files have equal names
endif()
