// What a container needs to know of a layer to fuse it with what follows: an activation, an addition and ReLU, or a cast.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "kernels/ops/ops.h"
#include "models/layer.h"
#include "models/namespaces.h"

namespace halfmark::models {

// A linear layer with a bias. A container runs two layers, or three, in one of these ways instead of one after the other:
//   forward            y = f(x w^T + b), with what the backward of f needs
//   backward           of a pair at the end: through f, then the layer's own gradients
//   backward through   of a linear layer after a pair: its own gradients, and in one operation the gradient through the f
//                      before it and that of the bias before f
// Taps see neither the argument of f nor the gradient of f's result then.
class FusibleLinear {
 public:
  virtual ~FusibleLinear() = default;
  virtual bool can_fuse(const Pass& pass) const = 0;
  // Whether a norm before it may round its result to the dtype that the product reads. Not only of a layer with a bias.
  virtual bool takes_rounded(const Pass& pass) const = 0;
  // `by_mask`: a linear layer that can fuse comes next, so ReLU is kept as a mask.
  virtual Tensor forward_activated(Pass& pass, const Tensor& x, Saved* saved, FusedActivation f, bool by_mask) = 0;
  // Both: the gradients of this layer, with dy after its activation `after`, or after its product. `before`: the layer before
  // the activation `f`, of whose product and bias the result is the gradient; null: of this layer's input.
  virtual Tensor backward_activated(Pass& pass, const Tensor& dy, Saved& saved, FusedActivation after,
                                    FusedActivation f, FusibleLinear* before) = 0;
  // `has_bias_gradient`: this layer's is computed already, with the layer after it.
  virtual Tensor backward_through(Pass& pass, const Tensor& dy, Saved& saved, bool has_bias_gradient, FusedActivation f,
                                  FusibleLinear* before) = 0;
  virtual void bias_gradient_by(Pass& pass, DType computed, const std::function<void(Tensor&)>& compute) = 0;
};

// A convolution with a bias, a batch norm, or a container that ends with one of them, and the ReLU after it as one operation. A
// residual container gives a norm its other branch, which the norm adds. Taps do not see the argument of ReLU and the gradient of
// its result, nor of a norm that of its own result.
class FusibleWithRelu {
 public:
  using RunBranch = std::function<Tensor()>;
  using RunBranchBackward = std::function<void(Tensor)>;
  virtual ~FusibleWithRelu() = default;
  // max(0, the layer's result + what the branch gives, which runs before the layer); null: nothing is added.
  virtual Tensor forward_with_relu(Pass& pass, const Tensor& x, const RunBranch& branch, Saved* saved) = 0;
  // The gradient of x from that of the result. The branch gets its own after the layer, before those in front of it.
  virtual Tensor backward_with_relu(Pass& pass, Tensor dy, Saved& saved, const RunBranchBackward& branch) = 0;
};

// A norm of rows. Before a linear layer that takes it, it rounds its result to the dtype to which that layer would cast it, and
// takes the gradient in that dtype. The bits are those of separate casts; taps see the rounded result.
class FusibleRowNorm {
 public:
  virtual ~FusibleRowNorm() = default;
  virtual Tensor forward_for(Pass& pass, const Tensor& x, std::string_view next_operation, Saved* saved) = 0;
};

// What a layer gets: a tensor, or the two branches of a residual block whose sum is still to be computed.
struct Branches {
  Tensor a, b;            // b: empty: a is the tensor itself
  std::string name = {};  // of the block, under which the tap sees the sum
  bool is_sum() const { return !b.empty(); }
};
// The sum, which the tap has seen.
Tensor summed(Pass& pass, const Branches& x);

// A norm of rows, or a container that begins with one, that computes the sum of the branches before it too, in one operation.
// The bits are those of an addition and a norm.
class SumsInput {
 public:
  virtual ~SumsInput() = default;
  virtual bool can_sum_input(const Pass& pass) const = 0;
  // What forward() gives for the sum. `next_operation`: as FusibleRowNorm, of a norm; empty: not known. `sum`: gets the sum; null:
  // not wanted.
  virtual Tensor forward_of_sum(Pass& pass, Branches x, std::string_view next_operation, Saved* saved, Tensor* sum) = 0;
};

// A layer whose result is a sum, which it can leave to the layer after it: a residual block.
class LeavesSum {
 public:
  virtual ~LeavesSum() = default;
  // Of a tensor, or of a sum if this layer is a SumsInput that can. `sum`: as above, that of x.
  virtual Branches forward_branches(Pass& pass, Branches x, Saved* saved, Tensor* sum) = 0;
};

// A norm of rows, or a container that begins with one, whose input also goes on beside it, as that of a residual block: in one
// operation the gradient of the input and what is added to it. The bits are those of two operations.
class SumsGradient {
 public:
  virtual ~SumsGradient() = default;
  virtual bool can_sum(const Pass& pass) const = 0;
  // What backward() of the layer gives, + the addend, as Pass::sum. The addend has the dtype of forward's input.
  virtual Tensor backward_and_sum(Pass& pass, const Tensor& dy, Saved& saved, const Tensor& addend) = 0;
};

}  // namespace halfmark::models
