#include "models/files/permutation.h"

#include "kernels/number/error.h"

namespace halfmark::models {

int64_t permuted(int64_t index, int64_t count, RandomKey key) {
  HM_CHECK(index >= 0 && index < count, "an index outside its permutation");
  constexpr int kRounds = 8;  // small domains have small halves, which few rounds mix badly
  int half = 1;               // bits of each half
  while ((uint64_t{1} << (2 * half)) < static_cast<uint64_t>(count)) ++half;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  auto walked = static_cast<uint64_t>(index);
  do {
    uint64_t left = walked >> half, right = walked & mask;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (key.bits(static_cast<uint64_t>(round) << half | right) & mask);
      left = right, right = mixed;
    }
    walked = left << half | right;
  } while (walked >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(walked);
}

}  // namespace halfmark::models
