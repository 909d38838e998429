// Opcodes that integers and floating types share: the integer forms.
#pragma once

#include "kernels/cuda/software_gpu/handlers.h"

namespace halfmark::kernels::software_gpu {

bool decode_integer_sum(Coder&, const Statement&, Modifiers&, Instruction&);  // add, sub
bool decode_integer_mul(Coder&, const Statement&, Modifiers&, Instruction&);
bool decode_integer_mad(Coder&, const Statement&, Modifiers&, Instruction&);
bool decode_integer_extreme(Coder&, const Statement&, Modifiers&, Instruction&);   // min, max
bool decode_integer_quotient(Coder&, const Statement&, Modifiers&, Instruction&);  // div, rem
bool decode_integer_sign(Coder&, const Statement&, Modifiers&, Instruction&);      // neg, abs

}  // namespace halfmark::kernels::software_gpu
