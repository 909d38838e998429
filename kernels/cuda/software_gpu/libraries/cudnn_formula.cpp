// Formulas put in order, and those for which there are engines.
#include "kernels/cuda/software_gpu/libraries/cudnn_formula.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "kernels/cuda/software_gpu/libraries/planted_answers.h"

namespace halfmark::kernels::software_gpu::cudnn {

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
    auto ready = std::ranges::find_if(steps, [&](const FormulaStep& step) {
      return std::ranges::all_of(step.operands, [&](const FormulaTensor& one) {
        return one.is_virtual ? is_known(one.id) : !is_written_later(one, step);
      });
    });
    if (ready == steps.end()) ready = steps.begin();  // its operand has no origin: no engine takes the graph
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
// Whether every tensor without memory is the result of a step before.
bool is_complete(const Formula& formula) {
  std::vector<int64_t> known;
  for (const FormulaStep& step : formula) {
    for (const FormulaTensor& one : step.operands)
      if (one.is_virtual && std::ranges::find(known, one.id) == known.end()) return false;
    known.push_back(step.result.id);
  }
  return true;
}
bool has_channels_last(const FormulaTensor& t) {
  const auto& e = t.extents;
  return t.strides == std::array<int64_t, 4>{e[1] * e[2] * e[3], 1, e[3] * e[1], e[1]};
}
constexpr size_t kForwardProducts = 2, kBackwardProducts = 5;

// Whether the numbers of each head's rows, or of its columns, are one after the other. NVIDIA's cuDNN 9.19 ends the process
// where it is asked for engines for others (seen).
bool has_contiguous_heads(const Formula& formula) {
  return std::ranges::all_of(memory_of(formula), [](const FormulaTensor& one) {
    const bool is_half = one.type == CUDNN_DATA_HALF || one.type == CUDNN_DATA_BFLOAT16;
    return !is_half || one.strides[2] == 1 || one.strides[3] == 1;
  });
}
// Whether one head follows the other.
bool has_packed_heads(const FormulaTensor& q) { return q.strides[1] == q.extents[2] * q.extents[3]; }

// Of image, filter, bias and result; -1: they differ, or it is none that has engines.
int type_of_all(const Formula& formula, int architecture) {
  const int type = formula.front().operands[0].type;
  for (const FormulaTensor& one : memory_of(formula))
    if (one.type != type) return -1;
  if (type == CUDNN_DATA_BFLOAT16 && architecture < 80) return -1;
  const bool known =
      type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_DOUBLE || type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16;
  return known ? type : -1;
}

}  // namespace

bool has_attention_engine(const Formula& formula, int architecture) {
  const size_t products = products_in(formula);
  if (architecture < 80 || (products != kForwardProducts && products != kBackwardProducts)) return false;
  const auto first =
      std::ranges::find_if(formula, [](const FormulaStep& step) { return step.kind == FormulaKind::product; });
  const FormulaTensor& q = first->operands[0];
  if (q.type != CUDNN_DATA_HALF && q.type != CUDNN_DATA_BFLOAT16) return false;
  // Operands of products with memory are of this type; scores may be rounded to it by the engine.
  for (const FormulaStep& step : formula)
    if (step.kind == FormulaKind::product &&
        ((step.operands[0].type != q.type && !step.operands[0].is_virtual) || step.operands[1].type != q.type))
      return false;
  if (!has_contiguous_heads(formula) || (planted("attention-takes-no-strides") && !has_packed_heads(q))) return false;
  const int64_t features = q.extents[3], most = architecture / 10 == 9 ? 256 : 128;
  return is_complete(formula) && features % 8 == 0 && (products == kForwardProducts || features <= most);
}

bool has_pointwise_engine(const Formula& formula, int architecture) {
  for (const FormulaStep& step : formula)
    if (step.kind != FormulaKind::pointwise) return false;
  for (const FormulaTensor& one : memory_of(formula)) {
    if (one.by_value) continue;
    const bool is_bf16 = one.type == CUDNN_DATA_BFLOAT16;
    if (one.type != CUDNN_DATA_FLOAT && one.type != CUDNN_DATA_HALF && !is_bf16) return false;
    if ((is_bf16 && architecture < 80) || one.extents[1] < 2 || !has_channels_last(one)) return false;
  }
  return is_complete(formula);
}

bool has_fusion_engine(const Formula& formula, int architecture) {
  const FormulaStep& first = formula.front();
  if (first.kind != FormulaKind::convolution || formula.size() < 2 || formula.size() > 3 || !is_complete(formula))
    return false;
  const int type = type_of_all(formula, architecture);
  const cudnnDataType_t wide = type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  if (type < 0 || first.convolution->convolution.compute != wide) return false;
  bool adds = false, clips = false;
  for (size_t i = 1; i < formula.size(); ++i) {
    const FormulaStep& step = formula[i];
    if (step.kind != FormulaKind::pointwise || clips || step.operands[0].id != formula[i - 1].result.id) return false;
    if (step.mode == CUDNN_POINTWISE_ADD && !adds)
      adds = true;
    else if (step.mode == CUDNN_POINTWISE_RELU_FWD)
      clips = true;
    else
      return false;
  }
  if (adds) return true;
  if (!has_channels_last(first.operands[0]) || type == CUDNN_DATA_DOUBLE) return false;
  return type != CUDNN_DATA_BFLOAT16 || first.operands[1].extents[1] > 1;
}

size_t attention_workspace(const Formula& formula) {
  if (products_in(formula) != kBackwardProducts) return 0;
  const auto first =
      std::ranges::find_if(formula, [](const FormulaStep& step) { return step.kind == FormulaKind::product; });
  const auto& e = first->result.extents;  // scores, as halves
  return static_cast<size_t>(e[0] * e[1] * e[2] * e[3]) * 2;
}

}  // namespace halfmark::kernels::software_gpu::cudnn
