#include "kernels/cuda/software_gpu/libraries/cublaslt_algorithms.h"

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/software_gpu/libraries/planted_answers.h"

namespace halfmark::kernels::software_gpu::cublaslt {
namespace {

// Matrix instructions; for FP16 sums also ones with FP32 sums, because CUBLAS_COMPUTE_16F permits wider ones; ordinary
// multiply-adds. For TF32 on sm_90 also the slower matrix instructions of earlier architectures.
constexpr int kTensor = 1, kTensorWide = 2, kMultiplyAdd = 3, kEarlierTensor = 4;
constexpr int kIds[] = {kTensorWide, kTensor, kEarlierTensor, kMultiplyAdd};
constexpr int kMostSplits = 64;

uint64_t input_flag(cudaDataType_t type) {
  if (type == CUDA_R_16F) return CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F;
  if (type == CUDA_R_16BF) return CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF;
  if (type == CUDA_R_32F) return CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F;
  if (type == CUDA_R_64F) return CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_64F;
  if (type == CUDA_R_8F_E4M3) return CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_8F_E4M3;
  if (type == CUDA_R_8F_E5M2) return CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_8F_E5M2;
  return 0;  // FP4 has no flag
}

Format format_of_type(cudaDataType_t type) {
  const std::optional<DType> dtype = dtype_of(type);
  return dtype ? format_of(*dtype) : kFp32;
}

constexpr uint64_t kSums16 = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F,
                   kSums32 = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F,
                   kSums64 = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_64F;
constexpr uint64_t kHalf = CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA, kPlain = CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA;

std::optional<Numerics> fast_numerics(cublasComputeType_t compute, int id, int architecture) {
  if (compute == CUBLAS_COMPUTE_32F_FAST_16F)
    return Numerics{kHalf | kSums32 | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F, kFp16, kFp32};
  if (architecture < 80) return std::nullopt;
  if (compute == CUBLAS_COMPUTE_32F_FAST_16BF)
    return Numerics{kHalf | kSums32 | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF, kBf16, kFp32};
  constexpr uint64_t kIn32 = CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F,
                     kInTf32 = CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32;
  if (planted("multiplies-tf32-as-fp32")) return Numerics{kHalf | kSums32 | kIn32, kFp32, kFp32};
  // For products in TF32 by wgmma, cublasLt 13.1 on an H200 (sm_90) states multiply-adds.
  const bool by_wgmma = architecture == 90 && id == kTensor;
  if (by_wgmma && planted("names-fp32-tf32")) return Numerics{kPlain | kSums32 | kInTf32, kFp32, kFp32};
  if (planted("names-tf32-fp32")) return Numerics{kHalf | kSums32 | kIn32, kTf32, kFp32};
  return Numerics{(by_wgmma ? kPlain : kHalf) | kSums32 | kInTf32, kTf32, kFp32};
}

bool strides_fit(const Problem& p, const Algorithm& algorithm) {
  for (const Layout* layout : {&p.a, &p.b, &p.c, &p.d})
    if (!strides_aligned(*layout, alignment_of(algorithm, static_cast<cudaDataType_t>(layout->type)))) return false;
  return true;
}

// Partial sums take workspace in the type that the scheme names; sums in place take counters.
uint64_t workspace_of(const Problem& p, const Algorithm& algorithm) {
  if (algorithm.split_k <= 1) return 0;
  if (algorithm.reduction == CUBLASLT_REDUCTION_SCHEME_INPLACE) return 4096;
  const auto elements = static_cast<uint64_t>(p.m * p.n) * static_cast<uint64_t>(p.d.batch);
  const uint64_t bytes = algorithm.reduction == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE ? bytes_of(p.d, 2) / 2
                         : p.types->compute == Compute::wide                          ? 8
                         : p.types->compute == Compute::half                          ? 2
                                                                                      : 4;
  return elements * std::max<uint64_t>(bytes, 1) * static_cast<uint64_t>(algorithm.split_k);
}

}  // namespace

std::span<const int> algorithm_ids() { return kIds; }

std::optional<Numerics> numerics_of(const Algorithm& algorithm, int architecture) {
  const auto compute = static_cast<cublasComputeType_t>(algorithm.compute);
  const std::optional<Compute> kind = compute_of(compute);
  const auto a = static_cast<cudaDataType_t>(algorithm.a), b = static_cast<cudaDataType_t>(algorithm.b);
  if (!kind) return std::nullopt;
  const bool narrow = is_fp8(a) || is_fp4(a);
  const uint64_t inputs = input_flag(a) | input_flag(b);
  const Format format = narrow ? kFp32 : format_of_type(a);  // codes of narrow types are exact in FP32
  if (algorithm.id == kTensorWide)
    return *kind == Compute::half && !is_pedantic(compute)
               ? std::optional(Numerics{kHalf | kSums32 | inputs, kFp16, kFp32})
               : std::nullopt;
  if (algorithm.id == kEarlierTensor && (architecture != 90 || compute != CUBLAS_COMPUTE_32F_FAST_TF32))
    return std::nullopt;
  const bool tensor = algorithm.id == kTensor || algorithm.id == kEarlierTensor;
  if (!tensor && (algorithm.id != kMultiplyAdd || narrow)) return std::nullopt;
  switch (*kind) {
    case Compute::half:
      return Numerics{(tensor ? kHalf : kPlain) | kSums16 | inputs, kFp16, kFp16};
    case Compute::single:
      if (a == CUDA_R_16BF && (planted("names-bf16-fp16") || planted("multiplies-bf16-as-fp16")))
        return Numerics{(tensor ? kHalf : kPlain) | kSums32 | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F,
                        planted("names-bf16-fp16") ? kBf16 : kFp16, kFp32};
      // FP32 operands are not converted down for matrix instructions under CUBLAS_COMPUTE_32F.
      if (tensor && a == CUDA_R_32F) return std::nullopt;
      return Numerics{(tensor ? kHalf : kPlain) | kSums32 | inputs, format, kFp32};
    case Compute::fast:
      // Only permits narrower operands: without matrix instructions it is FP32.
      return tensor ? fast_numerics(compute, algorithm.id, architecture)
                    : std::optional(Numerics{kPlain | kSums32 | inputs, kFp32, kFp32});
    case Compute::wide:
      if (tensor && architecture < 80) return std::nullopt;  // DMMA: sm_80
      return Numerics{(tensor ? CUBLASLT_NUMERICAL_IMPL_FLAGS_DMMA : kPlain) | kSums64 | inputs, kFp64, kFp64};
  }
  return std::nullopt;
}

uint32_t alignment_of(const Algorithm& algorithm, cudaDataType_t type) {
  if (algorithm.id != kMultiplyAdd) return kWideAlignment;
  const std::optional<DType> dtype = dtype_of(type);
  return dtype && !is_packed(*dtype) ? static_cast<uint32_t>(size_of(*dtype)) : 1;
}

Algorithm initialised(const Problem& problem, int id) {
  Algorithm algorithm;
  algorithm.id = id;
  algorithm.compute = static_cast<uint8_t>(problem.description.compute);
  algorithm.scale = static_cast<uint8_t>(problem.description.scale);
  algorithm.a = static_cast<uint8_t>(problem.a.type), algorithm.b = static_cast<uint8_t>(problem.b.type);
  algorithm.c = static_cast<uint8_t>(problem.c.type), algorithm.d = static_cast<uint8_t>(problem.d.type);
  return algorithm;
}

cublasStatus_t check_algorithm(const Problem& problem, const Algorithm& algorithm, uint64_t& workspace) {
  const Algorithm expected = initialised(problem, algorithm.id);
  if (algorithm.compute != expected.compute || algorithm.scale != expected.scale || algorithm.a != expected.a ||
      algorithm.b != expected.b || algorithm.c != expected.c || algorithm.d != expected.d)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!numerics_of(algorithm, problem.architecture)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool splits = algorithm.split_k > 1;
  if (algorithm.split_k < 1 || algorithm.split_k > kMostSplits || algorithm.split_k > problem.k)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool one_scheme = algorithm.reduction == CUBLASLT_REDUCTION_SCHEME_INPLACE ||
                          algorithm.reduction == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE ||
                          algorithm.reduction == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  if (splits ? !one_scheme : algorithm.reduction != CUBLASLT_REDUCTION_SCHEME_NONE) return CUBLAS_STATUS_INVALID_VALUE;
  if (splits && problem.types->narrow()) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (algorithm.swizzle > 1 || algorithm.custom != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!strides_fit(problem, algorithm)) return CUBLAS_STATUS_NOT_SUPPORTED;
  workspace = workspace_of(problem, algorithm);
  return CUBLAS_STATUS_SUCCESS;
}

std::vector<Candidate> candidates(const Problem& problem, const Preference& preference) {
  std::vector<Candidate> found;
  for (const int id : kIds) {
    for (const uint32_t reduction : {CUBLASLT_REDUCTION_SCHEME_NONE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
                                     CUBLASLT_REDUCTION_SCHEME_INPLACE, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE}) {
      Algorithm algorithm = initialised(problem, id);
      algorithm.reduction = reduction;
      algorithm.split_k = reduction == CUBLASLT_REDUCTION_SCHEME_NONE ? 1 : 2;
      const bool ignores_masks = planted("ignores-mask");
      if (reduction != CUBLASLT_REDUCTION_SCHEME_NONE && !(preference.reductions & reduction) && !ignores_masks)
        continue;
      uint64_t workspace = 0;
      if (check_algorithm(problem, algorithm, workspace) != CUBLAS_STATUS_SUCCESS) continue;
      if (workspace > preference.workspace) continue;
      // "Filters heuristic result to only include algorithms that use the allowed implementations."
      if (numerics_of(algorithm, problem.architecture)->flags & ~preference.implementations && !ignores_masks) continue;
      const auto aligned = [&](const Layout& layout, uint32_t promised) {
        return promised >= alignment_of(algorithm, static_cast<cudaDataType_t>(layout.type));
      };
      if (!aligned(problem.a, preference.align_a) || !aligned(problem.b, preference.align_b) ||
          !aligned(problem.c, preference.align_c) || !aligned(problem.d, preference.align_d))
        continue;
      found.push_back({algorithm, workspace});
    }
  }
  if (planted("lists-backwards")) std::reverse(found.begin(), found.end());
  return found;
}

}  // namespace halfmark::kernels::software_gpu::cublaslt
