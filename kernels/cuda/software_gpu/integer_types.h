// Integer types that handlers share.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/software_gpu/lanes.h"

namespace halfmark::kernels::software_gpu {

template <class T>
using Unsigned = std::make_unsigned_t<T>;
// Sums and products modulo 2^bits, in the unsigned type of at least 32 bits, where nothing overflows.
template <class T>
using Modular = std::conditional_t<sizeof(T) < 4, uint32_t, Unsigned<T>>;

template <class F, class T>
Handler two_operands() {
  return binary<F, T, T, T>;
}

}  // namespace halfmark::kernels::software_gpu
