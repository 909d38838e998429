// Every operation as a struct, and run(op), which runs the first row of the device that supports it.
//
// Shapes: images are [n, c, h, w], filters [out, in / groups, kh, kw], matrices [rows, columns]; the tensor has its own
// layout. Outputs may be of layout `any`. Elementwise operations may write over their input. Arithmetic of a row:
// operands are read as stored, computed in Math's formats (elementwise: at least fp32), and every output is rounded
// once to its dtype.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/ops/kernel.h"
#include "kernels/ops/operations/contraction.h"
#include "kernels/ops/operations/elementwise.h"
#include "kernels/ops/operations/fused.h"
#include "kernels/ops/operations/fused_norm.h"
#include "kernels/ops/operations/image.h"
#include "kernels/ops/operations/loss.h"
#include "kernels/ops/operations/norm.h"
#include "kernels/ops/operations/pooling.h"
#include "kernels/ops/operations/quantization.h"
#include "kernels/ops/operations/sequence.h"
#include "kernels/ops/operations/training.h"
#include "kernels/ops/operations/window.h"

namespace halfmark::kernels {

// The one list of operations; rows, tests and micro benchmarks are generated from it.
template <class... Ops>
struct OperationList {
  template <class... Bases>
  struct Joined : Bases... {};
  // Something of each operation, found by its type: static_cast<F<Op>&>(of_each). A tuple of as many elements takes
  // seconds to compile in every file.
  template <template <class> class F>
  using OfEach = Joined<F<Ops>...>;
  static void each(auto&& f) { (f.template operator()<Ops>(), ...); }
  template <class... More>
  OperationList<Ops..., More...> operator+(OperationList<More...>) const;
};
template <class... Rows>
OperationList<Activation<Rows>...> forward_of(activations::List<Rows...>);
template <class... Rows>
OperationList<ActivationBackward<Rows>...> backward_of(activations::List<Rows...>);

template <class... Rows>
OperationList<ElementLoss<Rows>...> losses_of(activations::List<Rows...>);
template <class... Rows>
OperationList<ElementLossBackward<Rows>...> backward_losses_of(activations::List<Rows...>);

using Operations =
    decltype(OperationList<Matmul, BatchedMatmul, FusedMatmul, FusedMatmulBackward, ScaledMatmul, Quantize,
                           DelayedScalingStep, DotProducts, Conv2d, Conv2dBackwardData, Conv2dBackwardWeights,
                           FusedConv2d, AddBias, BiasGradient, BatchNorm, BatchNormInference, BatchNormBackward,
                           BatchNormInferenceBackward, FusedBatchNorm, FusedBatchNormBackward, NormalizeRows,
                           AddNormalizeRows, NormalizeRowsBackward, NormalizeRowsBackwardAdd>() +
             forward_of(activations::All()) + backward_of(activations::All()) +
             OperationList<MaxPool2d, MaxPool2dBackward, AvgPool2d, AvgPool2dBackward, CopyChannels, Resample2d,
                           Resample2dBackward, Softmax, SoftmaxBackward, MaskScores, Attention, AttentionBackward,
                           PackedAttention, PackedAttentionBackward, Permute, NarrowIndices, Embedding,
                           EmbeddingBackward, Dropout, DropoutBackward, LstmCell, LstmCellBackward, Add, Scale,
                           SoftmaxCrossEntropy, SoftmaxCrossEntropyBackward, CrossEntropy, CrossEntropyBackward>() +
             losses_of(losses::All()) + backward_losses_of(losses::All()) +
             OperationList<CtcLoss, CtcLossBackward, Cast, CastTensors, CountedCast, Reorder, Unscale, GradientNorm,
                           ClipGradients, SgdStep, AdamStep>());
template <class Op>
using KernelList = std::vector<Kernel<Op>>;

class KernelTable {
 public:
  template <Operation Op>
  KernelList<Op>& of() {
    return static_cast<ListOf<Op>&>(lists_).rows;
  }
  template <Operation Op>
  const KernelList<Op>& of() const {
    return static_cast<const ListOf<Op>&>(lists_).rows;
  }
  // f(list) for every operation, in the order above.
  void each(auto&& f) const {
    Operations::each([&]<class Op>() { f(of<Op>()); });
  }

 private:
  template <class Op>
  struct ListOf {
    KernelList<Op> rows;
  };
  struct Lists : Operations::OfEach<ListOf> {};  // a short name for the linker
  Lists lists_;
};

Signature signature_of(const Operation auto& op);
std::string dtypes_of(const Operation auto& op);  // "f16,f16->f16"

// Runs the operation on the device of its tensors with the first row that supports it. Throws Error for wrong shapes or
// attributes and for operands on two devices; Unsupported, with every row's reason, if no row supports it.
template <Operation Op>
void run(const Op& op);

// The row that run(op) would use, without running it.
template <Operation Op>
const Kernel<Op>& chosen(const Op& op);

// Runs one given row, as tests and micro benchmarks do.
template <Operation Op>
void run_with(const Kernel<Op>& kernel, const Op& op);

}  // namespace halfmark::kernels

#include "kernels/ops/dispatch.h"
