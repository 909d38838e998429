// The arithmetic of formulas. Sums are in fp64 and rounded to fp32; every result is rounded to the type of its tensor.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/cudnn_formula.h"
#include "kernels/cuda/software_gpu/libraries/planted_answers.h"
#include "kernels/cuda/software_gpu/libraries/reference.h"
#include "kernels/cuda/software_gpu/streams.h"
#include "kernels/number/format.h"

namespace halfmark::kernels::software_gpu::cudnn {
namespace {

using Extents = std::array<int64_t, 4>;
using Values = std::vector<double>;  // in the order of the axes

template <class F>
void each_place(const Extents& e, F f) {
  size_t i = 0;
  for (int64_t a = 0; a < e[0]; ++a)
    for (int64_t b = 0; b < e[1]; ++b)
      for (int64_t c = 0; c < e[2]; ++c)
        for (int64_t d = 0; d < e[3]; ++d) f(i++, Extents{a, b, c, d});
}
size_t count(const Extents& e) { return static_cast<size_t>(e[0] * e[1] * e[2] * e[3]); }
// The number of an element of a tensor; axes of extent 1 are for all.
size_t number(const Extents& extents, const Extents& place) {
  int64_t at = 0;
  for (size_t i = 0; i < 4; ++i) at = at * extents[i] + (extents[i] == 1 ? 0 : place[i]);
  return static_cast<size_t>(at);
}
int64_t offset(const Extents& strides, const Extents& place) {
  int64_t at = 0;
  for (size_t i = 0; i < 4; ++i) at += strides[i] * place[i];
  return at;
}

Extents packed_strides(const Extents& e) { return {e[1] * e[2] * e[3], e[2] * e[3], e[3], 1}; }

DType dtype_of(cudnnDataType_t type) {
  if (type == CUDNN_DATA_HALF) return DType::f16;
  if (type == CUDNN_DATA_BFLOAT16) return DType::bf16;
  if (type == CUDNN_DATA_FLOAT) return DType::f32;
  if (type == CUDNN_DATA_DOUBLE) return DType::f64;
  if (type == CUDNN_DATA_INT8) return DType::u8;  // of which only numbers up to 127 are used
  throw Fault(cudaErrorUnknown, "cuDNN: memory of data type " + std::to_string(static_cast<int>(type)));
}
bool is_whole(cudnnDataType_t type) { return type == CUDNN_DATA_INT32 || type == CUDNN_DATA_BOOLEAN; }
double rounded(double value, cudnnDataType_t type) {
  if (is_whole(type) || type == CUDNN_DATA_DOUBLE) return value;
  return round_to(format_of(dtype_of(type)), round_to(kFp32, value));
}

std::vector<int64_t> offsets_of(const FormulaTensor& tensor) {
  std::vector<int64_t> all(count(tensor.extents));
  each_place(tensor.extents, [&](size_t i, const Extents& place) { all[i] = offset(tensor.strides, place); });
  return all;
}

class Evaluation {
 public:
  Evaluation(const std::map<int64_t, void*>& pointers, const FormulaEngine& engine, bool writes, bool is_odd)
      : engine_(engine), writes_(writes), is_odd_(is_odd), pointers_(pointers) {}

  void step(const FormulaStep& step) {
    Values result = value_of(step);
    for (double& one : result) one = rounded(one, step.result.type);
    if (engine_.is_faulty) spoil(step, result);
    if (!step.result.is_virtual && writes_) write_tensor(step.result, pointers_.at(step.result.id), result);
    known_[step.result.id] = std::move(result);
  }

 private:
  // Planted faults.
  void spoil(const FormulaStep& step, Values& result) const {
    if (planted("attention-loses-nan"))
      for (double& one : result) one = std::isnan(one) ? 0 : one;
    if (step.kind == FormulaKind::convolution && planted("fusion-rounds-sums"))
      for (double& one : result) one = rounded(one, step.operands[0].type);
    if (step.result.is_virtual) return;
    if (planted("attention-loses-row-of-" + std::to_string(step.result.id)))
      std::fill(result.end() - static_cast<ptrdiff_t>(step.result.extents[3]), result.end(), 0);
    const bool is_half = step.result.type != CUDNN_DATA_FLOAT;  // fp32 results would be too far away
    if (is_odd_ && is_half && planted("attention-varies")) result[0] *= 1 + 0x1p-7;
  }

