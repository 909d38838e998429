// The operations of formulas: what finalising them checks. And which other operation is a norm or pooling.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/cuda/software_gpu/libraries/cudnn_backend.h"

namespace halfmark::kernels::software_gpu::cudnn {
namespace {

struct StepNames {
  cudnnBackendDescriptorType_t operation;
  std::optional<cudnnBackendDescriptorType_t> part;
  FormulaKind kind;
  int how;                      // the attribute of the part
  std::array<int, 3> operands;  // 0: there is none
  int result;
};
constexpr StepNames kSteps[] = {
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
     CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
     FormulaKind::pointwise,
     CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
     {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
     CUDNN_ATTR_OPERATION_POINTWISE_YDESC},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
     CUDNN_BACKEND_REDUCTION_DESCRIPTOR,
     FormulaKind::reduction,
     CUDNN_ATTR_OPERATION_REDUCTION_DESC,
     {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 0, 0},
     CUDNN_ATTR_OPERATION_REDUCTION_YDESC},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
     CUDNN_BACKEND_MATMUL_DESCRIPTOR,
     FormulaKind::product,
     CUDNN_ATTR_OPERATION_MATMUL_DESC,
     {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC, 0},
     CUDNN_ATTR_OPERATION_MATMUL_CDESC},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
     {},
     FormulaKind::reshape,
     0,
     {CUDNN_ATTR_OPERATION_RESHAPE_XDESC, 0, 0},
     CUDNN_ATTR_OPERATION_RESHAPE_YDESC},
};
const StepNames* names_of(cudnnBackendDescriptorType_t type) {
  for (const StepNames& one : kSteps)
    if (one.operation == type) return &one;
  return nullptr;
}

// How many operands the modes have that are computed here; 0: another mode.
size_t operands_of(int mode) {
  switch (mode) {
    case CUDNN_POINTWISE_EXP:
    case CUDNN_POINTWISE_LOG:
    case CUDNN_POINTWISE_RSQRT:
    case CUDNN_POINTWISE_IDENTITY:
    case CUDNN_POINTWISE_GEN_INDEX:
    case CUDNN_POINTWISE_RELU_FWD:
      return 1;
    case CUDNN_POINTWISE_ADD:
    case CUDNN_POINTWISE_SUB:
    case CUDNN_POINTWISE_MUL:
    case CUDNN_POINTWISE_DIV:
    case CUDNN_POINTWISE_CMP_GE:
      return 2;
    case CUDNN_POINTWISE_BINARY_SELECT:
      return 3;
    default:
      return 0;
  }
}

bool broadcasts(const FormulaTensor& from, const FormulaTensor& to) {
  for (size_t i = 0; i < 4; ++i)
    if (from.extents[i] != to.extents[i] && from.extents[i] != 1) return false;
  return true;
}

cudnnStatus_t check_extents(const FormulaStep& step) {
  const FormulaTensor &x = step.operands[0], &y = step.result;
  switch (step.kind) {
    case FormulaKind::convolution:  // checked as an operation of its own
      return kFine;
    case FormulaKind::pointwise:
      for (const FormulaTensor& one : step.operands)
        if (!broadcasts(one, y)) return refuse(kBad, "an operand does not fit the result");
      return kFine;
    case FormulaKind::reduction:
      return broadcasts(y, x) ? kFine : refuse(kBad, "the result does not fit what is reduced");
    case FormulaKind::product: {
      const FormulaTensor& b = step.operands[1];
      const bool fits = x.extents[0] == y.extents[0] && x.extents[1] == y.extents[1] && b.extents[0] == y.extents[0] &&
                        b.extents[1] == y.extents[1] && x.extents[2] == y.extents[2] && b.extents[3] == y.extents[3] &&
                        x.extents[3] == b.extents[2];
      return fits ? kFine : refuse(kBad, "the matrices do not fit");
    }
    case FormulaKind::reshape: {
      const auto count = [](const FormulaTensor& t) {
        return t.extents[0] * t.extents[1] * t.extents[2] * t.extents[3];
      };
      return count(x) == count(y) ? kFine : refuse(kBad, "a reshape keeps the number of elements");
    }
  }
  return kBad;
}

}  // namespace

