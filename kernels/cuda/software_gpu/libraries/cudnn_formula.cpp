// What finalising the operations of a formula checks, and for which formulas there are engines.
#include "kernels/cuda/software_gpu/libraries/cudnn_formula.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "kernels/cuda/software_gpu/libraries/cudnn_backend.h"

namespace halfmark::kernels::software_gpu::cudnn {
namespace {

struct StepNames {
  cudnnBackendDescriptorType_t operation, part;  // part 0: none
  FormulaKind kind;
  int how;                      // the attribute of the part
  std::array<int, 3> operands;  // 0: there is none
  int result;
};
constexpr auto kNoPart = static_cast<cudnnBackendDescriptorType_t>(-1);
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
     kNoPart,
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
    case CUDNN_POINTWISE_IDENTITY:
    case CUDNN_POINTWISE_GEN_INDEX:
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

bool broadcasts(const FormulaTensor& from, const FormulaTensor& to) {
  for (size_t i = 0; i < 4; ++i)
    if (from.extents[i] != to.extents[i] && from.extents[i] != 1) return false;
  return true;
}

cudnnStatus_t check_extents(const FormulaStep& step) {
  const FormulaTensor &x = step.operands[0], &y = step.result;
  switch (step.kind) {
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

// One id is one tensor.
static cudnnStatus_t check_ids(const FormulaStep& step, std::map<int64_t, FormulaTensor>& tensors) {
  const auto differs = [&](const FormulaTensor& one) {
    const auto [found, is_new] = tensors.try_emplace(one.id, one);
    return !is_new && (found->second.extents != one.extents || found->second.strides != one.strides ||
                       found->second.type != one.type || found->second.is_virtual != one.is_virtual);
  };
  for (const FormulaTensor& one : step.operands)
    if (differs(one)) return refuse(kBad, "two tensors of the graph have one id");
  return differs(step.result) ? refuse(kBad, "two tensors of the graph have one id") : kFine;
}

bool is_formula_operation(cudnnBackendDescriptorType_t type) { return names_of(type) != nullptr; }
bool is_formula_part(cudnnBackendDescriptorType_t type) {
  return type != kNoPart && std::ranges::any_of(kSteps, [&](const StepNames& one) { return one.part == type; });
}

cudnnStatus_t finalize_formula_part(const Node& node) {
  if (node.type == CUDNN_BACKEND_MATMUL_DESCRIPTOR)
    return node.values.contains(CUDNN_ATTR_MATMUL_COMP_TYPE) ? kFine : refuse(kBad, "no compute type");
  if (node.type == CUDNN_BACKEND_REDUCTION_DESCRIPTOR)
    return node.values.contains(CUDNN_ATTR_REDUCTION_OPERATOR) && node.values.contains(CUDNN_ATTR_REDUCTION_COMP_TYPE)
               ? kFine
               : refuse(kBad, "no operator or no compute type");
  return node.values.contains(CUDNN_ATTR_POINTWISE_MODE) && node.values.contains(CUDNN_ATTR_POINTWISE_MATH_PREC)
             ? kFine
             : refuse(kBad, "no mode or no precision");
}

cudnnStatus_t make_step(const Node& operation, FormulaStep& step) {
  const StepNames& names = *names_of(operation.type);
  step.kind = names.kind;
  size_t operands = names.kind == FormulaKind::product ? 2 : 1;
  if (names.part != kNoPart) {
    const auto how = finalized_node(operation.one<cudnnBackendDescriptor_t>(names.how, nullptr), names.part);
    if (!how) return refuse(kBad, "what the operation computes is not there or not finalized");
    if (names.kind == FormulaKind::pointwise) {
      step.mode = how->one<int>(CUDNN_ATTR_POINTWISE_MODE, 0);
      step.axis = how->one<int64_t>(CUDNN_ATTR_POINTWISE_AXIS, -1);
      operands = operands_of(step.mode);
      if (operands == 0) return refuse(kUnsupported, "only the modes of attention here");
      if (step.mode == CUDNN_POINTWISE_GEN_INDEX && (step.axis < 0 || step.axis > 3))
        return refuse(kBad, "no such axis");
    }
    if (names.kind == FormulaKind::reduction) {
      step.mode = how->one<int>(CUDNN_ATTR_REDUCTION_OPERATOR, 0);
      if (step.mode != CUDNN_REDUCE_TENSOR_ADD && step.mode != CUDNN_REDUCE_TENSOR_MAX)
        return refuse(kUnsupported, "only sums and maxima here");
    }
  }
  step.operands.resize(operands);
  for (size_t i = 0; i < operands; ++i)
    if (const cudnnStatus_t status = tensor_of(operation, names.operands[i], step.operands[i]); status != kFine)
      return status;
  if (const cudnnStatus_t status = tensor_of(operation, names.result, step.result); status != kFine) return status;
  return check_extents(step);
}

cudnnStatus_t make_formula(std::vector<FormulaStep> steps, Formula& formula) {
  std::map<int64_t, FormulaTensor> tensors;
  std::vector<int64_t> known;  // ids of tensors without memory that have been computed
  const auto is_known = [&](int64_t id) { return std::ranges::find(known, id) != known.end(); };
  // A tensor with memory that a step writes is not read before.
  const auto is_written_later = [&](const FormulaTensor& tensor, const FormulaStep& by) {
    return std::ranges::any_of(steps,
                               [&](const FormulaStep& one) { return &one != &by && one.result.id == tensor.id; });
  };
  while (!steps.empty()) {
    const auto ready = std::ranges::find_if(steps, [&](const FormulaStep& step) {
      return std::ranges::all_of(step.operands, [&](const FormulaTensor& one) {
        return one.is_virtual ? is_known(one.id) : !is_written_later(one, step);
      });
    });
    if (ready == steps.end()) return refuse(kBad, "a tensor without memory is not the result of an operation");
    if (is_known(ready->result.id)) return refuse(kBad, "two operations have one result");
    if (const cudnnStatus_t status = check_ids(*ready, tensors); status != kFine) return status;
    known.push_back(ready->result.id);
    formula.push_back(std::move(*ready));
    steps.erase(ready);
  }
  return kFine;
}

std::vector<FormulaTensor> memory_of(const Formula& formula) {
  std::vector<FormulaTensor> all;
  const auto add = [&](const FormulaTensor& tensor) {
    const bool has = std::ranges::any_of(all, [&](const FormulaTensor& one) { return one.id == tensor.id; });
    if (!tensor.is_virtual && !has) all.push_back(tensor);
  };
  for (const FormulaStep& step : formula) {
    for (const FormulaTensor& one : step.operands) add(one);
    add(step.result);
  }
  return all;
}

namespace {

size_t products_in(const Formula& formula) {
  return static_cast<size_t>(
      std::ranges::count_if(formula, [](const FormulaStep& step) { return step.kind == FormulaKind::product; }));
}
constexpr size_t kForwardProducts = 2, kBackwardProducts = 5;

}  // namespace

bool has_attention_engine(const Formula& formula, int architecture) {
  const size_t products = products_in(formula);
  if (architecture < 80 || (products != kForwardProducts && products != kBackwardProducts)) return false;
  const auto first =
      std::ranges::find_if(formula, [](const FormulaStep& step) { return step.kind == FormulaKind::product; });
  const FormulaTensor& q = first->operands[0];
  if (q.type != CUDNN_DATA_HALF && q.type != CUDNN_DATA_BFLOAT16) return false;
  // Both operands of every product are of this type, and no product is of the fp32 scores themselves.
  for (const FormulaStep& step : formula)
    if (step.kind == FormulaKind::product && (step.operands[0].type != q.type || step.operands[1].type != q.type))
      return false;
  const int64_t features = q.extents[3], most = architecture / 10 == 9 ? 256 : 128;
  return features % 8 == 0 && (products == kForwardProducts || features <= most);
}

size_t attention_workspace(const Formula& formula) {
  if (products_in(formula) != kBackwardProducts) return 0;
  const auto first =
      std::ranges::find_if(formula, [](const FormulaStep& step) { return step.kind == FormulaKind::product; });
  const auto& e = first->result.extents;  // scores, as halves
  return static_cast<size_t>(e[0] * e[1] * e[2] * e[3]) * 2;
}

}  // namespace halfmark::kernels::software_gpu::cudnn
