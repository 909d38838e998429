#include "kernels/cuda/blaslt_arithmetic.h"

#include <cstdlib>
#include <string_view>

namespace halfmark::kernels::cuda {
namespace {

constexpr uint64_t kFma = CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA, kHalf = CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA,
                   kDouble = CUBLASLT_NUMERICAL_IMPL_FLAGS_DMMA,
                   kAnyTensor = CUBLASLT_NUMERICAL_IMPL_FLAGS_TENSOR_OP_MASK,
                   kInput16 = CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F,
                   kInputTf32 = CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32,
                   kInput32 = CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F,
                   kInputs8 = CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_8F_E4M3 | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_8F_E5M2;

struct Flag {
  uint64_t flag;
  std::string_view name;
  Format format = kFp32;
};
constexpr Flag kOperations[] = {
    {kFma, "FMA"}, {kHalf, "HMMA"}, {CUBLASLT_NUMERICAL_IMPL_FLAGS_IMMA, "IMMA"}, {kDouble, "DMMA"}};
constexpr Flag kSums[] = {{CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F, "fp16"},
                          {CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F, "fp32"},
                          {CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_64F, "fp64"},
                          {CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32I, "int32"}};
constexpr Flag kInputs[] = {{kInput16, "fp16", kFp16},
                            {CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF, "bf16", kBf16},
                            {kInputTf32, "tf32", kTf32},
                            {CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F, "fp32", kFp32},
                            {CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_64F, "fp64", kFp64}};
constexpr Flag kOtherInputs[] = {{CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_8I, "int8"},
                                 {CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_8F_E4M3, "e4m3"},
                                 {CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_8F_E5M2, "e5m2"}};

bool is_fp8(DType dtype) { return dtype == DType::e4m3 || dtype == DType::e5m2; }
bool is_narrow(DType dtype) { return is_fp8(dtype) || dtype == DType::e2m1; }

bool holds_numbers(const Format& format, DType dtype) {
  const Format& stored = format_of(dtype);
  return format.exponent_bits >= stored.exponent_bits && format.fraction_bits >= stored.fraction_bits;
}

// The instructions' inputs that hold every number of the dtype. FP8 instructions read codes of either format as they are,
// and FP4 has no flag of its own.
uint64_t inputs_for(DType dtype) {
  uint64_t flags = 0;
  for (const Flag& input : kInputs)
    if (holds_numbers(input.format, dtype)) flags |= input.flag;
  return is_narrow(dtype) ? flags | kInputs8 : flags;
}

bool set_in_environment(const char* name) {
  const char* value = std::getenv(name);
  return value && *value;
}
bool tf32_switched_off() {
  const char* value = std::getenv("NVIDIA_TF32_OVERRIDE");
  return value && std::string_view(value) == "0";
}
// Any variable that may change what plain FP32 and FP64 mean to the library.
bool environment_meddles() {
  return (set_in_environment("NVIDIA_TF32_OVERRIDE") && !tf32_switched_off()) ||
         set_in_environment("CUBLAS_EMULATE_SINGLE_PRECISION") || set_in_environment("CUBLAS_EMULATE_DOUBLE_PRECISION");
}

std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}
Refusal needs_capability(int needed, int capability, std::string_view what) {
  if (capability >= needed) return {};
  return "needs compute capability " + capability_text(needed) + " for " + std::string(what) + ", this GPU has " +
         capability_text(capability);
}

// Partial sums as Math states them. Each has the same number of terms whatever the tile of the algorithm is: tiles are
// up to 128 deep.
Refusal split(const Math& math, DType out, int64_t depth, BlasltArithmetic& result) {
  if (math.split_k == 1) {
    // Both other schemes keep partial sums in the type of the result.
    if (math.partial == format_of(out) && math.partial != math.accumulate)
      result.reductions |= CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    return {};
  }
  constexpr int64_t kDeepest = 128;
  if (depth % (math.split_k * kDeepest) != 0)
    return "splits sums into equal parts only if each has a multiple of " + std::to_string(kDeepest) +
           " terms: k = " + std::to_string(depth) + " for split_k " + std::to_string(math.split_k) + " has not";
  result.split_k = math.split_k;
  if (math.partial == math.accumulate)
    result.reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  else if (math.partial == format_of(out))
    result.reductions = CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  else
    return "keeps partial sums of split-K in the format of the sums or of the result, not in " +
           std::string(math.partial.name);
  return {};
}

// FP8 by scalars, and FP4: products exact, sums fp32 (or what the instruction has, if fast accumulation is allowed).
Refusal narrow(int capability, DType a, DType b, DType out, const Math& math, BlasltArithmetic& result) {
  if (!is_narrow(b) || is_fp8(a) != is_fp8(b)) return "takes a and b both of fp8 or both of e2m1";
  if (a == DType::e5m2 && b == DType::e5m2) return "has no product of e5m2 and e5m2";
  if (Refusal r = needs_capability(is_fp8(a) ? 89 : 100, capability, name_of(a))) return r;
  if (out != DType::f32 && out != DType::f16 && out != DType::bf16)
    return "writes results of fp8 and e2m1 in f32, f16 or bf16, not in " + std::string(name_of(out));
  if (math.accumulate != kFp32)
    return "adds products of fp8 and e2m1 in fp32, not " + std::string(math.accumulate.name);
  if (!holds_numbers(math.multiply, a) || !holds_numbers(math.multiply, b))
    return "does not round " + std::string(name_of(a)) + " operands to " + std::string(math.multiply.name);
  if (math.split_k != 1) return "does not split sums of fp8 and e2m1: split_k must be 1";
  result.operations = kAnyTensor, result.may_not_state_inputs = a == DType::e2m1;
  result.sums = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F;
  return {};
}

Refusal wide(int capability, DType in, DType out, const Math& math, int64_t depth, BlasltArithmetic& result) {
  if (math.fast_accumulate) return "supports fast accumulation only for fp8";
  if (in == DType::bf16 || math.multiply == kTf32)
    if (Refusal r = needs_capability(80, capability, "bf16 and tf32")) return r;
  if (in == DType::f64) {
    if (out != DType::f64 || !holds_numbers(math.multiply, in) || math.accumulate != kFp64)
      return "computes f64 only in fp64";
    result.compute = environment_meddles() ? CUBLAS_COMPUTE_64F_PEDANTIC : CUBLAS_COMPUTE_64F;
    result.scale = CUDA_R_64F, result.reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    result.operations = kFma | kDouble, result.sums = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_64F;
    return split(math, out, depth, result);
  }
  if (math.accumulate == kFp16) {
    if (in != DType::f16 || out != DType::f16 || !holds_numbers(math.multiply, in))
      return "adds in fp16 only for f16,f16->f16";
    // The compute type is narrow here, so partial sums that were not asked for are not allowed: they would be rounded
    // once more.
    result.compute = CUBLAS_COMPUTE_16F, result.scale = CUDA_R_16F;
    result.operations = kFma | kHalf, result.sums = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F;
    return split(math, out, depth, result);
  }
  if (math.accumulate != kFp32) return "adds in fp32, fp16 or fp64, not " + std::string(math.accumulate.name);
  if (out != DType::f32 && out != in)
    return "writes results of " + std::string(name_of(in)) + " operands only in that dtype or in f32";
  result.reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  result.sums = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F;
  if (holds_numbers(math.multiply, in)) {
    // Tensor cores have no fp32 operands.
    result.operations = in == DType::f32 ? kFma : kFma | kHalf;
    if (in == DType::f32 && environment_meddles()) result.compute = CUBLAS_COMPUTE_32F_PEDANTIC;
    if (in == DType::bf16) result.inputs_a |= kInput16, result.inputs_b |= kInput16, result.must_prove_range = true;
    return split(math, out, depth, result);
  }
  if (in != DType::f32 || math.multiply != kTf32)
    return "does not round " + std::string(name_of(in)) + " operands to " + std::string(math.multiply.name);
  if (tf32_switched_off()) return "TF32 is switched off by NVIDIA_TF32_OVERRIDE=0";
  result.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  result.operations = kFma | kHalf, result.inputs_a = result.inputs_b = kInputTf32 | kInput32;
  result.must_prove_tf32 = true;
  result.may_not_state_inputs = true;
  return split(math, out, depth, result);
}

void append(std::string& text, uint64_t flags, auto&& rows) {
  for (const Flag& row : rows)
    if (flags & row.flag) text.append(text.empty() ? "" : " ").append(row.name);
}

}  // namespace

