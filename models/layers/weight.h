// The weight of a linear layer or a convolution: a parameter of its own, or the product of weight norm.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/layer.h"
#include "models/namespaces.h"

namespace halfmark::models {

// With weight norm (Salimans and Kingma 2016, arXiv:1602.07868; torch.nn.utils.parametrizations.weight_norm with dim 0) the
// parameters are a direction v of the weight's shape and a length g of each output, and the weight is g v / |v| with the
// length of v over all axes but the first. It is computed in at least fp32 from v and g as stored and rounded once to their
// dtype. At the start v is the weight of the layer without weight norm, and g its lengths, so that both are equal.
class Weight {
 public:
  // Parameters NAME.weight, or NAME.weight_v and NAME.weight_g.
  Weight(const Init& init, const std::string& name, const Shape& shape, int64_t fan_in, int64_t fan_out,
         const Start& start, bool normalised);
  explicit Weight(Param& shared) : shared_(&shared) {}  // of another layer, which is not among params()

  const Shape& shape() const { return main().value.shape(); }
  std::vector<Param*> params();
  Param* plain() { return is_normalised() ? nullptr : &main(); }  // null with weight norm

  // In the dtype that the policy sets for `operation`. Keeps what gradient() takes.
  Tensor forward(Pass& pass, std::string_view operation, Saved* saved);
  // Takes what forward kept; `compute` writes the gradient of the weight into a plain tensor of dtype `computed`.
  void gradient(Pass& pass, DType computed, Saved& saved, const std::function<void(Tensor&)>& compute);

 private:
  bool is_normalised() const { return !length_.value.empty(); }
  Param& main() { return shared_ ? *shared_ : own_; }
  const Param& main() const { return shared_ ? *shared_ : own_; }
  int64_t width() const { return shape().elements() / shape()[0]; }

  Param own_;     // the weight, or its direction v
  Param length_;  // g [outputs]
  Param* shared_ = nullptr;
};

}  // namespace halfmark::models
