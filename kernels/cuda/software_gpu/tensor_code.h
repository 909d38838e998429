// What the instructions on tensor memory and mbarriers share.
#pragma once

#include <cstdint>

#include "kernels/cuda/software_gpu/block.h"
#include "kernels/cuda/software_gpu/handlers.h"
#include "kernels/cuda/software_gpu/warp.h"

namespace halfmark::kernels::software_gpu {

// Faults if no mbarrier has been initialised at this place in shared memory, or in a race with its init.
Mbarrier& mbarrier_at(Warp& warp, const Instruction& instruction, int lane, uint64_t address);

bool decode_tensor_product(Coder&, const Statement&, Modifiers&, Instruction&);  // the rest of tcgen05.mma

// The operand "[register]" of an address in tensor memory.
inline uint32_t tensor_address(Coder& coder, const Operand& operand) {
  if (operand.kind != Operand::Kind::address || operand.addend != 0 || operand.parts.size() != 1)
    coder.fail("an address in tensor memory is a register in brackets");
  return coder.source(operand.parts[0], 32);
}

}  // namespace halfmark::kernels::software_gpu