Refusal blaslt_arithmetic(int capability, DType a, DType b, DType out, const Math& math, int64_t depth,
                          BlasltArithmetic& result) {
  result = {};
  result.inputs_a = inputs_for(a), result.inputs_b = inputs_for(b);
  if (is_narrow(a)) return narrow(capability, a, b, out, math, result);
  if (a != b) return "takes a and b of one dtype";
  return wide(capability, a, out, math, depth, result);
}

std::vector<uint64_t> implementation_masks(const BlasltArithmetic& arithmetic) {
  if (!arithmetic.must_prove_tf32) return {allowed_flags(arithmetic)};
  return {kFma | kHalf | arithmetic.sums | kInputTf32, kHalf | arithmetic.sums | kInputTf32 | kInput32};
}

uint64_t allowed_flags(const BlasltArithmetic& arithmetic) {
  return arithmetic.operations | arithmetic.sums | arithmetic.inputs_a | arithmetic.inputs_b;
}

std::string broken_promise(const BlasltArithmetic& arithmetic, uint64_t flags) {
  const uint64_t operations = flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_OP_TYPE_MASK,
                 sums = flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_TYPE_MASK,
                 inputs = flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_OP_INPUT_TYPE_MASK;
  if (operations == 0 || (operations & ~arithmetic.operations) != 0) return "its instructions";
  if (sums != arithmetic.sums) return "its sums";
  // Multiply-adds that do not state tf32 are fp32.
  if (arithmetic.must_prove_tf32 && (operations & kFma) != 0 && inputs != kInputTf32) return "its inputs";
  const bool unstated = arithmetic.may_not_state_inputs && inputs == 0;
  if (!unstated && ((inputs & arithmetic.inputs_a) == 0 || (inputs & arithmetic.inputs_b) == 0)) return "its inputs";
  if (flags & ~allowed_flags(arithmetic)) return "further arithmetic";
  return {};
}

