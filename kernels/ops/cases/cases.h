// Descriptions of operations: operands with known values, the result in fp64, and the allowed error of a row. One
// description serves the tests of every row, the guard bytes and the micro benchmarks.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/ops/cases/axes.h"
#include "kernels/ops/ops.h"

namespace halfmark::kernels::ops_cases {

struct CaseRequest {
  Device& device;
  const Axes& axes;
  // Whether a row does exactly what Math says, as halfmark's own rows do. Hardware may, for example, truncate fp32
  // operands to tf32 where Math says that they are rounded.
  bool strict = true;
  bool filled = true;           // else the values do not matter: only whether a row supports the case
  bool rounds_between = false;  // as Kernel::rounds_between
};

enum class ZeroSigns : uint8_t { ignored, compared };

// The result of a run. A description compares it with fp64 and collects the errors as sentences.
class CaseResult {
 public:
  // `before`: the values that outputs had before the run, by id of their memory. `flushes`: as Kernel::flushes_subnormals.
  CaseResult(std::map<uint64_t, std::vector<double>> before, bool flushes)
      : before_(std::move(before)), flushes_(flushes) {}

  // The values of an operand before the run, even if the result was written over it.
  std::vector<double> before(const Tensor& tensor) const {
    const auto found = before_.find(tensor.id());
    return found == before_.end() ? tensor.values() : found->second;
  }

  // Passes if |actual - expected| <= slack plus the rounding of storage, or if actual is the correctly rounded value.
  // If slack is exactly 0, only the correctly rounded value passes.
  void expect_close(const Tensor& actual, const std::vector<double>& expected, const std::vector<double>& slack,
                    const std::string& what = "", ZeroSigns zero_signs = ZeroSigns::ignored);
  void expect_exact(const Tensor& actual, const std::vector<double>& expected, const std::string& what = "",
                    ZeroSigns zero_signs = ZeroSigns::ignored) {
    expect_close(actual, expected, std::vector<double>(expected.size(), 0.0), what, zero_signs);
  }
  void expect(bool condition, const std::string& otherwise) {
    if (!condition) add(otherwise);
  }
  void add(std::string finding) { findings_.push_back(std::move(finding)); }
  const std::vector<std::string>& findings() const { return findings_; }

 private:
  static double without_sign_of_nan(double x) { return std::isnan(x) ? std::fabs(x) : x; }

