// A seeded permutation that is computed element by element and stored nowhere.
#pragma once

#include <cstdint>

#include "kernels/tensor/random.h"
#include "models/namespaces.h"

namespace halfmark::models {

// Where `index` goes in a permutation of 0 .. count - 1 that depends on the key: a Feistel network over the next even
// number of bits, walked until the result is below count (Black and Rogaway: "Ciphers with arbitrary finite domains",
// CT-RSA 2002). The round function is the generator of kernels/tensor/random.h.
int64_t permuted(int64_t index, int64_t count, RandomKey key);

}  // namespace halfmark::models
