#include "kernels/cuda/software_gpu/libraries/cudnn_engines.h"

#include <algorithm>
#include <array>

#include "kernels/cuda/software_gpu/libraries/planted_answers.h"

namespace halfmark::kernels::software_gpu::cudnn {
namespace {

constexpr int kWinograd = 3, kFft = 4, kReduced = 5, kDown = 6, kTensor = 1, kPlain = 0, kRandom = 2, kAttention = 7,
              kRandomAttention = 8, kOtherAttention = 9, kRandomNorm = 10, kNorm = 11, kTensorPool = 12, kPool = 13,
              kPointwise = 14, kWinogradFusion = 15, kTensorFusion = 16, kFusion = 17;

const std::vector<Engine>& engines() {
  static const std::vector<Engine> all{
      {kWinograd, {CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4}, 4},
      {kDown, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}, 16},
      {kReduced, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}, 16},
      {kFft, {CUDNN_NUMERICAL_NOTE_FFT}, 4},
      {kTensor, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, 16},
      {kPlain, {}, 1},
      {kRandom, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, 1},
      {kRandomAttention, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, 1},
      {kAttention, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, 1},
      {kOtherAttention, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, 1},
      {kRandomNorm, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, 1},
      {kNorm, {}, 1},
      {kTensorPool, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, 1},
      {kPool, {}, 1},
      {kPointwise, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, 1},
      {kWinogradFusion, {CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4}, 1},
      {kTensorFusion, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, 1},
      {kFusion, {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}, 1},
  };
  return all;
}

bool plain_window(const Problem& p) {
  return p.convolution.stride == std::array{1, 1} && p.convolution.dilation == std::array{1, 1};
}
bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

}  // namespace

const Engine* find_engine(int index) {
  for (const Engine& one : engines())
    if (one.index == index) return &one;
  return nullptr;
}

std::optional<Math> engine_math(const Engine& engine, const Problem& p) {
  Math math;
  if (p.dtype == DType::f64) math.multiply = math.accumulate = math.partial = kFp64;
  // "CUDNN_ATTR_CONVOLUTION_COMP_TYPE": FP16 sums are permitted, not promised; here they are FP16.
  if (p.convolution.compute == CUDNN_DATA_HALF) math.accumulate = math.partial = kFp16;
  const bool three = p.w.extents[2] == 3 && p.w.extents[3] == 3;
  switch (engine.index) {
    case kWinograd:
      return p.dtype != DType::f64 && three && plain_window(p) ? std::optional(math) : std::nullopt;
    case kFft:
      return !is_half(p.dtype) && plain_window(p) ? std::optional(math) : std::nullopt;
    case kDown:
      if (p.dtype != DType::f32) return {};
      math.multiply = kFp16;
      return math;
    case kReduced:
      if (p.dtype != DType::f16) return {};
      math.accumulate = math.partial = kFp16;
      return math;
    case kTensor:
      if (p.dtype == DType::f64 || (p.dtype != DType::f16 && p.architecture < 80)) return {};
      if (p.dtype == DType::f32) math.multiply = kTf32;
      return math;
    case kPlain:
    case kRandom:
      return math;
    default:
      return {};
  }
}

size_t engine_workspace(const Engine& engine, const Problem& p) {
  const auto columns = static_cast<size_t>(p.w.extents[1]) * static_cast<size_t>(p.w.extents[2] * p.w.extents[3]);
  if (engine.index == kPlain) return 0;
  return engine.index == kTensor ? 8 * columns : 16 * columns * static_cast<size_t>(p.w.extents[0]);
}

std::vector<int> listed_engines(const Problem& problem, cudnnBackendHeurMode_t mode, int64_t alignment) {
  std::vector<int> found;
  for (const Engine& one : engines()) {
    const bool is_fallback = one.index == kPlain || one.index == kRandom;
    if (mode == CUDNN_HEUR_MODE_FALLBACK && !is_fallback) continue;
    if (mode != CUDNN_HEUR_MODE_FALLBACK && one.index == kPlain && planted("only-with-notes")) continue;
    if (alignment < one.alignment || !engine_math(one, problem)) continue;  // engines of attention have none
    found.push_back(one.index);
  }
  return found;
}

// Tensor cores multiply FP32 as TF32, where they have that, and no doubles.
static std::vector<int> fusion_engines(const Formula& formula, int architecture) {
  const cudnnDataType_t type = formula.front().operands[0].type;
  if (type == CUDNN_DATA_DOUBLE || (type == CUDNN_DATA_FLOAT && architecture < 80)) return {kWinogradFusion, kFusion};
  return {kWinogradFusion, kTensorFusion, kFusion};
}
std::vector<int> formula_engines(const Formula& formula, int architecture) {
  if (has_fusion_engine(formula, architecture)) return fusion_engines(formula, architecture);
  if (has_pointwise_engine(formula, architecture)) return {kPointwise};
  if (!has_attention_engine(formula, architecture)) return {};
  return {kRandomAttention, kAttention, kOtherAttention};
}
std::vector<int> norm_engines() { return {kRandomNorm, kNorm}; }
std::vector<int> pool_engines(bool without_notes) {
  return without_notes ? std::vector{kPool, kTensorPool} : std::vector{kTensorPool};
}
std::vector<int> plain_pool_engines() { return {kPool}; }
FormulaEngine formula_engine(int engine, const Formula& formula) {
  return {.is_faulty = engine == kAttention || engine == kTensorFusion,
          .rounds_to_tf32 = engine == kTensorFusion && formula.front().operands[0].type == CUDNN_DATA_FLOAT};
}

}  // namespace halfmark::kernels::software_gpu::cudnn
