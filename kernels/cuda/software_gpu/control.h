// Which instructions end a thread, and the handlers of the others that change the order of execution.
#pragma once

#include "kernels/cuda/software_gpu/warp.h"

namespace halfmark::kernels::software_gpu {

bool is_return(const Instruction& instruction);  // ret, exit
bool is_trap(const Instruction& instruction);
inline bool ends(const Instruction& instruction) { return is_return(instruction) || is_trap(instruction); }

// Takes the next lanes from the stack when those at hand have met the others or have ended.
void continue_with_next(Warp& warp);

}  // namespace halfmark::kernels::software_gpu
