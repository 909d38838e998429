// Counts what the casts of a pass change, by the kind of the tensor and its dtypes (CountedCast of kernels/ops).
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

#include "kernels/ops/ops.h"
#include "models/namespaces.h"

namespace halfmark::models {

enum class CastOf : uint8_t { weight, activation, gradient, weight_gradient };
std::string_view name_of(CastOf kind);  // "weights", "activations", "gradients", "weight_gradients"

class CastCounts {
 public:
  struct Row {
    CastOf kind;
    DType from, to;
    double values = 0;                                               // that were cast
    double inexact = 0, overflow = 0, underflow = 0, subnormal = 0;  // of them, as RoundEvents of number/format.h
  };

  // out = x in the dtype of out, with the bits of Cast, and counts it.
  void cast(CastOf kind, const Tensor& x, Tensor& out);
  std::vector<Row> rows() const;  // by kind and dtypes; copies from the device

 private:
  struct Counted {
    double values = 0;
    Tensor events;
  };
  std::map<std::tuple<CastOf, DType, DType>, Counted> counted_;
};

}  // namespace halfmark::models