  const Values& operand(const FormulaTensor& tensor) {
    const auto [found, is_new] = known_.try_emplace(tensor.id);
    if (!is_new) return found->second;
    FormulaTensor read = tensor;
    if (engine_.is_faulty && tensor.strides[3] == 1 && planted("attention-ignores-strides"))
      read.strides = packed_strides(tensor.extents);
    return found->second = read_tensor(read, pointers_.at(tensor.id));
  }

  Values value_of(const FormulaStep& step) {
    switch (step.kind) {
      case FormulaKind::convolution:
        return convolution(step);
      case FormulaKind::pointwise:
        return pointwise(step);
      case FormulaKind::reduction:
        return reduction(step);
      case FormulaKind::product:
        return product(step);
      case FormulaKind::reshape:
        return reshape(step);
    }
    return {};
  }

  Values convolution(const FormulaStep& step) {
    Problem problem = *step.convolution;
    problem.dtype = dtype_of(step.operands[0].type);
    Math math;
    if (problem.dtype == DType::f64) math.multiply = math.accumulate = math.partial = kFp64;
    if (engine_.rounds_to_tf32) math.multiply = kTf32;
    problem.engine_math = math;
    return convolution_sums(problem, operand(step.operands[0]), Values(operand(step.operands[1])));
  }

  Values pointwise(const FormulaStep& step) {
    const FormulaTensor& y = step.result;
    Values result(count(y.extents));
    std::vector<const Values*> values;
    for (const FormulaTensor& one : step.operands) values.push_back(&operand(one));
    each_place(y.extents, [&](size_t i, const Extents& place) {
      const auto x = [&](size_t k) { return (*values[k])[number(step.operands[k].extents, place)]; };
      result[i] = one_value(step, x, place);
    });
    return result;
  }
  static double one_value(const FormulaStep& step, const auto& x, const Extents& place) {
    switch (step.mode) {
      case CUDNN_POINTWISE_EXP:
        return std::exp(x(0));
      case CUDNN_POINTWISE_LOG:
        return std::log(x(0));
      case CUDNN_POINTWISE_RSQRT:
        return 1 / std::sqrt(x(0));
      case CUDNN_POINTWISE_IDENTITY:
        return x(0);
      case CUDNN_POINTWISE_GEN_INDEX:
        return static_cast<double>(place[static_cast<size_t>(step.axis)]);
      case CUDNN_POINTWISE_ADD:
        return x(0) + x(1);
      case CUDNN_POINTWISE_SUB:
        return x(0) - x(1);
      case CUDNN_POINTWISE_MUL:
        return x(0) * x(1);
      case CUDNN_POINTWISE_DIV:
        return x(0) / x(1);
      case CUDNN_POINTWISE_RELU_FWD:
        return x(0) > 0 || (step.keeps_nan && std::isnan(x(0))) ? x(0) : 0;
      case CUDNN_POINTWISE_CMP_GE:
        return x(0) >= x(1) ? 1 : 0;
      case CUDNN_POINTWISE_BINARY_SELECT:
        return x(2) != 0 ? x(0) : x(1);
      default:
        throw Fault(cudaErrorUnknown, "cuDNN: a pointwise mode without arithmetic");
    }
  }

  Values reduction(const FormulaStep& step) {
    const bool adds = step.mode == CUDNN_REDUCE_TENSOR_ADD;
    Values result(count(step.result.extents), adds ? 0 : -HUGE_VAL);
    const Values& x = operand(step.operands[0]);
    each_place(step.operands[0].extents, [&](size_t i, const Extents& place) {
      double& into = result[number(step.result.extents, place)];
      into = adds ? into + x[i] : std::isnan(x[i]) || x[i] > into ? x[i] : into;
    });
    return result;
  }

  Values product(const FormulaStep& step) {
    const FormulaTensor &a = step.operands[0], &b = step.operands[1];
    const Values &left = operand(a), &right = operand(b);
    Values result(count(step.result.extents));
    const int64_t terms = a.extents[3] - (engine_.is_faulty && planted("attention-loses-keys") ? 1 : 0);
    each_place(step.result.extents, [&](size_t i, const Extents& place) {
      for (int64_t k = 0; k < terms; ++k)
        result[i] += left[number(a.extents, {place[0], place[1], place[2], k})] *
                     right[number(b.extents, {place[0], place[1], k, place[3]})];
    });
    return result;
  }

