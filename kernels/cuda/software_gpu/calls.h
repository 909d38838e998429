// Failures on request: the Nth call of a function returns an error without doing anything.
// In another process: HALFMARK_SOFTWARE_GPU_FAIL="cudaMalloc:3:2" lets the third cudaMalloc return 2; several such
// requests are separated by commas.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace halfmark::kernels::software_gpu {

void fail_call(const std::string& function, uint64_t nth, int status);  // counted from now on; nth = 1: the next call
void fail_no_call();                                                    // forgets all requests
std::vector<std::pair<std::string, uint64_t>> counted_calls();          // by name, since the start of the process

}  // namespace halfmark::kernels::software_gpu
