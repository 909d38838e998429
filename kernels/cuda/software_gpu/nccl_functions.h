// The functions of the stand-in of NCCL, by name as in a library that is loaded at run time (libraries/nccl_calls.cpp).
#pragma once

#include <string_view>
#include <vector>

namespace halfmark::kernels::software_gpu {

void* nccl_function(std::string_view name);  // null: it is not there
std::vector<std::string_view> nccl_function_names();
bool nccl_never_ends();  // a test asks for sums that do not end

}  // namespace halfmark::kernels::software_gpu
