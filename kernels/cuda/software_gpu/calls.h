// Failures on request: the Nth call of a function returns an error without doing anything.
//
// In another process, HALFMARK_SOFTWARE_GPU_FAIL="cudaMalloc:3:2" lets the third cudaMalloc return 2;
// "cudaMalloc@d9c16:1:2" the first from that place in the file of the plugin. Several such requests are separated by
// commas. They apply to the first process that reads them and not to those that it starts, unless a request ends in
// ":always". `kernel` counts the kernels that run: the fault of one is seen by a later call.
// HALFMARK_SOFTWARE_GPU_CALLS=FILE: at the end of that process, the file gets its calls by name and place in the code.
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
