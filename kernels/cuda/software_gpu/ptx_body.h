// The parts of the reader of PTX that module level and bodies of kernels share.
#pragma once

#include <vector>

#include "kernels/cuda/software_gpu/program.h"
#include "kernels/cuda/software_gpu/ptx_text.h"

namespace halfmark::kernels::software_gpu {

// The variables of one statement, whose state space has been read.
std::vector<Variable> read_variables(PtxText& text, Space space, bool is_extern);

// From "{" to "}": declarations, labels and instructions.
void read_body(PtxText& text, Module& module, Kernel& kernel);

}  // namespace halfmark::kernels::software_gpu
