// What executes the device code of this plugin. hardware.cpp is for GPUs. The tests also build the plugin on a software
// GPU (software_gpu/), which has a file of its own in its place.
#pragma once

#include <string>

namespace halfmark::kernels::cuda {

// Device::numerics(): empty for a GPU. Otherwise times are not valid, and reports say what the device is.
std::string hardware_numerics();
std::string hardware_described();  // what the report says of it: as numerics(), also where a test has times measured

// Whether algorithms of libraries are compared by their times, which are valid on a GPU only.
bool hardware_compares_times();

// A function of cuBLAS, which is loaded at run time: the plugin also works where only cublasLt is installed. Null, and the
// reason, if there is none.
void* cublas_function(const char* name, std::string& reason);
void* nccl_function(const char* name, std::string& reason);  // of NCCL, likewise
double nccl_limit();  // seconds after which sums that have not ended are given up

}  // namespace halfmark::kernels::cuda