cudnnStatus_t tensor_of(const Node& operation, int attribute, FormulaTensor& tensor) {
  const auto node =
      finalized_node(operation.one<cudnnBackendDescriptor_t>(attribute, nullptr), CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  if (!node) return refuse(kBad, "a tensor of the operation is not there or not finalized");
  const auto extents = node->all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
             strides = node->all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  if (extents.size() != 4) return refuse(kUnsupported, "only tensors of four axes here");
  std::copy(extents.begin(), extents.end(), tensor.extents.begin());
  std::copy(strides.begin(), strides.end(), tensor.strides.begin());
  tensor.type = node->one(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT);
  tensor.id = node->one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
  tensor.alignment = node->one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
  tensor.is_virtual = node->one(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false);
  tensor.by_value = node->one(CUDNN_ATTR_TENSOR_IS_BY_VALUE, false);
  return kFine;
}

bool is_formula_operation(cudnnBackendDescriptorType_t type) { return names_of(type) != nullptr; }
bool is_formula_part(cudnnBackendDescriptorType_t type) {
  return std::ranges::any_of(kSteps, [&](const StepNames& one) { return one.part == type; });
}

cudnnStatus_t make_step(const Node& operation, FormulaStep& step) {
  const StepNames& names = *names_of(operation.type);
  step.kind = names.kind;
  size_t operands = names.kind == FormulaKind::product ? 2 : 1;
  if (names.part) {
    const auto how = finalized_node(operation.one<cudnnBackendDescriptor_t>(names.how, nullptr), *names.part);
    if (!how) return refuse(kBad, "what the operation computes is not there or not finalized");
    if (names.kind == FormulaKind::pointwise) {
      step.mode = how->one<int>(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_ADD);
      step.axis = how->one<int64_t>(CUDNN_ATTR_POINTWISE_AXIS, -1);
      step.keeps_nan = how->one<int>(kNanPropagation, CUDNN_NOT_PROPAGATE_NAN) == CUDNN_PROPAGATE_NAN;
      operands = operands_of(step.mode);
      if (operands == 0) return refuse(kUnsupported, "only the modes of attention, batch norm and ReLU here");
      if (step.mode == CUDNN_POINTWISE_GEN_INDEX && (step.axis < 0 || step.axis > 3))
        return refuse(kBad, "no such axis");
    }
    if (names.kind == FormulaKind::reduction) {
      step.mode = how->one<int>(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_REDUCE_TENSOR_ADD);
      if (step.mode != CUDNN_REDUCE_TENSOR_ADD && step.mode != CUDNN_REDUCE_TENSOR_MAX)
        return refuse(kUnsupported, "only sums and maxima here");
    }
  }
  step.operands.resize(operands);
  // cuDNN 9.19 calls a product without one of its matrices not supported (seen).
  const auto answer = [&](cudnnStatus_t status) { return names.kind == FormulaKind::product ? kUnsupported : status; };
  for (size_t i = 0; i < operands; ++i)
    if (const cudnnStatus_t status = tensor_of(operation, names.operands[i], step.operands[i]); status != kFine)
      return answer(status);
  if (const cudnnStatus_t status = tensor_of(operation, names.result, step.result); status != kFine)
    return answer(status);
  return check_extents(step);
}

static bool is_norm(cudnnBackendDescriptorType_t type) {
  return type == CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR ||
         type == CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR;
}
bool is_layer(cudnnBackendDescriptorType_t type) {
  return is_norm(type) || type == CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR ||
         type == CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR;
}
cudnnStatus_t make_layer(const Node& operation, std::shared_ptr<const Layer>& layer) {
  return is_norm(operation.type) ? make_norm(operation, layer) : make_pool(operation, layer);
}

}  // namespace halfmark::kernels::software_gpu::cudnn
