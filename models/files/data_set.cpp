// Batches of a data set: which samples, in which order.
#include "models/files/data_set.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/number/error.h"
#include "models/files/permutation.h"

namespace halfmark::models {
namespace {

// The samples at `places`, in this order.
Batch samples_at(const DataSet& data, DataKind kind, Split split, const Shape& input,
                 const std::vector<int64_t>& places, bool own_thread) {
  const Shape labels = target_shape(kind, input);
  const int64_t width = input.elements() / input[0], targets = labels.elements() / input[0];
  Batch batch;
  batch.x.resize(static_cast<size_t>(input.elements()));
  batch.labels.resize(static_cast<size_t>(labels.elements()));
  const auto read = [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) try {
        data.sample(split, places[static_cast<size_t>(n)], input, batch.x.data() + n * width,
                    batch.labels.data() + n * targets);
      } catch (const Error& error) {
        throw DataError(error.what());
      }
  };
  if (own_thread)
    read(0, input[0]);
  else
    parallel_for(input[0], 1, read);
  return batch;
}

}  // namespace

Batch training_batch(const DataSet& data, DataKind kind, const Shape& input, RandomKey key, int64_t step,
                     bool own_thread) {
  const int64_t count = data.samples(Split::training, input), batch = input[0];
  HM_CHECK(count > 0 && step >= 0, "a training batch needs samples and a step");
  std::vector<int64_t> places;
  for (int64_t at = step * batch; at < (step + 1) * batch; ++at)
    places.push_back(permuted(at % count, count, key.child(static_cast<uint64_t>(at / count))));
  return samples_at(data, kind, Split::training, input, places, own_thread);
}

Batch held_out_batch(const DataSet& data, DataKind kind, const Shape& input, RandomKey key, int64_t first) {
  const int64_t count = data.samples(Split::held_out, input);
  HM_CHECK(first >= 0 && first + input[0] <= count, "held-out samples beyond the last");
  std::vector<int64_t> places;
  for (int64_t at = first; at < first + input[0]; ++at) places.push_back(permuted(at, count, key));
  return samples_at(data, kind, Split::held_out, input, places, false);
}

}  // namespace halfmark::models
