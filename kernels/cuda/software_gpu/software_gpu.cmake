# The software GPU: tests only, never installed. A static library in the place of the CUDA runtime, the plugin linked
# with it, and the tests of both. Included by plugin.cmake.

if(NOT HALFMARK_TESTS)
  return()
endif()
set(software_gpu "${CMAKE_CURRENT_LIST_DIR}")
set(software_gpu_folder "${CMAKE_BINARY_DIR}/software_gpu")

halfmark_sources(software_gpu_sources "${software_gpu}")
list(REMOVE_ITEM software_gpu_sources "${software_gpu}/software_hardware.cpp")
add_library(halfmark_software_gpu STATIC ${software_gpu_sources})
halfmark_cuda_settings(halfmark_software_gpu)
target_link_libraries(halfmark_software_gpu PUBLIC halfmark_devices)
# Interpreted code runs slowly enough: optimised whatever the build type.
target_compile_options(halfmark_software_gpu PRIVATE "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Release>>>:-O2>")

# The device code once more, as PTX: before sm_80 conversions to bf16 are many instructions, and before sm_89 those to FP8.
add_library(halfmark_cuda_software_ptx OBJECT ${cuda_device_sources})
add_library(halfmark_cuda_software_dot OBJECT ${cuda_dot_sources})
set_target_properties(halfmark_cuda_software_ptx PROPERTIES CUDA_ARCHITECTURES "75-virtual;89-virtual")
set_target_properties(halfmark_cuda_software_dot PROPERTIES
  CUDA_ARCHITECTURES "75-virtual;80-virtual;89-virtual;90a-virtual;100a-virtual;120a-virtual;121a-virtual")

# With stand-ins for the libraries (libraries/libraries.cmake).
add_library(halfmark_cuda_software MODULE "${software_gpu}/software_hardware.cpp" $<TARGET_OBJECTS:halfmark_software_libraries>
  $<TARGET_OBJECTS:halfmark_cuda_host> $<TARGET_OBJECTS:halfmark_cuda_software_ptx>
  $<TARGET_OBJECTS:halfmark_cuda_software_dot>)
foreach(target IN ITEMS halfmark_cuda_software_ptx halfmark_cuda_software_dot halfmark_cuda_software)
  halfmark_cuda_settings(${target})
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--compress-mode=none>)
endforeach()
target_link_libraries(halfmark_cuda_software PRIVATE halfmark_software_gpu ${CMAKE_DL_LIBS})
target_link_options(halfmark_cuda_software PRIVATE "LINKER:--exclude-libs,ALL")
# The program finds its plugin beside itself, so the one for tests has the same name in a folder of its own, with
# copies of the programs (a program behind a symbolic link looks for its libraries where the link leads).
set_target_properties(halfmark_cuda_software PROPERTIES PREFIX "" OUTPUT_NAME halfmark_cuda CUDA_RUNTIME_LIBRARY None
  LIBRARY_OUTPUT_DIRECTORY "${software_gpu_folder}" INSTALL_RPATH "$ORIGIN")
add_custom_command(TARGET halfmark_cuda_software POST_BUILD
  COMMAND "${CMAKE_COMMAND}" -E create_symlink "../$<TARGET_FILE_NAME:halfmark_kernels>" "${software_gpu_folder}/$<TARGET_FILE_NAME:halfmark_kernels>" VERBATIM)
# Also for bench/, whose program runs on it in tests.
function(halfmark_copy_for_software_gpu target)
  add_custom_command(TARGET ${target} POST_BUILD
    COMMAND "${CMAKE_COMMAND}" -E make_directory "${CMAKE_BINARY_DIR}/software_gpu"
    COMMAND "${CMAKE_COMMAND}" -E copy "$<TARGET_FILE:${target}>" "${CMAKE_BINARY_DIR}/software_gpu/$<TARGET_FILE_NAME:${target}>" VERBATIM)
endfunction()
halfmark_copy_for_software_gpu(cuda_tests)

# The tests of the plugin, with the variable that makes a device. All rows as sm_90; as the others those
# with device code of their own. Left out: measured times, and sums of library products bit for bit.
set(software_gpu_left_out "Gpu.OneBlock*:Gpu.TimeGrows*")
# EXCEPT: not of the filter. APPROXIMATE: what approximate instructions give (approximations.h). MEMORY: bytes of a device.
function(halfmark_software_gpu_test name architecture filter)  # [program]
  cmake_parse_arguments(PARSE_ARGV 3 test "" "EXCEPT;APPROXIMATE;MEMORY" "")
  set(program cuda_tests ${test_UNPARSED_ARGUMENTS})
  list(GET program -1 program)
  set(test software_gpu.${name}.${architecture})
  # All kernels of a module are read here, also those that no test launches.
  set(environment "OMP_WAIT_POLICY=PASSIVE;HALFMARK_DATA=${HALFMARK_DATA};HALFMARK_SOFTWARE_GPU=${architecture};HALFMARK_SOFTWARE_GPU_READS=all")
  if(test_APPROXIMATE)
    string(APPEND test ".${test_APPROXIMATE}")
    string(APPEND environment ";HALFMARK_SOFTWARE_GPU_APPROXIMATE=${test_APPROXIMATE}")
  endif()
  if(test_MEMORY)
    string(APPEND environment ";HALFMARK_SOFTWARE_GPU_MEMORY=${test_MEMORY}")
  endif()
  add_test(NAME ${test} WORKING_DIRECTORY "${CMAKE_BINARY_DIR}/software_gpu"
    COMMAND "${CMAKE_BINARY_DIR}/software_gpu/${program}" "--gtest_filter=${filter}:-${software_gpu_left_out}:${test_EXCEPT}")
  set_tests_properties(${test} PROPERTIES TIMEOUT 600 ENVIRONMENT "${environment}")
