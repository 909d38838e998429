// Random numbers as bytes of a dtype, on which libraries are timed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/number/dtype.h"

namespace halfmark::kernels::cuda {

// Of so many numbers with mean 0 and variance 1, the same for the same seed; 65542 at most. Twice a prime: behind each other, they
// differ in rows of usual lengths, and a dtype of half a byte fills whole bytes.
inline constexpr size_t kMostRandom = 2 * 32771;
std::vector<unsigned char> random_bytes(DType dtype, size_t elements, uint64_t seed);

}  // namespace halfmark::kernels::cuda
