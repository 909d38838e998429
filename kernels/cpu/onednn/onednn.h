// What the other CPU code may know about oneDNN: its version,
// its threads, how often a layout was converted, which code ran.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/ops/ops.h"

namespace halfmark::kernels {

std::string onednn_version();       // "2.6.3"
std::string onednn_instructions();  // the instruction set of oneDNN's kernels: "avx512_core_bf16"

// Sets the threads of oneDNN's own runtime in the calling thread. Every row does this itself with host_threads().
void onednn_set_threads(int threads);

bool onednn_computes_in(DType dtype);  // on this CPU

// How often, in this process, an operand or a result was copied
// to another layout for a primitive (including packed weights).
uint64_t onednn_reorders();

namespace onednn {
std::string implementation_of(const Signature& signature, std::string_view operation);
}

// oneDNN's name for the code that the row "onednn" runs for this
// operation: "jit:avx512_core". Empty before the code is chosen.
template <Operation Op>
std::string onednn_implementation(const Op& op) {
  return onednn::implementation_of(signature_of(op), Op::name);
}

}  // namespace halfmark::kernels
