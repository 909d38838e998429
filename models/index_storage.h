// Labels and indices as a batch stores them: i32, or i64 that are converted to the i32 of the kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "models/namespaces.h"
#include "models/settings.h"
#include "models/subject.h"

namespace halfmark::models {

// A tensor of `shape`; of i64 with one more axis of 2, the halves of each index. Throws Error for a number that is no integer
// or beyond 2^53, which a double does not hold exactly.
Tensor stored_indices(Device& device, const Shape& shape, const std::vector<double>& values, IndexType type);

// What the kernels take: `stored` itself, or of i64 a temporary tensor, by one operation that the kernel log counts.
Tensor indices_for_kernels(const Tensor& stored, IndexType type);

// Whether a batch of the subject has indices: those of its input, or labels that its loss reads as indices.
bool has_indices_in_batch(const Subject& subject);
size_t bytes_of_index(IndexType type);

}  // namespace halfmark::models