  std::map<uint64_t, std::vector<double>> before_;
  bool flushes_;
  std::vector<std::string> findings_;
};

// Receives one case: an operation on fresh tensors, and the comparison to make after it has run.
using Comparison = std::function<void(CaseResult&)>;
template <class Op>
using RunCase = std::function<void(const std::string& name, const Op& op, const Comparison& compare)>;

// Every case of an operation that the request selects.
template <class Op>
struct Cases {
  static void each(const CaseRequest& request, const RunCase<Op>& run_case);
};

// contraction.cpp
template <>
void Cases<Matmul>::each(const CaseRequest& request, const RunCase<Matmul>& run_case);
template <>
void Cases<Conv2d>::each(const CaseRequest& request, const RunCase<Conv2d>& run_case);
template <>
void Cases<Conv2dBackwardData>::each(const CaseRequest& request, const RunCase<Conv2dBackwardData>& run_case);
template <>
void Cases<Conv2dBackwardWeights>::each(const CaseRequest& request, const RunCase<Conv2dBackwardWeights>& run_case);
template <>
void Cases<FusedConv2d>::each(const CaseRequest& request, const RunCase<FusedConv2d>& run_case);
// softmax.cpp
template <>
void Cases<Softmax>::each(const CaseRequest& request, const RunCase<Softmax>& run_case);
template <>
void Cases<Scale>::each(const CaseRequest& request, const RunCase<Scale>& run_case);
template <>
void Cases<SoftmaxBackward>::each(const CaseRequest& request, const RunCase<SoftmaxBackward>& run_case);
template <>
void Cases<BatchedMatmul>::each(const CaseRequest& request, const RunCase<BatchedMatmul>& run_case);
// attention.cpp
template <>
void Cases<MaskScores>::each(const CaseRequest& request, const RunCase<MaskScores>& run_case);
template <>
void Cases<Attention>::each(const CaseRequest& request, const RunCase<Attention>& run_case);
template <>
void Cases<AttentionBackward>::each(const CaseRequest& request, const RunCase<AttentionBackward>& run_case);
template <>
void Cases<PackedAttention>::each(const CaseRequest& request, const RunCase<PackedAttention>& run_case);
template <>
void Cases<PackedAttentionBackward>::each(const CaseRequest& request, const RunCase<PackedAttentionBackward>& run_case);
// fused.cpp
template <>
void Cases<FusedMatmul>::each(const CaseRequest& request, const RunCase<FusedMatmul>& run_case);
template <>
void Cases<FusedMatmulBackward>::each(const CaseRequest& request, const RunCase<FusedMatmulBackward>& run_case);
// quantize.cpp
template <>
void Cases<ScaledMatmul>::each(const CaseRequest& request, const RunCase<ScaledMatmul>& run_case);
template <>
void Cases<Quantize>::each(const CaseRequest& request, const RunCase<Quantize>& run_case);
template <>
void Cases<DelayedScalingStep>::each(const CaseRequest& request, const RunCase<DelayedScalingStep>& run_case);
// dot.cpp
template <>
void Cases<DotProducts>::each(const CaseRequest& request, const RunCase<DotProducts>& run_case);
// image.cpp
template <>
void Cases<BatchNorm>::each(const CaseRequest& request, const RunCase<BatchNorm>& run_case);
template <>
void Cases<BatchNormInference>::each(const CaseRequest& request, const RunCase<BatchNormInference>& run_case);
template <>
void Cases<BatchNormBackward>::each(const CaseRequest& request, const RunCase<BatchNormBackward>& run_case);
template <>
void Cases<MaxPool2d>::each(const CaseRequest& request, const RunCase<MaxPool2d>& run_case);
template <>
void Cases<MaxPool2dBackward>::each(const CaseRequest& request, const RunCase<MaxPool2dBackward>& run_case);
template <>
void Cases<AvgPool2d>::each(const CaseRequest& request, const RunCase<AvgPool2d>& run_case);
template <>
void Cases<AvgPool2dBackward>::each(const CaseRequest& request, const RunCase<AvgPool2dBackward>& run_case);
// fused_norm.cpp
template <>
void Cases<FusedBatchNorm>::each(const CaseRequest& request, const RunCase<FusedBatchNorm>& run_case);
template <>
void Cases<FusedBatchNormBackward>::each(const CaseRequest& request, const RunCase<FusedBatchNormBackward>& run_case);
// norm.cpp
template <>
void Cases<NormalizeRows>::each(const CaseRequest& request, const RunCase<NormalizeRows>& run_case);
template <>
void Cases<AddNormalizeRows>::each(const CaseRequest& request, const RunCase<AddNormalizeRows>& run_case);
template <>
void Cases<NormalizeRowsBackward>::each(const CaseRequest& request, const RunCase<NormalizeRowsBackward>& run_case);
template <>
void Cases<NormalizeRowsBackwardAdd>::each(const CaseRequest& request,
                                           const RunCase<NormalizeRowsBackwardAdd>& run_case);
// resample.cpp
template <>
void Cases<CopyChannels>::each(const CaseRequest& request, const RunCase<CopyChannels>& run_case);
template <>
void Cases<Resample2d>::each(const CaseRequest& request, const RunCase<Resample2d>& run_case);
template <>
void Cases<Resample2dBackward>::each(const CaseRequest& request, const RunCase<Resample2dBackward>& run_case);
template <>
void Cases<BatchNormInferenceBackward>::each(const CaseRequest& request,
                                             const RunCase<BatchNormInferenceBackward>& run_case);
// elementwise.cpp
template <>
void Cases<AddBias>::each(const CaseRequest& request, const RunCase<AddBias>& run_case);
template <>
void Cases<BiasGradient>::each(const CaseRequest& request, const RunCase<BiasGradient>& run_case);
template <>
void Cases<Add>::each(const CaseRequest& request, const RunCase<Add>& run_case);
template <>
void Cases<Cast>::each(const CaseRequest& request, const RunCase<Cast>& run_case);
template <>
void Cases<CountedCast>::each(const CaseRequest& request, const RunCase<CountedCast>& run_case);
template <>
void Cases<CastTensors>::each(const CaseRequest& request, const RunCase<CastTensors>& run_case);
template <>
void Cases<Reorder>::each(const CaseRequest& request, const RunCase<Reorder>& run_case);
// sequence.cpp
template <>
void Cases<Permute>::each(const CaseRequest& request, const RunCase<Permute>& run_case);
template <>
void Cases<NarrowIndices>::each(const CaseRequest& request, const RunCase<NarrowIndices>& run_case);
template <>
void Cases<Embedding>::each(const CaseRequest& request, const RunCase<Embedding>& run_case);
template <>
void Cases<EmbeddingBackward>::each(const CaseRequest& request, const RunCase<EmbeddingBackward>& run_case);
template <>
void Cases<Dropout>::each(const CaseRequest& request, const RunCase<Dropout>& run_case);
template <>
void Cases<DropoutBackward>::each(const CaseRequest& request, const RunCase<DropoutBackward>& run_case);
template <>
void Cases<LstmCell>::each(const CaseRequest& request, const RunCase<LstmCell>& run_case);
template <>
void Cases<LstmCellBackward>::each(const CaseRequest& request, const RunCase<LstmCellBackward>& run_case);
// training.cpp
template <>
void Cases<SoftmaxCrossEntropy>::each(const CaseRequest& request, const RunCase<SoftmaxCrossEntropy>& run_case);
template <>
void Cases<SoftmaxCrossEntropyBackward>::each(const CaseRequest& request,
                                              const RunCase<SoftmaxCrossEntropyBackward>& run_case);
// loss.cpp
template <>
void Cases<CrossEntropy>::each(const CaseRequest& request, const RunCase<CrossEntropy>& run_case);
template <>
void Cases<CrossEntropyBackward>::each(const CaseRequest& request, const RunCase<CrossEntropyBackward>& run_case);
// ctc.cpp
template <>
void Cases<CtcLoss>::each(const CaseRequest& request, const RunCase<CtcLoss>& run_case);
template <>
void Cases<CtcLossBackward>::each(const CaseRequest& request, const RunCase<CtcLossBackward>& run_case);
// optimizer.cpp
template <>
void Cases<SgdStep>::each(const CaseRequest& request, const RunCase<SgdStep>& run_case);
template <>
void Cases<AdamStep>::each(const CaseRequest& request, const RunCase<AdamStep>& run_case);
template <>
void Cases<Unscale>::each(const CaseRequest& request, const RunCase<Unscale>& run_case);
template <>
void Cases<GradientNorm>::each(const CaseRequest& request, const RunCase<GradientNorm>& run_case);
template <>
void Cases<ClipGradients>::each(const CaseRequest& request, const RunCase<ClipGradients>& run_case);

// The tables of activations and element-wise losses: a row as values, so that the cases of all rows are compiled once.
struct ActivationRow {
  double (*forward)(double x);
  double (*backward)(double kept, double dy);
  double forward_steps, gpu_forward_steps, backward_steps;
};
template <class Row>
constexpr double gpu_forward_steps() {
  if constexpr (requires { Row::gpu_forward_steps; })
    return Row::gpu_forward_steps;
  else
    return Row::forward_steps;
}
template <class Row>
constexpr ActivationRow activation_row() {
  return {[](double x) { return static_cast<double>(Row::forward(x)); },
          [](double kept, double dy) { return static_cast<double>(Row::backward(kept, dy)); }, Row::forward_steps,
          gpu_forward_steps<Row>(), Row::backward_steps};
}
using RunActivation =
    std::function<void(const std::string& name, const Tensor& x, Tensor& out, const Comparison& compare)>;
using RunActivationBackward = std::function<void(const std::string& name, const Tensor& kept, const Tensor& dy,
                                                 Tensor& dx, const Comparison& compare)>;
void each_activation(const CaseRequest& request, const ActivationRow& row, const RunActivation& run_case);
void each_activation_backward(const CaseRequest& request, const ActivationRow& row,
                              const RunActivationBackward& run_case);

template <class Row>
struct Cases<Activation<Row>> {
  static void each(const CaseRequest& request, const RunCase<Activation<Row>>& run_case) {
    each_activation(request, activation_row<Row>(),
                    [&](const std::string& name, const Tensor& x, Tensor& out, const Comparison& compare) {
                      run_case(name, {.x = x, .out = out}, compare);
                    });
  }
};
template <class Row>
struct Cases<ActivationBackward<Row>> {
  static void each(const CaseRequest& request, const RunCase<ActivationBackward<Row>>& run_case) {
    each_activation_backward(
        request, activation_row<Row>(),
        [&](const std::string& name, const Tensor& kept, const Tensor& dy, Tensor& dx, const Comparison& compare) {
          run_case(name, {.kept = kept, .dy = dy, .dx = dx}, compare);
        });
  }
};

struct ElementLossRow {
  std::string_view name;  // by which loss.cpp finds the definition in fp64
  double a, b;            // the defaults
  bool takes_arguments;
};
template <class Row>
constexpr ElementLossRow element_loss_row() {
  return {Row::name, Row::a, Row::b, !Row::argument_a.empty()};
}
struct ElementLossOperands {
  const Tensor& output;
  const Tensor& target;
  Tensor& result;  // loss or gradient
  double a, b, dloss;
  const Tensor* weights;
};
using RunElementLoss =
    std::function<void(const std::string& name, const ElementLossOperands& operands, const Comparison& compare)>;
void each_element_loss(const CaseRequest& request, const ElementLossRow& row, const RunElementLoss& run_case);
void each_element_loss_backward(const CaseRequest& request, const ElementLossRow& row, const RunElementLoss& run_case);

template <class Row>
struct Cases<ElementLoss<Row>> {
  static void each(const CaseRequest& request, const RunCase<ElementLoss<Row>>& run_case) {
    each_element_loss(
        request, element_loss_row<Row>(),
        [&](const std::string& name, const ElementLossOperands& o, const Comparison& compare) {
          run_case(name,
                   {.output = o.output, .target = o.target, .loss = o.result, .a = o.a, .b = o.b, .weights = o.weights},
                   compare);
        });
  }
};
template <class Row>
struct Cases<ElementLossBackward<Row>> {
  static void each(const CaseRequest& request, const RunCase<ElementLossBackward<Row>>& run_case) {
    each_element_loss_backward(request, element_loss_row<Row>(),
                               [&](const std::string& name, const ElementLossOperands& o, const Comparison& compare) {
                                 run_case(name,
                                          {.output = o.output,
                                           .target = o.target,
                                           .doutput = o.result,
                                           .a = o.a,
                                           .b = o.b,
                                           .dloss = o.dloss,
                                           .weights = o.weights},
                                          compare);
                               });
  }
};

}  // namespace halfmark::kernels::ops_cases