  // The same elements, as they would lie in memory.
  Values reshape(const FormulaStep& step) {
    const Values& x = operand(step.operands[0]);
    const std::vector<int64_t> from = offsets_of(step.operands[0]), to = offsets_of(step.result);
    std::map<int64_t, double> memory;
    for (size_t i = 0; i < from.size(); ++i) memory[from[i]] = x[i];
    Values result;
    for (const int64_t one : to) {
      const auto found = memory.find(one);
      if (found == memory.end()) throw Fault(cudaErrorUnknown, "cuDNN: a reshape to other places in memory");
      result.push_back(found->second);
    }
    return result;
  }

  FormulaEngine engine_;
  bool writes_, is_odd_;
  const std::map<int64_t, void*>& pointers_;
  std::map<int64_t, Values> known_;
};

// cuDNN checks neither of this: the engines of attention read and write vectors of as many bytes as the tensors promise to be
// aligned to, and results that share memory have the values of whichever is stored last.
void check_strides(const Formula& formula, const std::map<int64_t, void*>& pointers) {
  const auto is_product = [](const FormulaStep& step) { return step.kind == FormulaKind::product; };
  if (std::ranges::none_of(formula, is_product)) return;
  for (const FormulaTensor& one : memory_of(formula)) {
    if (one.by_value || one.type == CUDNN_DATA_FLOAT) continue;
    const auto size = static_cast<int64_t>(bytes_for(dtype_of(one.type), 1));
    for (size_t axis = 0; axis < 4; ++axis)
      if (one.extents[axis] > 1 && one.strides[axis] != 1 && one.strides[axis] * size % one.alignment != 0)
        throw Fault(cudaErrorMisalignedAddress, "cuDNN: rows of a head begin where vectors do not");
  }
  std::set<uintptr_t> written;
  for (const FormulaStep& step : formula) {
    if (step.result.is_virtual) continue;
    const auto begin = reinterpret_cast<uintptr_t>(pointers.at(step.result.id));
    const size_t size = bytes_for(dtype_of(step.result.type), 1);
    for (const int64_t place : offsets_of(step.result))
      if (!written.insert(begin + static_cast<uintptr_t>(place) * size).second)
        throw Fault(cudaErrorUnknown, "cuDNN: two numbers of results have one place in memory");
  }
}

}  // namespace

// In the order of memory, so that neighbours are checked together.
std::vector<double> read_tensor(const FormulaTensor& tensor, const void* memory) {
  if (tensor.by_value) {
    float value = 0;
    std::memcpy(&value, memory, sizeof value);
    return {value};
  }
  const std::vector<int64_t> at = offsets_of(tensor);
  std::vector<int64_t> sorted = at;
  std::ranges::sort(sorted);
  const Values in_order = read_runs(memory, dtype_of(tensor.type), sorted, 1);
  std::map<int64_t, double> by_offset;
  for (size_t i = 0; i < sorted.size(); ++i) by_offset[sorted[i]] = in_order[i];
  Values values;
  for (const int64_t one : at) values.push_back(by_offset[one]);
  return values;
}
void check_apart(const std::vector<FormulaTensor>& operands, const std::vector<FormulaTensor>& results,
                 const std::map<int64_t, void*>& pointers) {
  const auto whole = [&](const FormulaTensor& one) {
    return Runs{pointers.at(one.id), dtype_of(one.type), {0}, static_cast<int64_t>(count(one.extents))};
  };
  for (const FormulaTensor& result : results)
    for (const FormulaTensor& operand : operands)
      if (!operand.by_value) check_apart(whole(operand), whole(result));
}
void write_tensor(const FormulaTensor& tensor, void* memory, const std::vector<double>& values) {
  const std::vector<int64_t> at = offsets_of(tensor);
  std::map<int64_t, double> by_offset;
  for (size_t i = 0; i < at.size(); ++i) by_offset[at[i]] = values[i];
  std::vector<int64_t> sorted;
  Values in_order;
  for (const auto& [place, value] : by_offset) sorted.push_back(place), in_order.push_back(value);
  write_runs(memory, dtype_of(tensor.type), sorted, 1, in_order);
}

void compute(const Formula& formula, const std::map<int64_t, void*>& pointers, const FormulaEngine& engine) {
  static int runs = 0;
  static std::set<const Formula*> stored;  // what has been computed once
  check_strides(formula, pointers);
  const bool is_first = stored.insert(&formula).second;
  const bool writes = is_first || !engine.is_faulty || !planted("attention-writes-once");
  Evaluation evaluation(pointers, engine, writes, ++runs % 2 == 1);
  for (const FormulaStep& step : formula) evaluation.step(step);
}

}  // namespace halfmark::kernels::software_gpu::cudnn
