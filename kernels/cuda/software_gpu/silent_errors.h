// Silent errors on request: of so many bits of results one is inverted, at a place drawn from a fixed seed. For results of
// matrix instructions and of the library stand-ins' products.
// In another process: HALFMARK_SOFTWARE_GPU_FLIP=1000000000, one bit in 10^9.
#pragma once

#include <cstdint>

namespace halfmark::kernels::software_gpu {

void invert_one_bit_in(uint64_t bits);                 // from now on; 0: none
bool inverts_bits();                                   // whether any may be inverted
uint64_t with_silent_errors(uint64_t code, int bits);  // the result to store; not for several threads at once
uint64_t inverted_bits();                              // how many, since the last request

}  // namespace halfmark::kernels::software_gpu
