// Comparisons of the harness `batch_invariance`.
#pragma once

#include <cstddef>
#include <vector>

#include "accuracy/namespaces.h"

namespace halfmark::accuracy {

// The answer of a batch to the sample at `place`, beside the answer to that sample alone.
struct SampleInBatch {
  double outputs = 0, equal = 0;  // equal: in all bits
  double difference = 0;          // the largest, over the rms of the answer alone; NaN if a number of one of them is
};
SampleInBatch sample_in_batch(const std::vector<double>& together, size_t batch, size_t place,
                              const std::vector<double>& alone);

// The Kullback-Leibler divergence, in nats, between the softmax of two rows of logits: sum p log(p / q), in fp64. NaN if a
// logit is not finite.
double softmax_divergence(const double* a, const double* b, size_t width);

}  // namespace halfmark::accuracy
