#include "kernels/cuda/random_bytes.h"

#include <algorithm>

#include "kernels/tensor/random.h"

namespace halfmark::kernels::cuda {

std::vector<unsigned char> random_bytes(DType dtype, size_t elements, uint64_t seed) {
  const RandomKey key(seed);
  const size_t count = std::min(elements, kMostRandom);
  std::vector<unsigned char> bytes(bytes_for(dtype, count));
  for (size_t i = 0; i < count; ++i) store(dtype, bytes.data(), i, key.normal(i));
  return bytes;
}

}  // namespace halfmark::kernels::cuda
