#include "models/index_storage.h"

#include <cmath>
#include <string>

#include "kernels/number/error.h"
#include "models/data_kinds.h"
#include "models/layers/loss.h"

namespace halfmark::models {
namespace {

Shape of_halves(const Shape& shape) {
  std::vector<int64_t> extents(shape.extents().begin(), shape.extents().end());
  extents.push_back(2);
  return Shape(extents);
}

}  // namespace

Tensor stored_indices(Device& device, const Shape& shape, const std::vector<double>& values, IndexType type) {
  if (type == IndexType::i32) return Tensor::from(device, shape, DType::i32, values);
  std::vector<double> halves;
  halves.reserve(2 * values.size());
  for (const double value : values) {
    HM_CHECK(value == std::floor(value) && std::fabs(value) <= 0x1p53,
             "an index is " + std::to_string(value) + ", no integer up to 2^53");
    const auto bits = static_cast<uint64_t>(static_cast<int64_t>(value));
    halves.push_back(static_cast<int32_t>(static_cast<uint32_t>(bits)));
    halves.push_back(static_cast<int32_t>(static_cast<uint32_t>(bits >> 32)));
  }
  return Tensor::from(device, of_halves(shape), DType::i32, halves);
}

Tensor indices_for_kernels(const Tensor& stored, IndexType type) {
  if (type == IndexType::i32 || stored.empty()) return stored;
  const auto extents = stored.shape().extents();
  PurposeScope purpose(Purpose::temporary);
  Tensor narrow(stored.device(), Shape(std::vector<int64_t>(extents.begin(), extents.end() - 1)), DType::i32);
  run(NarrowIndices{.wide = stored, .narrow = narrow});
  return narrow;
}

bool has_indices_in_batch(const Subject& subject) {
  if (row_of(subject.data).has_indices) return true;
  const TargetKind targets = row_of(subject.loss.kind).targets;
  return subject.has_labels() && (targets == TargetKind::labels || targets == TargetKind::sequences);
}

size_t bytes_of_index(IndexType type) { return type == IndexType::i64 ? sizeof(int64_t) : sizeof(int32_t); }

}  // namespace halfmark::models
