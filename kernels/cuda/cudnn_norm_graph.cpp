#include "kernels/cuda/cudnn_norm_graph.h"

#include <utility>
#include <vector>

namespace halfmark::kernels::cuda {
namespace {

cudnnBackendNormMode_t mode_of(NormKind kind) {
  if (kind == NormKind::layer) return CUDNN_LAYER_NORM;
  return kind == NormKind::rms ? CUDNN_RMS_NORM : CUDNN_BATCH_NORM;
}

class NormBuilder {
 public:
  explicit NormBuilder(const NormProblem& problem)
      : p_(problem),
        operation_(p_.backward ? CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR
                               : CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR) {}

  // Tensors of the operation, by attribute.
  void image(int attribute, int64_t id) {
    // Rows are pixels with channels: the layout in which cuDNN takes norms of rows.
    const bool last = p_.last || p_.kind != NormKind::batch;
    add(attribute, {.id = id, .type = cudnn_type(p_.dtype), .extents = p_.x, .strides = packed_strides(p_.x, last)});
  }
  void parameter(int attribute, int64_t id) { columns(attribute, id, cudnn_type(p_.parameters)); }
  void statistic(int attribute, int64_t id) {
    if (p_.kind == NormKind::batch) return columns(attribute, id, CUDNN_DATA_FLOAT);
    add(attribute, {.id = id, .extents = {p_.x[0], 1, 1, 1}});
  }
  void number(int attribute, int64_t id) { add(attribute, {.id = id, .by_value = true}); }
  template <class T>
  void choose(int attribute, cudnnBackendAttributeType_t type, const T& value) {
    operation_.set(attribute, type, value);
  }

  CudnnGraph finish(const CudnnTarget& target) {
    operation_.finalize();
    std::vector<CudnnDescriptor> operations;
    operations.push_back(std::move(operation_));
    CudnnDescriptor graph = cudnn_graph(target, operations);
    return {std::move(parts_), std::move(operations), std::move(graph)};
  }

 private:
  void columns(int attribute, int64_t id, cudnnDataType_t type) {
    const CudnnExtents extents{1, p_.x[1], 1, 1};
    add(attribute, {.id = id, .type = type, .extents = extents, .strides = packed_strides(extents, true)});
  }
  void add(int attribute, const CudnnTensor& tensor) {
    parts_.push_back(describe(tensor));
    operation_.set(attribute, parts_.back());
  }

  const NormProblem& p_;
  std::vector<CudnnDescriptor> parts_;
  CudnnDescriptor operation_;
};

void build_norm(NormBuilder& b, const NormProblem& p) {
  b.choose(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, mode_of(p.kind));
  b.choose(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, CUDNN_NORM_FWD_TRAINING);
  b.image(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, norm_ids::kX),
      b.image(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, norm_ids::kOut);
  b.parameter(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, norm_ids::kScale);
  if (p.kind != NormKind::rms && p.has_shift) b.parameter(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, norm_ids::kShift);
  if (p.kind != NormKind::rms) b.statistic(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, norm_ids::kMean);
  b.statistic(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, norm_ids::kInverse);
  b.number(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, norm_ids::kEpsilon);
  if (p.kind != NormKind::batch) return;
  b.number(CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, norm_ids::kMomentum);
  b.statistic(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, norm_ids::kRunningMean);
  b.statistic(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, norm_ids::kRunningVariance);
  b.statistic(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, norm_ids::kNextMean);
  b.statistic(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, norm_ids::kNextVariance);
}

void build_norm_backward(NormBuilder& b, const NormProblem& p) {
  b.choose(CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, mode_of(p.kind));
  b.image(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, norm_ids::kX),
      b.image(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, norm_ids::kDy);
  b.image(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, norm_ids::kDx);
  b.parameter(CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, norm_ids::kScale);
  b.parameter(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, norm_ids::kDscale);
  b.statistic(CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, norm_ids::kInverse);
  if (p.kind == NormKind::rms) return;
  b.statistic(CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, norm_ids::kMean);
  b.parameter(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, norm_ids::kDshift);
}

// With constant statistics, as pointwise operations in fp32: cuDNN has no engine for the norm itself.
class ConstantNorm {
 public:
  explicit ConstantNorm(const NormProblem& problem) : p_(problem), columns_{1, p_.x[1], 1, 1} {}

  CudnnGraph finish(const CudnnTarget& target) {
    const size_t inverse =
        apply(CUDNN_POINTWISE_RSQRT, {apply(CUDNN_POINTWISE_ADD, {column(norm_ids::kVariance), epsilon()}, columns_)},
              columns_);
    const size_t deviation = apply(CUDNN_POINTWISE_SUB, {image(norm_ids::kX), column(norm_ids::kMean)}, p_.x);
    const size_t hat = apply(CUDNN_POINTWISE_MUL, {deviation, inverse}, p_.x);
    const size_t scaled = apply(CUDNN_POINTWISE_MUL, {hat, column(norm_ids::kScale)}, p_.x);
    apply_into(CUDNN_POINTWISE_ADD, {scaled, column(norm_ids::kShift)}, image(norm_ids::kOut));
    CudnnDescriptor graph = cudnn_graph(target, operations_);
    return {std::move(parts_), std::move(operations_), std::move(graph)};
  }

 private:
  // A tensor of the graph is the index of its descriptor.
  size_t image(int64_t id) { return memory(id, p_.dtype, p_.x, p_.last); }
  size_t column(int64_t id) { return memory(id, p_.parameters, columns_, true); }
  size_t memory(int64_t id, DType dtype, const CudnnExtents& extents, bool last) {
    return add({.id = id, .type = cudnn_type(dtype), .extents = extents, .strides = packed_strides(extents, last)});
  }
  size_t epsilon() { return add({.id = norm_ids::kEpsilon, .by_value = true}); }
  size_t apply(cudnnPointwiseMode_t mode, const std::vector<size_t>& operands, const CudnnExtents& extents) {
    const bool last = p_.last || extents == columns_;
    return apply_into(
        mode, operands,
        add({.id = next_++, .extents = extents, .strides = packed_strides(extents, last), .is_virtual = true}));
  }
  size_t apply_into(cudnnPointwiseMode_t mode, const std::vector<size_t>& operands, size_t result) {
    CudnnDescriptor how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    how.finalize();
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    constexpr int kOperands[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC};
    for (size_t i = 0; i < operands.size(); ++i) operation.set(kOperands[i], parts_[operands[i]]);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, parts_[result]);
    operation.finalize();
    parts_.push_back(std::move(how)), operations_.push_back(std::move(operation));
    return result;
  }
  size_t add(const CudnnTensor& tensor) {
    parts_.push_back(describe(tensor));
    return parts_.size() - 1;
  }

  const NormProblem& p_;
  CudnnExtents columns_;
  std::vector<CudnnDescriptor> parts_, operations_;
  int64_t next_ = 100;  // ids of tensors without memory
};

}  // namespace

CudnnGraph norm_graph(const CudnnTarget& target, const NormProblem& problem) {
  if (problem.kind == NormKind::constant) return ConstantNorm(problem).finish(target);
  NormBuilder builder(problem);
  if (problem.backward)
    build_norm_backward(builder, problem);
  else
    build_norm(builder, problem);
  return builder.finish(target);
}

}  // namespace halfmark::kernels::cuda
