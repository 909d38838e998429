// The bias of a linear layer or a convolution, or none.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "models/layer.h"
#include "models/namespaces.h"

namespace halfmark::models {

class Bias {
 public:
  Bias() = default;  // none
  // Parameter NAME.bias of `outputs` entries.
  Bias(const Init& init, const std::string& name, int64_t outputs, int64_t fan_in, const Start& start)
      : param_(bias_of(init, name + ".bias", outputs, fan_in, start)) {}

  void append_to(std::vector<Param*>& params) {
    if (!is_none()) params.push_back(&param_);
  }
  // Adds it to y, the result of `operation`.
  void add(Pass& pass, std::string_view operation, Tensor& y) {
    if (!is_none()) run(AddBias{.x = y, .bias = pass.weight(operation, param_), .out = y});
  }
  bool is_none() const { return param_.value.empty(); }
  // In the dtype of `operation`; there must be one.
  Tensor value(Pass& pass, std::string_view operation) { return pass.weight(operation, param_); }
  // The gradient as `compute` writes it; there must be a bias.
  void gradient_by(Pass& pass, DType computed, const std::function<void(Tensor&)>& compute) {
    pass.gradient(param_, computed, compute);
  }
  // The sum of dy over all positions, first in the dtype `computed`.
  void gradient(Pass& pass, DType computed, const Tensor& dy) {
    if (!is_none()) pass.gradient(param_, computed, [&](Tensor& db) { run(BiasGradient{.dy = dy, .dbias = db}); });
  }

 private:
  Param param_;  // [outputs]
};

}  // namespace halfmark::models
