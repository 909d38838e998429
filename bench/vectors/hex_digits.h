// The width of codes in vectors.
#pragma once

#include "bench/namespaces.h"
#include "kernels/number/dtype.h"

namespace halfmark::bench {

// Number of hex digits of a code of this dtype.
inline int hex_digits(DType dtype) { return (bits_of(dtype) + 3) / 4; }

}  // namespace halfmark::bench
