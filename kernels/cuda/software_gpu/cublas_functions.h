// The functions of the stand-in of cuBLAS, by name as in a library that is loaded at run time (libraries/cublas.cpp).
#pragma once

#include <string_view>
#include <vector>

namespace halfmark::kernels::software_gpu {

void* cublas_function(std::string_view name);  // null: it is not there
std::vector<std::string_view> cublas_function_names();

}  // namespace halfmark::kernels::software_gpu