bool must_prove_range(const BlasltArithmetic& arithmetic, uint64_t flags) {
  return arithmetic.must_prove_range && (flags & kInput16) != 0;
}

bool must_prove_tf32(const BlasltArithmetic& arithmetic, uint64_t flags) {
  return arithmetic.must_prove_tf32 &&
         ((flags & (kFma | kInput32)) != 0 || (flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_OP_INPUT_TYPE_MASK) == 0);
}

std::string text_of_flags(uint64_t flags) {
  std::string operations, sums, inputs;
  append(operations, flags, kOperations), append(sums, flags, kSums);
  append(inputs, flags, kInputs), append(inputs, flags, kOtherInputs);
  const auto or_none = [](const std::string& text) { return text.empty() ? std::string("not stated") : text; };
  return or_none(operations) + ", sums " + or_none(sums) + ", inputs " + or_none(inputs);
}

cudaDataType_t blaslt_type(DType dtype) {
  if (dtype == DType::f64) return CUDA_R_64F;
  if (dtype == DType::f32) return CUDA_R_32F;
  if (dtype == DType::f16) return CUDA_R_16F;
  if (dtype == DType::bf16) return CUDA_R_16BF;
  if (dtype == DType::e4m3) return CUDA_R_8F_E4M3;
  if (dtype == DType::e5m2) return CUDA_R_8F_E5M2;
  if (dtype == DType::e2m1) return CUDA_R_4F_E2M1;
  throw Error("no cublasLt type for " + std::string(name_of(dtype)));
}

}  // namespace halfmark::kernels::cuda