endfunction()
# Everything but what runs below; CudaPlugin is about the plugin that ships.
halfmark_software_gpu_test(rows sm_90 "*" EXCEPT "CudaPlugin.*:Row/Dots.*:PublishedDots.*:LibraryRows.*:GemmRows.*:*AttentionRows.*:ComparedRows.*:Ops/EveryRow.*/cuda_0_*norm*_cudnn:Ops/EveryRow.*/cuda_0_*pool*_cudnn:Ops/EveryRow.*/cuda_0_fused_conv2d_cudnn")
# The code for GPUs before sm_89.
halfmark_software_gpu_test(rows sm_75 "Ops/EveryRow.*/cuda_0_*_cuda:Ops/EveryRow.*/cuda_0_attention*_direct:Ops/EveryRow.*/cuda_0_packed_attention*:GpuRowPacks.*:GpuRows.*:ChannelRows.*:SequenceRows.*")
# Rows with approximate instructions keep their bounds if the instructions err by as much as the PTX ISA allows.
foreach(choice IN ITEMS above below scattered)
  halfmark_software_gpu_test(approximate sm_90 "GpuRowPacks.*:SequenceRows.AnLstm*:Ops/EveryRow.*/cuda_0_*_cuda:Ops/EveryRow.*/cuda_0_attention*_direct:Ops/EveryRow.*/cuda_0_packed_attention*"
    EXCEPT "GpuRowPacks.*Norm*:Ops/EveryRow.*/cuda_0_*normalize*:Ops/EveryRow.*/cuda_0_*pool*:Ops/EveryRow.*/cuda_0_*resample*" APPROXIMATE ${choice})
endforeach()
foreach(architecture IN ITEMS sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120 sm_121)
  halfmark_software_gpu_test(dot ${architecture} "Ops/EveryRow.*/cuda_0_dot*:GpuCast.*:GpuQuantize.*:Row/Dots.*:PublishedDots.*")
  # What a library can do depends on the architecture too.
  halfmark_software_gpu_test(libraries ${architecture} "Ops/EveryRow.*/cuda_0_*cublas*:Ops/EveryRow.*/cuda_0_*attention*_cudnn:Ops/EveryRow.*/cuda_0_*norm*_cudnn:Ops/EveryRow.*/cuda_0_*pool*_cudnn:Ops/EveryRow.*/cuda_0_fused_conv2d_cudnn:LibraryRows.Scaled*:*AttentionRows.*:ComparedRows.*")
endforeach()
# A device that a test loses, or on which a library cannot be opened, is not used by another test.
halfmark_software_gpu_test(libraries sm_90,sm_90,sm_90,sm_90 "LibraryRows.*:GemmRows.*")
halfmark_software_gpu_test(all_reduce sm_90,sm_90,sm_90,sm_90 "AllReduce.*")
halfmark_software_gpu_test(shortage sm_90 "Shortage.*" MEMORY 134217728)
halfmark_software_gpu_test(all_reduce_rank_fails sm_90,sm_90 "AllReduceRankFails.*")
halfmark_software_gpu_test(all_reduce_never_ends sm_90,sm_90 "AllReduceNeverEnds.*")

halfmark_tests(software_gpu_tests LINK halfmark_software_gpu ${CMAKE_DL_LIBS} DIRECTORIES "${software_gpu}" "${software_gpu}/planted")
if(TARGET software_gpu_tests)
  # Names that tests, the interpreter and kernels/sim each have.
  set_target_properties(software_gpu_tests PROPERTIES UNITY_BUILD OFF)
  target_include_directories(software_gpu_tests SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  # The plugin's device code with its launchers, in which mistakes are planted.
  target_sources(software_gpu_tests PRIVATE $<TARGET_OBJECTS:halfmark_cuda_software_ptx>
    $<TARGET_OBJECTS:halfmark_cuda_software_dot>)
  set_target_properties(software_gpu_tests PROPERTIES CUDA_RUNTIME_LIBRARY None)
  add_dependencies(software_gpu_tests halfmark_cuda halfmark_cuda_software)
endif()
