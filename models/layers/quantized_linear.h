// The three products of a linear layer under a training recipe (models/quantized_products.h).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "models/layer.h"
#include "models/namespaces.h"
#include "models/quantized_products.h"

namespace halfmark::models {

// One for each layer: it holds the histories of delayed scaling.
class QuantizedLinear {
 public:
  // y = x w^T, in the dtype of x. x [rows, in] in the policy's low dtype, w [out, in] as the parameter is stored. Keeps codes of
  // both for backward, or nothing if `saved` is null.
  Tensor forward(Pass& pass, const std::string& layer, const Tensor& x, const Tensor& w, Saved* saved);
  // Takes what forward kept. `store` gets the function that computes dw into a plain tensor [out, in]. Returns dx [rows, in].
  Tensor backward(Pass& pass, const std::string& layer, const Tensor& dy, Saved& saved,
                  const std::function<void(const std::function<void(Tensor&)>&)>& store);

 private:
  struct Request {
    const QuantizedProducts& recipe;
    const std::string& layer;
    const char *operand, *product;
    std::shared_ptr<DelayedOperand>* delayed;
  };
  static Scaled quantize(Pass& pass, const Request& request, const QuantizedOperand& how, const Tensor& x,
                         bool transpose);

  std::shared_ptr<DelayedOperand> x_, w_, dy_;  // under delayed scaling, from the first cast on
};

}  // namespace halfmark::models
